"""Walking the batches of a segment, and finding the way again where bytes are damaged.

The offsets of a log's batches tile it, so a walk knows which offset must come next. A batch is sound if its
frame is possible, it starts at that offset, it carries the leader epoch that the log's history has for it,
and (where asked) its checksum matches. Anything else is `Damage`: the walk looks for the next sound batch
behind it and reports the range in between. Nothing is ever skipped without being reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from crc32c import crc32c

from goqueue.log.batch import (
    CHECKED_FROM,
    HEADER_BYTES,
    MAGIC,
    BatchHeader,
    assemble,
    crc_matches,
    frame_problem,
    read_header,
)
from goqueue.log.disk import File

_MAGIC_AT = 16
_OFFSET_JUMP_MAX = 2**31
_SEARCH_BYTES = 4 * 1024 * 1024

EpochOf = Callable[[int], int | None]


class Found(NamedTuple):
    """A sound batch. `data` holds its bytes where the walk checked them, else only its header's."""

    position: int
    header: BatchHeader
    data: memoryview


class Damage(NamedTuple):
    """Bytes that are no batch: offsets [start, end) are lost. `end` is None if nothing sound follows."""

    start: int
    end: int | None
    position: int
    next_position: int
    reason: str


def is_all_there(content: bytes) -> bool:
    """Whether the last batch of a file was written whole, though it has a wrong bit: either that is before what the
    checksum covers, and the rest can be believed, or the batch fits the file exactly."""
    if len(content) < HEADER_BYTES:
        return False
    header = read_header(content)
    fits = header.size == len(content) and header.magic == MAGIC
    return fits or crc32c(content[CHECKED_FROM:]) == header.crc


def offset_count(content: bytes) -> int | None:
    """How many offsets the last batch of a log took, if it is all there but has a wrong bit. None: it is torn.

    Of its two counts that one is right which makes the checksum match."""
    if not is_all_there(content):
        return None
    header = read_header(content)
    counts = (header.last_offset_delta + 1, header.record_count)
    if crc32c(content[CHECKED_FROM:]) == header.crc:
        return counts[0]
    if counts[0] == counts[1] > 0:
        return counts[0]
    return next((count for count in counts if _is_count(content, header, count)), None)


def _is_count(content: bytes, header: BatchHeader, count: int) -> bool:
    if not 0 < count < _OFFSET_JUMP_MAX:
        return False
    mended = assemble(
        header._replace(last_offset_delta=count - 1, record_count=count), content[HEADER_BYTES:]
    )
    return read_header(mended).crc == header.crc


class Scanner:
    """One walk over one file of `size` bytes."""

    def __init__(
        self,
        file: File,
        size: int,
        *,
        check_crc: bool,
        window_bytes: int = 1024 * 1024,
        epoch_of: EpochOf | None = None,
        cached_only: bool = False,
    ) -> None:
        self._file = file
        self._size = size
        self._check_crc = check_crc
        self._window_bytes = window_bytes
        self._epoch_of = epoch_of
        self._cached_only = cached_only
        self._window = memoryview(b"")
        self._window_at = 0

    def scan(self, position: int, expected: int) -> Iterator[Found | Damage]:
        """Every batch from `position` on, where `expected` is the base offset of the first."""
        while position < self._size:
            found = self._batch_at(position, expected)
            if isinstance(found, Found):
                yield found
                position += found.header.size
                expected = found.header.end_offset
                continue
            damage = self._damage_at(position, expected, reason=found)
            yield damage
            if damage.end is None:
                return
            position, expected = damage.next_position, damage.end

    def take(self, position: int, expected: int, *, end: int, bytes_max: int) -> list[Found]:
        """The sound batches from `position` that start before offset `end`, up to `bytes_max` bytes but one at
        least, by a single read in the usual case. Empty if the very first is damaged."""
        self._window_bytes = bytes_max
        taken: list[Found] = []
        loaded_end = position
        while position < self._size and expected < end:
            if taken and position + HEADER_BYTES > loaded_end:
                break
            if taken and position + read_header(self._window, position - self._window_at).size > loaded_end:
                break
            found = self._batch_at(position, expected)
            if not isinstance(found, Found):
                break
            taken.append(found)
            position += found.header.size
            expected = found.header.end_offset
            loaded_end = self._window_at + len(self._window)
        return taken

    def _batch_at(self, position: int, expected: int) -> Found | str:
        if self._size - position < HEADER_BYTES:
            return f"{self._size - position} bytes are too few for a batch"
        at = self._load(position, HEADER_BYTES)
        header = read_header(self._window, at)
        problem = frame_problem(header)
        if problem:
            return problem
        if header.base_offset != expected:
            return f"base offset is {header.base_offset} where {expected} must be"
        if header.size > self._size - position:
            return f"the batch needs {header.size} bytes; {self._size - position} are left"
        if not self._epoch_fits(header):
            return f"leader epoch {header.leader_epoch} is not that of offset {expected}"
        if not self._check_crc:
            return Found(position, header, self._window[at : at + HEADER_BYTES])
        at = self._load(position, header.size)
        if not crc_matches(self._window, at, header):
            return "the checksum does not match"
        return Found(position, header, self._window[at : at + header.size])

    def _epoch_fits(self, header: BatchHeader) -> bool:
        known = self._epoch_of(header.base_offset) if self._epoch_of is not None else None
        return known is None or known == header.leader_epoch

    def _load(self, position: int, size: int) -> int:
        """Have [position, position + size) in the window; where in it that starts."""
        at = position - self._window_at
        if at < 0 or at + size > len(self._window):
            length = min(max(size, self._window_bytes), self._size - position)
            self._window = memoryview(self._file.read(position, length, cached_only=self._cached_only))
            self._window_at = position
            if len(self._window) < size:
                raise OSError(f"read {len(self._window)} bytes at {position} where the file has {size}")
            at = 0
        return at

    def _damage_at(self, position: int, expected: int, *, reason: str) -> Damage:
        # Without checksums there is no telling what is sound: such a walk ends here.
        found = self._next_sound(position + 1, expected) if self._check_crc else None
        if found is None:
            return Damage(expected, None, position, self._size, reason)
        return Damage(expected, found.header.base_offset, position, found.position, reason)

    def _next_sound(self, position: int, expected: int) -> Found | None:
        """The first sound batch at or after `position` that starts at or after offset `expected`."""
        magic = bytes([MAGIC])
        while self._size - position >= HEADER_BYTES:
            block = self._file.read(position, _SEARCH_BYTES + HEADER_BYTES)
            at = block.find(magic, _MAGIC_AT)
            while at != -1 and at - _MAGIC_AT + HEADER_BYTES <= len(block):
                candidate = self._candidate(block, at - _MAGIC_AT, position, expected)
                if candidate is not None:
                    return candidate
                at = block.find(magic, at + 1)
            position += _SEARCH_BYTES
        return None

    def _candidate(self, block: bytes, at: int, block_position: int, expected: int) -> Found | None:
        header = read_header(block, at)
        position = block_position + at
        if frame_problem(header) or header.size > self._size - position:
            return None
        if not 0 <= header.base_offset - expected < _OFFSET_JUMP_MAX:
            return None
        if not self._epoch_fits(header):
            return None
        data = self._file.read(position, header.size)
        return Found(position, header, memoryview(data)) if crc_matches(data, 0, header) else None
