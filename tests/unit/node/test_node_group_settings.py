"""What a group has set, as nodes know it that do not coordinate the group."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from goqueue.model.cluster_errors import PeerUnreachable
from goqueue.model.errors import CoordinatorNotAvailable
from goqueue.node.queue.group_settings import GroupSettings
from goqueue.sim.loop import SimLoop, run


class Elsewhere:
    """Two other nodes; one of them coordinates."""

    def __init__(self) -> None:
        self.coordinator: str | None = "node-2"
        self.settings: dict[str, str] = {"max.retries": "7"}
        self.is_down = False
        self.asked: list[str] = []

    def coordinates(self, group_id: str) -> bool:
        return False

    def settings_of(self, group_id: str) -> dict[str, str]:
        raise AssertionError("this node does not coordinate the group")

    async def group_settings(self, node: str, group_id: str) -> dict[str, str]:
        self.asked.append(node)
        if self.is_down:
            raise PeerUnreachable(f"{node} is down")
        return dict(self.settings)


def play(scene: Callable[[Elsewhere, GroupSettings], Coroutine[Any, Any, None]]) -> None:
    async def main(loop: SimLoop) -> None:
        there = Elsewhere()
        settings = GroupSettings(there, lambda _: there.coordinator, there, loop.create_task)
        await scene(there, settings)

    run(main, seed=1)


def test_the_coordinator_is_asked_once_by_all_who_want_to_know() -> None:
    async def scene(there: Elsewhere, settings: GroupSettings) -> None:
        assert not settings.knows("g")
        await asyncio.gather(settings.learn("g"), settings.learn("g"))
        assert settings.of("g") == {"max.retries": "7"}
        await settings.learn("g")
        assert there.asked == ["node-2"]

    play(scene)


def test_what_was_said_last_counts_while_the_coordinator_is_down() -> None:
    async def scene(there: Elsewhere, settings: GroupSettings) -> None:
        await settings.learn("g")
        there.is_down = True
        await asyncio.sleep(60)
        await settings.learn("g")
        assert settings.of("g") == {"max.retries": "7"}

    play(scene)


def test_a_change_is_known_after_a_while() -> None:
    async def scene(there: Elsewhere, settings: GroupSettings) -> None:
        await settings.learn("g")
        there.settings = {"max.retries": "9"}
        await asyncio.sleep(60)
        await settings.learn("g")
        await asyncio.sleep(1)
        assert settings.of("g") == {"max.retries": "9"}

    play(scene)


def test_nothing_is_decided_for_a_group_of_which_nobody_says_what_it_has_set() -> None:
    async def scene(there: Elsewhere, settings: GroupSettings) -> None:
        there.is_down = True
        with pytest.raises(CoordinatorNotAvailable):
            await settings.learn("g")
        there.is_down, there.coordinator = False, "node-3"
        await settings.learn("g")
        assert there.asked == ["node-2", "node-3"]

    play(scene)


def test_a_coordinator_that_does_not_say_is_asked_ever_less_often_and_that_is_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene(there: Elsewhere, settings: GroupSettings) -> None:
        there.is_down = True
        deadline = asyncio.get_running_loop().time() + 10
        while asyncio.get_running_loop().time() < deadline:
            with pytest.raises(CoordinatorNotAvailable):
                await settings.learn("g")
        assert 5 < len(there.asked) < 15
        there.coordinator, there.asked = "node-3", []
        there.is_down = False
        began = asyncio.get_running_loop().time()
        await settings.learn("g")
        assert (there.asked, asyncio.get_running_loop().time() - began) == (["node-3"], 0)

    with caplog.at_level("INFO"):
        play(scene)
    assert len([one for one in caplog.records if "not known for now" in one.message]) == 1


def test_where_there_never_was_a_group_nobody_is_asked() -> None:
    async def scene(there: Elsewhere, settings: GroupSettings) -> None:
        there.coordinator = None
        await settings.learn("g")
        assert (settings.of("g"), there.asked) == ({}, [])

    play(scene)
