"""A clock that nobody sets, for what must not depend on the time of day; the simulation's loop has its own."""

from __future__ import annotations

import asyncio


def monotonic_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1_000)
