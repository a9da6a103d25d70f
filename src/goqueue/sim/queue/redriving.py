"""Dead letters go back to where they came from, each once, though the broker dies in the middle of it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

from goqueue.core.dead_letter import MISSING
from goqueue.model.errors import DataCorrupt, GoQueueError
from goqueue.node.dead_letters.redrive import RedriveRequest
from goqueue.node.dead_letters.topics import SUFFIX
from goqueue.node.node import Node
from goqueue.node.queue.ledgers import Place as Part
from goqueue.node.requests import ReadQuery
from goqueue.sim.http import NoAnswer
from goqueue.sim.queue.world import World

_PAUSE_S = 0.5
_LOOK_COUNT_MAX = 60


class Redriving:
    def __init__(self, world: World, topic: str, parts: Sequence[Part]) -> None:
        self._world = world
        self._parts = parts
        self._dead_topic = f"{topic}{SUFFIX}"
        self._ends: dict[Part, int] = {}

    async def begin(self) -> bool:
        """Note where the topic ends; False if nothing died."""
        return await self._world.call(self._note_ends)

    async def _note_ends(self, node: Node) -> bool:
        self._ends = {part: node.topics.partition(*part).latest for part in self._parts}
        return any(facts.name == self._dead_topic for facts in node.topics.list())

    async def run(self) -> None:
        """Until there is nothing left to send back."""
        while True:
            try:
                found = await self._world.call(
                    lambda node: node.redrive.redrive(RedriveRequest(self._dead_topic, limit=3))
                )
                if not found.matched:
                    return
                if found.failed or found.parked:
                    self._world.history.violate(f"some dead letters could not be sent back: {found}")
                    return
            except (NoAnswer, GoQueueError):
                await asyncio.sleep(_PAUSE_S)

    async def finish(self) -> None:
        """What was decided before the crash arrives soon, though nobody waits for it any more."""
        await self.run()
        for _ in range(_LOOK_COUNT_MAX):
            wrong = await self._world.call(self._differences)
            if not wrong:
                return
            await asyncio.sleep(_PAUSE_S)
        for what in wrong:
            self._world.history.violate(what)

    async def _differences(self, node: Node) -> list[str]:
        final = self._world.history.final
        dead = Counter(
            record.value
            for place, record in final.items()
            if place.topic == self._dead_topic
            and MISSING not in record.headers  # that one has nothing to send
        )
        back: Counter[str] = Counter()
        for part, start in self._ends.items():
            back.update(await self._values(node, part, start))
        return [
            f"{value} was {dead[value]} times among the dead letters and came back {back[value]} times"
            for value in sorted({*dead, *back})
            if dead[value] != back[value]
        ]

    async def _values(self, node: Node, part: Part, offset: int) -> list[str]:
        values: list[str] = []
        while True:
            try:
                page = await node.reader.read(*part, ReadQuery(offset=offset, limit=1_000))
            except DataCorrupt as damage:
                offset = damage.end
                continue
            values += [(record.value or b"").decode() for record in page.records]
            offset = page.next_offset
            if offset >= page.high_watermark:
                return values
