"""Length-prefixed frames out of a stream of bytes: bytes in, frames out, never a socket.

A large frame is received straight into a buffer of its own, so that its bytes are copied once. That buffer grows with what
has come, not with what was announced: whoever announces much and sends little holds little.
"""

from __future__ import annotations

import struct

_LENGTH = struct.Struct(">i")
SCRATCH_BYTES = 256 * 1024
_PIECE_BYTES_MAX = 1024 * 1024
_PIECE_RATIO = 4  # of what has come already

Frame = bytes | bytearray


class FrameReader:
    """However a stream is cut into chunks, it gives the same frames. `scratch` may be shared by all readers of an event
    loop: nothing is left in it between two calls."""

    def __init__(self, bytes_max: int, scratch: bytearray) -> None:
        self._bytes_max = bytes_max
        self._scratch = scratch
        self._rest = b""  # less than a length
        self._pieces: list[Frame] = []  # of the frame that is under way
        self._missing = 0  # bytes of it that no piece has room for yet
        self._filled = 0  # of the last piece
        self.fault: str | None = None  # why nothing after the frames so far can be trusted

    def buffer(self) -> memoryview:
        """Where the next bytes go; say with `received` how many came."""
        return memoryview(self._pieces[-1])[self._filled :] if self._pieces else memoryview(self._scratch)

    def received(self, count: int) -> list[Frame]:
        """The frames that are whole now, without their lengths."""
        if self.fault is not None:
            return []
        if not self._pieces:
            return self._split(bytes(memoryview(self._scratch)[:count]))
        self._filled += count
        if self._filled < len(self._pieces[-1]):
            return []
        if self._missing:
            self._add_piece()
            return []
        frame = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces = []
        return [frame]

    def _split(self, data: bytes) -> list[Frame]:
        """No frame is under way."""
        data = self._rest + data if self._rest else data
        frames: list[Frame] = []
        at = 0
        while len(data) - at >= _LENGTH.size:
            length = _LENGTH.unpack_from(data, at)[0]
            if not 0 < length <= self._bytes_max:
                self.fault = f"a frame of {length} bytes; it must have 1 to {self._bytes_max}"
                return frames
            at += _LENGTH.size
            if length > len(data) - at:
                self._begin(length, data[at:])
                self._rest = b""
                return frames
            frames.append(data[at : at + length])
            at += length
        self._rest = data[at:]
        return frames

    def _begin(self, length: int, first: bytes) -> None:
        size = min(length, _PIECE_BYTES_MAX, max(_PIECE_RATIO * len(first), 1_024))
        piece = bytearray(size)
        piece[: len(first)] = first
        self._pieces, self._filled, self._missing = [piece], len(first), length - size

    def _add_piece(self) -> None:
        size = min(self._missing, _PIECE_BYTES_MAX, _PIECE_RATIO * sum(map(len, self._pieces)))
        self._pieces.append(bytearray(size))
        self._filled = 0
        self._missing -= size
