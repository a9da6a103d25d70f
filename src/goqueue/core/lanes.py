"""How many records of each lane go out: deficit round robin, and nobody starves.

In each round a lane has its weight as credit and pays one for each record. When no lane that has something has credit
left, a new round begins. So with every lane full a hundred records are fifty, twenty-five, fifteen, seven and three,
whether they are taken at once or one by one, and a critical record that comes in the middle of a round is next.

Whoever takes little and seldom could keep the lanes behind waiting for long. So their turn comes early enough for each of
them to be served in time by polls that take a single record.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from goqueue.core.rate import Rate
from goqueue.model.priority import LANE_COUNT, STARVATION_MS_MAX, WEIGHTS

POLL_GAP_MS_MAX: Final = STARVATION_MS_MAX // 6  # polls that are rarer cannot serve every lane in time


class Lanes:
    """Of one group in one partition. Not durable: after a restart every lane begins with nothing spent."""

    def __init__(self) -> None:
        self._credits = [0] * LANE_COUNT
        self._since_ms: list[int | None] = [None] * LANE_COUNT  # since when a lane waits for its turn
        self._polled_ms: int | None = None
        self.served_ms: list[int | None] = [None] * LANE_COUNT
        self.served_counts = [0] * LANE_COUNT
        self.rates = [Rate() for _ in range(LANE_COUNT)]

    def take(self, depths: Sequence[int], limit: int, now_ms: int) -> list[int]:
        """How many to take from each lane, which has so many; they are paid for."""
        self._note_waiting(depths, now_ms)
        counts = self._share(depths, limit, now_ms)
        for lane in range(LANE_COUNT):
            if counts[lane]:
                self.served_ms[lane] = now_ms
                self.served_counts[lane] += counts[lane]
                self.rates[lane].add(counts[lane], now_ms)
                self._since_ms[lane] = None if counts[lane] == depths[lane] else now_ms
        return counts

    def _note_waiting(self, depths: Sequence[int], now_ms: int) -> None:
        """What was not there at the poll before may have come right after it. Clocks may be set back."""
        before_ms = now_ms - POLL_GAP_MS_MAX if self._polled_ms is None else min(self._polled_ms, now_ms)
        for lane in range(LANE_COUNT):
            since_ms = self._since_ms[lane]
            if not depths[lane]:
                self._since_ms[lane] = None
            elif since_ms is None:
                self._since_ms[lane] = max(before_ms, now_ms - POLL_GAP_MS_MAX)
            else:
                self._since_ms[lane] = min(since_ms, now_ms)
        self._polled_ms = now_ms

    def _share(self, depths: Sequence[int], limit: int, now_ms: int) -> list[int]:
        left = min(limit, sum(depths))
        counts, credits = [0] * LANE_COUNT, self._credits
        for lane in self._starving(now_ms)[:left]:
            counts[lane] += 1
            credits[lane] = max(0, credits[lane] - 1)
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
                credits[:] = WEIGHTS
        return counts

    def _starving(self, now_ms: int) -> list[int]:
        """Those who must be served now, so that all can be in time. Longest wait first."""
        waits = sorted(
            (since_ms, lane) for lane, since_ms in enumerate(self._since_ms) if since_ms is not None
        )
        taken = 0
        while _is_late(waits[taken:], now_ms):
            taken += 1
        return [lane for _, lane in waits[:taken]]


def _is_late(waits: Sequence[tuple[int, int]], now_ms: int) -> bool:
    """Whether somebody would wait too long if the next poll served the first of them, the one after it the second ..."""
    return any(
        now_ms + (rank + 1) * POLL_GAP_MS_MAX > since_ms + STARVATION_MS_MAX
        for rank, (since_ms, _) in enumerate(waits)
    )
