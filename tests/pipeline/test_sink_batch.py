"""`df.write.format("goqueue")`: a frame as a whole or not at all, every column, bad rows, and errors as a user sees them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from tests.support.broker import Broker
from tests.support.kafka_clients import until
from tests.support.sink_target import Target

from goqueue.model.dead_letter_headers import REASON

COLUMNS = (
    "key string, value binary, headers array<struct<key: string, value: binary>>, topic string, partition int, "
    "priority int, deliver_at timestamp, timestamp timestamp"
)


@pytest.fixture
def target(shared_broker: Broker, topic: str) -> Target:
    return Target(shared_broker, topic)


def save(frame: DataFrame, target: Target, **options: str) -> None:
    writer = (
        frame.write.format("goqueue").mode("append").option("kafka.bootstrap.servers", target.broker.kafka)
    )
    writer.options(**options).save()


def numbers(spark: SparkSession, count: int, tasks: int) -> DataFrame:
    return spark.range(0, count, 1, tasks).selectExpr("cast(id as string) key", "cast(id as string) value")


def failing(frame: DataFrame, attempts: int) -> DataFrame:
    """Task 1 fails after some of its rows, as often as it is tried or less."""

    def pass_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        task = TaskContext.get()
        if task is not None and task.partitionId() == 1 and task.attemptNumber() < attempts:
            raise RuntimeError("the task fails")

    return frame.mapInArrow(pass_on, frame.schema)


def test_every_column_comes_back_to_other_clients_and_to_the_source(
    spark: SparkSession, target: Target
) -> None:
    target.create(retention_ms="-1")  # a row's own time is what it is old by
    then = datetime(2026, 1, 2, 3, 4, 5, 678_000, UTC)
    due = datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC)
    rows = [
        ("k", b"\x00\xff", [("a", b"1"), ("none", None)], target.topic, 2, 0, due, then),
        (None, b"plain", None, target.topic, 1, None, None, then),
        ("gone", None, [], target.topic, 0, 4, None, then),
    ]
    save(spark.createDataFrame(rows, COLUMNS), target)
    tombstone, plain, full = target.rows()
    then_ms = int(then.timestamp() * 1_000)
    assert (full.partition, full.key, full.value, full.timestamp_ms) == (2, b"k", b"\x00\xff", then_ms)
    headers = dict(full.headers)
    assert (headers["a"], headers["gq-priority"]) == (b"1", b"0")
    assert headers.get("none", b"") is None
    assert (plain.partition, plain.key, plain.value, plain.headers) == (1, None, b"plain", ())
    assert (tombstone.key, tombstone.value) == (b"gone", None)

    reader = spark.read.format("goqueue").option("kafka.bootstrap.servers", target.broker.kafka)
    columns = "key,value,partition,timestamp,priority,deliver_at"
    frame = reader.option("subscribe", target.topic).option("columns", columns).load()
    read = {row.partition: row for row in frame.collect()}
    assert (bytes(read[2].key), bytes(read[2].value)) == (b"k", b"\x00\xff")
    assert read[2].priority == 0
    assert read[2].deliver_at.timestamp() == due.timestamp()
    assert read[2].timestamp.timestamp() == then.timestamp()
    assert (read[0].value, read[0].priority) == (None, 4)
    assert read[1].deliver_at is None


def test_failing_job_leaves_nothing_and_holds_nobody_up(spark: SparkSession, target: Target) -> None:
    target.create()
    with pytest.raises(PySparkException, match="the task fails"):
        save(failing(numbers(spark, 30_000, 3), attempts=9), target, topic=target.topic)
    until(lambda: target.is_settled, "readers go on")
    assert target.rows() == []


def test_task_that_is_tried_again_leaves_no_duplicate(spark: SparkSession, target: Target) -> None:
    target.create()
    frame = failing(numbers(spark, 30_000, 3), attempts=1)
    save(frame, target, topic=target.topic, **{"batch.size": "65536", "compression.type": "lz4"})
    assert target.values() == sorted(str(number).encode() for number in range(30_000))
    until(lambda: target.is_settled, "readers go on")


def test_rows_go_to_the_topics_they_name(spark: SparkSession, target: Target, topic: str) -> None:
    other = Target(target.broker, f"{topic}-other", 1).create()
    target.create()
    frame = numbers(spark, 1_000, 2).selectExpr(
        "key", "value", f"if(key % 10 = 0, '{other.topic}', '{target.topic}') topic"
    )
    save(frame, target)
    assert (len(target.rows()), len(other.rows())) == (900, 100)


def test_frame_without_rows_writes_nothing(spark: SparkSession, target: Target) -> None:
    target.create()
    save(numbers(spark, 0, 2), target, topic=target.topic)
    assert target.rows() == []


def bad_frame(spark: SparkSession) -> DataFrame:
    return numbers(spark, 100, 2).selectExpr("key", "value", "if(key = 42, 9, 0) priority")


def test_bad_row_fails_the_whole_write_and_is_named(spark: SparkSession, target: Target) -> None:
    target.create()
    with pytest.raises(PySparkException, match="with key b'42' cannot be written: its priority is 9"):
        save(bad_frame(spark), target, topic=target.topic)
    assert target.rows() == []


def test_bad_row_is_left_out_and_counted_for_whoever_runs_the_job(
    spark: SparkSession, target: Target, tmp_path: Path
) -> None:
    target.create()
    report = tmp_path / "report.json"
    save(bad_frame(spark), target, topic=target.topic, badRows="skip", reportPath=str(report))
    assert len(target.rows()) == 99
    told = json.loads(report.read_text())
    assert (told["rows"], told["bad_rows"]) == ({target.topic: 99}, {"priority out of range": 1})


def test_bad_row_becomes_a_dead_letter(spark: SparkSession, target: Target, topic: str) -> None:
    target.create()
    save(bad_frame(spark), target, topic=target.topic, badRows="dead_letter")
    assert len(target.rows()) == 99
    letters = Target(target.broker, f"{topic}.dlq", 1)
    (letter,) = letters.rows()
    assert (letter.key, letter.value) == (b"42", b"42")
    assert dict(letter.headers)[REASON] == b"priority out of range"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"topc": "t"}, "did you mean topic"),
        ({}, "where to"),
        ({"topic": "nowhere-at-all"}, "topic 'nowhere-at-all' does not exist"),
        ({"topic": "t", "acks": "1"}, "a transaction needs acks=all"),
    ],
)
def test_mistake_in_the_options_is_told_to_whoever_writes(
    spark: SparkSession, target: Target, options: dict[str, str], said: str
) -> None:
    with pytest.raises(PySparkException, match=said):
        save(numbers(spark, 10, 1), target, **options)


def test_columns_that_a_topic_has_no_place_for_are_named(spark: SparkSession, target: Target) -> None:
    with pytest.raises(PySparkException, match="columns 'id', 'total' that a topic has no place for"):
        save(spark.range(1).selectExpr("id", "1 total", "'v' value"), target, topic=target.topic)


def test_topic_cannot_be_overwritten(spark: SparkSession, target: Target) -> None:
    writer = numbers(spark, 1, 1).write.format("goqueue").mode("overwrite")
    with pytest.raises(PySparkException, match="cannot be overwritten"):
        writer.option("kafka.bootstrap.servers", target.broker.kafka).option("topic", target.topic).save()
