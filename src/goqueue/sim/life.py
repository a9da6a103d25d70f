"""What belongs to one life of a simulated process.

All simulated processes share one event loop, so something has to say whose code is running: a context
variable, which asyncio hands on from a task to the tasks and callbacks it starts.
"""

from __future__ import annotations

import asyncio
import contextvars
from typing import Any, Protocol


class Socket(Protocol):
    def die(self) -> None:
        """Vanish with the process: no callback on this side, a reset for the other."""


class Life:
    """From the start of a process to its crash. Kept in dictionaries, which have an order, unlike sets."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.is_alive = True
        self.is_paused = False  # `SimLoop.pause`: its code stands still while time goes on
        self.tasks: dict[asyncio.Task[Any], None] = {}  # of any result type
        self.sockets: dict[Socket, None] = {}


current_life: contextvars.ContextVar[Life | None] = contextvars.ContextVar("current_life", default=None)
