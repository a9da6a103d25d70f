"""What clients ask of the controller by way of another node: however many they are, it is asked once at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from goqueue.core.catalog import Catalog
from goqueue.model.limits import Limits
from goqueue.model.settings import TopicSettings
from goqueue.node.cluster.health import Health
from goqueue.node.cluster.ports import ClusterHealth, Copying, NodeView
from goqueue.node.cluster.reassignment import Reassignments
from goqueue.node.cluster.service import Service
from goqueue.node.own_tasks import OwnTasks
from goqueue.sim.loop import SimLoop, run


class PlayedLinks:
    def __init__(self) -> None:
        self.count = self.under_way_count = self.under_way_count_max = 0

    async def health(self, target: str) -> ClusterHealth:
        await self._answer()
        return ClusterHealth("ok", target, 0, 0, [], ["n3"])

    async def views(self, target: str) -> list[NodeView]:
        await self._answer()
        return []

    async def copying(self, target: str) -> list[Copying]:
        await self._answer()
        return []

    async def _answer(self) -> None:
        self.count += 1
        self.under_way_count += 1
        self.under_way_count_max = max(self.under_way_count, self.under_way_count_max)
        await asyncio.sleep(1)
        self.under_way_count -= 1


Ask = Callable[[], Awaitable[Any]]


def _asks(question: str, links: Any, tasks: OwnTasks) -> Ask:
    quorum: Any = SimpleNamespace(name="n2", leader="n1")
    metadata: Any = SimpleNamespace(catalog=Catalog(Limits(), TopicSettings()), quorum=quorum)
    nobody: Any = None
    guard: Any = SimpleNamespace(admit_read=lambda: None)
    health = Health(metadata, quorum, links, tasks.spawn)
    if question == "health":
        return health.told
    if question == "nodes":
        return Service(metadata, quorum, nobody, health, links, tasks.spawn).nodes_told
    return Reassignments(metadata, nobody, links, guard, tasks.spawn).all


@pytest.mark.parametrize("question", ["health", "nodes", "plans"])
def test_a_crowd_asks_the_controller_once_at_a_time(question: str) -> None:
    async def main(loop: SimLoop) -> None:
        links, tasks = PlayedLinks(), OwnTasks()
        ask = _asks(question, links, tasks)
        crowd = [asyncio.ensure_future(ask()) for _ in range(500)]
        await asyncio.sleep(0.5)
        crowd += [
            asyncio.ensure_future(ask()) for _ in range(500)
        ]  # the answer under way is too old for these
        answers = await asyncio.gather(*crowd)
        assert links.under_way_count_max == 1
        assert links.count == 2
        assert len({str(answer) for answer in answers}) == 1
        if question == "health":
            assert answers[0].voters_not_counting == ["n3"]
        await tasks.end()

    run(main, seed=1)
