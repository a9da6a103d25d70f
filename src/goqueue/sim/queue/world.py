"""What all clients of one run share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

from goqueue.node.node import Node
from goqueue.sim.broker import SimBroker
from goqueue.sim.http import NoAnswer
from goqueue.sim.latency import Latency
from goqueue.sim.loop import SimLoop
from goqueue.sim.queue.clock import JumpingClock
from goqueue.sim.queue.history import QueueHistory

T = TypeVar("T")
REQUEST_TIMEOUT_S = 20.0
_LOSS_RATE = 0.03
_NETWORK = Latency(0.000_2, 0.005, 0.3, 0.02)


@dataclass(slots=True)
class World:
    loop: SimLoop
    broker: SimBroker
    clock: JumpingClock
    history: QueueHistory
    rng: Random
    is_calm: bool = False  # nothing fails any more: everybody does its work and nothing else
    is_done: bool = False

    def child(self) -> Random:
        return Random(self.rng.getrandbits(64))

    async def call(self, use: Callable[[Node], Coroutine[Any, Any, T]]) -> T:
        """A request over a network that may lose its answer. Raises what the broker refuses with, or `NoAnswer`."""
        await asyncio.sleep(_NETWORK.draw(self.rng))
        try:
            return await self.broker.call(use, REQUEST_TIMEOUT_S)
        finally:
            await asyncio.sleep(_NETWORK.draw(self.rng))
            if not self.is_calm and self.rng.random() < _LOSS_RATE:
                raise NoAnswer("the answer is lost")
