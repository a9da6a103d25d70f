"""What came out, beside what had to come out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from demo.expected import Expected, Window


@dataclass(frozen=True, slots=True)
class Found:
    """Numbers of one run, each from the place that its check names."""

    orders: int
    deliveries: int
    acked: int
    nacks: int
    dead_letters: Counter[tuple[str, str]]
    unreadable: int
    revenue_cents: dict[Window, int]
    repeated_windows: int
    enriched_rows: int
    archived_rows: int
    archived_dead_letters: int
    audit: Mapping[str, int]
    traces: Mapping[str, int]
    acked_traces: int


@dataclass(frozen=True, slots=True)
class Check:
    what: str
    expected: int
    found: int
    origin: str  # where the number was found

    @property
    def is_right(self) -> bool:
        return self.expected == self.found


def check(expected: Expected, found: Found) -> list[Check]:
    return [
        *_queue_checks(expected, found),
        *_pipeline_checks(expected, found),
        *_job_checks(expected, found),
    ]


def _queue_checks(expected: Expected, found: Found) -> list[Check]:
    reasons: Counter[str] = Counter()
    for (reason, _), count in found.dead_letters.items():
        reasons[reason] += count
    workers, letters = "the workers' own count", "topic orders.dlq, read over REST"
    return [
        Check("orders in the topic", expected.orders, found.orders, "topic orders, read over REST"),
        Check("orders acknowledged", expected.acked, found.acked, workers),
        Check("orders given back", expected.nacks, found.nacks, workers),
        Check("deliveries, retries among them", expected.deliveries, found.deliveries, workers),
        Check("dead letters in all: the poison", expected.poison, found.dead_letters.total(), letters),
        Check("dead letters, rejected", expected.rejected, reasons["rejected"], letters),
        Check("dead letters, retries exhausted", expected.exhausted, reasons["retries exhausted"], letters),
    ]


def _pipeline_checks(expected: Expected, found: Found) -> list[Check]:
    topic = "topic revenue, read over REST"
    right = sum(found.revenue_cents.get(window) == cents for window, cents in expected.revenue_cents.items())
    return [
        Check("windows of revenue", len(expected.revenue_cents), len(found.revenue_cents), topic),
        Check("windows with the right sum", len(expected.revenue_cents), right, topic),
        Check("windows written twice", 0, found.repeated_windows, topic),
        Check(
            "revenue in cents", sum(expected.revenue_cents.values()), sum(found.revenue_cents.values()), topic
        ),
        Check("enriched rows", expected.rows, found.enriched_rows, "Parquet of the pipeline's lake"),
        Check(
            "records that are no order",
            expected.unreadable,
            found.unreadable,
            "topic orders.unreadable, read over REST",
        ),
    ]


def _job_checks(expected: Expected, found: Found) -> list[Check]:
    audit, traces = "the audit's report", "the traces' report"
    return [
        Check("orders in the archive", expected.orders, found.archived_rows, "Parquet of the archive"),
        Check(
            "dead letters in the archive",
            expected.poison,
            found.archived_dead_letters,
            "Parquet of the archive",
        ),
        Check("values that fit the schema", expected.rows, found.audit["valid"], audit),
        Check("values that do not fit it", expected.invalid, found.audit["invalid"], audit),
        Check("values that are no JSON", expected.unparsable, found.audit["unparsable"], audit),
        Check("values that a new schema would break", expected.breaks, found.audit["breaks"], audit),
        Check("orders with a trace", expected.orders, found.traces["traces"], traces),
        Check("traces that end acknowledged", expected.acked, found.acked_traces, traces),
        Check("dead letters with their story", expected.poison, found.traces["dead_letters"], traces),
        Check("lines that are no trace", 0, found.traces["bad_lines"], traces),
    ]
