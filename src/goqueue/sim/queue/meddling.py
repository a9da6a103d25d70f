"""What people do to a queue while it works: clocks are set, groups are sent elsewhere or deleted, records are deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from goqueue.model.errors import GoQueueError
from goqueue.node.node import Node
from goqueue.node.queue.ledgers import Place as Part
from goqueue.sim.http import NoAnswer
from goqueue.sim.queue.world import World

_FORGET_RATE = 0.2
_DELETE_RATE = 0.3


class Meddling:
    def __init__(self, world: World) -> None:
        self._world = world
        self._rng = world.child()

    async def set_clock(self) -> None:
        while True:
            await asyncio.sleep(self._rng.expovariate(0.15))
            self._world.clock.jump(self._rng.choice((-8_000, -700, 700, 4_000, 20_000)))

    async def send_to_and_fro(self, group: str, parts: Sequence[Part]) -> None:
        while True:
            await asyncio.sleep(self._rng.expovariate(0.3))
            topic, index = self._rng.choice(parts)

            async def send(node: Node, topic: str = topic, index: int = index) -> None:
                if self._rng.random() < _FORGET_RATE:
                    await node.queue.forget(group)
                    return
                end = node.topics.partition(topic, index).latest
                await node.queue.seek(group, topic, index, self._rng.randint(0, end))

            try:
                await self._world.call(send)
            except (NoAnswer, GoQueueError):
                pass

    async def delete_records(self, parts: Sequence[Part]) -> None:
        """From the start of a log, whoever holds them."""
        while True:
            await asyncio.sleep(self._rng.expovariate(_DELETE_RATE))
            topic, index = self._rng.choice(parts)

            async def delete(node: Node, topic: str = topic, index: int = index) -> None:
                end = self._rng.randint(0, node.topics.partition(topic, index).latest)
                deleted = self._world.history.deleted
                deleted[topic, index] = max(end, deleted.get((topic, index), 0))
                await node.topics.delete_records(topic, index, end)

            try:
                await self._world.call(delete)
            except (NoAnswer, GoQueueError):
                pass
