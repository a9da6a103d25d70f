"""confluent-kafka as every line uses it: the client's defaults, but for what a measurement needs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from msgspec import Struct

from bench.kafka_plans import Target
from bench.line import require

STATISTICS_MS = 500
_QUEUE_COUNT_MAX = 2_000_000  # a whole burst, so that the sending loop never waits
_METADATA_TIMEOUT_S = 30.0


class _BrokerStatistics(Struct):
    req: dict[str, int] = {}


class _Statistics(Struct):
    ts: int
    brokers: dict[str, _BrokerStatistics] = {}


_statistics = msgspec.json.Decoder(_Statistics)


@dataclass(slots=True)
class RequestCounts:
    """How many requests of a kind a client has sent, as its statistics say: times (monotonic, us) and counts."""

    kind: str
    samples: list[tuple[int, int]] = field(default_factory=list)

    def take(self, text: str) -> None:
        statistics = _statistics.decode(text)
        count = sum(broker.req.get(self.kind, 0) for broker in statistics.brokers.values())
        self.samples.append((statistics.ts, count))

    @property
    def last(self) -> int:
        return self.samples[-1][1] if self.samples else 0

    def per_s(self, begin_us: int, end_us: int) -> float:
        """Between the first and the last sample of a time."""
        inside = [sample for sample in self.samples if begin_us <= sample[0] <= end_us]
        require(len(inside) >= 2, "the client gave too few statistics for the time measured")
        (first_us, first), (last_us, last) = inside[0], inside[-1]
        return (last - first) / (last_us - first_us) * 1e6


class Sender:
    """A producer that remembers what was not delivered."""

    def __init__(self, target: Target, acks: str, settings: dict[str, object] | None = None) -> None:
        self._topic = target.topic
        self._refused: list[str] = []
        self.requests = RequestCounts("Produce")
        self._producer = Producer(
            {
                "bootstrap.servers": target.address,
                "acks": acks,
                "queue.buffering.max.messages": _QUEUE_COUNT_MAX,
                "delivery.report.only.error": True,
                "on_delivery": self._on_refused,
                "stats_cb": self.requests.take,
                **(settings or {}),
            }
        )
        known = self._producer.list_topics(self._topic, _METADATA_TIMEOUT_S).topics[self._topic]
        require(known.error is None, f"the topic is not there: {known.error}")
        found = len(known.partitions)
        require(found == target.partition_count, f"the topic has {found} partitions")

    def _on_refused(self, error: KafkaError | None, message: Message) -> None:
        self._refused.append(str(error))

    def send(self, values: Iterable[bytes]) -> None:
        produce, topic = self._producer.produce, self._topic
        for value in values:
            produce(topic, value)

    def send_to(self, placed: Iterable[tuple[int, bytes]]) -> None:
        """To partitions that are chosen already."""
        produce, topic = self._producer.produce, self._topic
        for partition, value in placed:
            produce(topic, value, partition=partition)

    def serve(self, timeout_s: float = 0.0) -> None:
        self._producer.poll(timeout_s)
        require(not self._refused, f"{len(self._refused)} were not delivered: {self._refused[:1]}")

    def finish(self, timeout_s: float) -> None:
        """Until everything is acknowledged."""
        left = self._producer.flush(timeout_s)
        self.serve()
        require(left == 0, f"{left} messages were not acknowledged within {timeout_s:g} s")


def new_consumer(target: Target, fetches: RequestCounts | None = None) -> Consumer:
    statistics = {"statistics.interval.ms": STATISTICS_MS, "stats_cb": fetches.take} if fetches else {}
    return Consumer(
        {
            "bootstrap.servers": target.address,
            "group.id": "bench",  # needed by the client, used by nobody: partitions are assigned by hand
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            **statistics,
        }
    )


def kept_spans(consumer: Consumer, target: Target) -> list[tuple[int, int]]:
    """First offset and end of each partition; the consumer is connected afterwards."""
    consumer.list_topics(
        target.topic, _METADATA_TIMEOUT_S
    )  # so that it knows the leaders before it is asked for more
    spans: list[tuple[int, int]] = []
    for partition in range(target.partition_count):
        place = TopicPartition(target.topic, partition)
        span = consumer.get_watermark_offsets(place, timeout=_METADATA_TIMEOUT_S)
        require(span is not None, f"the offsets of partition {partition} are not known")
        spans.append(span)
    return spans


def assign(consumer: Consumer, target: Target, spans: list[tuple[int, int]]) -> None:
    consumer.assign(
        [TopicPartition(target.topic, partition, start) for partition, (start, _) in enumerate(spans)]
    )


def checked_content(message: Message) -> tuple[int, bytes | None]:
    """Partition and value."""
    error = message.error()
    require(error is None, f"reading failed: {error}")
    partition = message.partition()
    assert partition is not None
    return partition, message.value()
