"""Deadlines by key. Moving one later, as every heartbeat does, costs a dict write: the heap is put right only at its
top, when somebody looks there."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum
from heapq import heapify, heappop, heappush
from typing import NamedTuple


class Kind(StrEnum):
    SESSION = "session"  # of a member, or of an id that was given and has not joined yet
    JOIN = "join"  # the end of a rebalance's first phase
    SYNC = "sync"  # the end of its second
    EXPIRY = "expiry"  # of what a group without members has committed, and of the group
    CONSUMER = "consumer"  # whatever a consumer group waits for
    PRODUCER = "producer"  # the memory of a producer's last transaction; `group_id` holds its id


class Key(NamedTuple):
    kind: Kind
    group_id: str
    member_id: str = ""


class Deadlines:
    def __init__(self) -> None:
        self._at_ms: dict[Key, int] = {}
        self._queued_ms: dict[Key, int] = {}  # where a key stands in the heap: at its deadline or earlier
        self._heap: list[tuple[int, Key]] = []  # entries that differ from `_queued_ms` are void

    def get(self, key: Key) -> int | None:
        return self._at_ms.get(key)

    def set(self, key: Key, at_ms: int) -> None:
        self._at_ms[key] = at_ms
        queued_ms = self._queued_ms.get(key)
        if queued_ms is None or at_ms < queued_ms:
            self._queue(key, at_ms)

    def set_if_earlier(self, key: Key, at_ms: int) -> None:
        before = self._at_ms.get(key)
        if before is None or at_ms < before:
            self.set(key, at_ms)

    def cancel(self, key: Key) -> None:
        self._at_ms.pop(key, None)

    def shift(self, kinds: Collection[Kind], by_ms: int) -> None:
        """Move all of these kinds."""
        self._at_ms = {key: at_ms + by_ms * (key.kind in kinds) for key, at_ms in self._at_ms.items()}
        self._queued_ms = dict(self._at_ms)
        self._heap = [(at_ms, key) for key, at_ms in self._at_ms.items()]
        heapify(self._heap)

    def next_ms(self) -> int | None:
        self._settle_top()
        return self._heap[0][0] if self._heap else None

    def first_due(self, now_ms: int) -> Key | None:
        """It stays until it is cancelled or set anew."""
        self._settle_top()
        return self._heap[0][1] if self._heap and self._heap[0][0] <= now_ms else None

    def _settle_top(self) -> None:
        """Until the first of the heap is a key at its deadline."""
        while self._heap:
            queued_ms, key = self._heap[0]
            at_ms = self._at_ms.get(key)
            if self._queued_ms.get(key) == queued_ms:
                if at_ms == queued_ms:
                    return
                del self._queued_ms[key]
                if at_ms is not None:
                    self._queue(key, at_ms)
            heappop(self._heap)

    def _queue(self, key: Key, at_ms: int) -> None:
        self._queued_ms[key] = at_ms
        heappush(self._heap, (at_ms, key))
