"""Replay and reshard: records once more into a topic, those of a key in their order."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.support.broker import Broker

from goqueue.client.rest import RestClient
from goqueue.pipeline.errors import OptionError, PipelineError
from goqueue.pipeline.jobs import archive, replay, reshard
from goqueue.pipeline.jobs.archive import ArchiveRequest
from goqueue.pipeline.jobs.replay import ReplayRequest
from goqueue.pipeline.jobs.reshard import ReshardRequest
from goqueue.pipeline.origin import Origin

confluent: Any = confluent_kafka  # its types and its documentation disagree
COUNT = 300
FIRST_MS = 1_728_000_000_000


def _create(broker: Broker, topic: str, partitions: int) -> None:
    with RestClient(broker.url) as client:
        client.create_topic(topic, partition_count=partitions, config={"retention.ms": "-1"})


def _produce(broker: Broker, topic: str, first: int = 0, count: int = COUNT) -> None:
    """Record n has key n modulo 17, value n, a header and time FIRST_MS + n."""
    producer = confluent.Producer({"bootstrap.servers": broker.kafka, "linger.ms": 5})
    for index in range(first, first + count):
        producer.produce(
            topic,
            key=b"k%d" % (index % 17),
            value=b"%d" % index,
            headers=[("n", b"%d" % index)],
            timestamp=FIRST_MS + index,
        )
    producer.flush()


@pytest.fixture
def orders(shared_broker: Broker, topic: str) -> str:
    _create(shared_broker, topic, 3)
    _produce(shared_broker, topic)
    return topic


def _rows(records: DataFrame) -> list[tuple[Any, ...]]:
    """Without where they are."""
    rows = records.select("key", "value", "headers", "timestamp").collect()
    return sorted((row.key, int(row.value), row.headers, row.timestamp) for row in rows)


def _orders_by_key(records: DataFrame) -> dict[bytes, list[int]]:
    found: dict[bytes, list[int]] = defaultdict(list)
    for row in records.orderBy("partition", "offset").collect():
        found[bytes(row.key)].append(int(row.value))
    return found


def _is_in_order(records: DataFrame) -> bool:
    return all(values == sorted(values) for values in _orders_by_key(records).values())


def test_replay_keeps_keys_values_headers_times_and_the_order_of_keys(
    spark: SparkSession, shared_broker: Broker, orders: str
) -> None:
    origin = Origin(shared_broker.kafka)
    _create(shared_broker, f"{orders}-again", 5)
    report = replay.run(spark, ReplayRequest(origin, origin, orders, f"{orders}-again"))
    again = origin.read(spark, [f"{orders}-again"], includeHeaders=True)
    assert report.counts == {"records": COUNT, "bad_rows": 0}
    assert _rows(again) == _rows(origin.read(spark, [orders], includeHeaders=True))
    assert _is_in_order(again)


def test_replay_takes_what_time_offsets_and_condition_leave(
    spark: SparkSession, shared_broker: Broker, orders: str
) -> None:
    origin = Origin(shared_broker.kafka)
    _create(shared_broker, f"{orders}-some", 3)
    request = ReplayRequest(
        origin,
        origin,
        orders,
        f"{orders}-some",
        where="CAST(key AS STRING) = 'k3'",
        time_min_ms=FIRST_MS + 100,
        time_max_ms=FIRST_MS + 200,
        keeps_partitions=True,
    )
    expected = [index for index in range(100, 200) if index % 17 == 3]
    assert replay.run(spark, request).counts["records"] == len(expected)
    some = origin.read(spark, [f"{orders}-some"]).collect()
    assert sorted(int(row.value) for row in some) == expected
    (partition,) = {row.partition for row in some}
    source = origin.read(spark, [orders]).where("CAST(key AS STRING) = 'k3'").first()
    assert source is not None
    assert source.partition == partition


def test_archive_is_replayed_in_the_order_of_its_keys(
    spark: SparkSession, shared_broker: Broker, orders: str, tmp_path: Path
) -> None:
    origin = Origin(shared_broker.kafka)
    archive.run(spark, ArchiveRequest(origin, [orders], str(tmp_path), step_records=70, merge_at=0))
    _create(shared_broker, f"{orders}-lake", 2)
    replay.run(spark, ReplayRequest(origin, origin, orders, f"{orders}-lake", lake=str(tmp_path)))
    again = origin.read(spark, [f"{orders}-lake"], includeHeaders=True)
    assert _rows(again) == _rows(origin.read(spark, [orders], includeHeaders=True))
    assert _is_in_order(again)


def test_reshard_copies_each_record_once_however_often_it_runs(
    spark: SparkSession, shared_broker: Broker, orders: str, tmp_path: Path
) -> None:
    origin = Origin(shared_broker.kafka)
    request = ReshardRequest(origin, orders, f"{orders}-7", 7, str(tmp_path / "checkpoint"), step_records=120)
    assert reshard.run(spark, request).counts["records"] == COUNT
    assert reshard.run(spark, request).counts["records"] == 0
    _produce(shared_broker, orders, COUNT, 50)
    assert reshard.run(spark, request).counts["records"] == 50
    copied = origin.read(spark, [f"{orders}-7"], includeHeaders=True)
    assert _rows(copied) == _rows(origin.read(spark, [orders], includeHeaders=True))
    assert _is_in_order(copied)
    with RestClient(shared_broker.url) as client:
        made = client.topic(f"{orders}-7")
        assert (made.partitions, made.overrides["retention.ms"]) == (7, "-1")
    other = replace(request, to=f"{orders}-3", partitions=3, step_records=1_000)  # with the same checkpoint
    assert reshard.run(spark, other).counts["records"] == COUNT + 50


def test_request_that_makes_no_sense_is_refused(
    spark: SparkSession, shared_broker: Broker, orders: str
) -> None:
    origin = Origin(shared_broker.kafka)
    with pytest.raises(OptionError, match="nothing in it"):
        ReplayRequest(origin, origin, orders, "x", time_min_ms=5, time_max_ms=5)
    with pytest.raises(OptionError, match="the topic to write is 'x'"):
        ReplayRequest(origin, origin, orders, "x", sink_options={"Topic": "y"})
    with pytest.raises(OptionError, match="offsets bound a topic"):
        ReplayRequest(origin, origin, orders, "x", lake="lake", bounds={"startingOffsets": "earliest"})
    with pytest.raises(OptionError, match=r"where is 'price > 3', which Spark refuses: .*price"):
        replay.run(spark, ReplayRequest(origin, origin, orders, orders, where="price > 3"))
    with pytest.raises(OptionError, match="cannot be resharded into itself"):
        ReshardRequest(origin, orders, orders, 5, "checkpoint")
    with pytest.raises(OptionError, match="not 0"):
        ReshardRequest(origin, orders, "other", 0, "checkpoint")
    _create(shared_broker, f"{orders}-there", 3)
    with pytest.raises(PipelineError, match="there already and has 3 partitions, not 4"):
        reshard.run(spark, ReshardRequest(origin, orders, f"{orders}-there", 4, "checkpoint"))
