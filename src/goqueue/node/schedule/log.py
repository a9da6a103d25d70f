"""The log of one schedule: delayed records and what became of them. Ids are offsets, so a record is found by its id."""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_left
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from typing import Final

from goqueue.core.schedule.events import (
    Change,
    Event,
    Message,
    decode,
    decode_message,
    encode,
    encode_message,
)
from goqueue.log.batch import decode_rows, encode_batch
from goqueue.model.cluster_errors import ReplicationUnknown
from goqueue.model.errors import DataCorrupt, StorageError, TimedOut
from goqueue.node.clock import Clock
from goqueue.node.partition import Partition
from goqueue.node.tenure import Tenure

logger = logging.getLogger(__name__)
_FETCH_BYTES: Final = 1024 * 1024
_BATCH_COUNT_MAX: Final = 128
_PART_COUNT: Final = 500
_BATCH_BYTES_MAX: Final = 64 * 1024


class ScheduleLog:
    """Of one tenure: NotLeader is raised by whatever would write when that is over."""

    def __init__(self, partition: Partition, clock: Clock, tenure: Tenure) -> None:
        self.partition = partition
        self._tenure = tenure
        self._clock = clock

    @property
    def end(self) -> int:
        """The id that the next record gets."""
        return self.partition.log.end

    async def lead(self) -> None:
        """Once per start, before the first write."""
        self._tenure.check()
        await self.partition.lead()
        self._tenure.check()

    def append(self, messages: Sequence[Message], events: Sequence[Change]) -> None:
        """In one batch: all of it survives a crash, or nothing. The first message gets the id `end`, the others follow."""
        self._tenure.check()
        start, now_ms = self.end, self._clock.now_ms()
        records = [encode_message(start + at, one) for at, one in enumerate(messages)]
        header, batch = encode_batch(records + [encode(event) for event in events], now_ms)
        self.partition.append(batch, header, now_ms=now_ms)

    async def settled(self) -> None:
        """Until everything appended so far is on disk; raises where that is not known to be so in time."""
        await self.partition.settled(self.end, under=self._tenure.leadership)
        self._check_settled()

    async def settled_at_last(self, end: int) -> None:
        """However long it takes; raises if it never will be."""
        while True:
            try:
                await self.partition.settled(end, under=self._tenure.leadership)
                return self._check_settled()
            except TimedOut as error:
                logger.warning("a schedule's log is slow error=%r", error.sentence)

    def _check_settled(self) -> None:
        """What is on disk by now may have been written by another leader in the place of what was waited for."""
        if self._tenure.is_over:
            partition = self.partition
            raise ReplicationUnknown(
                f"{partition.topic}-{partition.index} has got another leader; whether the messages are stored is not known",
                topic=partition.topic,
                partition=partition.index,
            )

    async def replay(self, start: int, apply: Callable[[Event], None]) -> int:
        """Every event from an offset on, oldest first, also those that are not committed yet; how many there were. Damage is
        passed over and reported: what it held is lost, and everything else must come up all the same."""
        log = self.partition.log
        offset, count = max(start, log.log_start), 0
        while offset < log.end:
            try:
                part = await self.partition.read(offset, end=log.end, bytes_max=_FETCH_BYTES, is_own=True)
            except DataCorrupt as error:
                logger.error("delayed messages are lost detail=%r", error.sentence)
                offset = error.end
                continue
            for batch in part.batches:
                for _, _, key, value, _ in decode_rows(batch.data, batch.header):
                    try:
                        apply(decode(key, value))
                    except ValueError as error:
                        raise StorageError(f"{log.folder} has an unknown event: {error}") from None
                count += batch.header.record_count
            offset = part.next_offset
        return count

    async def read(self, ids: Iterable[int]) -> dict[int, Message]:
        """Delayed records by their ids. Those that are not in the log any more, or are damaged there, are left out."""
        found: dict[int, Message] = {}
        async for part in self.read_in_parts(ids):
            found.update(part)
        return found

    async def read_in_parts(self, ids: Iterable[int]) -> AsyncIterator[dict[int, Message]]:
        """The same, a few of one batch at a time: a client may have sent ten thousand in one."""
        wanted = sorted(set(ids))
        at = 0
        while at < len(wanted):
            id = wanted[at]
            at += 1
            if not self.partition.log.log_start <= id < self.end:
                continue
            await asyncio.sleep(0)  # what is in the page cache is read at once, and others have work, too
            try:
                part = await self.partition.read(id, end=id + 1, bytes_max=1, is_own=True)
            except DataCorrupt:
                continue  # the partition has reported it
            for _, header, data in part.batches:
                at = bisect_left(wanted, header.end_offset, at - 1)
                deltas = [
                    one - header.base_offset for one in wanted[bisect_left(wanted, header.base_offset) : at]
                ]
                for start in range(0, len(deltas), _PART_COUNT):
                    rows = decode_rows(data, header, deltas[start : start + _PART_COUNT])
                    yield {
                        header.base_offset + delta: decode_message(value, headers)
                        for delta, _, key, value, headers in rows
                        if value is not None and key is not None and len(key) == 8
                    }
                    await asyncio.sleep(0)


def in_chunks(messages: Sequence[Message]) -> Iterator[Sequence[Message]]:
    """Small ones: who reads a record reads the batch that it is in."""
    start = size = 0
    for at, message in enumerate(messages):
        record = message.record
        more = len(record.key or b"") + len(record.value or b"")
        if at > start and (at - start >= _BATCH_COUNT_MAX or size + more > _BATCH_BYTES_MAX):
            yield messages[start:at]
            start, size = at, 0
        size += more
    yield messages[start:]
