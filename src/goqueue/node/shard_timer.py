"""One task that lets the shards of a coordinator act when their time has come."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, Protocol, TypeVar

from goqueue.node.clock import Clock


class Waiting(Protocol):
    def next_tick_ms(self) -> int | None:
        """When something will be due, if anything will."""


S = TypeVar("S", bound=Waiting)


class ShardTimer(Generic[S]):
    def __init__(
        self, shards: Callable[[], Sequence[S]], tick: Callable[[S, int], Awaitable[None]], clock: Clock
    ) -> None:
        """`tick` does what is due in a shard, or has the shard put it off: it is called again at once if it does not."""
        self._shards = shards
        self._tick = tick
        self._clock = clock
        self._sleeps_until_ms: int | None = None
        self._woken = asyncio.Event()

    def watch(self, shard: S) -> None:
        """The shard may have changed: look sooner if it will be due sooner."""
        at_ms = shard.next_tick_ms()
        if at_ms is not None and (self._sleeps_until_ms is None or at_ms < self._sleeps_until_ms):
            self.wake()

    def wake(self) -> None:
        self._woken.set()

    async def run(self) -> None:
        while True:
            self._woken.clear()
            now_ms = self._clock.now_ms()
            next_ms: int | None = None
            was_due = False
            for shard in self._shards():
                at_ms = shard.next_tick_ms()
                if at_ms is None:
                    continue
                if at_ms <= now_ms:
                    was_due = True
                    await self._tick(shard, now_ms)
                elif next_ms is None or at_ms < next_ms:
                    next_ms = at_ms
            if was_due:
                await asyncio.sleep(0)  # more may be due than one tick does, and others want their turn, too
                continue
            self._sleeps_until_ms = next_ms
            try:
                async with asyncio.timeout(None if next_ms is None else (next_ms - now_ms) / 1_000):
                    await self._woken.wait()
            except TimeoutError:
                pass
