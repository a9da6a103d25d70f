"""Fresh names from a seed."""

from __future__ import annotations

from random import Random


class SimIds:
    """Outlives the broker's lives, so that no two of them make the same name."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._count = 0

    def fresh(self) -> str:
        self._count += 1
        return f"{self._count}-{self._rng.getrandbits(32):08x}"
