"""Traces without an exporter: records carry `traceparent`, so the same trace in several topics tells how long the way between
them takes; and dead letters tell how often they were tried and how long they took to die."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from goqueue.pipeline.jobs.redrive.letters import letters

INPUT_COLUMNS: Final = (
    "key",
    "value",
    "topic",
    "partition",
    "offset",
    "timestamp",
    "headers",
    "traceparent",
)
_TRACEPARENT: Final = "^[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}"
_NO_TRACE: Final = "0" * 32
_US_NS: Final = 1_000


def traced(records: DataFrame) -> DataFrame:
    """The records that have a valid traceparent: trace_id, topic, partition, offset, time_us."""
    trace_id = f.regexp_extract(f.lower("traceparent"), _TRACEPARENT, 1)
    found = records.where(f.col("traceparent").isNotNull()).select(
        trace_id.alias("trace_id"),
        "topic",
        "partition",
        "offset",
        f.unix_micros("timestamp").alias("time_us"),
    )
    return found.where(~f.col("trace_id").isin("", _NO_TRACE))


def topic_hops(records: DataFrame) -> DataFrame:
    """From each record of a trace to the next one in time: trace_id, from, to, ns. Takes what `traced` gives."""
    order = Window.partitionBy("trace_id").orderBy("time_us", "topic", "partition", "offset")
    return (
        records.withColumn("previous", f.lag(f.struct("topic", "time_us")).over(order))
        .where(f.col("previous").isNotNull())
        .select(
            "trace_id",
            f.col("previous.topic").alias("from"),
            f.col("topic").alias("to"),
            ((f.col("time_us") - f.col("previous.time_us")) * _US_NS).alias("ns"),
        )
    )


def topic_journeys(records: DataFrame) -> DataFrame:
    """One row per trace of two records or more: its first and last topic, how many records, ns. Takes what `traced` gives."""
    record = f.struct("time_us", "topic", "partition", "offset")
    return (
        records.groupBy("trace_id")
        .agg(f.min(record).alias("first"), f.max(record).alias("last"), f.count("*").alias("records"))
        .where(f.col("records") > 1)
        .select(
            "trace_id",
            f.col("first.topic").alias("from"),
            f.col("last.topic").alias("to"),
            "records",
            ((f.col("last.time_us") - f.col("first.time_us")) * _US_NS).alias("ns"),
        )
    )


def deaths(records: DataFrame) -> DataFrame:
    """One row per dead letter: topic (it was in), reason, attempts, ns from its first delivery to its death."""
    return letters(records).select(
        f.col("origin_topic").alias("topic"),
        "reason",
        "attempts",
        ((f.unix_micros("timestamp") - f.unix_micros("first_delivery")) * _US_NS).alias("ns"),
    )
