"""What comes next for one group in one partition: records read ahead of the cursors of its lanes.

The normal lane is the log itself, read in order, without what stands in other lanes. The other lanes have lists of the
offsets of their records, so that a critical one is found at once behind millions that are not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from hashlib import blake2b
from itertools import islice
from typing import Final, Protocol

from goqueue.core.lease.decisions import Fresh, Offer
from goqueue.core.lease.window import NO_KEY
from goqueue.log.batch import decode_batch
from goqueue.model.priority import LANE_COUNT, NORMAL, PRIORITY_HEADER, lane_of
from goqueue.model.record import StoredRecord
from goqueue.node.partition import Partition

_FETCH_BYTES: Final = 256 * 1024
_AHEAD_BYTES_MAX: Final = 4 * 1024 * 1024  # of records of one lane that wait here


class Postings(Protocol):
    """Where the records of the lanes other than the normal one are."""

    async def find(self, lane: int, start: int, end: int, count_max: int) -> list[int]:
        """Offsets of a lane in [start, end), lowest first. Some may be gone from the log."""

    async def depth(self, lane: int, start: int, end: int) -> int:
        """How many of them have been found so far."""


class NoPostings:
    async def find(self, lane: int, start: int, end: int, count_max: int) -> list[int]:
        return []

    async def depth(self, lane: int, start: int, end: int) -> int:
        return 0


class _Lane:
    def __init__(self, start: int) -> None:
        self.begin(start)

    def begin(self, start: int) -> None:
        self.start = start  # everything from here on to `end` that is in the lane is in `records`
        self.end = start
        self.records: deque[StoredRecord] = deque()
        self.size_bytes = 0

    def add(self, record: StoredRecord) -> None:
        self.records.append(record)
        self.size_bytes += _size(record)

    def move_to(self, cursor: int) -> None:
        if not self.start <= cursor <= self.end:
            self.begin(cursor)
            return
        self.start = cursor
        while self.records and self.records[0].offset < cursor:
            self.size_bytes -= _size(self.records.popleft())


class Feed:
    def __init__(self, partition: Partition, postings: Postings) -> None:
        self._partition = partition
        self._postings = postings
        self._lanes = [_Lane(0) for _ in range(LANE_COUNT)]

    def move_to(self, cursors: tuple[int, ...]) -> None:
        for lane, cursor in zip(self._lanes, cursors, strict=True):
            lane.move_to(cursor)

    @property
    def end(self) -> int:
        """Up to here everything was looked at in every lane."""
        return min(lane.end for lane in self._lanes)

    def ends(self) -> tuple[int, ...]:
        """Of each lane: its next record, or how far it was looked at in vain."""
        return tuple(lane.records[0].offset if lane.records else lane.end for lane in self._lanes)

    async def fill(self, count: int) -> None:
        """Until each lane has so many records, or as many as there are. One caller at a time."""
        for index, lane in enumerate(self._lanes):
            if index == NORMAL:
                await self._fill_normal(lane, count)
            else:
                await self._fill_other(index, lane, count)

    def offer(self, count: int, *, keeps_key_order: bool) -> Offer:
        """Up to so many of each lane. Behind what is not offered the lanes have not been looked at."""
        return tuple(_fresh(lane, count, keeps_key_order) for lane in self._lanes)

    def records(self, count: int) -> dict[int, StoredRecord]:
        """What was offered."""
        return {record.offset: record for lane in self._lanes for record in islice(lane.records, count)}

    async def again(self, offsets: Iterable[int]) -> dict[int, StoredRecord]:
        """Records by their offsets; those that are not in the log any more are left out."""
        found: dict[int, StoredRecord] = {}
        for offset in sorted(offsets):
            if offset not in found and self._partition.log.log_start <= offset:
                found.update(await self._read(offset, offset + 1))
        return found

    async def _fill_normal(self, lane: _Lane, count: int) -> None:
        partition = self._partition
        lane.end = max(lane.end, partition.log.log_start)
        while len(lane.records) < count and lane.size_bytes < _AHEAD_BYTES_MAX:
            bound = partition.last_stable_offset
            start = lane.end
            if start >= bound:
                return
            part = await partition.read(start, end=bound, bytes_max=_FETCH_BYTES)
            end = min(part.next_offset, bound)
            aborted = partition.aborted_spans(start, end)
            for batch in part.batches:
                if batch.header.is_control or aborted.cover(batch.header):
                    continue
                for record in decode_batch(batch.data, batch.header):
                    if start <= record.offset < end and _lane(record) == NORMAL:
                        lane.add(record)
            lane.end = end

    async def _fill_other(self, index: int, lane: _Lane, count: int) -> None:
        while len(lane.records) < count and lane.size_bytes < _AHEAD_BYTES_MAX:
            bound = self._partition.last_stable_offset
            if lane.end >= bound:
                return
            wanted = count - len(lane.records)
            offsets = await self._postings.find(index, lane.end, bound, wanted)
            for offset, record in sorted((await self.again(offsets)).items()):
                if offset in offsets and _lane(record) == index:
                    lane.add(record)
            lane.end = offsets[-1] + 1 if len(offsets) == wanted else bound

    async def _read(self, start: int, end: int) -> dict[int, StoredRecord]:
        """All records of the batch that holds `start`, unless they are aborted."""
        partition = self._partition
        part = await partition.read(start, end=end, bytes_max=1)
        found: dict[int, StoredRecord] = {}
        for batch in part.batches:
            aborted = partition.aborted_spans(batch.header.base_offset, batch.header.end_offset)
            if not batch.header.is_control and not aborted.cover(batch.header):
                found.update((record.offset, record) for record in decode_batch(batch.data, batch.header))
        return found


def _fresh(lane: _Lane, count: int, keeps_key_order: bool) -> Fresh:
    records = list(islice(lane.records, count))
    is_all = len(records) == len(lane.records)
    return Fresh(
        [record.offset for record in records],
        lane.end if is_all else lane.records[len(records)].offset,
        [_key_of(record) for record in records] if keeps_key_order else (),
    )


def _lane(record: StoredRecord) -> int:
    for name, value in record.headers:
        if name == PRIORITY_HEADER:
            return lane_of(value)
    return NORMAL


def _key_of(record: StoredRecord) -> int:
    if record.key is None:
        return NO_KEY
    return int.from_bytes(blake2b(record.key, digest_size=7).digest(), "big")


def _size(record: StoredRecord) -> int:
    return len(record.value or b"") + len(record.key or b"") + 100
