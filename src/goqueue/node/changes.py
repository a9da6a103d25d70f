"""Changes of the catalogue and of what hangs on it. Those of one name take turns, and each is carried to its end though
its client has gone or has waited too long: otherwise an event could be in the log that nobody applied, or a topic in
the catalogue that nobody opened."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar
from weakref import WeakValueDictionary

from goqueue.model.errors import GoQueueError, TimedOut
from goqueue.node.commit import Spawn

T = TypeVar("T")


class Changes:
    def __init__(self, spawn: Spawn, *, timeout_ms: int) -> None:
        self._spawn = spawn
        self._timeout_s = timeout_ms / 1_000
        # A lock goes with the last change that holds it or waits for it.
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def run(self, name: str, work: Callable[[], Awaitable[T]]) -> T:
        result: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._spawn(self._in_turn(name, work, result))
        try:
            async with asyncio.timeout(self._timeout_s):
                return await result
        except TimeoutError:
            raise TimedOut(
                f"the change of {name!r} takes longer than {self._timeout_s:g} s; it goes on, "
                "and whether it succeeds is not known"
            ) from None

    async def _in_turn(self, name: str, work: Callable[[], Awaitable[T]], result: asyncio.Future[T]) -> None:
        turn = self._turns.setdefault(name, asyncio.Lock())
        try:
            async with turn:
                done = await work()
            if not result.done():
                result.set_result(done)
        except GoQueueError as error:
            if not result.done():
                result.set_exception(error)
        finally:
            result.cancel()  # if it has neither: the node stops, or has a bug and is about to
