"""When the keeper of the gates looks at a group."""

from __future__ import annotations

import asyncio
from typing import Any

from goqueue.core.catalog import Catalog
from goqueue.core.group.consumer_events import ConsumerGroupAdvanced
from goqueue.core.group.shard import GroupShard
from goqueue.model.cluster_errors import CoordinatorLoading, NotCoordinator
from goqueue.model.errors import GoQueueError
from goqueue.model.limits import Limits
from goqueue.node.groups.gatekeeper import _LOOK_S, _PAUSE_S, Gatekeeper
from goqueue.sim.loop import SimLoop, run


class PlayedGroups:
    """Groups of which nothing is known but when they were looked at. Those in `watched` are to be looked at again."""

    def __init__(self, loop: SimLoop, *watched: str) -> None:
        self._loop = loop
        self._watched = watched
        self.looks: list[tuple[float, str]] = []
        self.note: Any = None  # the keeper's

    @property
    def shards(self) -> PlayedGroups:
        return self

    def when_changed(self, note: Any) -> None:
        self.note = note

    def when_loaded(self, note: Any) -> None:
        pass

    def state(self, group_id: str) -> GroupShard:
        self.looks.append((self._loop.time(), group_id))
        error: GoQueueError = NotCoordinator("it is another node's")
        if group_id in self._watched:
            error = CoordinatorLoading("it is being read")
        raise error

    def is_due(self, group_id: str) -> None:
        self.note([ConsumerGroupAdvanced(group_id, 1, 1, "")], False)


def test_a_group_that_is_due_in_the_moment_in_which_the_watched_ones_are_is_looked_at_with_them() -> None:
    async def main(loop: SimLoop) -> None:
        groups = PlayedGroups(loop, "watched")
        keeper = Gatekeeper(
            groups,  # type: ignore[arg-type]  # played
            lambda: Catalog(Limits()),
            None,  # type: ignore[arg-type]  # nobody reads anything
            loop.create_task,
            wait_ms=30_000,
        )
        groups.is_due("watched")
        running = loop.create_task(keeper.run())
        await asyncio.sleep(0)
        await asyncio.sleep(_PAUSE_S)  # its own pause is over, too: it waits for its time, or for news
        loop.call_later(_LOOK_S, groups.is_due, "new")  # in the turn in which that time is up, and after it
        await asyncio.sleep(_LOOK_S + _PAUSE_S / 2)
        running.cancel()
        time_s = _PAUSE_S + _LOOK_S
        assert sorted(groups.looks) == [(0.0, "watched"), (time_s, "new"), (time_s, "watched")]

    run(main, seed=1)
