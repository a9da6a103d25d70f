"""The fetch use case: whole batches of many partitions, as they are on disk, waiting for data where there is none.

Bytes go from the files to the socket as they are: nothing here decodes a record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from crc32c import crc32c
from msgspec import Struct

from goqueue.log.control import encode_gap
from goqueue.model.cluster_errors import NotLeader
from goqueue.model.errors import (
    FencedLeaderEpoch,
    GoQueueError,
    OffsetOutOfRange,
    UnknownLeaderEpoch,
)
from goqueue.node.follower_reads import NOBODY, FollowerReads
from goqueue.node.guard import Guard, NodeState
from goqueue.node.ids import Ids
from goqueue.node.metrics import Metrics
from goqueue.node.parking import Parked
from goqueue.node.partition import Partition
from goqueue.node.requests import Isolation
from goqueue.node.topic_table import TopicTable

NO_EPOCH = -1


class Wanted(Struct, frozen=True):
    """From where on to read a partition, and about how much at most."""

    topic: str
    partition: int
    offset: int
    bytes_max: int
    leader_epoch: int = NO_EPOCH  # that the client knows


class Fetched(Struct):
    """What there is of one partition. With an error, only the offsets that are known."""

    error: GoQueueError | None = None
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start: int = -1
    chunks: list[memoryview] = []
    size_bytes: int = 0
    aborted: list[tuple[int, int]] = []  # (producer id, first offset), of transactions in what was read
    closest: int = NOBODY  # the node to ask instead, which is closer to the client


class FetchLimits(Struct, frozen=True):
    """How long to wait for how much."""

    wait_ms: int
    bytes_min: int
    bytes_max: int


class Fetcher:
    def __init__(
        self, topics: TopicTable, guard: Guard, metrics: Metrics, ids: Ids, follower_reads: FollowerReads
    ) -> None:
        self._ids = ids
        self._follower_reads = follower_reads
        self._topics = topics
        self._guard = guard
        self._metrics = metrics

    def new_session_id(self) -> int:
        """For protocols that keep sessions of readers: a number that nobody guesses."""
        return crc32c(self._ids.fresh().encode())

    async def fetch(
        self, wanted: Sequence[Wanted], limits: FetchLimits, isolation: Isolation, rack: str = ""
    ) -> list[Fetched]:
        """One answer for each, in order. `rack`: where the client says that it is."""
        self._guard.admit_read()
        deadline = asyncio.get_running_loop().time() + limits.wait_ms / 1_000
        while True:
            fetched = await self._collect(wanted, limits.bytes_max, isolation, rack)
            size = sum(one.size_bytes for one in fetched)
            if size >= limits.bytes_min or any(one.error or one.closest != NOBODY for one in fetched):
                break
            if not await self._more(wanted, fetched, isolation, deadline):
                break
        if size:
            self._metrics.read_bytes.inc(size)
        return fetched

    async def _collect(
        self, wanted: Sequence[Wanted], bytes_max: int, isolation: Isolation, rack: str
    ) -> list[Fetched]:
        """The first batch is given however large it is, so that no limit can stop a reader for ever."""
        fetched: list[Fetched] = []
        left = bytes_max
        for want in wanted:
            try:
                topic = self._topics.get(want.topic)
                partition = topic.partition(want.partition)
                if want.leader_epoch != NO_EPOCH:
                    check_leader_epoch(partition, want.leader_epoch)
                self._follower_reads.check(topic, partition, rack)
                closest = self._follower_reads.closest(topic, partition, want.offset, rack)
                if closest != NOBODY:
                    one = _facts(partition)
                    one.closest = closest
                else:
                    one = await self._read(partition, want, left, isolation, must_progress=left == bytes_max)
            except OffsetOutOfRange as error:
                one = _facts(partition)
                one.error = error
            except GoQueueError as error:
                one = Fetched(error)
            left -= one.size_bytes
            fetched.append(one)
        return fetched

    async def _read(
        self, partition: Partition, want: Wanted, left: int, isolation: Isolation, *, must_progress: bool
    ) -> Fetched:
        log, reign = partition.log, partition.reign
        one = _facts(partition)
        # Beyond the high watermark there may be what a leader before this one has called committed: it will be so here.
        if not log.log_start <= want.offset <= log.end:
            raise OffsetOutOfRange(want.offset, earliest=log.log_start, latest=partition.visible_end)
        is_committed = isolation is Isolation.READ_COMMITTED
        end = one.last_stable_offset if is_committed else one.high_watermark
        room = min(want.bytes_max, left)
        if want.offset >= end or (room <= 0 and not must_progress):
            return one
        chunks, next_offset = await _readable(partition, want.offset, end, max(room, 1))
        if partition.reign != reign:
            # Which transactions were aborted may be forgotten with what was cut.
            raise NotLeader(partition.topic, partition.index, partition.leader)
        for chunk in chunks:
            size = len(chunk)
            if one.size_bytes + size > room and (one.chunks or not must_progress):
                break
            one.chunks.append(chunk)
            one.size_bytes += size
        if is_committed and one.chunks:
            one.aborted = partition.aborted(want.offset, next_offset)
        return one

    async def _more(
        self, wanted: Sequence[Wanted], fetched: list[Fetched], isolation: Isolation, deadline: float
    ) -> bool:
        """Wait until one of the partitions has something new; False when the time is up or the node goes away."""
        loop = asyncio.get_running_loop()
        if deadline <= loop.time() or self._guard.state is not NodeState.READY:
            return False
        self._guard.admit_parking()
        future: asyncio.Future[None] = loop.create_future()
        parked: list[tuple[Partition, Parked]] = []
        self._guard.parked_count += 1
        self._metrics.parked_reads.inc()
        timer = loop.call_at(deadline, _wake, future)
        try:
            for want, found in zip(wanted, fetched, strict=True):
                partition = self._topics.get(want.topic).partition(want.partition)
                is_committed = isolation is Isolation.READ_COMMITTED
                seen = found.last_stable_offset if is_committed else found.high_watermark
                parked.append((partition, partition.park(future, seen, committed=is_committed)))
            await future
        except GoQueueError:  # a topic was deleted between the look and the wait: look again
            return True
        finally:
            timer.cancel()
            self._guard.parked_count -= 1
            self._metrics.parked_reads.dec()
            for partition, one in parked:
                partition.unpark(one)
        return True


async def _readable(
    partition: Partition, offset: int, end: int, bytes_max: int
) -> tuple[list[memoryview], int]:
    """Batches, of which the first has records, and where they end. Batches that compaction emptied, or of which all
    records are delayed, are passed over; where there is nothing else up to the end, a gap moves the reader on."""
    start = offset
    while True:
        part = await partition.read(offset, end=end, bytes_max=bytes_max)
        for at, batch in enumerate(part.batches):
            if batch.header.record_count:
                return [one.data for one in part.batches[at:]], part.next_offset
        offset = part.next_offset
        if offset >= end:
            break
    if not part.batches:
        return [], offset
    last = part.batches[-1].header
    gap = encode_gap(start, offset, leader_epoch=last.leader_epoch, timestamp_ms=last.max_timestamp)
    return [memoryview(gap)], offset


def check_leader_epoch(partition: Partition, epoch: int) -> None:
    """Refuse a client that knows another leader than this one."""
    current = partition.leader_epoch
    if epoch < current:
        raise FencedLeaderEpoch(
            f"the leader epoch of {partition.topic}-{partition.index} is {current}, not {epoch}; ask for metadata",
            leader_epoch=epoch,
            current=current,
        )
    if epoch > current:
        raise UnknownLeaderEpoch(
            f"the leader epoch of {partition.topic}-{partition.index} is {current} here, not {epoch} yet",
            leader_epoch=epoch,
            current=current,
        )


def _facts(partition: Partition) -> Fetched:
    log = partition.log
    return Fetched(
        None, partition.visible_end, partition.last_stable_offset, log.log_start, chunks=[], aborted=[]
    )


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
