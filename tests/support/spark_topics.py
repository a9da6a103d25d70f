"""Topics for tests of the Spark source, made and filled by a stock Kafka client."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any

import confluent_kafka
import confluent_kafka.admin
from tests.support.broker import Broker

confluent: Any = confluent_kafka  # its types and its documentation disagree
TIMEOUT_S = 30.0


class Topics:
    """A client of one broker that waits for each thing it asks for."""

    def __init__(self, broker: Broker) -> None:
        self._settings = {"bootstrap.servers": broker.kafka, "log_level": "0"}
        self._admin: Any = confluent.admin.AdminClient(self._settings)  # as above

    def create(self, topic: str, partition_count: int = 1) -> None:
        """Records of long ago stay in it."""
        new = confluent.admin.NewTopic(topic, partition_count, 1, config={"retention.ms": "-1"})
        self._wait(self._admin.create_topics([new]))

    def grow(self, topic: str, partition_count: int) -> None:
        self._wait(self._admin.create_partitions([confluent.admin.NewPartitions(topic, partition_count)]))

    def delete(self, topic: str) -> None:
        self._wait(self._admin.delete_topics([topic]))

    def delete_before(self, topic: str, partition: int, offset: int) -> None:
        self._wait(self._admin.delete_records([confluent.TopicPartition(topic, partition, offset)]))

    def send(
        self,
        topic: str,
        values: Iterable[bytes | None],
        *,
        partition: int = 0,
        timestamp_ms: int = 0,
        **settings: str,
    ) -> None:
        producer = confluent.Producer(
            self._settings | {name.replace("_", "."): value for name, value in settings.items()}
        )
        for index, value in enumerate(values):
            key = None if index % 3 == 2 else f"k{index}".encode()
            headers = [("n", str(index).encode()), ("none", None)] if index % 2 else None
            producer.produce(topic, value, key, partition, timestamp=timestamp_ms, headers=headers)
        assert producer.flush(TIMEOUT_S) == 0

    def transaction(self, topic: str, values: Iterable[bytes], *, partition: int = 0) -> Any:
        """An open one: call `commit_transaction` or `abort_transaction`."""
        producer = confluent.Producer(self._settings | {"transactional.id": uuid.uuid4().hex})
        producer.init_transactions(TIMEOUT_S)
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value, partition=partition)
        assert producer.flush(TIMEOUT_S) == 0
        return producer

    def group_offsets(self, group_id: str, topic: str, partition_count: int) -> list[int]:
        consumer = confluent.Consumer(self._settings | {"group.id": group_id})
        try:
            places = [confluent.TopicPartition(topic, partition) for partition in range(partition_count)]
            return [place.offset for place in consumer.committed(places, TIMEOUT_S)]
        finally:
            consumer.close()

    def _wait(self, futures: dict[Any, Any]) -> None:
        for future in futures.values():
            future.result(TIMEOUT_S)
