"""Which keys are due, and when the next one will be. Holds about one entry per key, however often its deadline moves."""

from __future__ import annotations

from heapq import heappop, heappush


class Deadlines:
    def __init__(self) -> None:
        self._at_ms: dict[str, int] = {}
        self._heap: list[tuple[int, str]] = []
        self._queued_ms: dict[str, int] = {}  # the heap's entry for a key; any other entry of it is void

    def set(self, key: str, at_ms: int) -> None:
        self._at_ms[key] = at_ms
        queued_ms = self._queued_ms.get(key)
        if queued_ms is None or at_ms < queued_ms:  # a later deadline takes its place when the entry comes up
            self._queue(key, at_ms)

    def remove(self, key: str) -> None:
        self._at_ms.pop(key, None)

    def next_ms(self) -> int | None:
        while self._heap:
            queued_ms, key = self._heap[0]
            at_ms = self._at_ms.get(key)
            is_valid = self._queued_ms.get(key) == queued_ms
            if is_valid and at_ms == queued_ms:
                return at_ms
            heappop(self._heap)
            if is_valid:
                del self._queued_ms[key]
                if at_ms is not None:
                    self._queue(key, at_ms)
        return None

    def due(self, now_ms: int, count_max: int) -> list[str]:
        """Soonest first. They stay due until their deadline is moved or removed."""
        found: list[tuple[int, str]] = []
        while len(found) < count_max:
            at_ms = self.next_ms()
            if at_ms is None or at_ms > now_ms:
                break
            found.append(heappop(self._heap))
        for entry in found:
            heappush(self._heap, entry)
        return [key for _, key in found]

    def _queue(self, key: str, at_ms: int) -> None:
        heappush(self._heap, (at_ms, key))
        self._queued_ms[key] = at_ms
