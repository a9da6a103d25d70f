"""Which requests were seen already, so that whoever has recorded one cannot have it carried out again."""

from __future__ import annotations

import heapq

NONCE_COUNT_MAX = 100_000


class Replays:
    """Remembers requests for as long as their time is within the window. When there are too many, the oldest are forgotten, and
    nothing as old as those is taken from the same source any more: forgetting never lets a replay through."""

    def __init__(self, window_ms: int, nonce_count_max: int = NONCE_COUNT_MAX) -> None:
        self._window_ms = window_ms
        self._nonce_count_max = nonce_count_max
        self._seen: set[tuple[str, str]] = set()  # only ever asked for membership
        self._by_time: list[tuple[int, str, str]] = []  # a heap
        self._floors: dict[str, int] = {}  # by source

    def __len__(self) -> int:
        return len(self._by_time)

    def admit(self, source: str, nonce: str, timestamp_ms: int, now_ms: int) -> bool:
        """Whether it is new; its time was found to be within the window."""
        self._forget_old(now_ms)
        if (source, nonce) in self._seen or timestamp_ms <= self._floors.get(source, timestamp_ms - 1):
            return False
        self._seen.add((source, nonce))
        heapq.heappush(self._by_time, (timestamp_ms, source, nonce))
        if len(self._by_time) > self._nonce_count_max:
            oldest_ms, of, _ = self._pop()
            self._floors[of] = max(oldest_ms, self._floors.get(of, oldest_ms))
        return True

    def _forget_old(self, now_ms: int) -> None:
        while self._by_time and self._by_time[0][0] < now_ms - self._window_ms:
            self._pop()
        if self._floors:
            # Also those that lie in the future: the clocks were put back, and nobody may be shut out for that.
            self._floors = {
                source: floor
                for source, floor in self._floors.items()
                if abs(floor - now_ms) <= self._window_ms
            }

    def _pop(self) -> tuple[int, str, str]:
        timestamp_ms, source, nonce = heapq.heappop(self._by_time)
        self._seen.discard((source, nonce))
        return timestamp_ms, source, nonce
