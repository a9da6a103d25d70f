"""Dead letters as columns: what their headers say of where they were and why they died.

Only the last block of `gq-dlq-*` headers counts, from the last `gq-dlq-topic` on, as in the broker.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from goqueue.model.dead_letter_headers import (
    ATTEMPTS,
    CONSUMER,
    ERROR,
    FIRST_DELIVERY,
    GROUP,
    LAST_DELIVERY,
    MISSING,
    OFFSET,
    PARTITION,
    REASON,
    REDRIVE_COUNT,
    TIMESTAMP,
    TOPIC,
)

INPUT_COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "headers")
LETTER_COLUMNS: Final = (
    *INPUT_COLUMNS,
    "key_text",
    "value_text",
    "origin_topic",
    "origin_partition",
    "origin_offset",
    "origin_timestamp",
    "attempts",
    "first_delivery",
    "last_delivery",
    "consumer_group",
    "consumer",
    "reason",
    "error",
    "redrive_count",
    "is_missing",
)


def letters(records: DataFrame) -> DataFrame:
    """The dead letters among the records, with `LETTER_COLUMNS`. `timestamp` is when each died. Needs the column headers."""
    whole = records.where(f.exists("headers", lambda header: header.key == TOPIC)).withColumn(
        "_block", _last_block(f.col("headers"))
    )
    block = f.col("_block")
    columns = {
        "key_text": _text(f.col("key")),
        "value_text": _text(f.col("value")),
        "origin_topic": _told(block, TOPIC),
        "origin_partition": _told(block, PARTITION).try_cast("int"),
        "origin_offset": _told(block, OFFSET).try_cast("bigint"),
        "origin_timestamp": _told(block, TIMESTAMP).try_cast("timestamp"),
        "attempts": _told(block, ATTEMPTS).try_cast("int"),
        "first_delivery": _told(block, FIRST_DELIVERY).try_cast("timestamp"),
        "last_delivery": _told(block, LAST_DELIVERY).try_cast("timestamp"),
        "consumer_group": _told(block, GROUP),
        "consumer": _told(block, CONSUMER),
        "reason": _told(block, REASON),
        "error": _told(block, ERROR),
        # Its own name is not of the block: a redrive writes it among the record's headers.
        "redrive_count": f.coalesce(_told(f.col("headers"), REDRIVE_COUNT).try_cast("int"), f.lit(0)),
        "is_missing": f.exists("_block", lambda header: header.key == MISSING),
    }
    return whole.withColumns(columns).select(*LETTER_COLUMNS)


def _last_block(headers: Column) -> Column:
    """From the last header that begins a block."""
    names = f.transform(headers, lambda header: header.key)
    from_the_end = f.array_position(f.reverse(names), TOPIC)  # 1 for the last header
    return f.slice(headers, -from_the_end.cast("int"), f.size(headers))


def _told(headers: Column, name: str) -> Column:
    """The last value of a header, as text."""
    found = f.filter(headers, lambda header: header.key == name)
    return _text(f.try_element_at(found, f.lit(-1)).getField("value"))


def _text(content: Column) -> Column:
    """What is not UTF-8 is null."""
    return f.try_validate_utf8(content.cast("string"))
