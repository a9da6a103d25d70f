"""Length-prefixed frames out of a stream of bytes: bytes in, frames out, never a socket."""

from __future__ import annotations

import struct

_LENGTH = struct.Struct(">i")


class FrameReader:
    """Gathers chunks until a frame is whole. However a stream is cut into chunks, it gives the same frames."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._chunks: list[bytes] = []
        self._held = 0
        self._wanted = _LENGTH.size  # of the bytes held, before there is anything to do
        self.fault: str | None = None  # why nothing after the frames so far can be trusted

    def feed(self, data: bytes) -> list[bytes]:
        """The frames that are whole now, without their lengths."""
        if self.fault is not None:
            return []
        self._chunks.append(data)
        self._held += len(data)
        if self._held < self._wanted:
            return []
        buffer = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        frames: list[bytes] = []
        at = 0
        self._wanted = _LENGTH.size
        while len(buffer) - at >= _LENGTH.size:
            length = _LENGTH.unpack_from(buffer, at)[0]
            if not 0 < length <= self._bytes_max:
                self.fault = f"a frame of {length} bytes; it must have 1 to {self._bytes_max}"
                at = len(buffer)
                break
            end = at + _LENGTH.size + length
            if end > len(buffer):
                self._wanted = _LENGTH.size + length
                break
            frames.append(buffer[at + _LENGTH.size : end])
            at = end
        rest = buffer[at:] if at else buffer
        self._chunks = [rest] if rest else []
        self._held = len(rest)
        return frames
