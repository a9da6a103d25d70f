"""Numbers as the plots need them, from events and reports."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from demo.diary import Event
from goqueue.pipeline.jobs.report import Report

BINS_MAX: Final = 60
_WIDTHS_S: Final = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
_S_NS: Final = 1_000_000_000

# In the order of an order's life.
HOPS: Final = {
    "publish.received > publish.persisted": "published → stored",
    "publish.received > delay.scheduled": "published → scheduled, if delayed",
    "delay.scheduled > delay.ready": "scheduled → due: the delay itself",
    "delay.ready > publish.persisted": "due → stored",
    "publish.persisted > consume.fetched": "stored → in a worker's hands",
    "consume.fetched > consume.acked": "in hand → acknowledged",
    "consume.fetched > consume.nacked": "in hand → given back",
    "consume.nacked > consume.fetched": "given back → in hand again: the backoff",
    "consume.fetched > consume.rejected": "in hand → rejected",
}
WHOLE: Final = "published → acknowledged, all in all"


@dataclass(frozen=True, slots=True)
class Rates:
    """Events per second, by bins of `width_s`."""

    width_s: float
    starts_s: list[float]
    by_name: dict[str, list[float]]


@dataclass(frozen=True, slots=True)
class Hop:
    name: str
    count: int
    p50_ms: float
    p95_ms: float
    p99_ms: float
    max_ms: float


def rates(events: Sequence[Event], names: Collection[str]) -> Rates:
    """From the first event of all to the last."""
    start_ns = min(event.time_ns for event in events)
    length_s = (max(event.time_ns for event in events) - start_ns) / _S_NS
    width_s = next((width for width in _WIDTHS_S if length_s / width <= BINS_MAX), _WIDTHS_S[-1])
    bins = max(1, math.ceil(length_s / width_s + 1e-9))
    counts = {name: [0] * bins for name in names}
    for event in events:
        if event.name in counts:
            index = int((event.time_ns - start_ns) / _S_NS / width_s)
            counts[event.name][min(bins - 1, index)] += 1
    return Rates(
        width_s,
        [index * width_s for index in range(bins)],
        {name: [count / width_s for count in found] for name, found in counts.items()},
    )


def hops(report: Report) -> list[Hop]:
    """The steps of an order's way and the whole, of what `traces` reports."""
    rows = [dict(zip(report.headings, row, strict=True)) for row in report.rows]
    steps = {str(row["what"]): row for row in rows if row["kind"] == "hop"}
    found = [_hop(name, steps[what]) for what, name in HOPS.items() if what in steps]
    return [*found, *(_hop(WHOLE, row) for row in rows if row["kind"] == "end to end")]


def _hop(name: str, row: dict[str, object]) -> Hop:
    p50, p95, p99, top = (float(str(row[column])) for column in ("p50_ms", "p95_ms", "p99_ms", "max_ms"))
    return Hop(name, int(str(row["count"])), p50, p95, p99, top)
