"""Spark's own connector for Kafka beside ours, on one broker: `python -m tests.support.spark_connector REQUEST`.

The same topics are read by both, each writes what the other reads, and a stream of each feeds the other. The last line that is
printed says what differs.
"""

from __future__ import annotations

import json
import sys

import msgspec
from pyspark.sql import DataFrame, SparkSession

from goqueue.pipeline.session.session import SessionOptions, start_session

RESULT = "result "
_STREAM_TIMEOUT_S = 180
OTHERS, OURS = "kafka", "goqueue"


class Comparison(msgspec.Struct, frozen=True):
    """What to compare. `written` and `streamed` are topics without records, two for each connector."""

    kafka: str
    jars: list[str]
    topics: list[str]
    written: dict[str, str]  # by connector
    streamed: dict[str, str]
    folder: str


class Found(msgspec.Struct, frozen=True):
    """By topic and isolation: how many rows both have, and those that only one has."""

    rows: dict[str, int]
    differences: dict[str, list[str]]


def read(spark: SparkSession, form: str, kafka: str, topic: str, isolation: str) -> DataFrame:
    reader = spark.read.format(form).option("kafka.bootstrap.servers", kafka).option("subscribe", topic)
    reader = reader.option("includeHeaders", "true").option("kafka.isolation.level", isolation)
    return reader.option("startingOffsets", "earliest").option("endingOffsets", "latest").load()


def compare(spark: SparkSession, request: Comparison, topics: list[str]) -> Found:
    rows: dict[str, int] = {}
    differences: dict[str, list[str]] = {}
    for topic in topics:
        for isolation in ("read_committed", "read_uncommitted"):
            theirs, ours = (
                [repr(row) for row in _ordered(read(spark, form, request.kafka, topic, isolation))]
                for form in (OTHERS, OURS)
            )
            name = f"{topic} {isolation}"
            rows[name] = len(ours)
            differing = [f"{one} | {other}" for one, other in zip(theirs, ours, strict=False) if one != other]
            if len(theirs) != len(ours):
                differing.append(f"{len(theirs)} rows | {len(ours)} rows")
            if differing:
                differences[name] = differing[:5]
    return Found(rows, differences)


def _ordered(frame: DataFrame) -> list[object]:
    return list(frame.orderBy("topic", "partition", "offset").collect())


def write(spark: SparkSession, form: str, request: Comparison) -> None:
    """Rows with and without keys, values and headers."""
    frame = spark.range(300).selectExpr(
        "cast(if(id % 5 = 0, null, concat('k', id % 7)) as binary) key",
        "cast(if(id % 11 = 0, null, concat('value ', id)) as binary) value",
        "if(id % 3 = 0, array(named_struct('key', 'n', 'value', cast(cast(id as string) as binary))), null) headers",
    )
    writer = frame.write.format(form).option("kafka.bootstrap.servers", request.kafka).mode("append")
    writer.option("topic", request.written[form]).save()


def stream(spark: SparkSession, form: str, request: Comparison) -> None:
    """From what the other has written."""
    other = OURS if form == OTHERS else OTHERS
    reader = spark.readStream.format(form).option("kafka.bootstrap.servers", request.kafka)
    reader = reader.option("subscribe", request.written[other]).option("startingOffsets", "earliest")
    frame = reader.option("maxOffsetsPerTrigger", "120").load().select("key", "value")
    writer = frame.writeStream.format(form).option("kafka.bootstrap.servers", request.kafka)
    writer = writer.option("topic", request.streamed[form])
    writer = writer.option("checkpointLocation", f"{request.folder}/{form}").trigger(availableNow=True)
    if not writer.start().awaitTermination(_STREAM_TIMEOUT_S):
        raise TimeoutError(f"the stream of {form} has not ended in {_STREAM_TIMEOUT_S} s")


def main() -> None:
    request = msgspec.json.decode(sys.argv[1], type=Comparison)
    settings = {
        "spark.jars": ",".join(request.jars),
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.memory": "1g",
    }
    spark = start_session(SessionOptions("compare", "local[2]", None, settings, is_short=True))
    try:
        for form in (OTHERS, OURS):
            write(spark, form, request)
        for form in (OTHERS, OURS):
            stream(spark, form, request)
        topics = [*request.topics, *request.written.values(), *request.streamed.values()]
        print(RESULT + json.dumps(msgspec.to_builtins(compare(spark, request, topics))), flush=True)
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
