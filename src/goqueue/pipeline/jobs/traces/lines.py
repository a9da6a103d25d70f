"""Exported traces as rows: one per event of a message (docs/format/traces.md).

A line is one event (flat), or one OTLP/JSON export with spans in it. Everything is read as text first: a number that is none
must not make Spark drop the line it stands in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from goqueue.pipeline.errors import OptionError, PipelineError
from goqueue.pipeline.spark_errors import SPARK_ERRORS, told

# In the order of a message's life, which decides between events of the same nanosecond.
EVENT_NAMES: Final = (
    "publish.received",
    "publish.validation_failed",
    "publish.partitioned",
    "delay.scheduled",
    "delay.cancelled",
    "delay.ready",
    "publish.persisted",
    "replication.complete",
    "consume.fetched",
    "visibility.extended",
    "visibility.timeout",
    "consume.nacked",
    "consume.rejected",
    "consume.acked",
    "dlq.routed",
)
EVENT_COLUMNS: Final = ("trace_id", "span_id", "name", "topic", "partition", "offset", "group", "time_ns")
_BAD: Final = "_bad"
_ATTRIBUTES: Final = (
    "array<struct<key: string, value: struct<stringValue: string, intValue: string, doubleValue: string>>>"
)
_SPAN: Final = (
    "struct<traceId: string, spanId: string, name: string, startTimeUnixNano: string, "
    f"attributes: {_ATTRIBUTES}, "
    f"events: array<struct<timeUnixNano: string, name: string, attributes: {_ATTRIBUTES}>>>"
)
LINE_DDL: Final = (
    "trace_id string, span_id string, name string, topic string, partition string, offset string, `group` string, "
    "time_unix_nano string, attributes map<string, string>, "
    f"resourceSpans array<struct<scopeSpans: array<struct<spans: array<{_SPAN}>>>>>, {_BAD} string"
)
# Our own names, and those of OpenTelemetry's conventions for messaging, newer ones first.
_TOPIC: Final = ("topic", "messaging.destination.name")
_PARTITION: Final = ("partition", "messaging.destination.partition.id")
_OFFSET: Final = ("offset", "messaging.kafka.offset", "messaging.kafka.message.offset")
_GROUP: Final = ("group", "messaging.consumer.group.name", "messaging.kafka.consumer.group")


def read_lines(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """Files, folders or patterns of JSONL, compressed or not."""
    if not paths:
        raise OptionError("name at least one file of traces")
    reader = (
        spark.read.schema(LINE_DDL).option("columnNameOfCorruptRecord", _BAD).option("mode", "PERMISSIVE")
    )
    try:
        return reader.json(list(paths))
    except SPARK_ERRORS as error:
        names = ", ".join(map(repr, paths))
        raise PipelineError(f"the traces {names} cannot be read: {told(error).sentence}") from None


def line_counts(lines: DataFrame) -> tuple[int, int]:
    """How many lines there are, and how many of them are neither an event nor an export."""
    is_bad = f.col(_BAD).isNotNull() | ~(_is_export() | _is_flat())
    row = lines.agg(f.count("*").alias("all"), f.count_if(is_bad).alias("bad")).first()
    return (0, 0) if row is None else (row["all"], row["bad"])


def events_of(lines: DataFrame) -> DataFrame:
    """`EVENT_COLUMNS` of every event that a message can have; other spans and events are passed over."""
    good = lines.where(f.col(_BAD).isNull())
    spans = (
        good.where(_is_export())
        .select(f.explode("resourceSpans").alias("one"))
        .select(f.explode("one.scopeSpans").alias("one"))
        .select(f.explode("one.spans").alias("span"))
    )
    exported = spans.select("span", f.explode_outer("span.events").alias("event"))
    found = (
        _flat(good.where(~_is_export() & _is_flat()))
        .unionByName(_span_itself(spans))
        .unionByName(_span_events(exported))
    )
    is_event = f.col("name").isin(*EVENT_NAMES) & f.col("trace_id").isNotNull() & f.col("time_ns").isNotNull()
    return found.where(is_event)


def _is_export() -> Column:
    return f.col("resourceSpans").isNotNull()


def _is_flat() -> Column:
    return (
        f.col("trace_id").isNotNull()
        & f.col("name").isNotNull()
        & f.col("time_unix_nano").try_cast("bigint").isNotNull()
    )


def _flat(lines: DataFrame) -> DataFrame:
    def told(names: tuple[str, ...]) -> Column:
        return f.coalesce(f.col(names[0]), *(f.try_element_at("attributes", f.lit(name)) for name in names))

    return _row(lines, f.col("trace_id"), f.col("span_id"), f.col("name"), f.col("time_unix_nano"), told)


def _span_itself(spans: DataFrame) -> DataFrame:
    """A span that is named like an event is one, at the time it begins."""

    def told(names: tuple[str, ...]) -> Column:
        return _attribute(f.col("span.attributes"), names)

    return _row(
        spans,
        f.col("span.traceId"),
        f.col("span.spanId"),
        f.col("span.name"),
        f.col("span.startTimeUnixNano"),
        told,
    )


def _span_events(exported: DataFrame) -> DataFrame:
    """What an event does not say of itself, its span says."""

    def told(names: tuple[str, ...]) -> Column:
        return f.coalesce(
            _attribute(f.col("event.attributes"), names), _attribute(f.col("span.attributes"), names)
        )

    return _row(
        exported,
        f.col("span.traceId"),
        f.col("span.spanId"),
        f.col("event.name"),
        f.col("event.timeUnixNano"),
        told,
    )


def _attribute(attributes: Column, names: tuple[str, ...]) -> Column:
    def first(name: str) -> Column:
        found = f.get(f.filter(attributes, lambda attribute: attribute.key == name), f.lit(0))
        value = found.getField("value")
        return f.coalesce(value.getField("stringValue"), value.getField("intValue"))

    return f.coalesce(*map(first, names))


def _row(
    frame: DataFrame,
    trace_id: Column,
    span_id: Column,
    name: Column,
    time: Column,
    told: Callable[[tuple[str, ...]], Column],
) -> DataFrame:
    return frame.select(
        f.lower(trace_id).alias("trace_id"),
        f.lower(span_id).alias("span_id"),
        name.alias("name"),
        told(_TOPIC).alias("topic"),
        told(_PARTITION).try_cast("int").alias("partition"),
        told(_OFFSET).try_cast("bigint").alias("offset"),
        told(_GROUP).alias("group"),
        time.try_cast("bigint").alias("time_ns"),
    )
