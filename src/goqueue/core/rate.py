"""How often something happens: an average that forgets half of what it knows every half minute, in two numbers."""

from __future__ import annotations

import math
from typing import Final

_HALF_LIFE_MS: Final = 30_000
_SPAN_S: Final = (
    _HALF_LIFE_MS / 1_000 / math.log(2)
)  # a steady stream adds up to what comes in so many seconds


class Rate:
    def __init__(self) -> None:
        self._sum = 0.0
        self._at_ms = 0

    def add(self, count: int, now_ms: int) -> None:
        self._sum = self._left(now_ms) + count
        self._at_ms = max(self._at_ms, now_ms)

    def per_second(self, now_ms: int) -> float:
        return self._left(now_ms) / _SPAN_S

    def _left(self, now_ms: int) -> float:
        age_ms = max(0, now_ms - self._at_ms)  # a clock may be set back
        return float(self._sum * 0.5 ** (age_ms / _HALF_LIFE_MS))
