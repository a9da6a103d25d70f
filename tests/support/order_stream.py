"""Orders for pipelines: what is sent, some of it poison, and what has to come out of it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.support.broker import Broker
from tests.support.kafka_clients import Confluent, Record, new_topic

from goqueue.client.kafka import KafkaCluster

START = datetime(2026, 1, 1, tzinfo=UTC)
COUNTRIES = {"ada": "GB", "bob": "US", "eve": "DE"}
POISON = (b"no json", b'{"id": "x", "customer": "ada"}', b"[]", b'{"id": 1, "customer": "ada", "at": null}')
PARTITION_COUNT = 2


@dataclass
class Orders:
    """A topic of orders, and all that was sent to it."""

    broker: Broker
    topic: str
    sent: list[dict[str, object]] = field(default_factory=list)
    poison: list[bytes] = field(default_factory=list)

    @classmethod
    def create(cls, broker: Broker) -> Orders:
        return cls(broker, new_topic(broker, partitions=PARTITION_COUNT))

    def send(self, count: int, *, per_minute: int = 10, poison: Sequence[bytes] = ()) -> None:
        """More orders, each later than the one before."""
        first = len(self.sent)
        new = [
            {
                "id": number,
                "customer": sorted(COUNTRIES)[number % len(COUNTRIES)],
                "amount": number % 7 + 0.5,
                "at": (START + timedelta(seconds=number * 60 / per_minute)).isoformat(),
            }
            for number in range(first, first + count)
        ]
        records = [Record(json.dumps(order).encode(), partition=index % 2) for index, order in enumerate(new)]
        records += [Record(value, b"poison", (("trace", b"1"),)) for value in poison]
        Confluent(self.broker.kafka).send(self.topic, records)
        self.sent += new
        self.poison += poison

    def windows(self, *, delay: timedelta) -> dict[tuple[str, str], int]:
        """Counts by minute and country, of the minutes that are over by the watermark."""
        moments = [datetime.fromisoformat(str(order["at"])) for order in self.sent]
        watermark = max(moments) - delay
        counts: Counter[tuple[str, str]] = Counter()
        for order, moment in zip(self.sent, moments, strict=True):
            minute = moment.replace(second=0, microsecond=0)
            if minute + timedelta(minutes=1) <= watermark:
                counts[minute.isoformat(), COUNTRIES[str(order["customer"])]] += 1
        return dict(counts)


def write_customers(folder: Path) -> None:
    lines = ["customer,country", *(f"{name},{country}" for name, country in COUNTRIES.items())]
    (folder / "customers.csv").write_text("\n".join(lines))


def committed_of(broker: Broker, group: str) -> int:
    """How far a group is, over all partitions, as a Kafka client is told."""
    with KafkaCluster(broker.kafka) as cluster:
        return sum(cluster.group_offsets(group).values())
