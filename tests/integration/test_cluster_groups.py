"""Groups and transactions of stock clients in a cluster of three processes, while the node that coordinates them is killed
with kill -9: the others take over, nothing is lost and nothing comes twice."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.support.local_cluster import LocalCluster

PARTITION_COUNT = 3
RECORD_COUNT = 300
TIMEOUT_S = 150.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path) as cluster:
        yield cluster


def consumer(cluster: LocalCluster, group_id: str, protocol: str, **settings: Any) -> Any:
    timeouts = {"session.timeout.ms": 6_000} if protocol == "classic" else {}
    return Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": group_id,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            **timeouts,
            **settings,
        }
    )


def create(admin: Any, *topics: str) -> None:
    for future in admin.create_topics([NewTopic(name, PARTITION_COUNT, 3) for name in topics]).values():
        future.result(30)


def fill(cluster: LocalCluster, topic: str, start: int, end: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for value in range(start, end):
        producer.produce(topic, value=str(value).encode(), partition=value % PARTITION_COUNT)
    assert producer.flush(30) == 0


def coordinator_of(admin: Any, group_id: str) -> int:
    facts = admin.describe_consumer_groups([group_id])[group_id].result(30)
    return int(facts.coordinator.id)


def committed_values(cluster: LocalCluster, topic: str, count: int) -> list[int]:
    """What readers of committed records find, until there is as much as should be, and then no more."""
    reader: Any = consumer(cluster, "a reader", "classic")
    reader.assign([TopicPartition(topic, index, 0) for index in range(PARTITION_COUNT)])
    found: list[int] = []
    deadline = time.monotonic() + TIMEOUT_S
    while len(found) < count and time.monotonic() < deadline:
        found += [int(one.value()) for one in reader.consume(1_000, 1.0) if one.error() is None]
    found += [int(one.value()) for one in reader.consume(1_000, 0.5) if one.error() is None]
    reader.close()
    return found


def patiently(call: Callable[[], None]) -> None:
    """Again where the client says so."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            return call()
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise


class Transformer:
    """Reads a topic as a member of a group and writes what it reads to another, each portion in one transaction with the
    offsets."""

    def __init__(self, cluster: LocalCluster, source: str, target: str, protocol: str) -> None:
        self._cluster = cluster
        self._source = source
        self._target = target
        self._protocol = protocol
        self._producer: Any = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "transactional.id": "a transformer",
                # Otherwise librdkafka 2.16 may wait for ever on the handle of a coordinator that is gone.
                "metadata.recovery.strategy": "none",
            }
        )
        patiently(lambda: self._producer.init_transactions(30))
        self._consumer = self._joined()

    def run(self, count: int) -> None:
        """Until so many have been carried over."""
        deadline = time.monotonic() + TIMEOUT_S
        while count > 0:
            assert time.monotonic() < deadline, f"{count} are left"
            records = [one for one in self._consumer.consume(20, 1.0) if one.error() is None]
            if records:
                count -= self._carry(records)

    def close(self) -> None:
        self._consumer.close()

    def _carry(self, records: list[Any]) -> int:
        """What could not be committed is read again."""
        try:
            self._producer.begin_transaction()
            for one in records:
                self._producer.produce(self._target, value=one.value(), partition=one.partition())
            positions = self._consumer.position(self._consumer.assignment())
            members = self._consumer.consumer_group_metadata()
            patiently(lambda: self._producer.send_offsets_to_transaction(positions, members, 30))
            patiently(lambda: self._producer.commit_transaction(30))
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            patiently(lambda: self._producer.abort_transaction(30))
            self._consumer.close()
            self._consumer = self._joined()
            return 0
        return len(records)

    def _joined(self) -> Any:
        joined = consumer(self._cluster, "transformers", self._protocol)
        joined.subscribe([self._source])
        return joined


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_transactions_of_a_group_go_on_without_the_node_that_coordinated_them(
    cluster: LocalCluster, protocol: str
) -> None:
    admin: Any = AdminClient({"bootstrap.servers": cluster.bootstrap})
    create(admin, "in", "out")
    fill(cluster, "in", 0, RECORD_COUNT)
    transformer = Transformer(cluster, "in", "out", protocol)
    transformer.run(RECORD_COUNT)
    killed = coordinator_of(admin, "transformers")
    cluster.kill9(killed)
    fill(cluster, "in", RECORD_COUNT, 2 * RECORD_COUNT)
    transformer.run(RECORD_COUNT)
    assert coordinator_of(admin, "transformers") != killed
    transformer.close()
    found = committed_values(cluster, "out", 2 * RECORD_COUNT)
    assert sorted(found) == list(range(2 * RECORD_COUNT))
