"""Which requests were seen already, so that whoever has recorded one cannot have it carried out again."""

from __future__ import annotations

import heapq

NONCE_COUNT_MAX = 100_000


class Replays:
    """Remembers requests for as long as their time is within the window. When there are too many, the oldest of the source that has most
    are forgotten, and nothing as old as those is taken from that source any more: forgetting never lets a replay through, and a
    busy source costs no other its place, whatever its clock says."""

    def __init__(self, window_ms: int, nonce_count_max: int = NONCE_COUNT_MAX) -> None:
        self._window_ms = window_ms
        self._nonce_count_max = nonce_count_max
        self._sources: dict[str, _Source] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def admit(self, source: str, nonce: str, timestamp_ms: int, now_ms: int) -> bool:
        """Whether it is new; its time was found to be within the window."""
        of = self._sources.get(source)
        if of is None:
            of = self._sources[source] = _Source()
        self._forget_old(of, now_ms)
        if nonce in of.seen or (of.floor_ms is not None and timestamp_ms <= of.floor_ms):
            return False
        of.seen.add(nonce)
        heapq.heappush(of.by_time, (timestamp_ms, nonce))
        self._count += 1
        if self._count > self._nonce_count_max:
            self._make_room(now_ms)
        return True

    def _make_room(self, now_ms: int) -> None:
        for of in self._sources.values():
            self._forget_old(of, now_ms)
        self._sources = {name: of for name, of in self._sources.items() if not of.is_forgotten}
        if self._count > self._nonce_count_max:
            most = max(self._sources.values(), key=lambda of: len(of.by_time))
            oldest_ms = self._pop(most)
            most.floor_ms = oldest_ms if most.floor_ms is None else max(oldest_ms, most.floor_ms)

    def _forget_old(self, of: _Source, now_ms: int) -> None:
        while of.by_time and of.by_time[0][0] < now_ms - self._window_ms:
            self._pop(of)
        # Also one that lies in the future: the clocks were put back, and nobody may be shut out for that.
        if of.floor_ms is not None and abs(of.floor_ms - now_ms) > self._window_ms:
            of.floor_ms = None

    def _pop(self, of: _Source) -> int:
        timestamp_ms, nonce = heapq.heappop(of.by_time)
        of.seen.discard(nonce)
        self._count -= 1
        return timestamp_ms


class _Source:
    """What is remembered of one node."""

    __slots__ = ("by_time", "floor_ms", "seen")

    def __init__(self) -> None:
        self.seen: set[str] = set()  # nonces; only ever asked for membership
        self.by_time: list[tuple[int, str]] = []  # a heap
        self.floor_ms: int | None = None

    @property
    def is_forgotten(self) -> bool:
        return not self.by_time and self.floor_ms is None
