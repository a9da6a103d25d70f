"""What comes next for one group in one partition: records read ahead of the cursors of its lanes.

The normal lane is the log itself, read in order, without what stands in other lanes. The other lanes have lists of the
offsets of their records, so that a critical one is found at once behind millions that are not.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from itertools import islice
from typing import Final, Protocol

from goqueue.core.lease.decisions import Fresh, Offer
from goqueue.core.lease.window import NO_KEY
from goqueue.log.batch import BatchHeader, decode_rows, record_of
from goqueue.log.lane_scan import lane_of_headers
from goqueue.log.records import Row
from goqueue.log.scan import Found
from goqueue.model.errors import DataCorrupt, OffsetOutOfRange
from goqueue.model.priority import LANE_COUNT, NORMAL
from goqueue.model.record import StoredRecord
from goqueue.node.partition import Partition

logger = logging.getLogger(__name__)
_FETCH_BYTES: Final = 256 * 1024
_AHEAD_BYTES_MAX: Final = 4 * 1024 * 1024  # of records of one lane that wait here
_AGAIN_BYTES_MAX: Final = 1024 * 1024  # of records of one lane that have come back and are read at once
_AHEAD_COUNT: Final = 256  # records that are looked up at once, since neighbours share a batch
_BATCHES_BYTES: Final = 64 * 1024  # that are read together when one of them is wanted
_LOOK_BYTES_MAX: Final = 4 * 1024 * 1024  # of log that one poll reads in search of normal records


class Postings(Protocol):
    """Where the records of the lanes other than the normal one are."""

    async def look(self, end: int) -> int:
        """Find out about the log up to `end`, if that is soon done; up to where `find` has an answer at once."""

    async def find(self, lane: int, start: int, end: int, count_max: int) -> list[int]:
        """Offsets of a lane in [start, end), lowest first. Some may be gone from the log."""

    async def depth(self, lane: int, start: int, end: int) -> int:
        """How many of them have been found so far."""


class _Lane:
    def __init__(self, start: int) -> None:
        self.age = 0
        self.begin(start)

    def begin(self, start: int) -> None:
        self.age += 1  # who has waited meanwhile goes by it
        self.start = start  # everything from here on to `end` that is in the lane is in `records`
        self.end = start
        self.records: deque[StoredRecord] = deque()
        self._sizes: deque[tuple[int, int]] = deque()  # of what was added at once: its last offset, its bytes
        self.size_bytes = 0

    def add(self, records: Sequence[StoredRecord]) -> None:
        if records:
            self.records += records
            size_bytes = sum([_size(record) for record in records])
            self._sizes.append((records[-1].offset, size_bytes))
            self.size_bytes += size_bytes

    def move_to(self, cursor: int) -> None:
        if not self.start <= cursor <= self.end:
            self.begin(cursor)
            return
        self.start = cursor
        records, sizes = self.records, self._sizes
        while records and records[0].offset < cursor:
            records.popleft()
        while sizes and sizes[0][0] < cursor:
            self.size_bytes -= sizes.popleft()[1]


class _Batch:
    """The records with offsets [start, end), decoded and each made when it is asked for: most belong to other lanes."""

    __slots__ = ("_header", "_rows", "end", "start")

    def __init__(
        self, start: int, end: int, rows: Sequence[Row] = (), header: BatchHeader | None = None
    ) -> None:
        self.start = start
        self.end = end
        self._rows = rows
        self._header = header

    def record(self, offset: int) -> StoredRecord | None:
        """If it is there and not aborted."""
        header, rows = self._header, self._rows
        if header is None:
            return None
        delta = offset - header.base_offset
        at = delta if len(rows) == header.last_offset_delta + 1 else bisect_left(rows, delta, key=_delta)
        if not (0 <= at < len(rows) and rows[at][0] == delta):
            return None
        return record_of(header, rows[at])

    def records_of(self, lane: int, offsets: Sequence[int]) -> list[StoredRecord]:
        """Those of the offsets that are there and in the lane."""
        found = [self.record(offset) for offset in offsets]
        return [one for one in found if one is not None and lane_of_headers(one.headers) == lane]


class Feed:
    def __init__(self, partition: Partition, postings: Postings) -> None:
        self._partition = partition
        self._postings = postings
        self._lanes = [_Lane(0) for _ in range(LANE_COUNT)]
        self._recent = _Batch(0, 0)  # the one decoded last: often it has records of several lanes
        self._ahead: deque[Found] = deque()  # those behind it, which came with it

    def move_to(self, cursors: tuple[int, ...]) -> None:
        for lane, cursor in zip(self._lanes, cursors, strict=True):
            lane.move_to(cursor)

    @property
    def end(self) -> int:
        """Up to here everything was looked at in every lane."""
        return min(lane.end for lane in self._lanes)

    @property
    def has_records(self) -> bool:
        """Some are at hand."""
        return any(lane.records for lane in self._lanes)

    @property
    def bound(self) -> int:
        """So far there may be something to give. What the log has lost, or may lose, is none of it."""
        log, stable = self._partition.log, self._partition.last_stable_offset
        return stable if log.failure is None else min(stable, log.durable_end)

    @property
    def durable_bound(self) -> int:
        """As far as it is on disk. A lease outlives a power cut: if its record did not, another would come to its place and
        count as given."""
        return min(self.bound, self._partition.log.durable_end)

    def ends(self) -> tuple[int, ...]:
        """Of each lane: its next record, or how far it was looked at in vain."""
        return tuple(lane.records[0].offset if lane.records else lane.end for lane in self._lanes)

    async def fill(self, count: int) -> None:
        """Until each lane has so many records, or as many as there are on disk. Where that takes long it ends before, and
        `end` says that there is more to look at. One caller at a time."""
        bound = self.durable_bound
        known_end = await self._postings.look(bound)
        for index, lane in enumerate(self._lanes):
            lane.end = max(lane.end, self._partition.log.log_start)
            if index == NORMAL:
                await self._fill_normal(lane, count, bound)
            else:
                await self._fill_other(index, lane, count, known_end)

    async def until_durable(self) -> None:
        """Until something is on disk that was not looked at yet, if anything is on its way there."""
        if not self.has_records and self.durable_bound <= self.end < self.bound:
            await self._partition.settled(self.bound, under=self._partition.leadership)

    def offer(self, count: int, *, keeps_key_order: bool) -> Offer:
        """Up to so many of each lane. Behind what is not offered the lanes have not been looked at."""
        return tuple(_fresh(lane, count, keeps_key_order) for lane in self._lanes)

    def records(self, count: int) -> dict[int, StoredRecord]:
        """What was offered."""
        return {record.offset: record for lane in self._lanes for record in islice(lane.records, count)}

    async def again(self, offsets: Iterable[int]) -> tuple[dict[int, StoredRecord], list[int]]:
        """Records by their offsets, from the first on, as many as may wait here; and those that the log does not have."""
        found: dict[int, StoredRecord] = {}
        missing: list[int] = []
        size_bytes = 0
        for offset in sorted(offsets):
            if size_bytes >= _AGAIN_BYTES_MAX:
                break
            if not self._recent.start <= offset < self._recent.end:
                self._recent = await self._read(offset)
            record = self._recent.record(offset)
            if record is None:
                missing.append(offset)
            else:
                found[offset] = record
                size_bytes += _size(record)
        return found, missing

    async def _fill_normal(self, lane: _Lane, count: int, bound: int) -> None:
        partition, size_bytes = self._partition, 0
        while len(lane.records) < count and lane.size_bytes < _AHEAD_BYTES_MAX:
            start, age = lane.end, lane.age
            if start >= bound or size_bytes >= _LOOK_BYTES_MAX:
                return
            try:
                part = await partition.read(start, end=bound, bytes_max=_FETCH_BYTES)
            except DataCorrupt as damage:  # nobody can have it; what lies behind it goes on
                logger.error("damaged records are not given to a queue detail=%r", damage.sentence)
                if lane.age == age:
                    lane.end = min(damage.end, bound)
                continue
            except OffsetOutOfRange:
                if partition.log.log_start <= start:
                    raise
                if lane.age == age:  # retention was quicker
                    lane.end = max(lane.end, min(partition.log.log_start, bound))
                continue
            if lane.age != age:
                return  # the group was sent elsewhere meanwhile
            end = min(part.next_offset, bound)
            aborted = partition.aborted_spans(start, end)
            for batch in part.batches:
                size_bytes += batch.header.size
                if batch.header.is_control or aborted.cover(batch.header):
                    continue
                first, last = start - batch.header.base_offset, end - batch.header.base_offset
                lane.add(
                    [
                        record_of(batch.header, row)
                        for row in decode_rows(batch.data, batch.header)
                        if first <= row[0] < last and (not row[4] or lane_of_headers(row[4]) == NORMAL)
                    ]
                )
            lane.end = end

    async def _fill_other(self, index: int, lane: _Lane, count: int, known_end: int) -> None:
        while len(lane.records) < count and lane.size_bytes < _AHEAD_BYTES_MAX and lane.end < known_end:
            wanted = max(count - len(lane.records), _AHEAD_COUNT)
            start, age = lane.end, lane.age
            offsets = await self._postings.find(index, start, known_end, wanted)
            if lane.age != age:
                return  # the group was sent elsewhere meanwhile
            at = 0
            while at < len(offsets):
                if not self._recent.start <= offsets[at] < self._recent.end:
                    if lane.size_bytes >= _AHEAD_BYTES_MAX:
                        return
                    self._recent = await self._read(offsets[at])
                    if lane.age != age:
                        return
                end = bisect_left(offsets, self._recent.end, at)  # neighbours are often in one batch
                lane.add(self._recent.records_of(index, offsets[at:end]))
                lane.end = offsets[end - 1] + 1
                at = end
            if len(offsets) < wanted:
                lane.end = known_end

    async def _read(self, offset: int) -> _Batch:
        """The batch that holds an offset."""
        ahead = self._ahead
        while ahead and ahead[0].header.end_offset <= offset:
            ahead.popleft()
        if not ahead or offset < ahead[0].header.base_offset:
            end = max(self._partition.last_stable_offset, offset + 1)
            try:
                # One that was given out before may lie past what is shown now.
                part = await self._partition.read(
                    offset, end=end, bytes_max=_BATCHES_BYTES, is_own=end == offset + 1
                )
            except OffsetOutOfRange:
                return _Batch(offset, offset + 1)
            except DataCorrupt as damage:
                logger.error("damaged records are not given to a queue detail=%r", damage.sentence)
                return _Batch(offset, max(damage.end, offset + 1))
            ahead = self._ahead = deque(part.batches)
        if not ahead:
            return _Batch(offset, offset + 1)
        _, header, data = ahead.popleft()
        aborted = self._partition.aborted_spans(header.base_offset, header.end_offset)
        if header.is_control or aborted.cover(header):
            return _Batch(header.base_offset, header.end_offset)
        return _Batch(header.base_offset, header.end_offset, decode_rows(data, header), header)


def _delta(row: Row) -> int:
    return row[0]


def _fresh(lane: _Lane, count: int, keeps_key_order: bool) -> Fresh:
    records = list(islice(lane.records, count))
    is_all = len(records) == len(lane.records)
    return Fresh(
        [record.offset for record in records],
        lane.end if is_all else lane.records[len(records)].offset,
        [key_of(record) for record in records] if keeps_key_order else (),
    )


def key_of(record: StoredRecord) -> int:
    if record.key is None:
        return NO_KEY
    return int.from_bytes(blake2b(record.key, digest_size=7).digest(), "big")


def _size(record: StoredRecord) -> int:
    return len(record.value or ()) + len(record.key or ()) + 100
