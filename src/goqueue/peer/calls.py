"""Requests of Kafka's protocol to one node, over one connection that is made when it is needed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from goqueue.peer.backoff import DELAY_S_MAX, Backoff
from goqueue.peer.dialling import Dialler, Patience
from goqueue.peer.frames import FrameLink


class Calls:
    def __init__(
        self,
        dialler: Dialler,
        target: str,
        patience: Patience,
        *,
        connect_s: float,
        chance: Callable[[], float],
    ) -> None:
        self._dialler = dialler
        self._target = target
        self._patience = patience
        self._connect_s = connect_s
        self._backoff = Backoff(chance)
        self._link: FrameLink | None = None
        self._dialling: asyncio.Task[FrameLink] | None = None

    async def call(self, api: str, version: int, request: Any, *, timeout_s: float) -> Any:
        """The time is for the answer; connecting has its own."""
        link = await self._connected()
        return await link.call(api, version, request, timeout_s=timeout_s)

    async def close(self) -> None:
        """After `Patience.end`, which ends a connection that is being made."""
        if self._dialling is not None:
            await asyncio.wait([self._dialling])
        if self._link is not None:
            self._link.abort("this node stops")

    async def _connected(self) -> FrameLink:
        """Whoever comes while a connection is being made waits for the same one."""
        if self._link is not None and self._link.is_usable:
            return self._link
        if self._dialling is None:
            self._dialling = asyncio.get_running_loop().create_task(self._dial())
            self._dialling.add_done_callback(_look_at)  # whoever asked may have gone
        return await asyncio.shield(self._dialling)

    async def _dial(self) -> FrameLink:
        is_made = False
        try:
            # Connecting and logging in are bounded one by one, and a pause may come before.
            async with self._patience.within(2 * self._connect_s + DELAY_S_MAX, self._target):
                await self._backoff.wait()
                self._link = await self._dialler.frames(self._target)
                is_made = True
                return self._link
        finally:
            self._dialling = None
            if is_made:
                self._backoff.succeeded()
            else:
                self._backoff.failed()


def _look_at(dialling: asyncio.Task[FrameLink]) -> None:
    if not dialling.cancelled():
        dialling.exception()
