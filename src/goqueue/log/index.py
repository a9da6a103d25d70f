"""The sparse index of one segment: offset to file position, and timestamp to offset.

Both are Kafka's formats (`.index`: relative last offset and position of a batch, two int32; `.timeindex`:
largest timestamp so far, int64, and the relative offset where it was reached, int32) with one entry per
4 KiB of log. They are caches: whatever is wrong with one, the log can rebuild it. They are synced all the same before they
are relied on: an index cut short would still look well-formed, and say that a segment is older than it is.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from itertools import pairwise
from typing import NamedTuple

from goqueue.log.batch import BatchHeader
from goqueue.log.disk import Disk, read_file, replace_file

OFFSET_ENTRY_BYTES = 8
TIME_ENTRY_BYTES = 12
_IS_LITTLE = sys.byteorder == "little"
_TIME_ENTRY = struct.Struct(">qi")


class IndexEntry(NamedTuple):
    """A batch that starts at `position` and whose last offset is `last_offset`."""

    last_offset: int
    position: int


class SegmentIndex:
    """Built by appending in log order; looked up by bisection. Appends by one owner, lookups from any thread."""

    def __init__(self, base_offset: int, interval_bytes: int) -> None:
        self._base_offset = base_offset
        self._interval_bytes = interval_bytes
        self._bytes_since_entry = 0
        self._last_offsets = array("i")
        self._positions = array("i")
        self._times = array("q")
        self._time_offsets = array("i")
        self.max_timestamp = -1
        self._max_timestamp_offset = base_offset

    def note(self, header: BatchHeader, position: int) -> None:
        """Take the batch at `position`."""
        self.note_append(header.last_offset, header.max_timestamp, position, header.size)

    def note_append(self, last_offset: int, max_timestamp: int, position: int, size: int) -> None:
        """Take a batch that was appended at `position`; every `interval_bytes` one becomes an entry."""
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self._max_timestamp_offset = last_offset
        if self._bytes_since_entry >= self._interval_bytes:
            self._last_offsets.append(last_offset - self._base_offset)
            self._positions.append(position)
            self._note_time()
            self._bytes_since_entry = 0
        self._bytes_since_entry += size

    def seal(self) -> None:
        """End with an entry for the largest timestamp, so that the segment's own is in its last entry."""
        self._note_time()

    def cut(self, end_offset: int, end_position: int) -> None:
        """Forget what lies at or behind this end; the largest timestamp is then that of the last entry."""
        keep = bisect_left(self._positions, end_position)
        del self._last_offsets[keep:], self._positions[keep:]
        keep = len(self._times)
        while keep and self._base_offset + self._time_offsets[keep - 1] >= end_offset:
            keep -= 1
        del self._times[keep:], self._time_offsets[keep:]
        self.max_timestamp = self._times[-1] if self._times else -1
        self._max_timestamp_offset = self._base_offset + (self._time_offsets[-1] if self._times else 0)
        self._bytes_since_entry = 0

    def _note_time(self) -> None:
        if self.max_timestamp > (self._times[-1] if self._times else -1):  # -1: no batch has a timestamp
            self._times.append(self.max_timestamp)
            self._time_offsets.append(self._max_timestamp_offset - self._base_offset)

    def before_offset(self, offset: int) -> IndexEntry | None:
        """The last indexed batch that ends at or before `offset`; None: start at the segment's beginning."""
        at = bisect_right(self._last_offsets, offset - self._base_offset) - 1
        return (
            IndexEntry(self._base_offset + self._last_offsets[at], self._positions[at]) if at >= 0 else None
        )

    def before_time(self, timestamp: int) -> tuple[int, int] | None:
        """The last entry below `timestamp`: every record before the batch that ends at its offset is older.
        None: start at the segment's beginning."""
        at = bisect_left(self._times, timestamp) - 1
        return (self._times[at], self._base_offset + self._time_offsets[at]) if at >= 0 else None

    def last_entry(self) -> IndexEntry | None:
        if not self._positions:
            return None
        return IndexEntry(self._base_offset + self._last_offsets[-1], self._positions[-1])

    def last_time(self) -> tuple[int, int] | None:
        """The largest timestamp and the last offset of the batch that has it."""
        return (self._times[-1], self._base_offset + self._time_offsets[-1]) if self._times else None

    def entries(self) -> list[IndexEntry]:
        return [
            IndexEntry(self._base_offset + relative, position)
            for relative, position in zip(self._last_offsets, self._positions, strict=True)
        ]

    def time_entries(self) -> list[tuple[int, int]]:
        """(largest timestamp so far, offset where it was reached)"""
        return [
            (timestamp, self._base_offset + relative)
            for timestamp, relative in zip(self._times, self._time_offsets, strict=True)
        ]

    def encode(self) -> tuple[bytes, bytes]:
        """The contents of the `.index` and the `.timeindex` file."""
        pairs = array("i", bytes(OFFSET_ENTRY_BYTES * len(self._last_offsets)))
        pairs[0::2], pairs[1::2] = self._last_offsets, self._positions
        if _IS_LITTLE:
            pairs.byteswap()
        times = b"".join(map(_TIME_ENTRY.pack, self._times, self._time_offsets))
        return pairs.tobytes(), times

    @classmethod
    def decode(
        cls, base_offset: int, interval_bytes: int, offset_bytes: bytes, time_bytes: bytes
    ) -> SegmentIndex | None:
        """The index in these files, or None where they cannot be one."""
        if len(offset_bytes) % OFFSET_ENTRY_BYTES or len(time_bytes) % TIME_ENTRY_BYTES:
            return None
        index = cls(base_offset, interval_bytes)
        pairs = array("i", offset_bytes)
        if _IS_LITTLE:
            pairs.byteswap()
        index._last_offsets, index._positions = pairs[0::2], pairs[1::2]
        for timestamp, relative in _TIME_ENTRY.iter_unpack(time_bytes):
            index._times.append(timestamp)
            index._time_offsets.append(relative)
        if not (_rises(index._last_offsets) and _rises(index._positions) and _rises(index._times)):
            return None
        if index._times:
            index.max_timestamp = index._times[-1]
            index._max_timestamp_offset = base_offset + index._time_offsets[-1]
        return index


def _rises(numbers: array[int]) -> bool:
    return all(first < second for first, second in pairwise(numbers)) and (not numbers or numbers[0] >= 0)


def save_index(disk: Disk, prefix: str, encoded: tuple[bytes, bytes]) -> None:
    """Replace both files, durably."""
    for suffix, content in zip((".index", ".timeindex"), encoded, strict=True):
        replace_file(disk, prefix + suffix, content)


def load_index(disk: Disk, prefix: str, base_offset: int, interval_bytes: int) -> SegmentIndex | None:
    offset_bytes = read_file(disk, f"{prefix}.index")
    time_bytes = read_file(disk, f"{prefix}.timeindex")
    if offset_bytes is None or time_bytes is None:
        return None
    return SegmentIndex.decode(base_offset, interval_bytes, offset_bytes, time_bytes)
