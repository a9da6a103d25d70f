"""What all clients of one run share."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from random import Random
from typing import TypeVar

from goqueue.sim.kafka.client import KafkaClient, SimKafkaClient
from goqueue.sim.kafka.history import KafkaHistory
from goqueue.sim.life import Life, current_life
from goqueue.sim.loop import SimLoop

# Answers after which a client tries the same thing again: the broker is busy, starting, stopping or short of disk.
RETRIABLE = frozenset({7, 8, 14, 15, 16, 51, 56})

R = TypeVar("R")


@dataclass(slots=True)
class World:
    loop: SimLoop
    history: KafkaHistory
    rng: Random
    is_calm: bool = False  # nothing fails any more: no client dies, pauses or competes from here on
    is_done: bool = False  # everything is consumed
    hosts: list[str] = field(default_factory=list)
    topic_ids: dict[str, bytes] = field(default_factory=dict)
    clients: list[KafkaClient] = field(default_factory=list)
    new_client: Callable[[str], KafkaClient] = SimKafkaClient

    def child(self) -> Random:
        return Random(self.rng.getrandbits(64))

    def client(self, name: str) -> KafkaClient:
        """One that is closed when the run is over, whatever becomes of its owner."""
        made = self.new_client(name)
        self.clients.append(made)
        return made

    def start(self, name: str, work: Coroutine[None, None, R]) -> asyncio.Task[R]:
        """Run a client on the host of this name, whose cable can be cut alone."""
        context = contextvars.copy_context()
        context.run(current_life.set, Life(name))
        if name not in self.hosts:
            self.hosts.append(name)
        return self.loop.create_task(work, context=context)


async def pause(rng: Random) -> None:
    await asyncio.sleep(rng.uniform(0.05, 0.4))
