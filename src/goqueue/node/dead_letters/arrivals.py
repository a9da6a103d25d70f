"""Where moved records arrive: in a partition that this node leads, or in one that another does.

Either way a batch is put there once, under the ledger's producer with the sequence that its decision has given it. What of it lives in
another partition by now, because the topic has `scaling=keyed` and has got more of them or fewer, is sent on from there as what producers
send is (ADR 35): sequences stay those of the partition that was decided on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from goqueue.core.lease.events import Target
from goqueue.log.batch import BatchHeader, crc_matches, frame_problem, read_header
from goqueue.model.cluster_errors import HomeUndecided, NotLeader
from goqueue.model.errors import CorruptBatch, InvalidBatch, NotEnoughReplicas, TimedOut
from goqueue.node.clock import Clock
from goqueue.node.directory import Directory
from goqueue.node.guard import Guard
from goqueue.node.partition import Partition, Stored
from goqueue.node.queue.ports import RemoteAppends
from goqueue.node.tenure import Tenure
from goqueue.node.topic_table import OpenTopic, TopicTable

_SEND_ON_S_MAX: Final = 5.0  # what lives elsewhere
_ANSWER_S_MAX: Final = 10.0  # less than who asks waits for one answer

Put = Callable[[Partition, bytes, BatchHeader, int], Awaitable[Stored]]  # the last is the time


class Destination(Protocol):
    async def newest_sequence(self, producer: tuple[int, int]) -> int | None:
        """Of what the producer has written there; None where nothing is known of it."""

    async def append(self, batch: bytes, header: BatchHeader) -> None: ...

    async def settled(self) -> None:
        """Until everything that is there, as far as this was asked about it, stays there."""


class Here:
    """In one tenure: what was found or written in another may not be there any more."""

    def __init__(self, partition: Partition, clock: Clock, put: Put) -> None:
        self._partition = partition
        self._clock = clock
        self._put = put
        self._tenure: Tenure | None = None

    async def newest_sequence(self, producer: tuple[int, int]) -> int | None:
        await self._lead()
        return self._partition.newest_sequence(*producer)

    async def append(self, batch: bytes, header: BatchHeader) -> None:
        await self._lead()
        await self._put(self._partition, batch, header, self._clock.now_ms())

    async def settled(self) -> None:
        tenure = await self._lead()
        await self._partition.settled(self._partition.log.end, under=tenure.leadership)
        tenure.check()

    async def _lead(self) -> Tenure:
        await self._partition.lead()  # it does not wait while this node leads
        if self._tenure is None:
            self._tenure = Tenure(self._partition)
        self._tenure.check()
        return self._tenure


class There:
    """Each answer of the other node says that everything so far is committed."""

    def __init__(self, appends: RemoteAppends, node: str, target: Target) -> None:
        self._appends = appends
        self._node = node
        self._target = target

    async def newest_sequence(self, producer: tuple[int, int]) -> int | None:
        return await self._appends.append(self._node, self._target, producer, None)

    async def append(self, batch: bytes, header: BatchHeader) -> None:
        producer = header.producer_id, header.producer_epoch
        await self._appends.append(self._node, self._target, producer, batch)

    async def settled(self) -> None:
        pass


class Destinations:
    def __init__(self, clock: Clock, directory: Directory, appends: RemoteAppends | None, put: Put) -> None:
        """`appends` is None where this node is alone."""
        self._clock = clock
        self._directory = directory
        self._appends = appends
        self._put = put

    @property
    def are_all_here(self) -> bool:
        """This node is alone."""
        return self._appends is None

    def find(self, topic: OpenTopic, index: int) -> Destination:
        """NotLeader where nobody leads the partition for now."""
        partition = topic.local.get(index)
        if self._appends is None or (partition is not None and partition.leadership is not None):
            return Here(topic.partition(index), self._clock, self._put)
        topic.check_partition(index)
        name, leader = topic.facts.name, topic.states[index].leader
        node = self._directory.name_of(leader)
        if not node or leader == self._directory.number:
            raise NotLeader(name, index)
        return There(self._appends, node, Target(name, index))


class Arrivals:
    """The other end: what other nodes move to partitions that this one leads."""

    def __init__(self, table: TopicTable, guard: Guard, clock: Clock, put: Put) -> None:
        self._table = table
        self._guard = guard
        self._clock = clock
        self._put = put

    async def append(
        self, topic: str, index: int, producer: tuple[int, int], batch: bytes | None
    ) -> int | None:
        """As `RemoteAppends` says, within a time: answers come in order, and who moves records to other partitions hears of none before.
        It tries again, and sequences tell what is there."""
        try:
            async with asyncio.timeout(_ANSWER_S_MAX):
                return await self._newest_after(topic, index, producer, batch)
        except TimeoutError:
            raise TimedOut(
                f"{topic}-{index} did not commit moved records within {_ANSWER_S_MAX:g} s; whether it does is not known"
            ) from None

    async def _newest_after(
        self, topic: str, index: int, producer: tuple[int, int], batch: bytes | None
    ) -> int | None:
        self._guard.admit_write(1)
        partition = self._table.get(topic).partition(index)
        await partition.lead()
        tenure = Tenure(partition)
        if batch is not None:
            await self._append(partition, batch)
            tenure.check()  # else what is known and not settled may be of another one
        newest = partition.newest_sequence(*producer)
        await partition.settled(partition.log.end, under=tenure.leadership)
        tenure.check()  # else what is settled may be another leader's
        return newest

    async def _append(self, partition: Partition, batch: bytes) -> None:
        leadership = partition.leadership
        if leadership is not None and not leadership.has_enough:
            raise NotEnoughReplicas(
                f"{partition.topic}-{partition.index} has too few replicas in sync",
                topic=partition.topic,
                partition=partition.index,
            )
        header = read_header(batch)
        problem = frame_problem(header)
        if problem or header.size != len(batch):
            raise InvalidBatch(problem or f"the batch says it has {header.size} bytes; {len(batch)} came")
        if not crc_matches(batch, 0, header):
            raise CorruptBatch(f"the batch's checksum is not the stated {header.crc:#010x}", crc=header.crc)
        try:
            async with asyncio.timeout(_SEND_ON_S_MAX):
                await self._put(partition, batch, header, self._clock.now_ms())
        except TimeoutError:
            reason = f"what lives elsewhere was not stored there within {_SEND_ON_S_MAX:g} s"
            raise HomeUndecided(partition.topic, partition.index, reason) from None
