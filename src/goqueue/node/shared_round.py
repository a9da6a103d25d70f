"""One question on behalf of many: whoever asks is answered by a round that began after it asked. There is one at a time, so a crowd
costs as little as a few."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from goqueue.model.errors import GoQueueError
from goqueue.node.commit import Spawn

R = TypeVar("R")


class SharedRound(Generic[R]):
    def __init__(self, run: Callable[[], Awaitable[R]], spawn: Spawn, *, pause_s: float = 0.0) -> None:
        """`run` ends by itself, with an answer or a GoQueueError. So long at least is from the beginning of one to that of the
        next."""
        self._run = run
        self._spawn = spawn
        self._pause_s = pause_s
        self._began_s = -pause_s
        self._turn = asyncio.Lock()
        self._next: asyncio.Future[R | GoQueueError] | None = (
            None  # the answer of the one that has yet to begin
        )

    async def ask(self) -> R:
        answer = self._next
        if answer is None:
            answer = self._next = asyncio.get_running_loop().create_future()
            self._spawn(self._serve(answer))
        found = await asyncio.shield(answer)
        if isinstance(found, GoQueueError):
            raise found
        return found

    async def _serve(self, answer: asyncio.Future[R | GoQueueError]) -> None:
        try:
            async with self._turn:
                loop = asyncio.get_running_loop()
                await asyncio.sleep(max(0.0, self._began_s + self._pause_s - loop.time()))
                self._next, self._began_s = None, loop.time()  # who comes from now on wants a later one
                try:
                    answer.set_result(await self._run())
                except GoQueueError as error:
                    answer.set_result(error)
        finally:
            answer.cancel()  # if the node stops: nobody waits for ever
