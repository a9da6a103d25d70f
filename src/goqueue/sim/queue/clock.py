"""A wall clock that is set forward and back, as clocks are."""

from __future__ import annotations

from typing import Protocol

from goqueue.sim.broker import EPOCH_MS
from goqueue.sim.loop import SimLoop


class ShownTime(Protocol):
    """What clocks have shown, for whoever judges afterwards."""

    def latest_ms(self, start_s: float, end_s: float) -> int: ...

    def earliest_ms(self, start_s: float, end_s: float) -> int: ...


class JumpingClock:
    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self._jumps: list[tuple[float, int]] = [(0.0, 0)]  # since when it is so much ahead

    def now_ms(self) -> int:
        return self._at(self._loop.time(), self._jumps[-1][1])

    def jump(self, by_ms: int) -> None:
        self._jumps.append((self._loop.time(), self._jumps[-1][1] + by_ms))

    @property
    def ahead_ms(self) -> int:
        """Of the right time."""
        return self._jumps[-1][1]

    @ahead_ms.setter
    def ahead_ms(self, ahead_ms: int) -> None:
        self._jumps.append((self._loop.time(), ahead_ms))

    def latest_ms(self, start_s: float, end_s: float) -> int:
        """The latest time that it showed in between."""
        shown = 0
        for index, (since_s, ahead_ms) in enumerate(self._jumps):
            until_s = self._jumps[index + 1][0] if index + 1 < len(self._jumps) else float("inf")
            if since_s <= end_s and until_s >= start_s:
                shown = max(shown, self._at(min(end_s, until_s), ahead_ms))
        return shown

    def earliest_ms(self, start_s: float, end_s: float) -> int:
        """The earliest time that it showed in between."""
        shown = self._at(start_s, self._ahead_ms(start_s))
        for since_s, ahead_ms in self._jumps:
            if start_s <= since_s <= end_s:
                shown = min(shown, self._at(since_s, ahead_ms))
        return shown

    def _ahead_ms(self, time_s: float) -> int:
        return [ahead_ms for since_s, ahead_ms in self._jumps if since_s <= time_s][-1]

    def _at(self, time_s: float, ahead_ms: int) -> int:
        return EPOCH_MS + int(time_s * 1_000) + ahead_ms
