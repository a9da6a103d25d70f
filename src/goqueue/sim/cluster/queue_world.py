"""What the clients of queues and of delayed messages share, in a run of a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from unittest.mock import patch

from goqueue.model.codes import Code
from goqueue.model.errors import GoQueueError
from goqueue.node.dead_letters.topics import SUFFIX
from goqueue.node.node import Node
from goqueue.node.queue import ledger
from goqueue.node.requests import ReadQuery
from goqueue.node.schedule import shard
from goqueue.sim.cluster.clocks import HostClocks
from goqueue.sim.cluster.rest import RestClient
from goqueue.sim.cluster.world import Topic, World
from goqueue.sim.kafka.history import Part
from goqueue.sim.loop import SimLoop
from goqueue.sim.queue.history import FinalRecord, Place, QueueHistory


async def cancelled(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Until all of them have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@contextmanager
def often_saved(seed: int) -> Iterator[None]:
    """Snapshots of ledgers and indexes of schedules come after so little that a run has some; else none ever would."""
    rng = Random(f"snapshots-{seed}")
    with (
        patch.object(ledger, "_SNAPSHOT_BYTES_MIN", rng.choice((500, 3_000, 1_000_000))),
        patch.object(shard, "_SAVE_COUNT", rng.choice((5, 50, 500_000))),
    ):
        yield


@dataclass(slots=True)
class QueueWorld:
    world: World
    history: QueueHistory
    clocks: HostClocks
    is_done: bool = False

    @classmethod
    def of(cls, world: World, retries_max: int = 0) -> QueueWorld:
        history = QueueHistory(retries_max=retries_max, violations=world.history.violations)
        return cls(world, history, HostClocks([host.clock for host in world.cluster.hosts.values()]))

    @property
    def loop(self) -> SimLoop:
        return self.world.loop

    @property
    def is_calm(self) -> bool:
        return self.world.is_calm

    def child(self) -> Random:
        return self.world.child()

    def client(self) -> RestClient:
        return RestClient(self.world.cluster.names, self.child())

    async def create(self, name: str, topic: Topic, settings: dict[str, str]) -> None:
        """Until it is there."""
        body = {
            "name": name,
            "num_partitions": topic.partition_count,
            "replication_factor": topic.replica_count,
            "config": {"min.insync.replicas": str(topic.min_in_sync), **settings},
        }
        client = self.client()
        try:
            await client.until_done("POST", "/topics", body, done=(Code.TOPIC_EXISTS,))
        finally:
            client.close()

    # ---------------------------------------------------------------- from inside, when nothing fails any more

    def parts(self, topic: str) -> list[Part] | None:
        """As many as it has; None while nobody can say."""
        controller = self.world.cluster.controller()
        if controller is None or controller.node is None:
            return None
        catalog = controller.node._metadata.catalog
        if catalog.find(topic) is None:
            return []
        return [Part(topic, index) for index in range(len(catalog.partitions_of(topic)))]

    def leader(self, part: Part) -> Node | None:
        """The node that leads it, and knows."""
        for host in self.world.cluster.up():
            node = host.node
            if node is None or not host.is_ready or node.cluster is None:
                continue
            if node.cluster.replication.leadership(*part) is not None:
                return node
        return None

    async def read(self, topic: str) -> bool:
        """Everything in a topic, and among its dead letters, into the history; False if it has to be tried again."""
        for name in (topic, f"{topic}{SUFFIX}"):
            for part in self.parts(name) or ():
                try:
                    await self._read(part)
                except GoQueueError:
                    return False
        return self.parts(topic) is not None

    async def _read(self, part: Part) -> None:
        node = self.leader(part)
        if node is None:
            raise GoQueueError(f"nobody leads {part}")
        offset = node.topics.partition(*part).earliest
        while True:
            page = await node.reader.read(*part, ReadQuery(offset=offset, limit=1_000))
            for record in page.records:
                self.history.final[Place(*part, record.offset)] = FinalRecord(
                    (record.value or b"").decode(),
                    None if record.key is None else record.key.decode(),
                    {name: (value or b"").decode() for name, value in record.headers},
                )
            offset = page.next_offset
            if offset >= page.high_watermark:
                return
