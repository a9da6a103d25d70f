"""Deadlines by key. Moving one later, as every heartbeat does, costs a dict write: the heap is put right only at its
top, when somebody looks there. It holds about one entry per key, however often a deadline moves, and is made anew when
most of it is void."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Final, Generic, TypeVar

_VOID_COUNT_MAX: Final = 64  # of entries beyond two per key

K = TypeVar("K")  # keys must have an order: it decides between two that are due at once


class Deadlines(Generic[K]):
    def __init__(self) -> None:
        self._at_ms: dict[K, int] = {}
        self._queued_ms: dict[K, int] = {}  # where a key stands in the heap: at its deadline or earlier
        self._heap: list[tuple[int, K]] = []  # entries that differ from `_queued_ms` are void

    def __len__(self) -> int:
        return len(self._at_ms)

    def get(self, key: K) -> int | None:
        return self._at_ms.get(key)

    def set(self, key: K, at_ms: int) -> None:
        self._at_ms[key] = at_ms
        queued_ms = self._queued_ms.get(key)
        if queued_ms is None or at_ms < queued_ms:
            self._queue(key, at_ms)
            self._shrink()

    def set_if_earlier(self, key: K, at_ms: int) -> None:
        before = self._at_ms.get(key)
        if before is None or at_ms < before:
            self.set(key, at_ms)

    def cancel(self, key: K) -> None:
        if self._at_ms.pop(key, None) is not None:
            self._shrink()

    def clear(self) -> None:
        self._at_ms.clear()
        self._queued_ms.clear()
        self._heap.clear()

    def shift(self, moves: Callable[[K], bool], by_ms: int) -> None:
        """Move all of which `moves` is true."""
        self._at_ms = {key: at_ms + by_ms * moves(key) for key, at_ms in self._at_ms.items()}
        self._build()

    def next_ms(self) -> int | None:
        self._settle_top()
        return self._heap[0][0] if self._heap else None

    def first_due(self, now_ms: int) -> K | None:
        """It stays until it is cancelled or set anew."""
        self._settle_top()
        return self._heap[0][1] if self._heap and self._heap[0][0] <= now_ms else None

    def due(self, now_ms: int, count_max: int) -> list[K]:
        """Soonest first; they stay as well."""
        found: list[tuple[int, K]] = []
        while len(found) < count_max and self.first_due(now_ms) is not None:
            found.append(heappop(self._heap))
        for entry in found:
            heappush(self._heap, entry)
        return list(dict.fromkeys(key for _, key in found))  # a moved key may stand there twice

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

    def _shrink(self) -> None:
        if len(self._heap) > 2 * len(self._at_ms) + _VOID_COUNT_MAX:
            self._build()

    def _build(self) -> None:
        self._queued_ms = dict(self._at_ms)
        self._heap = [(at_ms, key) for key, at_ms in self._at_ms.items()]
        heapify(self._heap)

    def _queue(self, key: K, at_ms: int) -> None:
        self._queued_ms[key] = at_ms
        heappush(self._heap, (at_ms, key))
