"""Delayed messages by Kafka's protocol, the fastest way in."""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka import KafkaError, Message, Producer

from bench.child import Broker
from bench.kafka_values import value_of
from bench.line import require

_QUEUE_COUNT = 100_000
_TIMEOUT_S = 600.0


def publish_delayed(broker: Broker, topic: str, due_ms: Iterable[int], value_bytes: int) -> None:
    """One message for each instant, with its index in the value; returns when all are acknowledged by all."""
    errors: list[KafkaError] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            errors.append(error)

    producer = Producer(
        {
            "bootstrap.servers": f"127.0.0.1:{broker.ports['kafka']}",
            "acks": "all",
            "enable.idempotence": True,
            "queue.buffering.max.messages": _QUEUE_COUNT,
            "log_level": 2,
        }
    )
    for index, due in enumerate(due_ms):
        value = value_of(index, value_bytes)
        headers: list[tuple[str, str | bytes | None]] = [("gq-deliver-at", b"%d" % due)]
        while True:
            try:
                producer.produce(topic, value, headers=headers, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.1)
        if index % 1_000 == 0:
            producer.poll(0)
    left_count = producer.flush(_TIMEOUT_S)
    require(left_count == 0 and not errors, f"{left_count} delayed messages are not confirmed, {errors[:1]}")
