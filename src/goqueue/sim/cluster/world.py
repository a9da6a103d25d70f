"""What all clients of one run share."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Coroutine
from dataclasses import dataclass, field
from random import Random
from typing import TypeVar

from goqueue.sim.cluster.client import ClusterClient
from goqueue.sim.cluster.cluster import SimCluster
from goqueue.sim.cluster.history import ClusterHistory
from goqueue.sim.kafka.history import Part
from goqueue.sim.life import Life, current_life
from goqueue.sim.loop import SimLoop

R = TypeVar("R")

_HASTE = 10  # with nothing left to meet, clients do the rest of their work so many times as fast


@dataclass(slots=True)
class Topic:
    """As it was asked for; what does not exist yet is not here."""

    partition_count: int
    replica_count: int
    min_in_sync: int

    @property
    def needed_count(self) -> int:
        """On how many disks an acknowledged record is."""
        return min(self.min_in_sync, self.replica_count)


@dataclass(slots=True)
class World:
    loop: SimLoop
    history: ClusterHistory
    cluster: SimCluster
    rng: Random
    has_doubts: bool = False  # clients ask anew who coordinates, though nothing has failed
    is_calm: bool = False  # nothing fails any more
    topics: dict[str, Topic] = field(default_factory=dict)
    hosts: list[str] = field(default_factory=list)  # of clients
    clients: list[ClusterClient] = field(default_factory=list)

    def child(self) -> Random:
        return Random(self.rng.getrandbits(64))

    def doubts(self) -> Random | None:
        return self.child() if self.has_doubts else None

    def rack(self) -> str:
        """Of a client: that of any node."""
        return self.child().choice(self.cluster.names) if self.cluster.has_racks else ""

    async def breathe(self, rng: Random, per_s: float) -> None:
        """Between two things that a client does, of so many in a second."""
        pause_s = rng.expovariate(per_s)
        await asyncio.sleep(pause_s / _HASTE if self.is_calm else pause_s)

    def parts(self) -> list[Part]:
        return [
            Part(name, index) for name, topic in self.topics.items() for index in range(topic.partition_count)
        ]

    def client(self, name: str) -> ClusterClient:
        """One that is closed when the run is over, whatever becomes of its owner."""
        made = ClusterClient(name, self.cluster.names, self.child())
        self.clients.append(made)
        return made

    def start(self, name: str, work: Coroutine[None, None, R]) -> asyncio.Task[R]:
        """Run a client on the host of this name, whose cable can be cut alone."""
        context = contextvars.copy_context()
        context.run(current_life.set, Life(name))
        if name not in self.hosts:
            self.hosts.append(name)
        return self.loop.create_task(work, context=context)
