"""What a benchmark says: one line per measurement, with the probe it was measured against and its goal.

Machines are shared, so an absolute number says little. A line therefore holds the ratio to a probe that ran in
the same rounds, before and after it in turn: what slows one down slows the other down too.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from enum import StrEnum

from msgspec import Struct


class BenchFailed(Exception):
    """What was written is not what was read, or something did not succeed. No number is reported then."""


def require(condition: bool, sentence: str) -> None:
    if not condition:
        raise BenchFailed(sentence)


class Spread(Struct, frozen=True):
    """The middle of some rounds, the half of them around it, and the extremes."""

    median: float
    low: float  # lower quartile
    high: float  # upper quartile
    least: float
    most: float
    count: int


def spread(numbers: Sequence[float]) -> Spread:
    ordered = sorted(numbers)
    if len(ordered) == 1:
        low = high = ordered[0]
    else:
        low, _, high = statistics.quantiles(ordered, n=4, method="inclusive")
    return Spread(statistics.median(ordered), low, high, ordered[0], ordered[-1], len(ordered))


def percentile(ordered: Sequence[float], share: float) -> float:
    """Of numbers in rising order."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


class Bound(StrEnum):
    RATIO_AT_LEAST = "ratio_at_least"
    RATIO_AT_MOST = "ratio_at_most"
    VALUE_AT_LEAST = "value_at_least"
    VALUE_BELOW = "value_below"


class Goal(Struct, frozen=True):
    bound: Bound
    amount: float


class Line(Struct, frozen=True):
    """`value` is ours (or the probe's own, where the line is a probe); `ratio` is value / reference, per round."""

    name: str
    title: str
    unit: str
    value: Spread
    reference: str | None = None
    reference_value: Spread | None = None
    ratio: Spread | None = None
    goal: Goal | None = None
    details: dict[str, float | str] = {}

    @property
    def is_met(self) -> bool | None:
        """None where there is no goal."""
        if self.goal is None:
            return None
        match self.goal.bound:
            case Bound.RATIO_AT_LEAST:
                return self.ratio is not None and self.ratio.median >= self.goal.amount
            case Bound.RATIO_AT_MOST:
                return self.ratio is not None and self.ratio.median <= self.goal.amount
            case Bound.VALUE_AT_LEAST:
                return self.value.median >= self.goal.amount
            case Bound.VALUE_BELOW:
                return self.value.median < self.goal.amount


class Rounds(Struct):
    """Pairs of measurements taken right after one another."""

    values: list[float] = []
    references: list[float] = []

    def add(self, value: float, reference: float) -> None:
        self.values.append(value)
        self.references.append(reference)

    @property
    def ratios(self) -> list[float]:
        return [value / reference for value, reference in zip(self.values, self.references, strict=True)]

    def line(
        self,
        name: str,
        title: str,
        unit: str,
        *,
        reference: str,
        goal: Goal | None = None,
        details: dict[str, float | str] | None = None,
    ) -> Line:
        return Line(
            name,
            title,
            unit,
            spread(self.values),
            reference,
            spread(self.references),
            spread(self.ratios),
            goal,
            details or {},
        )


def alternate(count: int, measure: Callable[[], float], probe: Callable[[], float]) -> Rounds:
    """Probe and measurement in turn, the one that goes first changing every round so that drift cancels out."""
    rounds = Rounds()
    for turn in range(count):
        if turn % 2:
            value = measure()
            rounds.add(value, probe())
        else:
            reference = probe()
            rounds.add(measure(), reference)
    return rounds
