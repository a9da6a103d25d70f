"""However much is to be moved, nobody waits for it for long, and a part that is not known is said to be that."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

from tests.support.catalogs import CatalogRun

from goqueue.core.catalog import Catalog, CreateTopic
from goqueue.core.cluster.plans import MOVE_COUNT_MAX
from goqueue.model.errors import InvalidRequest
from goqueue.node.cluster.controller import Controller
from goqueue.node.cluster.partition_orders import PartitionOrders
from goqueue.node.cluster.ports import PeerLinks
from goqueue.node.cluster.reassignment import PlanOrder, Reassignments, WantedMove
from goqueue.node.commit import Spawn
from goqueue.node.guard import Guard
from goqueue.node.metadata import Metadata
from goqueue.node.requests import PartitionFacts
from goqueue.sim.loop import run


class Known:
    """A catalogue that nobody changes, as `Metadata` has it; and who lets everybody read."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog

    def admit_read(self) -> None:
        pass


class Slow:
    """Each topic's leaders answer after so many seconds."""

    def __init__(self, **seconds: float) -> None:
        self._seconds = seconds

    async def of(self, topic: str) -> list[PartitionFacts]:
        await asyncio.sleep(self._seconds[topic])
        return [PartitionFacts(0, 1, (1,), (1,), (), 0, 0, 1, 1, 100, None, [])]


def catalog(*topics: str) -> CatalogRun:
    cluster = CatalogRun(3)
    for topic in topics:
        cluster.create(1, name=topic)
    return cluster


def copied(cluster: CatalogRun, sizes: Slow, target: int, topics: Sequence[str]) -> tuple[float, object]:
    """How long it took to foresee that the topics move to the node, and how many bytes that one would copy."""
    known = Known(cluster.catalog)
    plans = Reassignments(
        cast(Metadata, known),
        cast(Controller, None),
        cast(PeerLinks, None),
        cast(Guard, known),
        cast(Spawn, None),  # nobody is asked what is copied
    )

    async def main(loop: object) -> tuple[float, object]:
        began = asyncio.get_running_loop().time()
        order = PlanOrder([WantedMove(topic, 0, [target]) for topic in topics])
        preview = await plans.foresee(order, sizes)
        took = asyncio.get_running_loop().time() - began
        return took, next(one.copied_bytes for one in preview.nodes if one.node == f"n{target}")

    return run(main, seed=1)


def test_what_a_plan_would_copy_is_added_up() -> None:
    _, found = copied(catalog("a", "b"), Slow(a=1, b=1), 2, ["a", "b"])
    assert found == 200


def test_leaders_that_do_not_answer_take_no_longer_than_one_would() -> None:
    topics = [f"t{number}" for number in range(20)]
    took, found = copied(catalog(*topics), Slow(**dict.fromkeys(topics, 4.9)), 2, topics)
    assert (round(took, 3), found) == (5, None)
    took, found = copied(catalog(*topics), Slow(**dict.fromkeys(topics, 1.0)), 2, topics)
    assert (round(took, 3), found) == (2, 2_000)


def test_a_topic_that_nobody_leads_is_not_waited_for() -> None:
    cluster = catalog("a")
    cluster.run(CreateTopic("b", 2, {}, assignments=[[1], [3]]))
    cluster.fence(3)
    took, found = copied(cluster, Slow(a=0, b=5), 2, ["a", "b"])
    assert (round(took, 3), found) == (0, None)


def test_more_partitions_than_a_plan_may_have_are_not_moved_at_once() -> None:
    known = Known(catalog("a").catalog)
    orders = PartitionOrders(cast(Metadata, known), cast(Guard, known))
    targets = {("a", index): [2] for index in range(MOVE_COUNT_MAX + 1)}

    async def main(loop: object) -> set[str]:
        outcomes = await orders.reassign(targets, keeps_count=False)
        assert set(outcomes) == set(targets)
        assert all(isinstance(error, InvalidRequest) for error in outcomes.values())
        return {str(error) for error in outcomes.values()}

    (said,) = run(main, seed=1)
    assert "moves 10001 partitions, more than the 10000" in said
