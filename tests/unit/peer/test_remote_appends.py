"""Records that two nodes move to each other, while some of them live at the other node by now."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from tests.support.peers import Links, Station

from goqueue.api.kafka.queue_calls import QueueCallsApi
from goqueue.core.lease.events import Target
from goqueue.node.scaling.ports import Part, Silence, SilenceCall
from goqueue.sim.loop import SimLoop, run

PRODUCER = (7, 0)
NAMES = ("n1", "n2")


class Played:
    """A node that sends a part of whatever is moved to it on to the other one, when both have got something."""

    def __init__(self, name: str, both: asyncio.Barrier) -> None:
        self._other = NAMES[1 - NAMES.index(name)]
        self._both = both
        node = SimpleNamespace(
            arrivals=SimpleNamespace(append=self._append),
            keyed=SimpleNamespace(
                parts=SimpleNamespace(accept=self._accept), division=SimpleNamespace(silence=self._silence)
            ),
        )
        context: Any = SimpleNamespace(node=node)
        self.station = Station(name, apis=QueueCallsApi(context).apis())
        self.links = Links(name, address_of=lambda target: (target, 7_000))
        self.parts: list[Part] = []

    async def move(self) -> int | None:
        return await self.links.appends.append(self._other, Target("t", 0), PRODUCER, b"moved")

    async def _append(self, topic: str, index: int, producer: tuple[int, int], batch: bytes) -> int | None:
        await self._both.wait()
        await self.links.parts.silence(self._other, SilenceCall(topic, 3, producer[0]))
        return await self.links.parts.send(self._other, Part(topic, index, 3, batch))

    async def _accept(self, part: Part) -> int:
        self.parts.append(part)
        return 4

    def _silence(self, call: SilenceCall) -> Silence:
        return Silence(10.0, 10.0)


def test_two_nodes_that_move_records_to_each_other_do_not_wait_for_each_other() -> None:
    async def main(loop: SimLoop) -> None:
        both = asyncio.Barrier(2)
        nodes = [Played(name, both) for name in NAMES]
        for node in nodes:
            await node.station.start(node.station.name, 7_000)
        async with asyncio.timeout(5):
            assert await asyncio.gather(*(node.move() for node in nodes)) == [4, 4]
        assert [part.batch for node in nodes for part in node.parts] == [b"moved", b"moved"]
        for node in nodes:
            await node.links.close()
            await node.station.stop()

    run(main, seed=1)
