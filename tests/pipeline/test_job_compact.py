"""Compact: a stopped broker's topics, one Spark task a partition, and the broker that starts on them again."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.support.backups import ends_of, here
from tests.support.broker import Broker, Process
from tests.support.kafka_clients import Confluent, Read, Record
from tests.support.kafka_transactions import ConfluentTransactions
from tests.support.rest_queue import create

from goqueue.client.kafka import KafkaCluster
from goqueue.pipeline.errors import OptionError
from goqueue.pipeline.jobs import compact
from goqueue.pipeline.jobs.compact import CompactRequest, compact_topics

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def _fill(broker: Broker) -> None:
    """Each of 50 keys ten times, the last a tombstone for every fifth; and a transaction that is aborted."""
    create(
        broker, "prices", 2, cleanup_policy="compact", segment_bytes="20000", delete_retention_ms="86400000"
    )
    create(broker, "plain", 1)
    for at in range(10):
        records = [
            Record(
                None if at == 9 and key % 5 == 0 else b"%d-%d" % (key, at), b"key-%d" % key, partition=key % 2
            )
            for key in range(50)
        ]
        Confluent(broker.kafka).send("prices", records, codec=CODECS[at % 5])
    sender = ConfluentTransactions(broker.kafka, "sender")
    sender.begin()
    sender.send("prices", b"never", 0)
    sender.abort()


def _rows(broker: Broker, topic: str, count: int) -> list[Read]:
    with KafkaCluster(broker.kafka) as cluster:
        ends = ends_of(cluster, topic, count, committed=True)
    return sorted(Confluent(broker.kafka).read(topic, ends), key=lambda one: one[:2])


def test_a_broker_serves_the_last_record_of_each_key_where_it_was(
    spark: SparkSession, tmp_path: Path
) -> None:
    with Broker(tmp_path) as broker:
        _fill(broker)
        before = _rows(broker, "prices", 2)
        assert broker.stop() == 0
    now_ms = int(time.time() * 1_000)  # the same, for it is written to the batches of tombstones
    dry = compact.run(spark, CompactRequest(str(tmp_path), is_dry=True, now_ms=now_ms))
    report = compact.run(spark, CompactRequest(str(tmp_path), now_ms=now_ms))
    assert report.counts == dry.counts
    assert report.counts["records_before"] == len(before) + 1  # the one that was aborted
    assert report.counts["records_after"] == 50
    assert report.counts["bytes_after"] < report.counts["bytes_before"]
    assert not report.is_failure
    last = {(row.partition, row.key): row for row in before}
    with Broker(tmp_path) as broker:
        after = _rows(broker, "prices", 2)
        assert after == sorted(last.values(), key=lambda one: one[:2])
        _fill_more(broker)
        assert "damage" not in broker.stderr.text()
        assert broker.stop() == 0
    again = compact_topics(here, CompactRequest(str(tmp_path), ["prices"]))
    assert again.counts["records_after"] == 50


def _fill_more(broker: Broker) -> None:
    """The same producers go on: ids, sequences and transactions."""
    Confluent(broker.kafka).send("prices", [Record(b"new", b"key-1", partition=1)])
    sender = ConfluentTransactions(broker.kafka, "sender")
    sender.begin()
    sender.send("prices", b"now", 0)
    sender.abort()


def test_only_topics_that_are_to_be_compacted_are(tmp_path: Path) -> None:
    with Broker(tmp_path) as broker:
        _fill(broker)
        Confluent(broker.kafka).send("plain", [Record(b"%d" % at, b"k") for at in range(10)])
        assert broker.stop() == 0
    with pytest.raises(OptionError, match=r"'plain' has cleanup\.policy=delete"):
        compact_topics(here, CompactRequest(str(tmp_path), ["plain"]))
    with pytest.raises(OptionError, match="there is no topic 'nowhere'"):
        compact_topics(here, CompactRequest(str(tmp_path), ["nowhere"]))
    report = compact_topics(here, CompactRequest(str(tmp_path)))
    assert {row[0] for row in report.rows} == {"prices"}
    forced = compact_topics(here, CompactRequest(str(tmp_path), ["plain"], is_forced=True))
    assert forced.counts["records_after"] == 1
    own = compact_topics(here, CompactRequest(str(tmp_path), ["__transaction_state"]))
    assert own.counts["partitions"] == 50
    with Broker(tmp_path) as broker:
        assert [row.value for row in _rows(broker, "plain", 1)] == [b"9"]
        _fill_more(broker)


def test_the_command_refuses_a_folder_in_use_and_shows_what_it_did(tmp_path: Path) -> None:
    with Broker(tmp_path) as broker:
        _fill(broker)
        code, shown = _goqueue("--path", str(tmp_path))
        assert (code, "a broker runs on" in shown) == (1, True)
        assert broker.stop() == 0
    code, shown = _goqueue("prices", "--path", str(tmp_path), "--output", "json")
    assert (code, '"records_after": 50' in shown) == (0, True)


def _goqueue(*args: str) -> tuple[int, str]:
    with Process("pipeline", "compact", *args, "--master", "local[1]") as process:
        code = process.wait(timeout_s=180)
        return code, process.stdout.text() + process.stderr.text()
