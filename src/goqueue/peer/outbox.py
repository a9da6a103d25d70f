"""Raft messages that wait to be sent to one node. Raft stands losing any of them, so there is a bound, and the oldest go first."""

from __future__ import annotations

import asyncio
from collections import deque

from goqueue.core.raft.messages import Append, Message

WAITING_COUNT_MAX = 64


class Outbox:
    def __init__(self, waiting_count_max: int = WAITING_COUNT_MAX) -> None:
        self._waiting: deque[Message] = deque(maxlen=waiting_count_max)
        self._filled = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, message: Message) -> None:
        """A heartbeat takes the place of one that still waits: it says the same, and later."""
        if _is_heartbeat(message):
            for older in self._waiting:
                if _is_heartbeat(older) and older.term <= message.term:
                    self._waiting.remove(older)
                    break
        self._waiting.append(message)
        self._filled.set()

    async def take(self) -> Message:
        while not self._waiting:
            self._filled.clear()
            await self._filled.wait()
        return self._waiting.popleft()


def _is_heartbeat(message: Message) -> bool:
    return isinstance(message, Append) and not message.entries
