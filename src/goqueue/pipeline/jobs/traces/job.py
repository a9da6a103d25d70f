"""The job: exported traces, records of topics, or both, as one table of latencies, slow messages, storms and deaths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pyspark import StorageLevel
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f

from goqueue.model.duration import format_instant
from goqueue.pipeline.errors import OptionError
from goqueue.pipeline.jobs.report import Report
from goqueue.pipeline.jobs.selection import Selection
from goqueue.pipeline.jobs.traces.journeys import MINUTE_NS, hops, journeys, latencies, placed, storms
from goqueue.pipeline.jobs.traces.lines import events_of, line_counts, read_lines
from goqueue.pipeline.jobs.traces.topics import INPUT_COLUMNS, deaths, topic_hops, topic_journeys, traced

SLOW_MAX: Final = 10_000
STORMS_MAX: Final = 1_000  # in a report, the largest first
_HEADINGS: Final = ("kind", "topic", "what", "count", "p50_ms", "p95_ms", "p99_ms", "max_ms", "detail")
_MS_NS: Final = 1_000_000
_DIGITS: Final = 3  # behind the point of milliseconds

Line = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class TracesRequest:
    """Exported `files`, or `records` of topics, or both."""

    files: Sequence[str] = ()
    records: Selection | None = None
    slow: int = 20  # messages to show
    deliveries_max: int = 3  # more of one message make it part of a storm

    def __post_init__(self) -> None:
        if not self.files and self.records is None:
            raise OptionError("name files of exported traces, or topics whose records carry traceparent")
        if not 0 <= self.slow <= SLOW_MAX:
            raise OptionError(f"slow is {self.slow}; it must be 0 to {SLOW_MAX}")
        if self.deliveries_max < 1:
            raise OptionError(f"deliveries_max is {self.deliveries_max}; it must be at least 1")


def run(spark: SparkSession, request: TracesRequest) -> Report:
    counts: dict[str, int] = {}
    lines: list[Line] = []
    notes: list[str] = []
    if request.files:
        read = read_lines(spark, request.files)
        counts["lines"], counts["bad_lines"] = line_counts(read)
        if counts["bad_lines"]:
            notes.append(
                f"{counts['bad_lines']} of {counts['lines']} lines are no trace and were passed over"
            )
        found, rows = _from_events(events_of(read), request)
        counts |= found
        lines += rows
    if request.records is not None:
        found, rows = _from_topics(request.records.read(spark, INPUT_COLUMNS), request)
        counts |= found
        lines += rows
    return Report("traces", counts, headings=_HEADINGS, rows=lines, notes=notes)


def _from_events(events: DataFrame, request: TracesRequest) -> tuple[dict[str, int], list[Line]]:
    kept = placed(events).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        totals = kept.agg(
            f.count("*").alias("events"), f.count_distinct("trace_id").alias("traces")
        ).collect()[0]
        steps = latencies(hops(kept), "topic", "from", "to").orderBy("topic", "from", "to").collect()
        trips = journeys(kept)
        whole = latencies(trips, "topic").orderBy("topic").collect()
        slow = trips.orderBy(f.desc("ns"), "trace_id", "group").limit(request.slow).collect()
        bursts = (
            storms(kept, deliveries_max=request.deliveries_max)
            .orderBy(f.desc("deliveries"), "topic", "start_ns")
            .limit(STORMS_MAX)
            .collect()
        )
    finally:
        kept.unpersist()
    lines = [_latency("hop", row.topic, f"{row['from']} > {row.to}", row) for row in steps]
    lines += [_latency("end to end", row.topic, None, row) for row in whole]
    lines += [_slow(row) for row in slow]
    lines += [_storm(row) for row in bursts]
    found = {"events": totals.events, "traces": totals.traces, "storms": len(bursts)}
    return found, lines


def _from_topics(records: DataFrame, request: TracesRequest) -> tuple[dict[str, int], list[Line]]:
    """One reading of the topics: what is kept of them is small."""
    columns = ("topic", "partition", "offset", "timestamp", "headers", "traceparent")
    none = f.lit(None).cast("binary")
    slim = records.select(none.alias("key"), none.alias("value"), *columns)
    kept = slim.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        known = traced(kept)
        totals = known.agg(
            f.count("*").alias("records"), f.count_distinct("trace_id").alias("traces")
        ).collect()[0]
        steps = latencies(topic_hops(known), "from", "to").orderBy("from", "to").collect()
        trips = topic_journeys(known)
        whole = latencies(trips, "from", "to").orderBy("from", "to").collect()
        slow = trips.orderBy(f.desc("ns"), "trace_id").limit(request.slow).collect()
        dead = deaths(kept)
        died = latencies(dead, "topic", "reason")
        tried = dead.groupBy("topic", "reason").agg(
            f.max("attempts").alias("attempts_max"), f.avg("attempts").alias("attempts_mean")
        )
        ends = died.join(tried, ["topic", "reason"]).orderBy("topic", "reason").collect()
    finally:
        kept.unpersist()
    lines = [_latency("topic hop", row.to, f"{row['from']} > {row.to}", row) for row in steps]
    lines += [_latency("topics", row.to, f"{row['from']} to {row.to}", row) for row in whole]
    lines += [
        (
            "slow trace",
            row.to,
            row.trace_id,
            row.records,
            None,
            None,
            None,
            _ms(row.ns),
            f"from {row['from']}",
        )
        for row in slow
    ]
    lines += [_latency("dead", row.topic, row.reason, row, _attempts(row)) for row in ends]
    found = {
        "traced_records": totals.records,
        "traced_in_topics": totals.traces,
        "dead_letters": sum(row["count"] for row in ends),
    }
    return found, lines


def _latency(kind: str, topic: str | None, what: str | None, row: Row, detail: str | None = None) -> Line:
    figures = [row.p50_ms, row.p95_ms, row.p99_ms, row.max_ms]
    rounded = [None if one is None else round(one, _DIGITS) for one in figures]
    return (kind, topic, what, row["count"], *rounded, detail)


def _slow(row: Row) -> Line:
    detail = f"partition {row.partition} offset {row.offset}" + (f" group {row.group}" if row.group else "")
    return ("slow", row.topic, row.trace_id, row.deliveries, None, None, None, _ms(row.ns), detail)


def _storm(row: Row) -> Line:
    start, end = (
        format_instant(ns // _MS_NS) for ns in (row.start_ns, row.start_ns + row.minutes * MINUTE_NS)
    )
    detail = f"{row.messages} messages, {row.deliveries_of_worst_minute} deliveries in the worst minute"
    return ("storm", row.topic, f"{start} to {end}", row.deliveries, None, None, None, None, detail)


def _attempts(row: Row) -> str | None:
    return (
        None
        if row.attempts_max is None
        else f"attempts {row.attempts_mean:.1f} on average, {row.attempts_max} at most"
    )


def _ms(ns: int) -> float:
    return round(ns / _MS_NS, _DIGITS)
