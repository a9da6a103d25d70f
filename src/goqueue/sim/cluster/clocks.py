"""The clocks of all hosts together, for whoever judges what depends on time: any node may have led, with its own."""

from __future__ import annotations

from collections.abc import Sequence

from goqueue.sim.queue.clock import JumpingClock


class HostClocks:
    def __init__(self, clocks: Sequence[JumpingClock]) -> None:
        self._clocks = clocks

    def latest_ms(self, start_s: float, end_s: float) -> int:
        """The latest time that any of them showed in between."""
        return max(clock.latest_ms(start_s, end_s) for clock in self._clocks)

    def earliest_ms(self, start_s: float, end_s: float) -> int:
        """The earliest time that any of them showed in between."""
        return min(clock.earliest_ms(start_s, end_s) for clock in self._clocks)

    def set_right(self) -> None:
        for clock in self._clocks:
            clock.ahead_ms = 0
