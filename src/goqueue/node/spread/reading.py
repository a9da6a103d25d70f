"""Reading partitions that any node leads."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final, Protocol

from goqueue.model.cluster_errors import NotLeader
from goqueue.model.errors import GoQueueError, PartitionNotFound, TopicNotFound
from goqueue.node.forwarding import Forwarding, OfPartition, together
from goqueue.node.other_nodes import FactsCall, LedPartition, OtherNodes, ReadCall
from goqueue.node.partition import Partition
from goqueue.node.read import Reader
from goqueue.node.requests import NO_LEADER, PartitionFacts, ReadQuery, ReadResult
from goqueue.node.topic_table import TopicTable
from goqueue.node.topics import Topics

_KNOWN_S_MAX: Final = 2.0


class Reading(Protocol):
    async def read(self, topic: str, partition: int, query: ReadQuery) -> ReadResult: ...


class SpreadReader:
    def __init__(self, reader: Reader, forwarding: Forwarding, nodes: OtherNodes) -> None:
        self._reader = reader
        self._forwarding = forwarding
        self._nodes = nodes

    async def read(self, topic: str, partition: int, query: ReadQuery) -> ReadResult:
        return await self._forwarding.carry(
            OfPartition(topic, partition),
            lambda: self._reader.read(topic, partition, query),
            lambda target: self._nodes.read(target, ReadCall(topic, partition, query)),
            may_repeat=True,
        )


class PartitionsSeen:
    """Partitions as their leaders know them, in one node or many."""

    def __init__(
        self, topics: Topics, table: TopicTable, forwarding: Forwarding | None, nodes: OtherNodes | None
    ) -> None:
        self._topics = topics
        self._table = table
        self._forwarding = forwarding
        self._nodes = nodes

    async def of(self, topic: str, *, needs_leaders: bool = True) -> list[PartitionFacts]:
        """All of a topic, in order. One that nobody leads is as this node knows it, if it need not have a leader."""
        facts = list(self._topics.partitions(topic))
        forwarding, nodes = self._forwarding, self._nodes
        if forwarding is None or nodes is None or forwarding.leads_all(topic):
            return facts
        if needs_leaders or all(one.leader != NO_LEADER for one in facts):
            parts = await self._led(topic, forwarding, nodes)
        else:
            names = {forwarding.leader_of(topic, one.partition) for one in facts if one.leader != NO_LEADER}
            found = await together(
                [nodes.facts(name, FactsCall(topic)) for name in sorted(n for n in names if n)]
            )
            parts = [*self.here(topic), *(one for part in found for one in part)]
        led = {one.facts.partition: one.facts for one in parts}
        return [led.get(one.partition, one) for one in facts]

    async def until_led(self, topic: str) -> None:
        """Until the leaders of new partitions know that they are; but not for long."""
        with suppress(GoQueueError):
            await self.led(topic)

    async def until_known(self, topic: str) -> None:
        """Until all nodes that are there know of a new topic, for a client may ask any of them next; but not for long."""
        if self._forwarding is None or self._nodes is None:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(_KNOWN_S_MAX):
                await together([self._until_known_to(name, topic) for name in self._forwarding.others()])

    async def _until_known_to(self, name: str, topic: str) -> None:
        forwarding, nodes = self._forwarding, self._nodes
        while forwarding is not None and nodes is not None:
            try:
                await nodes.facts(name, FactsCall(topic))
                return
            except TopicNotFound:
                await forwarding.pause()
            except GoQueueError:
                return

    async def led(self, topic: str) -> list[LedPartition]:
        """Those that have a leader."""
        if self._forwarding is None or self._nodes is None:
            return self.here(topic)
        return await self._led(topic, self._forwarding, self._nodes)

    async def _led(self, topic: str, forwarding: Forwarding, nodes: OtherNodes) -> list[LedPartition]:
        async def here(indexes: Sequence[int]) -> list[LedPartition]:
            self.check_leads(topic, indexes)
            return self.here(topic)

        parts = await forwarding.all_of(
            topic, here, lambda target, indexes: nodes.facts(target, FactsCall(topic, indexes))
        )
        return [one for part in parts for one in part]

    def check_leads(self, topic: str, indexes: Iterable[int]) -> None:
        """Raises NotLeader where this node does not lead one of them, or does not know yet that it does."""
        for index in indexes:
            try:
                partition = self._table.any_partition(topic, index)
            except (TopicNotFound, PartitionNotFound):
                raise NotLeader(topic, index) from None
            partition.check_leads()

    def here(self, topic: str) -> list[LedPartition]:
        """Those that this node leads."""
        local = self._table.get(topic).local
        return [
            LedPartition(facts, local[facts.partition].last_stable_offset)
            for facts in self._topics.partitions(topic)
            if facts.partition in local and _leads(local[facts.partition])
        ]


def _leads(partition: Partition) -> bool:
    return partition.is_solo or partition.leadership is not None
