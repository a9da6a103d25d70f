"""The read use case: records from an offset or an instant up to a bound, waiting for data where asked to.

Read-committed stops at the last stable offset and leaves out what was aborted; both levels stop at the high watermark
and never show the markers of transactions."""

from __future__ import annotations

import asyncio

from goqueue.log.aborted import AbortedSpans
from goqueue.log.batch import decode_batch
from goqueue.log.partition_log import Slice
from goqueue.model.cluster_errors import NotLeader
from goqueue.model.errors import DataCorrupt, InvalidRequest, OffsetOutOfRange
from goqueue.model.record import StoredRecord
from goqueue.node.guard import Guard, NodeState
from goqueue.node.metrics import Metrics
from goqueue.node.partition import Partition
from goqueue.node.requests import Isolation, ReadQuery, ReadResult
from goqueue.node.threads import Threads
from goqueue.node.topic_table import TopicTable

_FETCH_BYTES = 256 * 1024
_DECODE_INLINE_BYTES = 512 * 1024  # more is decoded in a thread, not on the event loop
_NO_BOUND = 2**63 - 1
_NOTHING_ABORTED = AbortedSpans(())


class Reader:
    def __init__(self, topics: TopicTable, guard: Guard, metrics: Metrics, threads: Threads) -> None:
        self._topics = topics
        self._guard = guard
        self._metrics = metrics
        self._threads = threads

    async def read(self, topic: str, partition: int, query: ReadQuery) -> ReadResult:
        self._guard.admit_read()
        source = self._topics.get(topic).partition(partition)
        self._check(query)
        start, end = await self._bounds(source, query)
        deadline = asyncio.get_running_loop().time() + query.wait_ms / 1_000
        committed = query.isolation is Isolation.READ_COMMITTED
        records, next_offset = await self._collect(source, start, end, query.limit, committed)
        while (
            not records
            and next_offset < end
            and await self._has_more(source, next_offset, deadline, committed)
        ):
            records, next_offset = await self._collect(source, next_offset, end, query.limit, committed)
        if source.visible_end <= next_offset < end:
            source.check_knows_end()  # who is told the high watermark may take it for the end
        self._metrics.read_messages.inc(len(records))
        return ReadResult(records, next_offset, source.visible_end, source.last_stable_offset)

    def _check(self, query: ReadQuery) -> None:
        if query.offset is not None and query.timestamp_ms is not None:
            raise InvalidRequest("give an offset or a timestamp, not both")
        for name in ("offset", "to_offset", "timestamp_ms", "to_timestamp_ms"):
            value = getattr(query, name)
            if value is not None and value < 0:
                raise InvalidRequest(f"{name} is {value}; it must not be negative", **{name: value})
        if query.limit < 1:
            raise InvalidRequest(f"limit is {query.limit}; it must be at least 1", limit=query.limit)
        if not 0 <= query.wait_ms <= self._guard.limits.wait_ms_max:
            raise InvalidRequest(
                f"wait is {query.wait_ms} ms; it must be 0 to {self._guard.limits.wait_ms_max}",
                wait_ms=query.wait_ms,
            )

    async def _bounds(self, source: Partition, query: ReadQuery) -> tuple[int, int]:
        source.check_leads()
        log = source.log
        if query.timestamp_ms is not None:
            start = await source.offset_at(query.timestamp_ms)
        else:
            start = log.log_start if query.offset is None else query.offset
        if not log.log_start <= start <= log.end:
            raise OffsetOutOfRange(start, earliest=log.log_start, latest=source.visible_end)
        end = _NO_BOUND if query.to_offset is None else query.to_offset
        if query.to_timestamp_ms is not None:
            end = min(end, await source.offset_at(query.to_timestamp_ms))
        return start, end

    async def _collect(
        self, source: Partition, offset: int, end: int, limit: int, committed: bool
    ) -> tuple[list[StoredRecord], int]:
        """Up to `limit` records; where to go on. Damage behind the first record ends the answer before it."""
        records: list[StoredRecord] = []
        bytes_left = self._guard.limits.read_bytes_max
        while len(records) < limit and bytes_left > 0:
            bound, leadership = min(end, _readable_end(source, committed)), source.leadership
            if offset >= bound:
                break
            try:
                part = await source.read(offset, end=bound, bytes_max=min(_FETCH_BYTES, bytes_left))
            except DataCorrupt:
                if records:
                    break
                raise
            if (
                source.leadership is not leadership
            ):  # which transactions were aborted may be forgotten with what was cut
                raise NotLeader(source.topic, source.index, source.leader)
            size = sum(len(batch.data) for batch in part.batches)
            bytes_left -= size
            self._metrics.read_bytes.inc(size)
            aborted = source.aborted_spans(offset, part.next_offset) if committed else _NOTHING_ABORTED
            found = await self._decoded(part, aborted, size, offset, bound)
            room = limit - len(records)
            records += found[:room]
            offset = records[-1].offset + 1 if len(found) > room else min(part.next_offset, bound)
        return records, offset

    async def _decoded(
        self, part: Slice, aborted: AbortedSpans, size: int, start: int, end: int
    ) -> list[StoredRecord]:
        def decode() -> list[StoredRecord]:
            return [
                record
                for batch in part.batches
                if not batch.header.is_control and not aborted.cover(batch.header)
                for record in decode_batch(batch.data, batch.header)
                if start <= record.offset < end
            ]

        return decode() if size <= _DECODE_INLINE_BYTES else await self._threads.run(decode)

    async def _has_more(self, source: Partition, offset: int, deadline: float, committed: bool) -> bool:
        """Wait until there is something at `offset`; False when the time is up or the node is going away."""
        left_s = deadline - asyncio.get_running_loop().time()
        if left_s <= 0 or self._guard.state is not NodeState.READY:
            return False
        self._guard.admit_parking()
        self._guard.parked_count += 1
        try:
            await source.wait_beyond(offset, left_s, committed=committed)
        finally:
            self._guard.parked_count -= 1
        return _readable_end(source, committed) > offset and not source.is_deleted


def _readable_end(source: Partition, committed: bool) -> int:
    return source.last_stable_offset if committed else source.visible_end
