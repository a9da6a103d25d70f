"""Spark's own connector for Kafka, which nobody here wrote, reads from our broker what our source reads, and writes what it reads.

Its jars are pinned, and downloaded once; without a Maven repository these tests are skipped. The newest connector that is published
is of the release before the Spark that is installed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from bench.peers.peer import PeerAbsent
from bench.peers.spark_connector import connector_jars
from tests.support.broker import Broker
from tests.support.kafka_admins import ConfluentAdmin
from tests.support.kafka_clients import Confluent, Record, confluent, until
from tests.support.kafka_transactions import ConfluentTransactions
from tests.support.sink_target import Target
from tests.support.spark_cluster import only_in_soak
from tests.support.spark_connector import OTHERS, OURS, RESULT, Comparison, Found
from tests.support.spark_processes import Tree, python_command

TIMEOUT_S = 280.0
BASE_MS = 1_700_000_000_000
TOPICS = ("codecs", "appended", "compacted", "transactions", "empty")
WRITTEN = {OTHERS: "written-by-theirs", OURS: "written-by-ours"}
STREAMED = {OTHERS: "streamed-by-theirs", OURS: "streamed-by-ours"}


@pytest.fixture(scope="module")
def jars() -> list[str]:
    try:
        return [str(jar) for jar in connector_jars()]
    except PeerAbsent as absent:
        pytest.skip(str(absent))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    folder = tmp_path_factory.mktemp("interop")
    with Broker(folder / "data", env={"GOQUEUE_LOG__CLEANUP_INTERVAL_MS": "100"}) as running:
        yield running


def _fill(broker: Broker) -> None:
    admin, client = ConfluentAdmin(broker.kafka), Confluent(broker.kafka)
    kept = {"retention.ms": "-1"}
    for topic in ("codecs", "transactions", "empty", *WRITTEN.values(), *STREAMED.values()):
        admin.create(topic, partitions=2, settings=kept)
    admin.create("appended", partitions=1, settings={"message.timestamp.type": "LogAppendTime"})
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        client.send("codecs", [_record(number) for number in range(40)], codec=codec)
    client.send("appended", [Record(b"%d" % number) for number in range(20)])
    asked = admin.client.delete_records([confluent.TopicPartition("codecs", 1, 7)])
    for future in asked.values():
        future.result(TIMEOUT_S)
    _compact(broker, admin)
    _transact(broker)


def _record(number: int) -> Record:
    headers = (("n", b"%d" % number), ("n", b"again"), ("empty", b"")) if number % 3 else ()
    key = None if number % 4 == 0 else b"key-%d" % (number % 5)
    value = None if number % 9 == 0 else b"value %d" % number * 5
    return Record(value, key, headers, BASE_MS + number * 1_001, number % 2)


def _compact(broker: Broker, admin: ConfluentAdmin) -> None:
    admin.create("compacted", partitions=1, settings={"segment.bytes": "4096", "retention.ms": "-1"})
    for start in range(0, 300, 100):
        records = [Record(b"%d" % number * 20, b"k%d" % (number % 6)) for number in range(start, start + 100)]
        Confluent(broker.kafka).send("compacted", records)
    admin.change("compacted", {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"})
    until(lambda: len(Target(broker, "compacted", 1).rows()) < 150, "the log is compacted")
    admin.change("compacted", {"cleanup.policy": "delete"})


def _transact(broker: Broker) -> None:
    """Committed, aborted and open ones, one after the other and into one another."""
    first, second = (ConfluentTransactions(broker.kafka, f"id-{number}", 900_000) for number in (0, 1))
    for number in range(6):
        first.begin()
        second.begin()
        for producer, name in ((first, b"first"), (second, b"second"), (first, b"more")):
            producer.send("transactions", name + b" %d" % number, partition=number % 2)
        first.commit() if number % 2 else first.abort()
        second.abort() if number % 3 else second.commit()
    first.begin()
    first.send("transactions", b"open", partition=0)
    Confluent(broker.kafka).send("transactions", [Record(b"behind what is open"), Record(b"1", partition=1)])


@only_in_soak
def test_both_connectors_give_the_same_rows_and_read_what_the_other_writes(
    jars: list[str], broker: Broker, tmp_path: Path
) -> None:
    _fill(broker)
    request = Comparison(broker.kafka, jars, list(TOPICS), WRITTEN, STREAMED, str(tmp_path))
    command = python_command("tests.support.spark_connector", msgspec.json.encode(request).decode())
    with Tree(command, name="both connectors") as tree:
        said = tree.output.wait_for(RESULT + "(.*)", timeout_s=TIMEOUT_S)[1]
    found = msgspec.json.decode(said, type=Found)
    assert found.differences == {}
    assert {name: count for name, count in found.rows.items() if name.endswith(" read_committed")} == {
        "codecs read_committed": 193,
        "appended read_committed": 20,
        "compacted read_committed": len(Target(broker, "compacted", 1).rows()),
        "transactions read_committed": len(Target(broker, "transactions", 2).rows()),
        "empty read_committed": 0,
        **{f"{name} read_committed": 300 for name in (*WRITTEN.values(), *STREAMED.values())},
    }
    assert found.rows["transactions read_uncommitted"] > found.rows["transactions read_committed"] > 0
