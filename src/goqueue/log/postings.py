"""Where the records of each lane are: rising offsets per priority other than the normal one (docs/format/postings.md).

The lists are a cache over the log, made by looking at it from its start to some offset. A list is a file of blocks, with
the newest offsets in memory until they are written. Memory holds the first offset and the checksum of each block (12 bytes
for 4,096 records), so a search reads one block, and no block is believed that is not what was written.

One owner changes the lists (the event loop), any thread may search. As in the log, what blocks is split in three:
`begin_save` captures, the job's `run` writes in a thread, `finish_save` takes the result back.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from crc32c import crc32c

from goqueue.log.disk import Disk, File, read_file, replace_file
from goqueue.model.errors import invariant
from goqueue.model.priority import LANE_COUNT, NORMAL

LISTED_LANES: Final = tuple(lane for lane in range(LANE_COUNT) if lane != NORMAL)
META_NAME: Final = "postings.meta"
BLOCK_COUNT: Final = 4_096  # offsets
_NUMBER_BYTES: Final = 8
_BLOCK_BYTES: Final = BLOCK_COUNT * _NUMBER_BYTES
_REWRITE_BLOCKS_MIN: Final = 2  # a shorter list is not worth it
_MAGIC: Final = b"GQPL"
_VERSION: Final = 1
_META = struct.Struct(">4siqqi")  # magic, version, start, end, leader epoch
_LIST = struct.Struct(">qI")  # offset count, digest
_CRC = struct.Struct(">I")


class PostingsDamaged(Exception):
    """A file is not what was written to it. The lists must be made anew from the log."""


def list_name(lane: int) -> str:
    return f"lane-{lane}.postings"


# -------------------------------------------------------------------- one list


class _Stored(NamedTuple):
    """What is in a file. Never changed, only replaced: a search in another thread works on what it began with."""

    file: File | None
    entry_count: int
    firsts: array[int]  # of each block its first offset
    crcs: array[int]

    def digest(self) -> int:
        return crc32c(_big_endian(self.crcs))

    def block(self, index: int, *, cached_only: bool) -> array[int]:
        size = min(self.entry_count - index * BLOCK_COUNT, BLOCK_COUNT) * _NUMBER_BYTES
        if self.file is None:
            raise PostingsDamaged("a list has no file")
        data = self.file.read(index * _BLOCK_BYTES, size, cached_only=cached_only)
        if len(data) != size or crc32c(data) != self.crcs[index]:
            raise PostingsDamaged(f"block {index} of a list is damaged")
        return _numbers(data)

    def is_mostly_before(self, offset: int) -> bool:
        """Whether half of its blocks hold nothing from `offset` on."""
        count = len(self.firsts)
        return count >= _REWRITE_BLOCKS_MIN and self.firsts[count // 2] < offset

    def extended(self, file: File, numbers: array[int]) -> _Stored:
        """After these were written behind the others."""
        firsts, crcs = self.firsts[:], self.crcs[:]
        count = self.entry_count
        at = 0
        while at < len(numbers):
            filled = count % BLOCK_COUNT
            part = numbers[at : at + BLOCK_COUNT - filled]
            data = _big_endian(part)
            if filled:
                crcs[-1] = crc32c(data, crcs[-1])
            else:
                firsts.append(part[0])
                crcs.append(crc32c(data))
            count += len(part)
            at += len(part)
        return _Stored(file, count, firsts, crcs)


_EMPTY: Final = _Stored(None, 0, array("q"), array("I"))


class _View(NamedTuple):
    stored: _Stored
    tail: array[int]  # not in the file yet; only added to


class LaneList:
    def __init__(self, stored: _Stored = _EMPTY) -> None:
        self._view = _View(stored, array("q"))
        self._recent: tuple[_Stored, int, array[int]] = (_EMPTY, -1, array("q"))  # the block read last

    def __len__(self) -> int:
        view = self._view
        return view.stored.entry_count + len(view.tail)

    @property
    def stored(self) -> _Stored:
        return self._view.stored

    @property
    def tail(self) -> array[int]:
        return self._view.tail

    def add(self, offsets: array[int]) -> None:
        self._view.tail.extend(offsets)

    def find(self, start: int, end: int, count_max: int, *, cached_only: bool = False) -> list[int]:
        """Offsets in [start, end), lowest first."""
        view = self._view
        found: list[int] = []
        at = self._at(view, start, cached_only=cached_only)
        total = view.stored.entry_count + len(view.tail)
        while at < total and len(found) < count_max:
            numbers, base = self._part(view, at, cached_only=cached_only)
            stop = min(bisect_left(numbers, end), at - base + count_max - len(found))
            found += numbers[at - base : stop]
            if stop < len(numbers):
                break
            at = base + len(numbers)
        return found

    def count(self, start: int, end: int, *, cached_only: bool = False) -> int:
        """How many lie in [start, end)."""
        view = self._view
        first = self._at(view, start, cached_only=cached_only)
        return max(0, self._at(view, end, cached_only=cached_only) - first)

    def took(self, stored: _Stored, count: int) -> None:
        """So many of the tail are in the file now."""
        self._view = _View(stored, self._view.tail[count:])

    def cut(self, end: int) -> None:
        """Forget the offsets from `end` on. Blocks."""
        view = self._view
        kept = self._at(view, end, cached_only=False)
        stored, tail = view.stored, view.tail[: max(0, kept - view.stored.entry_count)]
        if kept < stored.entry_count and stored.file is not None:
            index = kept // BLOCK_COUNT
            last = stored.block(index, cached_only=False)[: kept % BLOCK_COUNT]
            stored.file.truncate(kept * _NUMBER_BYTES)
            whole = _Stored(stored.file, index * BLOCK_COUNT, stored.firsts[:index], stored.crcs[:index])
            stored = whole.extended(stored.file, last)
        self._view = _View(stored, tail)

    def live_blocks(self, start: int) -> Iterator[array[int]]:
        """What is in the file from offset `start` on. Blocks."""
        stored = self._view.stored
        first = max(0, bisect_left(stored.firsts, start) - 1)
        for index in range(first, len(stored.firsts)):
            numbers = stored.block(index, cached_only=False)
            yield numbers[bisect_left(numbers, start) :]

    def _at(self, view: _View, offset: int, *, cached_only: bool) -> int:
        """The position of the first entry that is not before `offset`."""
        stored, tail = view
        if not stored.entry_count or (tail and tail[0] < offset):
            return stored.entry_count + bisect_left(tail, offset)
        index = bisect_left(stored.firsts, offset) - 1
        if index < 0:
            return 0
        return index * BLOCK_COUNT + bisect_left(self._block(stored, index, cached_only=cached_only), offset)

    def _part(self, view: _View, at: int, *, cached_only: bool) -> tuple[array[int], int]:
        """The block, or the tail, that has position `at`, and the position where that begins."""
        if at >= view.stored.entry_count:
            return view.tail, view.stored.entry_count
        index = at // BLOCK_COUNT
        return self._block(view.stored, index, cached_only=cached_only), index * BLOCK_COUNT

    def _block(self, stored: _Stored, index: int, *, cached_only: bool) -> array[int]:
        known, known_index, numbers = self._recent
        if known is not stored or known_index != index:
            numbers = stored.block(index, cached_only=cached_only)
            self._recent = (stored, index, numbers)
        return numbers


# -------------------------------------------------------------------- all of them


class PostingLists:
    """The lists of one partition: complete for offsets [start, end)."""

    def __init__(self, disk: Disk, folder: str, start: int) -> None:
        self._disk = disk
        self._folder = folder
        self.start = start
        self.end = start
        self.lanes = {lane: LaneList() for lane in LISTED_LANES}

    @property
    def unsaved_count(self) -> int:
        return sum(len(one.tail) for one in self.lanes.values())

    def is_mostly_before(self, offset: int) -> bool:
        """Whether one of them is worth shortening where the log begins at `offset`."""
        return any(one.stored.is_mostly_before(offset) for one in self.lanes.values())

    def add(self, offsets: dict[int, array[int]], end: int) -> None:
        """What was found between the end so far and `end`."""
        invariant(end >= self.end, f"the lists of {self._folder} end at {self.end}, not at {end}")
        for lane, found in offsets.items():
            self.lanes[lane].add(found)
        self.end = end

    def cut(self, end: int) -> None:
        """The log ends there now. Blocks. What is on disk says more than is true until the next save, and is found out by
        the epoch or the digests if there is none."""
        for one in self.lanes.values():
            one.cut(end)
        self.end = min(self.end, end)

    # ---------------------------------------------------------------- saving

    def begin_save(self, log_start: int, epoch: int, *, is_durable: bool) -> SaveJob:
        """Write out what is in memory. A durable save also says how far the lists go, and shortens those of which more
        than half is before the start of the log."""
        lists = {lane: _ListJob(one, one.stored, one.tail[:]) for lane, one in self.lanes.items()}
        meta = _Meta(max(self.start, min(log_start, self.end)), self.end, epoch) if is_durable else None
        return SaveJob(self._disk, self._folder, lists, meta)

    def finish_save(self, job: SaveJob) -> None:
        """Also of a job that failed: what it did, it did."""
        for one in job.lists.values():
            if one.is_done:
                one.list.took(one.stored, len(one.added))
        if job.meta is not None:
            self.start = job.meta.start


class _Meta(NamedTuple):
    start: int
    end: int
    epoch: int  # under which the offset before `end` was written


@dataclass(slots=True)
class _ListJob:
    list: LaneList
    stored: _Stored
    added: array[int]
    is_done: bool = False


@dataclass(slots=True)
class SaveJob:
    disk: Disk
    folder: str
    lists: dict[int, _ListJob]
    meta: _Meta | None

    def run(self) -> None:
        for lane, one in self.lists.items():
            path = f"{self.folder}/{list_name(lane)}"
            if self.meta is not None and one.stored.is_mostly_before(self.meta.start):
                one.stored = self._rewritten(path, one, self.meta.start)
            elif one.added:
                one.stored = _appended(self.disk, path, one.stored, one.added)
            one.is_done = True
        if self.meta is not None:
            for one in self.lists.values():
                if one.stored.file is not None:
                    one.stored.file.sync()
            self.disk.sync_dir(self.folder)
            stored = [one.stored for one in self.lists.values()]
            replace_file(self.disk, f"{self.folder}/{META_NAME}", _encode_meta(self.meta, stored))

    def _rewritten(self, path: str, one: _ListJob, start: int) -> _Stored:
        temporary = f"{path}.tmp"
        self.disk.remove(temporary)
        file = self.disk.open(temporary, create=True)
        stored = _Stored(file, 0, array("q"), array("I"))
        for numbers in one.list.live_blocks(start):
            stored = _written(stored, file, numbers)
        stored = _written(stored, file, one.added)
        file.sync()
        self.disk.rename(temporary, path)
        return stored


def _appended(disk: Disk, path: str, stored: _Stored, numbers: array[int]) -> _Stored:
    file = stored.file or disk.open(path, create=True)
    if (
        file.size() != stored.entry_count * _NUMBER_BYTES
    ):  # what a failed write has left, or somebody before us
        file.truncate(stored.entry_count * _NUMBER_BYTES)
    return _written(stored, file, numbers)


def _written(stored: _Stored, file: File, numbers: array[int]) -> _Stored:
    if not numbers:
        return stored
    file.append([_big_endian(numbers)])
    return stored.extended(file, numbers)


# -------------------------------------------------------------------- loading


class Loaded(NamedTuple):
    lists: PostingLists
    epoch: int


def load_postings(disk: Disk, folder: str) -> Loaded | str | None:
    """The lists as they were saved last, checked; None where there are none, or what is wrong with them."""
    content = read_file(disk, f"{folder}/{META_NAME}")
    if content is None:
        return None
    size = _META.size + _LIST.size * len(LISTED_LANES)
    if len(content) != size + _CRC.size or _CRC.unpack_from(content, size)[0] != crc32c(content[:size]):
        return "the checksum of the lists' end does not match"
    magic, version, start, end, epoch = _META.unpack_from(content)
    if (magic, version) != (_MAGIC, _VERSION):
        return f"the lists are of version {version}, not {_VERSION}"
    lists = PostingLists(disk, folder, start)
    lists.end = end
    for at, lane in enumerate(LISTED_LANES):
        count, digest = _LIST.unpack_from(content, _META.size + at * _LIST.size)
        stored = _load_list(disk, f"{folder}/{list_name(lane)}", count)
        if stored is None or stored.digest() != digest:
            return f"the list of lane {lane} is missing or damaged"
        lists.lanes[lane] = LaneList(stored)
    return Loaded(lists, epoch)


def _load_list(disk: Disk, path: str, count: int) -> _Stored | None:
    if not count:
        return _EMPTY
    try:
        file = disk.open(path)
    except FileNotFoundError:
        return None
    size = count * _NUMBER_BYTES
    if file.size() < size:
        return None
    firsts, crcs = array("q"), array("I")
    for position in range(0, size, _BLOCK_BYTES):
        data = file.read(position, min(_BLOCK_BYTES, size - position))
        firsts.append(int.from_bytes(data[:_NUMBER_BYTES], "big", signed=True))
        crcs.append(crc32c(data))
    if file.size() > size:
        file.truncate(size)
    return _Stored(file, count, firsts, crcs)


def remove_postings(disk: Disk, folder: str) -> None:
    """What says how far they go first: lists alone mean nothing."""
    for name in (META_NAME, *map(list_name, LISTED_LANES)):
        disk.remove(f"{folder}/{name}")


def _encode_meta(meta: _Meta, lists: list[_Stored]) -> bytes:
    body = _META.pack(_MAGIC, _VERSION, meta.start, meta.end, meta.epoch)
    body += b"".join(_LIST.pack(one.entry_count, one.digest()) for one in lists)
    return body + _CRC.pack(crc32c(body))


def _big_endian(numbers: array[int]) -> bytes:
    return _swapped(numbers[:]).tobytes()


def _numbers(data: bytes) -> array[int]:
    return _swapped(array("q", data))


def _swapped(numbers: array[int]) -> array[int]:
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers
