"""Both transports behind the data source, without Spark's JVM: what was sent is what is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructField, StructType, _parse_datatype_json_string
from tests.support.broker import Broker
from tests.support.spark_topics import Topics

from goqueue.client.kafka.errors import KafkaError
from goqueue.pipeline.columns import ALL_COLUMNS
from goqueue.pipeline.data_source import GoQueueSource
from goqueue.pipeline.errors import PipelineError

_JSON_TYPES = {
    "key": '"binary"', "value": '"binary"', "topic": '"string"', "partition": '"integer"', "offset": '"long"',
    "timestamp": '"timestamp"', "timestampType": '"integer"', "priority": '"byte"', "deliver_at": '"timestamp"',
    "traceparent": '"string"', "schema_id": '"integer"',
    "headers": '{"type":"array","containsNull":true,"elementType":{"type":"struct","fields":['
    '{"name":"key","type":"string","nullable":true,"metadata":{}},{"name":"value","type":"binary","nullable":true,"metadata":{}}]}}',
}  # fmt: skip


def schema(names: tuple[str, ...]) -> StructType:
    """As Spark hands it to a reader; it cannot parse DDL without a JVM."""
    return StructType([StructField(name, _parse_datatype_json_string(_JSON_TYPES[name])) for name in names])


def rows(given: dict[str, str], columns: tuple[str, ...] = ALL_COLUMNS) -> list[dict[str, Any]]:
    reader = GoQueueSource(given).reader(schema(columns))
    return [row for task in reader.partitions() for batch in reader.read(task) for row in batch.to_pylist()]  # type: ignore[union-attr] # Arrow batches


def test_both_transports_give_the_same_rows(tmp_path: Path) -> None:
    with Broker(tmp_path / "data") as broker:
        topics = Topics(broker)
        topics.create("a", 3)
        for partition, codec in enumerate(("none", "zstd", "lz4")):
            values = [f"{partition}-{index}".encode() * 20 if index % 7 else None for index in range(500)]
            topics.send(
                "a", values, partition=partition, compression_codec=codec, timestamp_ms=1_000 + partition
            )
        topics.transaction("a", [b"dropped"] * 50).abort_transaction()
        topics.transaction("a", [b"kept"] * 50, partition=1).commit_transaction()
        network = {"bootstrap.servers": broker.kafka, "subscribe": "a", "fetch.max.bytes": "4096"}
        fetched = rows({**network, "minPartitions": "5"})
        uncommitted = rows({**network, "isolation": "read_uncommitted"}, ("value",))
        by_time = rows(
            {**network, "startingTimestamp": "1001", "startingOffsetsByTimestampStrategy": "latest"},
            ("partition",),
        )
        assert broker.stop() == 0
    assert len(fetched) == 1_550
    assert len(uncommitted) == 1_600
    # Of the first partition only the aborted records are new enough.
    assert {row["partition"] for row in by_time} == {1, 2}
    assert len(by_time) == 1_050
    files = {"transport": "files", "path": str(tmp_path / "data"), "subscribe": "a"}
    assert rows(files) == fetched
    stream = GoQueueSource({**files, "startingOffsets": "earliest"}).streamReader(schema(ALL_COLUMNS))
    end = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    tasks = stream.partitions(stream.initialOffset(), end)
    assert [row for task in tasks for batch in stream.read(task) for row in batch.to_pylist()] == fetched  # type: ignore[union-attr] # Arrow batches
    assert rows({**files, "onDamage": "skip"}, ("offset", "key")) == [
        {"offset": row["offset"], "key": row["key"]} for row in fetched
    ]


def test_what_cannot_be_reached_or_is_not_there_is_one_clear_sentence(tmp_path: Path) -> None:
    with pytest.raises(KafkaError, match=r"127\.0\.0\.1:9"):
        rows({"bootstrap.servers": "127.0.0.1:9", "subscribe": "a", "request.timeout.ms": "1"})
    with Broker(tmp_path / "data") as broker:
        Topics(broker).create("orders")
        with pytest.raises(PipelineError, match="there is no topic order; there are orders"):
            rows({"bootstrap.servers": broker.kafka, "subscribe": "order"})


def test_stream_outlives_a_restart_of_the_broker_and_sees_what_came_after(tmp_path: Path) -> None:
    with Broker(tmp_path / "data") as broker:
        address = broker.kafka
        topics = Topics(broker)
        topics.create("a")
        topics.send("a", [b"1"])
        reader = GoQueueSource({"bootstrap.servers": address, "subscribe": "a"}).streamReader(
            schema(("value",))
        )
        try:
            first = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
            broker.kill9()
            with Broker(tmp_path / "data", kafka=address) as again:
                Topics(again).send("a", [b"2", b"3"])
                second = reader.latestOffset(first, ReadAllAvailable())
                (task,) = reader.partitions(first, second)
                values = [value for batch in reader.read(task) for value in batch.column("value").to_pylist()]  # type: ignore[union-attr] # Arrow batches
        finally:
            reader.stop()
    assert values == [b"2", b"3"]
