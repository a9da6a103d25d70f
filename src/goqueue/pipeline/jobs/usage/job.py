"""The job: count the records, ask the broker for the rest, report, and keep what the next report compares with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pyspark import StorageLevel
from pyspark.sql import DataFrame, Row, SparkSession

from goqueue.model.duration import format_instant
from goqueue.pipeline.errors import OptionError, PipelineError
from goqueue.pipeline.jobs.report import Report
from goqueue.pipeline.jobs.rest import BrokerRest
from goqueue.pipeline.jobs.selection import Selection, check_topics, topic_counts
from goqueue.pipeline.jobs.usage.measures import (
    INPUT_COLUMNS,
    STRETCH_DDL,
    by_hour,
    consumed,
    sized,
    tenant_of,
)
from goqueue.pipeline.jobs.usage.positions import (
    Position,
    Stretch,
    bytes_of_files,
    bytes_told,
    group_positions,
    stretches,
)
from goqueue.pipeline.origin import Origin
from goqueue.pipeline.spark_errors import SPARK_ERRORS, told

FORMATS: Final = ("parquet", "csv")
ROWS_MAX: Final = 10_000  # of hours in a report; all of them are in the files
_HEADINGS: Final = ("kind", "tenant", "topic", "group", "hour", "messages", "bytes", "stored_bytes", "lag")
_TOPICS_DDL: Final = "tenant string, topic string, messages bigint, bytes bigint, stored_bytes bigint"
_GROUPS_DDL: Final = (
    "tenant string, group string, topic string, partition int, committed bigint, latest bigint, lag bigint"
)


@dataclass(frozen=True, slots=True)
class UsageRequest:
    origin: Origin
    topics: Sequence[str] = ()  # none named: all
    lake: str | None = None
    url: str | None = None  # of the broker's REST API, which knows what is stored and how far groups are
    time_min_ms: int | None = None
    time_max_ms: int | None = None
    to: str | None = None  # a new folder for the whole tables
    format: str = "parquet"  # of that folder, and of the previous one
    previous: str | None = None  # the folder of an earlier report

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise OptionError(f"format is {self.format!r}; it must be {' or '.join(FORMATS)}")
        if self.url is not None and (self.lake is not None or self.origin.path is not None):
            raise OptionError("a lake or folder has its own sizes and no groups; leave out the broker's url")
        is_timed = self.time_min_ms is not None or self.time_max_ms is not None
        if self.previous is not None and (is_timed or self.url is None):
            raise OptionError(
                "what groups have read since a previous report is told from all records of a broker and its groups; "
                "give its url and no times, or leave out the previous report"
            )
        if self.lake is not None and not self.topics:
            raise OptionError("name the topics whose archives in the lake are to be counted")


@dataclass(slots=True)
class _Found:
    hours: list[Row] = field(default_factory=list)
    stored: Mapping[str, int] | None = None  # None: nobody was asked
    positions: list[Position] = field(default_factory=list)
    consumed: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def run(spark: SparkSession, request: UsageRequest) -> Report:
    topics = _topics(request)
    before = None if request.previous is None else _previous(spark, request.previous, request.format)
    found = _Found()
    if topics:
        if request.origin.path is not None and request.lake is None:
            found.stored = bytes_of_files(request.origin.path, topics)
        elif request.url is not None:
            with BrokerRest(request.url) as broker:
                found.stored = bytes_told(broker, topics)
                found.positions = group_positions(broker, topics)
        _measure(spark, request, list(topics), found, before)
    report = report_of(found.hours, found.stored, found.positions, found.consumed, found.notes)
    if request.to is not None:
        _save(spark, request.to, request.format, found)
    return report


def report_of(
    hours: Sequence[Row],
    stored: Mapping[str, int] | None,
    positions: Sequence[Position],
    read: Sequence[Row],
    notes: Sequence[str] = (),
) -> Report:
    """`hours` as `by_hour` gives them, `read` as `consumed` does."""
    topics = topic_totals(hours, stored)
    lines: list[tuple[object, ...]] = [
        ("topic", tenant, topic, None, None, messages, size, on_disk, None)
        for tenant, topic, messages, size, on_disk in topics
    ]
    by_group = {(row.group, row.topic): row for row in read}
    lags: dict[tuple[str, str], int] = {}
    for one in positions:
        lags[one.group, one.topic] = lags.get((one.group, one.topic), 0) + one.lag
    for (group, topic), lag in sorted(lags.items()):
        row = by_group.get((group, topic))
        since = (row.messages, row.bytes) if row else (None, None)
        lines.append(("group", tenant_of(topic), topic, group, None, *since, None, lag))
    ordered = sorted(hours, key=lambda row: (row.hour, row.tenant, row.topic))
    lines += [
        ("hour", row.tenant, row.topic, None, _instant(row), row.messages, row.bytes, None, None)
        for row in ordered[-ROWS_MAX:]
    ]
    told = list(notes)
    if len(ordered) > ROWS_MAX:
        told.append(
            f"only the last {ROWS_MAX} of {len(ordered)} rows of hours are shown; give a folder for all"
        )
    return Report(
        "usage",
        counts={
            "tenants": len({tenant for tenant, *_ in topics}),
            "topics": len(topics),
            "groups": len({one.group for one in positions}),
            "messages": sum(row.messages for row in hours),
            "bytes": sum(row.bytes for row in hours),
        }
        | ({} if stored is None else {"stored_bytes": sum(stored.values())}),
        headings=_HEADINGS,
        rows=lines,
        notes=told,
    )


def topic_totals(
    hours: Sequence[Row], stored: Mapping[str, int] | None
) -> list[tuple[str, str, int, int, int | None]]:
    """Tenant, topic, messages, bytes, stored bytes; also of topics without records."""
    messages = dict.fromkeys(stored or (), 0)
    sizes = dict(messages)
    for row in hours:
        messages[row.topic] = messages.get(row.topic, 0) + row.messages
        sizes[row.topic] = sizes.get(row.topic, 0) + row.bytes
    return sorted(
        (tenant_of(topic), topic, count, sizes[topic], None if stored is None else stored.get(topic, 0))
        for topic, count in messages.items()
    )


def _measure(
    spark: SparkSession,
    request: UsageRequest,
    topics: list[str],
    found: _Found,
    before: list[Position] | None,
) -> None:
    selection = Selection(request.origin, topics, request.lake, request.time_min_ms, request.time_max_ms)
    sizes = sized(selection.read(spark, INPUT_COLUMNS))
    if before is None:
        found.hours = by_hour(sizes).collect()
        return
    read, back = stretches(before, found.positions)
    found.notes += [
        f"group {one.group!r} has gone back in {one.topic}/{one.partition}; what it read there is not counted"
        for one in back
    ]
    kept = sizes.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        found.hours = by_hour(kept).collect()
        found.consumed = consumed(kept, stretch_frame(spark, read)).collect()
    finally:
        kept.unpersist()


def stretch_frame(spark: SparkSession, read: Sequence[Stretch]) -> DataFrame:
    return spark.createDataFrame([tuple(one) for one in read], STRETCH_DDL)


def _topics(request: UsageRequest) -> dict[str, int]:
    if request.lake is not None:
        return dict.fromkeys(request.topics, 0)
    check_topics(request.origin, request.topics)
    counts = topic_counts(request.origin)
    return {topic: counts[topic] for topic in request.topics or sorted(counts)}


def _previous(spark: SparkSession, folder: str, format: str) -> list[Position]:
    try:
        frame = (
            spark.read.schema(_GROUPS_DDL).format(format).option("header", "true").load(f"{folder}/groups")
        )
        rows = frame.collect()
    except SPARK_ERRORS as error:
        reason = told(error).sentence
        raise PipelineError(
            f"{folder!r} is not the folder of an earlier report in {format}: {reason}"
        ) from None
    return [Position(row.group, row.topic, row.partition, row.committed, row.latest) for row in rows]


def _save(spark: SparkSession, folder: str, format: str, found: _Found) -> None:
    """The tables whole, each a folder."""
    hours_ddl = "tenant string, topic string, hour timestamp, messages bigint, bytes bigint"
    groups = [
        (tenant_of(one.topic), one.group, one.topic, one.partition, one.committed, one.latest, one.lag)
        for one in found.positions
    ]
    tables = {
        "hours": spark.createDataFrame(found.hours, hours_ddl),
        "topics": spark.createDataFrame(topic_totals(found.hours, found.stored), _TOPICS_DDL),
        "groups": spark.createDataFrame(groups, _GROUPS_DDL),
    }
    try:
        for name, frame in tables.items():
            frame.coalesce(1).write.format(format).option("header", "true").save(f"{folder}/{name}")
    except SPARK_ERRORS as error:
        reason = told(error).sentence
        raise PipelineError(f"the tables cannot be written to {folder!r}: {reason}") from None


def _instant(row: Row) -> str:
    return format_instant(round(row.hour.timestamp() * 1_000))
