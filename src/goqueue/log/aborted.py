"""Which transactions of a partition were aborted: an index over its abort markers (docs/format/aborted.md).

Readers of committed data need it, for an aborted record looks like any other. An entry is four numbers: the producer,
the first offset of the transaction, the offset of its marker, and the last stable offset once the marker was there.
Entries come in the order of their markers. Every transaction that ended after one of them began at or after its last
stable offset, which is where a search may stop.

The file is a cache: what it says can be read off the log again.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from crc32c import crc32c

from goqueue.log.batch import BatchHeader
from goqueue.log.control import Marker, read_marker
from goqueue.log.disk import Disk, read_file, replace_file
from goqueue.model.errors import InvalidBatch

FILE_NAME = "aborted.index"
_MAGIC = b"GQAB"
_VERSION = 1
_HEAD = struct.Struct(">4siq")  # magic, version, entry count
_CRC = struct.Struct(">I")
_FIELD_COUNT = 4
_ENTRY_BYTES = 8 * _FIELD_COUNT


class Aborted(NamedTuple):
    """One aborted transaction."""

    producer_id: int
    first_offset: int
    last_offset: int  # of its marker
    last_stable_offset: int  # when the marker was written


class Digest(NamedTuple):
    """What a checkpoint remembers of the entries that it relies on."""

    entry_count: int
    crc: int


class AbortedIndex:
    """Entries in one array, which is only ever added to or replaced: a copy may be taken in any thread."""

    def __init__(self, numbers: array[int] | None = None, *, is_saved: bool = True) -> None:
        self._numbers = array("q") if numbers is None else numbers
        self._change_count = 0
        self._saved_at = 0 if is_saved else -1

    def __len__(self) -> int:
        return len(self._numbers) // _FIELD_COUNT

    def __iter__(self) -> Iterator[Aborted]:
        numbers = self._numbers
        return (Aborted(*numbers[at : at + _FIELD_COUNT]) for at in range(0, len(numbers), _FIELD_COUNT))

    def add(self, entry: Aborted) -> None:
        self._numbers.extend(entry)
        self._change_count += 1

    def overlapping(self, start: int, end: int) -> list[Aborted]:
        """The transactions with records in offsets [start, end), some perhaps with none."""
        numbers = self._numbers
        found: list[Aborted] = []
        for at in range(self._at(start) * _FIELD_COUNT, len(numbers), _FIELD_COUNT):
            entry = Aborted(*numbers[at : at + _FIELD_COUNT])
            if entry.first_offset < end:
                found.append(entry)
            if entry.last_stable_offset >= end:
                break
        return found

    def forget_before(self, offset: int) -> None:
        """The transactions whose marker is before an offset: nobody reads there any more."""
        self._replace(self._numbers[self._at(offset) * _FIELD_COUNT :])

    def forget_from(self, offset: int) -> None:
        """The transactions that had not ended yet at an offset."""
        self._replace(self._numbers[: self._at(offset) * _FIELD_COUNT])

    def forget(self, last_offsets: set[int]) -> None:
        """The transactions with these markers: compaction has left no record of them."""
        if not last_offsets:
            return
        kept = [number for entry in self if entry.last_offset not in last_offsets for number in entry]
        self._replace(array("q", kept))

    def _replace(self, numbers: array[int]) -> None:
        if len(numbers) != len(self._numbers):
            self._numbers = numbers
            self._change_count += 1

    def digest(self, start: int, end: int) -> Digest:
        """Of the entries whose marker is in offsets [start, end)."""
        part = self._numbers[self._at(start) * _FIELD_COUNT : self._at(end) * _FIELD_COUNT]
        return Digest(len(part) // _FIELD_COUNT, crc32c(_big_endian(part)))

    def copy(self) -> AbortedIndex:
        return AbortedIndex(self._numbers[:])

    def _at(self, offset: int) -> int:
        """The position of the first entry whose marker is at or behind an offset."""
        numbers = self._numbers
        return bisect_left(range(len(numbers) // _FIELD_COUNT), offset, key=lambda at: numbers[4 * at + 2])

    # ---------------------------------------------------------------- its file

    @property
    def change_count(self) -> int:
        return self._change_count

    @property
    def is_saved(self) -> bool:
        return self._saved_at == self._change_count

    def saved(self, change_count: int) -> None:
        """What it was after so many changes is on disk."""
        self._saved_at = change_count

    def encode(self) -> bytes:
        body = _HEAD.pack(_MAGIC, _VERSION, len(self)) + _big_endian(self._numbers)
        return body + _CRC.pack(crc32c(body))


def save_aborted(disk: Disk, folder: str, index: AbortedIndex) -> None:
    replace_file(disk, f"{folder}/{FILE_NAME}", index.encode())


def empty_aborted(disk: Disk, folder: str) -> AbortedIndex:
    """One to begin anew with. It replaces the file, if there is one."""
    return AbortedIndex(is_saved=read_file(disk, f"{folder}/{FILE_NAME}") is None)


def load_aborted(disk: Disk, folder: str) -> AbortedIndex | str:
    """The index, empty where there is no file; or what is wrong with the file."""
    content = read_file(disk, f"{folder}/{FILE_NAME}")
    return AbortedIndex() if content is None else decode_aborted(content)


def decode_aborted(content: bytes) -> AbortedIndex | str:
    size = len(content) - _HEAD.size - _CRC.size
    if size < 0 or _CRC.unpack_from(content, len(content) - _CRC.size)[0] != crc32c(content[: -_CRC.size]):
        return "the checksum of the index of aborted transactions does not match"
    magic, version, count = _HEAD.unpack_from(content)
    if (magic, version, count * _ENTRY_BYTES) != (_MAGIC, _VERSION, size):
        return f"the index of aborted transactions cannot be read: version {version}, {count} entries, {size} bytes"
    numbers = array("q", content[_HEAD.size : -_CRC.size])
    return AbortedIndex(_swapped(numbers))


def _big_endian(numbers: array[int]) -> bytes:
    return _swapped(numbers[:]).tobytes()


def _swapped(numbers: array[int]) -> array[int]:
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers


# ---------------------------------------------------------------- using it


class AbortedSpans:
    """Which batches belong to an aborted transaction: those of its producer from its first offset to its marker."""

    def __init__(self, entries: Iterable[Aborted]) -> None:
        self._spans: dict[int, list[tuple[int, int]]] = {}  # by producer; of one they never overlap
        for entry in entries:
            span = (entry.first_offset, entry.last_offset)
            self._spans.setdefault(entry.producer_id, []).append(span)

    def cover(self, header: BatchHeader) -> bool:
        if not header.is_transactional or header.is_control:
            return False
        spans = self._spans.get(header.producer_id)
        if spans is None:
            return False
        at = bisect_right(spans, header.base_offset, key=lambda span: span[0]) - 1
        return at >= 0 and header.base_offset <= spans[at][1]


class TransactionWalk:
    """Reads the transactions off a log, batch by batch from its start: what is open, and what was aborted. It knows
    nothing of producers, so that also what cannot ask their table may use it."""

    def __init__(self, aborted: AbortedIndex | None = None) -> None:
        self.open: dict[int, int] = {}  # producer to first offset
        self.aborted = AbortedIndex() if aborted is None else aborted
        self.bare_markers: set[int] = (
            set()
        )  # offsets of those that end a transaction of which no batch is left

    def note(self, header: BatchHeader, data: bytes | memoryview) -> Marker | None:
        """The marker, if the batch is one. A control batch that makes no sense ends nothing."""
        if not header.is_control:
            if header.is_transactional:
                self.open.setdefault(header.producer_id, header.base_offset)
            return None
        try:
            marker = read_marker(data, header)
        except InvalidBatch:
            return None
        if marker is not None:
            self._end(header, marker)
        return marker

    def _end(self, header: BatchHeader, marker: Marker) -> None:
        first_offset = self.open.pop(header.producer_id, None)
        if first_offset is None:
            self.bare_markers.add(header.base_offset)
        elif not marker.is_commit:
            stable = next(iter(self.open.values()), header.end_offset)  # they began in this order
            self.aborted.add(Aborted(header.producer_id, first_offset, header.last_offset, stable))
