"""Members of share groups that have left: whoever holds something for them lets it go, one farewell after another."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from goqueue.core.group.events import Event
from goqueue.core.group.share_events import ShareMemberRemoved
from goqueue.model.errors import GoQueueError
from goqueue.node.commit import Spawn

logger = logging.getLogger(__name__)


class Farewells:
    def __init__(self, spawn: Spawn) -> None:
        self._spawn = spawn
        self._callbacks: list[Callable[[str, str], Awaitable[None]]] = []
        self._under_way: dict[tuple[str, str], asyncio.Task[None]] = {}  # of members that have just left

    def add(self, callback: Callable[[str, str], Awaitable[None]]) -> None:
        """Called with group and member."""
        self._callbacks.append(callback)

    def note(self, events: Sequence[Event], is_due: bool) -> None:
        """A watcher of groups."""
        for event in events:
            if isinstance(event, ShareMemberRemoved) and self._callbacks:
                who = event.group_id, event.member_id
                farewell = self._spawn(self._say(*who, after=self._under_way.get(who)))
                self._under_way[who] = farewell
                farewell.add_done_callback(partial(self._said, who))

    async def until_said(self, group_id: str, member_id: str) -> None:
        while (farewell := self._under_way.get((group_id, member_id))) is not None:
            await asyncio.wait([farewell])

    async def _say(self, group_id: str, member_id: str, *, after: asyncio.Task[None] | None) -> None:
        if after is not None:
            await asyncio.wait([after])
        for callback in self._callbacks:
            try:
                await callback(group_id, member_id)
            except GoQueueError as error:  # what it holds is free when its time is up
                logger.warning("a member's leases remain group=%r error=%r", group_id, error.sentence)

    def _said(self, who: tuple[str, str], farewell: asyncio.Task[None]) -> None:
        if self._under_way.get(who) is farewell:
            del self._under_way[who]
