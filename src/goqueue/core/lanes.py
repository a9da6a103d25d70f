"""How many records of each lane go out: deficit round robin, and nobody starves.

Each lane that has something gets its weight as credit and pays one for each record. When no lane that has something has
credit left, all get theirs anew. So with every lane full a hundred records are fifty, twenty-five, fifteen, seven and
three, whether they are taken at once or one by one. A lane that has waited nearly as long as it may comes first.
"""

from __future__ import annotations

from collections.abc import Sequence

from goqueue.core.rate import Rate
from goqueue.model.priority import LANE_COUNT, STARVATION_MS_MAX, WEIGHTS

_PATIENCE_MS = STARVATION_MS_MAX * 5 // 6  # leaves time for the next poll to come


class Lanes:
    """Of one group in one partition. Not durable: after a restart every lane begins with nothing spent."""

    def __init__(self) -> None:
        self._credits = [0] * LANE_COUNT
        self._since_ms: list[int | None] = [None] * LANE_COUNT  # when a lane began to wait for its turn
        self.served_ms: list[int | None] = [None] * LANE_COUNT
        self.served_counts = [0] * LANE_COUNT
        self.rates = [Rate() for _ in range(LANE_COUNT)]

    def take(self, depths: Sequence[int], limit: int, now_ms: int) -> list[int]:
        """How many to take from each lane, which has so many; they are paid for."""
        counts = self._share(depths, limit, now_ms)
        for lane in range(LANE_COUNT):
            if counts[lane]:
                self.served_ms[lane] = now_ms
                self.served_counts[lane] += counts[lane]
                self.rates[lane].add(counts[lane], now_ms)
            if counts[lane] == depths[lane]:
                self._since_ms[lane] = None
            elif counts[lane] or self._since_ms[lane] is None:
                self._since_ms[lane] = now_ms
        return counts

    def _share(self, depths: Sequence[int], limit: int, now_ms: int) -> list[int]:
        left = min(limit, sum(depths))
        counts, credits = [0] * LANE_COUNT, self._credits
        for lane in self._starving(depths, now_ms)[:left]:
            counts[lane] += 1
            left -= 1
        while left:
            has_credit = False
            for lane in range(LANE_COUNT):
                take = min(credits[lane], depths[lane] - counts[lane], left)
                if take > 0:
                    counts[lane] += take
                    credits[lane] -= take
                    left -= take
                    has_credit = True
            if not has_credit:
                for lane in range(LANE_COUNT):
                    # A lane without records saves nothing up for later.
                    credits[lane] = WEIGHTS[lane] if depths[lane] > counts[lane] else 0
        return counts

    def _starving(self, depths: Sequence[int], now_ms: int) -> list[int]:
        """Longest wait first."""
        waits = [
            (since_ms, lane)
            for lane, since_ms in enumerate(self._since_ms)
            if since_ms is not None and depths[lane] and now_ms - since_ms >= _PATIENCE_MS
        ]
        return [lane for _, lane in sorted(waits)]
