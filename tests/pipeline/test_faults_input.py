"""Faults that reach a running query or read: each is a clear error, or nothing is missing and nothing is there twice."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession
from tests.support.broker import Broker
from tests.support.kafka_clients import Confluent, Record, until
from tests.support.sink_target import Target
from tests.support.spark_topics import Topics

from goqueue.pipeline.origin import Origin

TIMEOUT_S = 150


@pytest.fixture(autouse=True)
def _queries_end(spark: SparkSession) -> Iterator[None]:
    yield
    for query in spark.streams.active:
        query.stop()


def _fill(broker: Broker, topic: str, count: int, *, segment_bytes: str = "1073741824") -> list[bytes]:
    Target(broker, topic).create(segment_bytes=segment_bytes)
    values = [b"%05d" % number for number in range(count)]
    Confluent(broker.kafka).send(topic, [Record(value, partition=at % 3) for at, value in enumerate(values)])
    return values


def test_broker_that_is_killed_while_a_batch_is_read_costs_time_only(
    spark: SparkSession, topic: str, tmp_path: Path
) -> None:
    with Broker(tmp_path / "data") as broker:
        values = _fill(broker, topic, 6_000)
        kafka, http = broker.kafka, broker.address
        options: dict[str, str | int | bool] = {"maxRecordsPerPartition": 300, "request.timeout.ms": "120s"}
        frame = Origin(kafka).read(spark, [topic], **options).select("value")
        restarted: list[Broker] = []

        def restart() -> None:
            broker.kill9()
            restarted.append(Broker(tmp_path / "data", kafka=kafka, http=http))

        killer = threading.Timer(0.5, restart)
        killer.start()
        try:
            found = sorted(bytes(row.value) for row in frame.collect())
        finally:
            killer.join()
            for one in restarted:
                one.kill9()
    assert found == values


def test_topic_that_goes_while_a_query_runs_ends_it_with_its_name(
    spark: SparkSession, shared_broker: Broker, topic: str, tmp_path: Path
) -> None:
    _fill(shared_broker, topic, 30)
    frame = Origin(shared_broker.kafka).stream(spark, [topic], startingOffsets="earliest")
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path))
    query = writer.start()
    query.processAllAvailable()
    Topics(shared_broker).delete(topic)
    with pytest.raises(StreamingQueryException) as caught:
        query.awaitTermination(TIMEOUT_S)
    assert f"{topic}-0 is gone" in str(caught.value)


def test_target_that_goes_while_a_query_runs_ends_it_with_its_name(
    spark: SparkSession, shared_broker: Broker, topic: str, tmp_path: Path
) -> None:
    _fill(shared_broker, topic, 30)
    target = Target(shared_broker, f"{topic}-copy").create()
    frame = Origin(shared_broker.kafka).stream(spark, [topic], startingOffsets="earliest")
    writer = frame.select("value").writeStream.format("goqueue").option("checkpointLocation", str(tmp_path))
    writer = writer.option("bootstrap.servers", shared_broker.kafka).option("topic", target.topic)
    query = writer.start()
    query.processAllAvailable()
    Topics(shared_broker).delete(target.topic)
    Confluent(shared_broker.kafka).send(topic, [Record(b"more")])
    with pytest.raises(StreamingQueryException) as caught:
        query.awaitTermination(TIMEOUT_S)
    assert f"topic '{target.topic}' does not exist" in str(caught.value)


def test_damaged_segment_is_refused_by_its_name_or_passed_over_by_choice(
    spark: SparkSession, topic: str, tmp_path: Path
) -> None:
    with Broker(tmp_path / "data") as broker:
        values = _fill(broker, topic, 600)
        broker.stop()
    (segment,) = (tmp_path / "data").rglob(f"{topic}/0/*.log")
    content = bytearray(segment.read_bytes())
    content[len(content) // 2] ^= 0x40
    segment.write_bytes(content)
    origin = Origin(path=str(tmp_path / "data"))
    with pytest.raises(PySparkException) as caught:
        origin.read(spark, [topic]).collect()
    assert segment.name in str(caught.value)
    assert f"{topic}-0" in str(caught.value) or f"{topic}/0" in str(caught.value)
    rows = origin.read(spark, [topic], onDamage="skip").select("partition", "value").collect()
    found = {bytes(row.value) for row in rows}
    assert found < set(values)
    assert {value for at, value in enumerate(values) if at % 3} <= found


def test_partitions_that_are_added_while_it_copies_are_copied(
    spark: SparkSession, shared_broker: Broker, topic: str, tmp_path: Path
) -> None:
    values = _fill(shared_broker, topic, 30)
    target = Target(shared_broker, f"{topic}-copy").create()
    frame = Origin(shared_broker.kafka).stream(spark, [topic], startingOffsets="earliest")
    writer = frame.select("value").writeStream.format("goqueue").option("checkpointLocation", str(tmp_path))
    writer = writer.option("bootstrap.servers", shared_broker.kafka).option("topic", target.topic)
    query = writer.start()
    query.processAllAvailable()
    Topics(shared_broker).grow(topic, 5)
    Confluent(shared_broker.kafka).send(topic, [Record(b"added", partition=4)])
    until(
        lambda: target.values() == sorted([*values, b"added"]), "the new partition is copied", timeout_s=150
    )
    query.stop()
