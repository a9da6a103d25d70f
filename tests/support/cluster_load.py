"""Stock Kafka clients that write to a topic and read along while something is done to the cluster, and the check that nothing was lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.support.kafka_clients import until
from tests.support.local_cluster import LocalCluster

TIMEOUT_S = 200.0
PADDED_COUNT = 2_000
PAUSE_S = 0.05  # after so many, between the next few: all nodes share a machine with the tests
Place = tuple[int, int]  # partition, offset


def create(
    cluster: LocalCluster, topic: str, assignments: list[list[int]], config: dict[str, str] | None = None
) -> None:
    admin: Any = AdminClient({"bootstrap.servers": cluster.bootstrap})
    new = NewTopic(
        topic, num_partitions=len(assignments), replica_assignment=assignments, config=config or {}
    )
    admin.create_topics([new])[topic].result(30)


class Load:
    """A producer that goes on until it is told to stop, and a group of two that reads along. The first records are padded and come
    as fast as they can, so that there is something to copy."""

    def __init__(self, cluster: LocalCluster, topic: str, *, padding: int = 0) -> None:
        self._cluster = cluster
        self._topic = topic
        self._padding = b"." * padding
        self._ending = threading.Event()
        self._reading_ended = threading.Event()
        self._threads = [threading.Thread(target=work) for work in (self._write, self._read, self._read)]
        self.acked: dict[Place, bytes] = {}
        self.read: dict[Place, bytes] = {}
        self.failures: list[str] = []

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.set()
        self._reading_ended.set()
        for thread in self._threads:
            thread.join(TIMEOUT_S)

    def finish(self) -> None:
        """No more is written; back when the group has read everything."""
        self._ending.set()
        self._threads[0].join(TIMEOUT_S)
        until(
            lambda: self.acked.keys() <= self.read.keys(),
            "the group has read everything",
            timeout_s=TIMEOUT_S,
        )

    def wrote(self, count: int) -> Callable[[], bool]:
        """So many more than now."""
        wanted = len(self.acked) + count
        return lambda: len(self.acked) >= wanted

    def check(self, partition_count: int) -> None:
        """Everything that was acknowledged is there, once, and nobody met an error."""
        assert self.failures == []
        stored = read_all(self._cluster, self._topic, partition_count, len(self.acked))
        assert stored == self.acked
        assert len(set(stored.values())) == len(stored)
        assert {place: self.read[place] for place in self.acked} == self.acked

    def _write(self) -> None:
        producer: Any = Producer(
            {
                "bootstrap.servers": self._cluster.bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 5,
                "message.timeout.ms": 180_000,
                "topic.metadata.refresh.interval.ms": 500,
            }
        )
        number = 0
        while not self._ending.is_set():
            for _ in range(20):
                value = str(number).encode() + (self._padding if number < PADDED_COUNT else b"")
                producer.produce(self._topic, value=value, key=str(number), on_delivery=self._delivered)
                number += 1
            producer.poll(0.02)
            if number >= PADDED_COUNT:
                self._ending.wait(PAUSE_S)
        assert producer.flush(TIMEOUT_S) == 0

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self.failures.append(f"not written: {error}")
        else:
            self.acked[message.partition(), message.offset()] = message.value()

    def _read(self) -> None:
        consumer: Any = Consumer(
            {
                "bootstrap.servers": self._cluster.bootstrap,
                "group.id": f"readers of {self._topic}",
                "auto.offset.reset": "earliest",
                "topic.metadata.refresh.interval.ms": 500,
                "session.timeout.ms": 10_000,
            }
        )
        consumer.subscribe([self._topic])
        while not self._reading_ended.is_set():
            for message in consumer.consume(500, 0.2):
                if message.error() is not None:
                    self.failures.append(f"not read: {message.error()}")
                else:
                    self.read[message.partition(), message.offset()] = message.value()
        consumer.close()


def read_all(cluster: LocalCluster, topic: str, partition_count: int, count: int) -> dict[Place, bytes]:
    reader: Any = Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": "a reader", "enable.auto.commit": False}
    )
    reader.assign([TopicPartition(topic, index, 0) for index in range(partition_count)])
    found: dict[Place, bytes] = {}
    deadline = time.monotonic() + TIMEOUT_S
    while len(found) < count and time.monotonic() < deadline:
        for message in reader.consume(2_000, 0.5):
            if message.error() is None:
                found[message.partition(), message.offset()] = message.value()
    reader.close()
    return found
