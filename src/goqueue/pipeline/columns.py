"""The columns of a topic as a table: those that Spark's Kafka users know, and what this broker adds.

By default a read gives the seven columns that the Kafka connector gives, so that `select *` means the same. The others
cost a look at every record's headers and have to be asked for.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

TIMESTAMP = pa.timestamp("us", tz="UTC")
HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))

_TYPES: dict[str, tuple[pa.DataType, str]] = {
    "key": (pa.binary(), "binary"),
    "value": (pa.binary(), "binary"),
    "topic": (pa.string(), "string"),
    "partition": (pa.int32(), "int"),
    "offset": (pa.int64(), "bigint"),
    "timestamp": (TIMESTAMP, "timestamp"),
    "timestampType": (pa.int32(), "int"),
    "headers": (HEADERS, "array<struct<key: string, value: binary>>"),
    "priority": (pa.int8(), "tinyint"),
    "deliver_at": (TIMESTAMP, "timestamp"),
    "traceparent": (pa.string(), "string"),
    "schema_id": (pa.int32(), "int"),
}
ALL_COLUMNS = tuple(_TYPES)
KAFKA_COLUMNS = ALL_COLUMNS[:7]
HEADERS_COLUMN = "headers"


def arrow_schema(names: Sequence[str]) -> pa.Schema:
    return pa.schema([pa.field(name, _TYPES[name][0]) for name in names])


def spark_ddl(names: Sequence[str]) -> str:
    """The same as Spark writes a schema."""
    return ", ".join(f"`{name}` {_TYPES[name][1]}" for name in names)
