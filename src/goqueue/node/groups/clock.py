"""Wall-clock time for groups, which need it for what they write down, but whose sessions are durations: where the clock
was set, their deadlines are moved along."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from goqueue.node.clock import Clock

_JUMP_MS_MIN = 1_000  # less is a clock being adjusted, or this process being slow


class WatchedClock:
    def __init__(self, clock: Clock, when_set: Callable[[int, int], None]) -> None:
        """`when_set` gets by how much the clock was set, and what it shows now."""
        self._clock = clock
        self._when_set = when_set
        self._seen: tuple[int, float] | None = None  # what the clock and the loop showed when last asked

    def now_ms(self) -> int:
        now_ms, steady_s = self._clock.now_ms(), asyncio.get_running_loop().time()
        before, self._seen = self._seen, (now_ms, steady_s)
        if before is not None:
            jump_ms = now_ms - before[0] - int((steady_s - before[1]) * 1_000)
            if abs(jump_ms) >= _JUMP_MS_MIN:
                self._when_set(jump_ms, now_ms)
        return now_ms
