"""Topics that the Spark sink writes to: made, and read back by a client that knows nothing of Spark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tests.support.kafka_clients import Confluent, Read

from goqueue.client.kafka import LATEST, KafkaCluster


class Reachable(Protocol):
    @property
    def kafka(self) -> str:
        """Where Kafka clients begin: one address, or several with commas."""


@dataclass(frozen=True)
class Target:
    broker: Reachable
    topic: str
    partition_count: int = 3

    def create(self, **settings: str) -> Target:
        """Settings are given as `max_message_bytes="2048"`."""
        named = {name.replace("_", "."): value for name, value in settings.items()}
        with KafkaCluster(self.broker.kafka) as cluster:
            cluster.create_topic(self.topic, self.partition_count, named)
        return self

    def rows(self) -> list[Read]:
        """What a committed reader sees, by partition and offset."""
        ends = {index: end for (_, index), end in self._ends(committed=True).items() if end}
        return sorted(Confluent(self.broker.kafka).read(self.topic, ends)) if ends else []

    def values(self) -> list[bytes]:
        return sorted(row.value or b"" for row in self.rows())

    @property
    def is_settled(self) -> bool:
        """No transaction holds up committed readers."""
        return self._ends(committed=True) == self._ends(committed=False)

    def ends_of_both(self) -> tuple[list[int], list[int]]:
        """The last stable offsets, and the high watermarks."""
        return list(self._ends(committed=True).values()), list(self._ends(committed=False).values())

    def _ends(self, *, committed: bool) -> dict[tuple[str, int], int]:
        places = [(self.topic, index) for index in range(self.partition_count)]
        with KafkaCluster(self.broker.kafka) as cluster:
            return cluster.offsets(places, LATEST, committed=committed)
