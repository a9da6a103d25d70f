"""Records of a topic as rows of a table: the value's own columns, and the record's behind an underscore.

Each function is DataFrame to DataFrame. A value that is no row of the schema is bad: malformed, of a wrong type, null, or without
a column that is NOT NULL. What becomes of it is the source's `bad_rows`.
"""

from __future__ import annotations

from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructType

from goqueue.model import dead_letter_headers as letters
from goqueue.pipeline.declarative.spec import SourceSpec
from goqueue.pipeline.errors import PipelineError

RECORD_COLUMNS: Final = ("key", "topic", "partition", "offset", "timestamp", "headers")
REASON: Final = "unparsable"
_PARSED, _BAD = "__parsed", "__bad"


def table_of(raw: DataFrame, source: SourceSpec, avro_schema: str | None = None) -> DataFrame:
    """What the views see of a topic."""
    match source.format:
        case "text":
            return raw.select(F.col("value").cast("string").alias("value"), *_record(raw))
        case "json" | "avro":
            schema = row_schema(source)
            judged = _judged(raw, source, schema, avro_schema)
            if source.bad_rows == "fail":
                judged = judged.where(_or_fail(F.col(_BAD)))
            elif source.dead_letters is not None:
                judged = judged.where(~F.col(_BAD))
            columns = [F.col(f"{_PARSED}.`{field.name}`").alias(field.name) for field in schema.fields]
            return judged.select(*columns, *_record(raw))
        case _:
            return raw


def dead_letters_of(
    raw: DataFrame, source: SourceSpec, group: str, avro_schema: str | None = None
) -> DataFrame:
    """The bad records as they came, with headers that say where they were: as the broker's own dead letters have."""
    bad = _judged(raw, source, row_schema(source), avro_schema).where(F.col(_BAD))
    told = (
        (letters.TOPIC, F.col("topic")),
        (letters.PARTITION, F.col("partition")),
        (letters.OFFSET, F.col("offset")),
        (letters.TIMESTAMP, F.date_format("timestamp", "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'")),
        (letters.GROUP, F.lit(group)),
        (letters.REASON, F.lit(REASON)),
        (letters.ERROR, F.lit(f"the value is no row of source {source.name}: {source.schema}")),
    )
    block = F.array(
        *(
            F.struct(F.lit(name).alias("key"), value.cast("string").cast("binary").alias("value"))
            for name, value in told
        )
    )
    own = F.coalesce(F.col("headers"), F.array().cast("array<struct<key: string, value: binary>>"))
    return bad.select("key", "value", F.concat(own, block).alias("headers"))


def row_schema(source: SourceSpec) -> StructType:
    """The declared columns. PipelineError where the text is no schema, or hides what the record has."""
    try:
        schema = StructType.fromDDL(source.schema or "")
    except Exception as error:  # noqa: BLE001 - whatever Spark's parser raises, over there or here
        raise PipelineError(
            f"the schema of source {source.name} cannot be read: {_first_line(error)}"
        ) from None
    if not isinstance(schema, StructType):
        raise PipelineError(
            f"the schema of source {source.name} is {source.schema!r}; write id BIGINT, at TIMESTAMP"
        )
    hidden = [
        name for name in schema.names if name.removeprefix("_") in RECORD_COLUMNS and name.startswith("_")
    ]
    if hidden:
        raise PipelineError(
            f"the schema of source {source.name} has {', '.join(hidden)}, which is a column of the record; rename it"
        )
    return schema


def _judged(raw: DataFrame, source: SourceSpec, schema: StructType, avro_schema: str | None) -> DataFrame:
    text = F.col("value").cast("string")
    if source.format == "avro":
        from goqueue.pipeline.declarative.avro_values import json_of_avro  # with fastavro behind it

        text = json_of_avro(avro_schema or "")(F.col("value"))
    corrupt = "__corrupt"
    whole = StructType([*schema.fields]).add(corrupt, StringType())
    parsed = F.from_json(text, whole, {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": corrupt})
    needed = [F.col(f"{_PARSED}.`{field.name}`").isNull() for field in schema.fields if not field.nullable]
    flaws = [F.col(_PARSED).isNull(), F.col(f"{_PARSED}.{corrupt}").isNotNull(), *needed]
    bad: Column = reduce(lambda one, other: one | other, flaws)
    return raw.withColumn(_PARSED, parsed).withColumn(_BAD, bad)


def _or_fail(bad: Column) -> Column:
    """True, or the end of the query with a sentence that names the record."""
    sentence = F.concat_ws(
        "",
        F.lit("the record at offset "),
        F.col("offset"),
        F.lit(" of "),
        F.col("topic"),
        F.lit("-"),
        F.col("partition"),
        F.lit(" is no row of its source's schema; mend it, or set bad_rows to nulls or to dead letters"),
    )
    return F.when(bad, F.raise_error(sentence).cast("boolean")).otherwise(F.lit(True))


def _record(raw: DataFrame) -> list[Column]:
    return [F.col(name).alias(f"_{name}") for name in RECORD_COLUMNS if name in raw.columns]


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
