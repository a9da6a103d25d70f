"""A node makes sure that it still leads: whom it asks, for how long, and what it makes of the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any, cast

import pytest

from goqueue.model.cluster_errors import NotController, NotCoordinator, PeerUnreachable
from goqueue.model.errors import GoQueueError, RouteNotFound
from goqueue.node.cluster.confirming import Confirming
from goqueue.node.cluster.ports import Confirmed, PeerLinks
from goqueue.node.metadata import Metadata
from goqueue.node.replication.replication import Replication
from goqueue.sim.loop import SimLoop, run

ME, PLACE, EPOCH = 1, ("__consumer_offsets", 3), 5
ANSWERED_S_MAX = 5.0


class Known:
    """Metadata, its catalogue and its quorum in one, of a node that has applied everything up to an index."""

    name = "n1"

    def __init__(self, applied_index: int) -> None:
        self.applied_index = applied_index
        self.state = SimpleNamespace(leader=ME, leader_epoch=EPOCH)
        self.quorum = self.catalog = self.partitions = self

    def find(self, topic: str, index: int) -> Any:
        return self.state

    async def until_led(self) -> str:
        return "n2"

    async def until_applied(self, index: int) -> None:
        while self.applied_index < index:  # noqa: ASYNC110 - a test's
            await asyncio.sleep(0.01)


class Controller:
    """What it answers, one after the other; the last again and again."""

    def __init__(self, *answers: int | GoQueueError) -> None:
        self._answers = list(answers)
        self.asked: list[str] = []

    async def confirmed(self, target: str) -> Confirmed:
        self.asked.append(target)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, GoQueueError):
            raise answer
        return Confirmed(answer)

    async def state(self, target: str) -> Any:
        return SimpleNamespace(commit_index=7)


class Led:
    number = ME

    def leads(self, topic: str, index: int) -> bool:
        return (topic, index) == PLACE

    def leadership(self, topic: str, index: int) -> Any:
        return SimpleNamespace(epoch=EPOCH)


def confirming(known: Known, controller: Controller) -> Confirming:
    tasks: list[asyncio.Task[None]] = []

    def spawn(work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        tasks.append(asyncio.ensure_future(work))
        return tasks[-1]

    return Confirming(cast(Metadata, known), cast(PeerLinks, controller), cast(Replication, Led()), spawn)


def test_it_waits_until_it_has_applied_what_was_decided() -> None:
    async def scenario(loop: SimLoop) -> None:
        known = Known(applied_index=3)
        asking = asyncio.ensure_future(confirming(known, Controller(9)).until_sure(*PLACE))
        await asyncio.sleep(1)
        assert not asking.done()
        known.applied_index = 9
        await asking

    run(scenario, seed=1)


@pytest.mark.parametrize(("leader", "epoch"), [(2, EPOCH), (ME, EPOCH + 1)])
def test_what_is_decided_counts_though_it_is_not_followed_yet(leader: int, epoch: int) -> None:
    async def scenario(loop: SimLoop) -> None:
        known = Known(applied_index=9)
        known.state = SimpleNamespace(leader=leader, leader_epoch=epoch)
        with pytest.raises(NotCoordinator, match="it is decided"):
            await confirming(known, Controller(9)).until_sure(*PLACE)

    run(scenario, seed=1)


def test_another_controller_is_asked_where_one_does_not_know() -> None:
    async def scenario(loop: SimLoop) -> None:
        controller = Controller(NotController(None), PeerUnreachable("n2 is gone"), 9)
        await confirming(Known(applied_index=9), controller).until_sure(*PLACE)
        assert len(controller.asked) == 3

    run(scenario, seed=1)


def test_where_nobody_knows_the_answer_comes_before_clients_give_up() -> None:
    async def scenario(loop: SimLoop) -> None:
        controller = Controller(NotController(None))
        with pytest.raises(NotCoordinator, match="is not known"):
            await confirming(Known(applied_index=9), controller).until_sure(*PLACE)
        assert loop.time() < ANSWERED_S_MAX

    run(scenario, seed=1)


def test_a_controller_of_an_earlier_version_is_believed() -> None:
    async def scenario(loop: SimLoop) -> None:
        known = Known(applied_index=6)
        older = Controller(RouteNotFound("there is nothing at '/cluster/confirmed'"))
        asking = asyncio.ensure_future(confirming(known, older).until_sure(*PLACE))
        await asyncio.sleep(1)
        assert not asking.done()
        known.applied_index = 7
        await asking

    run(scenario, seed=1)


def test_who_does_not_lead_asks_nobody() -> None:
    async def scenario(loop: SimLoop) -> None:
        controller = Controller(9)
        await confirming(Known(applied_index=9), controller).until_sure("__consumer_offsets", 4)
        assert controller.asked == []

    run(scenario, seed=1)
