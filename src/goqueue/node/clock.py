"""Wall-clock time, injected so that simulation owns it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Milliseconds since 1970. May jump; never used to measure a duration."""


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000
