"""A set of offsets, kept as runs: neighbours that were added one by one cost no more than one of them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from goqueue.core.lease.events import Run


class Spans:
    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []  # exclusive; no run touches the next

    @property
    def run_count(self) -> int:
        return len(self._starts)

    def __contains__(self, offset: int) -> bool:
        return self.first_outside(offset) != offset

    def first_outside(self, offset: int) -> int:
        """The first offset from here on that is not in the set."""
        at = bisect_right(self._starts, offset) - 1
        return max(offset, self._ends[at]) if at >= 0 else offset

    def count_from(self, start: int) -> int:
        """How many offsets from `start` on."""
        return sum(
            end - max(run_start, start)
            for run_start, end in zip(self._starts, self._ends, strict=True)
            if end > start
        )

    def runs(self) -> list[Run]:
        return [Run(start, end - start) for start, end in zip(self._starts, self._ends, strict=True)]

    def add(self, start: int, length: int = 1) -> None:
        """A run that may touch or overlap others."""
        end = start + length
        first = bisect_right(self._starts, start)
        if first and self._ends[first - 1] >= start:
            first -= 1
            start = self._starts[first]
        last = bisect_right(self._starts, end)
        if last > first:
            end = max(end, self._ends[last - 1])
        self._starts[first:last] = [start]
        self._ends[first:last] = [end]

    def discard(self, offset: int) -> None:
        at = bisect_right(self._starts, offset) - 1
        if at < 0 or offset >= self._ends[at]:
            return
        parts = [(self._starts[at], offset), (offset + 1, self._ends[at])]
        kept = [(start, end) for start, end in parts if start < end]
        self._starts[at : at + 1] = [start for start, _ in kept]
        self._ends[at : at + 1] = [end for _, end in kept]

    def forget_from(self, end: int) -> bool:
        """Whether there was anything."""
        if not self._ends or self._ends[-1] <= end:
            return False
        at = bisect_left(self._starts, end)
        del self._starts[at:], self._ends[at:]
        if self._ends and self._ends[-1] > end:
            self._ends[-1] = end
        return True

    def forget_before(self, start: int) -> None:
        at = bisect_right(self._ends, start)
        del self._starts[:at], self._ends[:at]
        if self._starts and self._starts[0] < start:
            self._starts[0] = start
