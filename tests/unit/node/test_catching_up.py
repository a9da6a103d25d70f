"""A node that is asked for a topic it does not have catches up with the catalogue first. Whoever asked waits a moment for that, and what
was begun for it is carried to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import cast

import pytest

from goqueue.model.errors import GoQueueError, StorageError
from goqueue.node.cluster import catching_up as catching_up_module
from goqueue.node.cluster.catching_up import CatchingUp
from goqueue.node.cluster.ports import PeerLinks
from goqueue.node.local_topics import LocalTopics
from goqueue.node.metadata import Metadata
from goqueue.node.topic_table import TopicTable
from goqueue.sim.loop import SimLoop, run

PATIENCE_S = catching_up_module._PATIENCE_S


class KnownCatalogue:
    """Metadata, its quorum and Raft in one: of a controller, which has applied everything."""

    name = "n1"
    commit_index = 7

    @property
    def quorum(self) -> KnownCatalogue:
        return self

    @property
    def raft(self) -> KnownCatalogue:
        return self

    async def until_led(self) -> str:
        return self.name

    async def until_applied(self, index: int) -> None:
        assert index == self.commit_index


class SlowTopics:
    """Opening one takes a while, as where there is much to recover."""

    def __init__(self, seconds: float, error: Exception | None = None) -> None:
        self.begun: list[str] = []
        self.ended: list[str] = []
        self._seconds = seconds
        self._error = error

    async def follow(self, name: str) -> None:
        self.begun.append(name)
        await asyncio.sleep(self._seconds)
        if self._error is not None:
            raise self._error
        self.ended.append(name)


class Asked:
    """A node without any topic."""

    def __init__(self, topics: SlowTopics) -> None:
        self.tasks: list[asyncio.Task[None]] = []
        self.catching_up = CatchingUp(
            cast(Metadata, KnownCatalogue()),
            cast(PeerLinks, object()),
            cast(LocalTopics, topics),
            TopicTable(),
            self._spawn,
        )

    def _spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        self.tasks.append(asyncio.ensure_future(work))
        return self.tasks[-1]


def test_opening_a_topic_goes_on_when_the_patience_of_whoever_asked_ends() -> None:
    """Half opened it would stay as it is until the catalogue says something of it again."""

    async def scenario(loop: SimLoop) -> None:
        topics = SlowTopics(5 * PATIENCE_S)
        asked = Asked(topics)
        await asked.catching_up.until_known("orders")
        assert loop.time() == pytest.approx(PATIENCE_S)
        assert (topics.begun, topics.ended) == (["orders"], [])
        await asyncio.gather(*asked.tasks)
        assert topics.ended == ["orders"]

    run(scenario, seed=1)


def test_opening_a_topic_goes_on_when_whoever_asked_is_gone() -> None:
    async def scenario(loop: SimLoop) -> None:
        topics = SlowTopics(PATIENCE_S / 2)
        asked = Asked(topics)
        asking = asyncio.ensure_future(asked.catching_up.until_known("orders"))
        await asyncio.sleep(PATIENCE_S / 4)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        assert asking.cancelled()
        await asyncio.gather(*asked.tasks)
        assert topics.ended == ["orders"]

    run(scenario, seed=1)


def test_a_topic_that_opens_in_time_is_waited_for() -> None:
    async def scenario(loop: SimLoop) -> None:
        topics = SlowTopics(PATIENCE_S / 2)
        await Asked(topics).catching_up.until_known("orders")
        assert topics.ended == ["orders"]
        assert loop.time() == pytest.approx(PATIENCE_S / 2)

    run(scenario, seed=1)


@pytest.mark.parametrize("seconds", [PATIENCE_S / 2, 2 * PATIENCE_S])
@pytest.mark.parametrize("error", [OSError("the disk is gone"), StorageError("the disk is gone")])
def test_a_topic_that_cannot_be_opened_is_nobodys_error(
    error: OSError | GoQueueError, seconds: float
) -> None:
    """Whoever asked hears that there is no such topic, as far as this node knows. Nothing ends that runs all the time."""

    async def scenario(loop: SimLoop) -> None:
        asked = Asked(SlowTopics(seconds, error))
        await asked.catching_up.until_known("orders")
        await asyncio.wait(asked.tasks)
        assert all(task.exception() is None for task in asked.tasks)

    run(scenario, seed=1)
