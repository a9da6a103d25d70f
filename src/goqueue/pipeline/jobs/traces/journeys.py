"""From events to what people ask: how long each step of a message's way takes, which were slow, and which were retried in storms.

A message is a place (topic, partition, offset) in a trace. Events from before it had a place (received, partitioned, delayed)
belong to the one that their span got. Behind the log its ways part, one for each group: a group's first event follows the last
event of the broker, not one of another group.
"""

from __future__ import annotations

from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from goqueue.pipeline.jobs.traces.lines import EVENT_NAMES

MINUTE_NS: Final = 60_000_000_000
_MS_NS: Final = 1_000_000
_ACCURACY: Final = (
    10_000  # of percentiles: exact up to so many values, and within 1/10,000 of the rank beyond
)
_BROKER: Final = ""  # the lane of events that are of no group
_MESSAGE: Final = ("trace_id", "message")


def placed(events: DataFrame) -> DataFrame:
    """With `message` (which one of the trace it is about), `lane` (whose event it is) and `rank` (before which it comes at
    the same time)."""
    span = Window.partitionBy("trace_id", "span_id").orderBy(f.col("offset").isNull(), "time_ns")
    whole = span.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    home = f.first(f.struct("topic", "partition", "offset")).over(whole)
    is_early = f.col("offset").isNull() & f.col("span_id").isNotNull()
    fill = {
        name: f.when(is_early, f.coalesce(f.col("home").getField(name), f.col(name))).otherwise(f.col(name))
        for name in ("topic", "partition", "offset")
    }
    is_broker = reduce(
        Column.__or__, (f.col("name").startswith(p) for p in ("publish.", "replication.", "delay."))
    )
    place = f.concat_ws("/", "topic", f.col("partition").cast("string"), f.col("offset").cast("string"))
    rank = f.array_position(f.array(*map(f.lit, EVENT_NAMES)), f.col("name"))
    return (
        events.withColumn("home", home)
        .withColumns(fill)
        .drop("home")
        .withColumns(
            {
                "message": f.when(f.col("offset").isNotNull(), place).otherwise(
                    f.concat(f.lit("span "), f.coalesce("span_id", f.lit("?")))
                ),
                "lane": f.when(is_broker, f.lit(_BROKER)).otherwise(
                    f.concat(f.lit("group "), f.coalesce("group", f.lit("")))
                ),
                "rank": rank,
            }
        )
    )


def hops(events: DataFrame) -> DataFrame:
    """One row per step of a message: trace_id, topic, group, from, to, ns. Takes what `placed` gives."""
    own = Window.partitionBy(*_MESSAGE, "lane").orderBy("time_ns", "rank")
    before = (
        Window.partitionBy(*_MESSAGE).orderBy("time_ns", "rank").rowsBetween(Window.unboundedPreceding, -1)
    )
    event = f.struct("time_ns", "rank", "name")
    of_broker = f.last(f.when(f.col("lane") == _BROKER, event), ignorenulls=True).over(before)
    previous = f.when(f.col("lane") == _BROKER, f.col("own")).otherwise(f.greatest("own", "of_broker"))
    return (
        events.withColumns({"own": f.lag(event).over(own), "of_broker": of_broker})
        .withColumn("previous", previous)
        .where(f.col("previous").isNotNull())
        .select(
            "trace_id",
            "topic",
            "group",
            f.col("previous.name").alias("from"),
            f.col("name").alias("to"),
            (f.col("time_ns") - f.col("previous.time_ns")).alias("ns"),
        )
    )


def journeys(events: DataFrame) -> DataFrame:
    """One row per message and group that has acknowledged it: from publish.received, or if that was not seen from
    publish.persisted, to the last consume.acked. Takes what `placed` gives."""
    every = Window.partitionBy(*_MESSAGE)
    begun = f.coalesce(
        *(
            f.min(f.when(f.col("name") == name, f.col("time_ns"))).over(every)
            for name in ("publish.received", "publish.persisted")
        )
    )
    acked = f.max(f.when(f.col("name") == "consume.acked", f.col("time_ns")))
    return (
        events.withColumn("begun_ns", begun)
        .where(f.col("lane") != _BROKER)
        .groupBy(*_MESSAGE, "topic", "partition", "offset", "group")
        .agg(
            f.min("begun_ns").alias("begun_ns"),
            acked.alias("acked_ns"),
            f.count_if(f.col("name") == "consume.fetched").alias("deliveries"),
        )
        .where(f.col("acked_ns").isNotNull() & f.col("begun_ns").isNotNull())
        .withColumn("ns", f.col("acked_ns") - f.col("begun_ns"))
        .drop("message")
    )


def latencies(durations: DataFrame, *by: str) -> DataFrame:
    """Count, p50, p95, p99 and max in milliseconds of the column `ns`, for each combination of `by`."""
    ranks = f.array(f.lit(0.5), f.lit(0.95), f.lit(0.99))
    grouped = durations.groupBy(*by).agg(
        f.count("*").alias("count"),
        f.percentile_approx("ns", ranks, _ACCURACY).alias("at"),
        f.max("ns").alias("max_ns"),
    )
    percentiles = [
        (f.col("at")[index] / _MS_NS).alias(name) for index, name in enumerate(("p50_ms", "p95_ms", "p99_ms"))
    ]
    return grouped.select(*by, "count", *percentiles, (f.col("max_ns") / _MS_NS).alias("max_ms"))


def storms(events: DataFrame, *, deliveries_max: int) -> DataFrame:
    """Bursts of minutes in which messages were delivered that took more deliveries than `deliveries_max` in all.

    One row per topic and unbroken run of minutes: start_ns, minutes, messages, deliveries, and the deliveries of the worst
    minute. Takes what `placed` gives."""
    each = Window.partitionBy(*_MESSAGE, "lane")
    minute = f.floor(f.col("time_ns") / MINUTE_NS).cast("bigint")
    retried = (
        events.where(f.col("name") == "consume.fetched")
        .withColumn("total", f.count("*").over(each))
        .where(f.col("total") > deliveries_max)
        .withColumn("minute", minute)
    )
    by_minute = Window.partitionBy("topic").orderBy("minute")
    of_minute = f.count("*").over(Window.partitionBy("topic", "minute"))
    return (
        retried.withColumns({"run": f.col("minute") - f.dense_rank().over(by_minute), "of_minute": of_minute})
        .groupBy("topic", "run")
        .agg(
            (f.min("minute") * MINUTE_NS).alias("start_ns"),
            (f.max("minute") - f.min("minute") + 1).alias("minutes"),
            f.count_distinct("trace_id", "message", "lane").alias("messages"),
            f.count("*").alias("deliveries"),
            f.max("of_minute").alias("deliveries_of_worst_minute"),
        )
        .drop("run")
    )
