"""Where Kafka's simulated clients (`goqueue.sim.kafka`) work on a cluster: their topics, their history, and how far it all has come."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

from goqueue.sim.cluster.history import ClusterHistory
from goqueue.sim.cluster.routing import RoutedClient
from goqueue.sim.cluster.world import World
from goqueue.sim.http import NoAnswer
from goqueue.sim.kafka.client import KafkaClient, requests
from goqueue.sim.kafka.history import KafkaHistory, Part
from goqueue.sim.kafka.members import ClassicMember, ConsumerMember, Member, PlainSharing
from goqueue.sim.kafka.readers import LAST_LOOK, read_everything
from goqueue.sim.kafka.workers import read_offsets
from goqueue.sim.kafka.world import World as KafkaWorld

_LOOK_S = 0.5


class Stage:
    """`parts` are those of the topics that it was made for, which somebody else creates."""

    def __init__(self, world: World, name: str, partition_counts: dict[str, int]) -> None:
        rng = world.child()
        self.history = KafkaHistory()
        self.world = KafkaWorld(
            world.loop,
            self.history,
            rng,
            hosts=world.hosts,
            new_client=lambda client: RoutedClient(
                client,
                world.cluster.names,
                world.child(),
                rack="" if client == LAST_LOOK else world.rack(),
                doubts=world.doubts(),
            ),
        )
        self.waits_for = ""
        self._cluster = world
        self._name = name
        self._partition_counts = partition_counts
        self._client = self.world.client(f"{name}-supervisor")
        self._tasks: list[asyncio.Task[None]] = []

    def parts(self, *topics: str) -> list[Part]:
        return [Part(topic, index) for topic in topics for index in range(self._partition_counts[topic])]

    async def learn_topic_ids(self) -> None:
        """Members of KIP-848's groups call topics by them."""
        kinds = requests("metadata")
        for topic in self._partition_counts:
            while topic not in self.world.topic_ids:
                try:
                    answer = await self._client.call(
                        "metadata", 12, topics=[kinds.MetadataRequestTopic(name=topic)]
                    )
                    self.world.topic_ids[topic] = answer.topics[0].topic_id
                except NoAnswer:
                    await asyncio.sleep(_LOOK_S)

    def start(self, name: str, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = self.world.start(name, work)
        self._tasks.append(task)
        return task

    def new_member(self, group: str, topic: str, is_classic: bool, client: KafkaClient, name: str) -> Member:
        if is_classic:
            sharing = PlainSharing(self._partition_counts[topic])
            return ClassicMember(self.world, client, group, topic, sharing)
        return ConsumerMember(self.world, client, group, topic, name)

    def watch(self, group: str, topic: str) -> None:
        """Where clients have doubts there is also somebody who looks all the time how far a group has come."""
        if self._cluster.has_doubts:
            self.start(f"{group}-watch", self._watch(self.world.client(f"{group}-watch"), group, topic))

    async def _watch(self, client: KafkaClient, group: str, topic: str) -> None:
        while True:
            try:
                await read_offsets(self.world, client, group, self.parts(topic))
            except NoAnswer:
                pass  # it asks again anyway
            await asyncio.sleep(_LOOK_S)

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for client in self.world.clients:
            client.close()

    def tell(self, history: ClusterHistory) -> None:
        """What was sent and what was found wrong."""
        history.sent |= self.history.sent
        for violation in self.history.violations:
            history.violate(f"{self._name}: {violation}")

    # ---------------------------------------------------------------- how far it has come

    async def until(self, what: str, is_true: Callable[[], Awaitable[bool]]) -> None:
        self.waits_for = f"{self._name} until {what}"
        while True:
            try:
                if await is_true():
                    break
            except NoAnswer as error:
                self.waits_for = f"{self._name} until {what}: {error}"
            await asyncio.sleep(_LOOK_S)
        self.waits_for = ""

    async def until_consumed(self, group: str, topic: str) -> None:
        async def is_consumed() -> bool:
            if not await self._is_stable(topic):
                return False
            ends = await self._ends(topic)
            found = await read_offsets(self.world, self._client, group, self.parts(topic))
            self.waits_for = f"{group} is at {found} of {ends}"
            return found is not None and all(found[part].offset == end for part, end in ends.items() if end)

        await self.until(f"{group} has read {topic}", is_consumed)

    async def until_stable(self) -> None:
        """No transaction is open anywhere."""
        for topic in self._partition_counts:
            await self.until(f"no transaction is open in {topic}", partial(self._is_stable, topic))

    async def read_everything(self) -> None:
        for part in self.parts(*self._partition_counts):

            async def read(part: Part = part) -> bool:
                await read_everything(self.world, [part])
                return True

            await self.until(f"{part} is read", read)

    async def _is_stable(self, topic: str) -> bool:
        return await self._ends(topic) == await self._ends(topic, isolation_level=1)

    async def _ends(self, topic: str, *, isolation_level: int = 0) -> dict[Part, int]:
        kinds = requests("list_offsets")
        wanted = [
            kinds.ListOffsetsPartition(partition_index=part.partition, timestamp=-1)
            for part in self.parts(topic)
        ]
        answer: Any = await self._client.call(
            "list_offsets",
            7,
            replica_id=-1,
            isolation_level=isolation_level,
            topics=[kinds.ListOffsetsTopic(name=topic, partitions=wanted)],
        )
        return {
            Part(topic, one.partition_index): one.offset
            for found in answer.topics
            for one in found.partitions
        }
