"""librdkafka's consumers with `client.rack` read from the replica in their rack, and from another one when that is gone."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.support.cluster_load import create
from tests.support.kafka_clients import until
from tests.support.local_cluster import LocalCluster

COUNT = 200
LEADER, CLOSE = 1, 3


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("racks"), has_racks=True) as cluster:
        yield cluster


def produce(cluster: LocalCluster, topic: str, *, first: int = 0, transaction: str = "") -> None:
    """COUNT records; with a transaction they count, or do not if its name says so."""
    config: dict[str, Any] = {"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True}
    if transaction:
        config["transactional.id"] = transaction
    producer = Producer(config)
    if transaction:
        producer.init_transactions(60)
        producer.begin_transaction()
    for number in range(first, first + COUNT):
        producer.produce(topic, b"%d" % number, partition=0)
    assert producer.flush(60) == 0
    if transaction.startswith("aborted"):
        producer.abort_transaction(60)
    elif transaction:
        producer.commit_transaction(60)


class Reading:
    """A consumer in the rack of a node, of one partition from its start."""

    def __init__(self, cluster: LocalCluster, topic: str, *, rack: str) -> None:
        self.values: list[int] = []
        self._consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": f"{topic}-readers",
                "client.rack": rack,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
            }
        )
        self._consumer.assign([TopicPartition(topic, 0, 0)])

    def until(self, count: int) -> None:
        until(lambda: self._has(count), f"{count} records are read")

    def _has(self, count: int) -> bool:
        message = self._consumer.poll(1.0)
        if message is not None and message.error() is None:
            value = message.value()
            assert isinstance(value, bytes)
            self.values.append(int(value))
        return len(self.values) >= count

    def close(self) -> None:
        self._consumer.close()


def read_bytes(cluster: LocalCluster, number: int) -> float:
    """What a node has given to readers so far."""
    with urllib.request.urlopen(f"{cluster.nodes[number].url}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    (line,) = [one for one in lines if one.startswith("goqueue_broker_read_bytes_total ")]
    return float(line.split()[1])


def test_a_consumer_reads_in_its_own_rack(cluster: LocalCluster) -> None:
    create(cluster, "close", [[LEADER, 2, CLOSE]])
    produce(cluster, "close")

    def is_read_there() -> bool:
        """Where a node was not heard of for a moment its clients read from the leader meanwhile."""
        before = read_bytes(cluster, CLOSE)
        reading = Reading(cluster, "close", rack=f"node-{CLOSE}")
        reading.until(COUNT)
        reading.close()
        assert reading.values == list(range(COUNT))
        return read_bytes(cluster, CLOSE) > before

    until(is_read_there, "the replica in the consumer's rack has served it")


def test_a_consumer_at_a_follower_sees_committed_transactions_only(cluster: LocalCluster) -> None:
    create(cluster, "committed", [[LEADER, 2, CLOSE]])
    produce(cluster, "committed", transaction="aborted-1", first=1_000)
    produce(cluster, "committed", transaction="kept-1")
    produce(cluster, "committed", transaction="aborted-2", first=2_000)
    produce(cluster, "committed", transaction="kept-2", first=COUNT)
    reading = Reading(cluster, "committed", rack=f"node-{CLOSE}")
    reading.until(2 * COUNT)
    reading.close()
    assert reading.values == list(range(2 * COUNT))


def test_a_consumer_goes_on_when_the_replica_in_its_rack_is_killed(cluster: LocalCluster) -> None:
    create(cluster, "survived", [[LEADER, 2, CLOSE]])
    produce(cluster, "survived")
    reading = Reading(cluster, "survived", rack=f"node-{CLOSE}")
    reading.until(COUNT)
    cluster.kill9(CLOSE)
    produce(cluster, "survived", first=COUNT)
    reading.until(2 * COUNT)
    cluster.restart(CLOSE)
    produce(cluster, "survived", first=2 * COUNT)
    reading.until(3 * COUNT)
    reading.close()
    assert reading.values == list(range(3 * COUNT))
