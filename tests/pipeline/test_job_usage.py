"""Usage: exact counts and bytes on tiny frames, and of the topics, groups and files of a real broker."""

from __future__ import annotations

import json
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession
from tests.support.broker import Broker
from typer.testing import CliRunner

from goqueue.cli.commands.pipeline import app
from goqueue.cli.commands.pipeline import usage as command
from goqueue.client.kafka import KafkaCluster
from goqueue.client.rest import RestClient
from goqueue.pipeline.columns import spark_ddl
from goqueue.pipeline.errors import PipelineError
from goqueue.pipeline.jobs import usage as job
from goqueue.pipeline.jobs.usage.measures import INPUT_COLUMNS, STRETCH_DDL
from goqueue.pipeline.origin import Origin

NOON = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
PAST = datetime(2026, 1, 1, 12, 59, 59, tzinfo=UTC)
ONE = datetime(2026, 1, 1, 13, 0, tzinfo=UTC)


def _record(
    topic: str, offset: int, when: datetime, key: bytes | None, value: bytes | None, headers: Any = None
) -> tuple[Any, ...]:
    return (key, value, topic, 0, offset, when, headers)


def test_bytes_are_those_of_keys_values_and_headers_per_hour(spark: SparkSession) -> None:
    records = spark.createDataFrame(
        [
            _record("acme.orders", 0, NOON, b"key", b"value"),
            _record("acme.orders", 1, PAST, None, b"", [("h", b"12"), ("naïve", None)]),
            _record("acme.orders", 2, ONE, b"k", None, []),
            _record("orders.dlq", 0, NOON, None, b"x"),
        ],
        spark_ddl(INPUT_COLUMNS),
    )
    found = {
        (row.tenant, row.topic, row.hour.astimezone(UTC), row.messages, row.bytes)
        for row in job.by_hour(job.sized(records)).collect()
    }
    assert found == {
        ("acme", "acme.orders", NOON, 2, 8 + 1 + 2 + 6),
        ("acme", "acme.orders", ONE, 1, 1),
        ("default", "orders.dlq", NOON, 1, 1),
    }


def test_group_has_consumed_the_records_of_its_stretches(spark: SparkSession) -> None:
    records = spark.createDataFrame(
        [_record("t", offset, NOON, None, b"x" * offset) for offset in (0, 1, 2, 5, 6)],
        spark_ddl(INPUT_COLUMNS),
    )
    read = spark.createDataFrame([("g", "t", 0, 1, 6), ("h", "t", 0, 6, 7), ("g", "u", 0, 0, 9)], STRETCH_DDL)
    found = {tuple(row) for row in job.consumed(job.sized(records), read).collect()}
    assert found == {("g", "t", 3, 8), ("h", "t", 1, 6)}


def _produce(broker: Broker, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": broker.kafka})
    for index in range(count):
        producer.produce(topic, b"x" * 90, key=b"0123456789", partition=index % 2)
    assert producer.flush(30) == 0


@pytest.mark.parametrize("format", ["parquet", "csv"])
def test_usage_of_a_broker_and_what_a_group_read_since(
    spark: SparkSession, shared_broker: Broker, topic: str, tmp_path: Path, format: str
) -> None:
    name, group = f"acme.{topic}", f"g-{topic}"
    with RestClient(shared_broker.url) as client:
        client.create_topic(name, partition_count=2)
        _produce(shared_broker, name, 10)
        stored = client.topic(name).total_size_bytes
    origin = Origin(bootstrap=shared_broker.kafka)
    with KafkaCluster(shared_broker.kafka) as cluster:
        cluster.commit_group(group, {(name, 0): 1, (name, 1): 0})
        first = str(tmp_path / "first")
        report = job.run(
            spark, job.UsageRequest(origin, [name], url=shared_broker.url, to=first, format=format)
        )
        assert report.counts == {
            "tenants": 1,
            "topics": 1,
            "groups": 1,
            "messages": 10,
            "bytes": 1_000,
            "stored_bytes": stored,
        }
        assert ("topic", "acme", name, None, None, 10, 1_000, stored, None) in report.rows
        assert ("group", "acme", name, group, None, None, None, None, 9) in report.rows
        assert sum(row[5] for row in report.rows if row[0] == "hour" and isinstance(row[5], int)) == 10
        _produce(shared_broker, name, 4)
        cluster.commit_group(group, {(name, 0): 4, (name, 1): 7})
    second = job.run(
        spark, job.UsageRequest(origin, [name], url=shared_broker.url, previous=first, format=format)
    )
    assert ("group", "acme", name, group, None, 10, 1_000, None, 3) in second.rows
    saved = spark.read.format(format).option("header", "true").load(f"{first}/topics").collect()
    assert [(row.tenant, row.topic, int(row.messages)) for row in saved] == [("acme", name, 10)]


def test_usage_of_a_folder_has_the_bytes_of_its_segments(
    spark: SparkSession, tmp_path: Path, topic: str
) -> None:
    data = tmp_path / "data"
    with Broker(data) as broker:
        with RestClient(broker.url) as client:
            client.create_topic(topic, partition_count=2)
        _produce(broker, topic, 6)
        assert broker.stop() == 0
    report = job.run(spark, job.UsageRequest(Origin(path=str(data))))
    on_disk = sum(path.stat().st_size for path in (data / "logs" / topic).rglob("*.log"))
    assert on_disk > 600
    assert report.counts == {
        "tenants": 1,
        "topics": 1,
        "groups": 0,
        "messages": 6,
        "bytes": 600,
        "stored_bytes": on_disk,
    }


def test_what_cannot_be_is_said_in_one_sentence(
    spark: SparkSession, shared_broker: Broker, topic: str, tmp_path: Path
) -> None:
    origin = Origin(bootstrap=shared_broker.kafka)
    with pytest.raises(PipelineError, match="there is no topic 'nowhere'"):
        job.run(spark, job.UsageRequest(origin, ["nowhere"]))
    with RestClient(shared_broker.url) as client:
        client.create_topic(topic)
    none = str(tmp_path / "none")
    with pytest.raises(PipelineError, match=r"none' is not the folder of an earlier report in parquet: .+"):
        job.run(spark, job.UsageRequest(origin, [topic], url=shared_broker.url, previous=none))
    full = tmp_path / "full"
    (full / "hours").mkdir(parents=True)
    with pytest.raises(PipelineError, match=r"the tables cannot be written to .*full"):
        job.run(spark, job.UsageRequest(origin, [topic], to=str(full)))


def test_command_counts_a_topic_and_asks_the_broker(
    spark: SparkSession, shared_broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "spark_session", lambda *_: nullcontext(spark))
    with RestClient(shared_broker.url) as client:
        client.create_topic(topic, partition_count=2)
    _produce(shared_broker, topic, 2)
    where = ["--bootstrap", shared_broker.kafka, "--url", shared_broker.url]
    done = CliRunner().invoke(app, ["usage", topic, *where, "-o", "json"])
    assert done.exit_code == 0, done.output
    shown = json.loads(done.stdout)
    assert (shown["messages"], shown["bytes"], shown["stored_bytes"] > 200) == (2, 200, True)
    without = CliRunner().invoke(app, ["usage", topic, *where, "--no-broker", "-o", "json"])
    assert "stored_bytes" not in json.loads(without.stdout)
