"""What records cost: counts and bytes per tenant, topic and hour, and what a group has read of them.

Bytes are what somebody wrote (key, value, names and values of headers), whatever the format or compression makes of them.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from goqueue.model.dead_letter_headers import SUFFIX

INPUT_COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "headers")
DEFAULT_TENANT: Final = "default"
STRETCH_DDL: Final = "group string, topic string, partition int, start bigint, end bigint"


def sized(records: DataFrame) -> DataFrame:
    """One row per record: tenant, topic, partition, offset, hour, bytes."""
    return records.select(
        tenant_column(f.col("topic")).alias("tenant"),
        "topic",
        "partition",
        "offset",
        f.date_trunc("hour", "timestamp").alias("hour"),
        content_bytes().alias("bytes"),
    )


def by_hour(sizes: DataFrame) -> DataFrame:
    return sizes.groupBy("tenant", "topic", "hour").agg(
        f.count("*").alias("messages"), f.sum("bytes").alias("bytes")
    )


def consumed(sizes: DataFrame, stretches: DataFrame) -> DataFrame:
    """Of each group and topic, the records within its stretches (`STRETCH_DDL`, half-open) that are still there."""
    within = [
        sizes["topic"] == stretches["topic"],
        sizes["partition"] == stretches["partition"],
        sizes["offset"] >= stretches["start"],
        sizes["offset"] < stretches["end"],
    ]
    joined = sizes.join(f.broadcast(stretches), within).select(
        stretches["group"], sizes["topic"], sizes["bytes"]
    )
    return joined.groupBy("group", "topic").agg(f.count("*").alias("messages"), f.sum("bytes").alias("bytes"))


def tenant_column(topic: Column) -> Column:
    """`{tenant}.{topic}`. Dead letters belong to whom their topic belongs to."""
    name = f.when(topic.endswith(SUFFIX), f.expr(f"left(topic, length(topic) - {len(SUFFIX)})")).otherwise(
        topic
    )
    return f.when(name.contains("."), f.substring_index(name, ".", 1)).otherwise(f.lit(DEFAULT_TENANT))


def tenant_of(topic: str) -> str:
    """The same of a single name."""
    tenant, dot, _ = topic.removesuffix(SUFFIX).partition(".")
    return tenant if dot else DEFAULT_TENANT


def content_bytes() -> Column:
    headers = f.aggregate(
        "headers",
        f.lit(0).cast("bigint"),
        lambda total, header: total + f.octet_length(header.key) + _length(header.value),
    )
    return _length(f.col("key")) + _length(f.col("value")) + f.coalesce(headers, f.lit(0).cast("bigint"))


def _length(content: Column) -> Column:
    return f.coalesce(f.octet_length(content), f.lit(0)).cast("bigint")
