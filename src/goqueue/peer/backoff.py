"""How long to leave a peer alone that cannot be reached."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

DELAY_S_MIN = 0.05
DELAY_S_MAX = 1.0


class Backoff:
    """Twice as long after each failure, less a part by chance, so that nodes do not all come back at once. `chance` gives
    [0, 1)."""

    def __init__(self, chance: Callable[[], float]) -> None:
        self._chance = chance
        self._failure_count = 0
        self._until_s = 0.0  # of the loop's clock

    def failed(self) -> None:
        """Of several that fail together the first one counts."""
        now_s = asyncio.get_running_loop().time()
        if now_s < self._until_s:
            return
        delay_s = min(DELAY_S_MAX, DELAY_S_MIN * 2 ** min(self._failure_count, 10))
        self._failure_count += 1
        self._until_s = now_s + delay_s * (1 - self._chance() / 2)

    def succeeded(self) -> None:
        self._failure_count = 0
        self._until_s = 0.0

    async def wait(self) -> None:
        """Until it may be tried again."""
        left_s = self._until_s - asyncio.get_running_loop().time()
        if left_s > 0:
            await asyncio.sleep(left_s)
