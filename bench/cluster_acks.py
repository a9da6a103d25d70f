"""One idempotent producer that sends a message every few milliseconds to one partition and notes when each is acknowledged; and
the check that all of them are stored, each once."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from bench.kafka_values import Readback, value_of
from bench.line import BenchFailed, require

PAUSE_S = 0.005
_VALUE_BYTES = 100
_FLUSH_S = 60.0
_READ_S = 60.0
_SETTINGS = {
    "acks": "all",
    "enable.idempotence": True,
    "linger.ms": 0,
    "delivery.timeout.ms": 60_000,
    # A client that waits long between tries measures itself. The same for every side.
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 100,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 100,
    "metadata.recovery.strategy": "none",
    "log_level": 0,
}


class AckedStream:
    """To the partition, beginning with message `first`."""

    def __init__(self, address: str, topic: str, partition: int, first: int) -> None:
        self._place = TopicPartition(topic, partition)
        self._producer = Producer({"bootstrap.servers": address, **_SETTINGS})
        self._refusal: str | None = None
        self.next = first
        self.acked: list[float] = []  # when, on the monotonic clock

    def run_until(self, is_over: Callable[[], bool], *, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        due = time.monotonic()
        while not is_over():
            require(time.monotonic() < deadline, f"no end was seen for {timeout_s:g} s")
            self._producer.produce(
                self._place.topic,
                value_of(self.next, _VALUE_BYTES),
                partition=self._place.partition,
                on_delivery=self._note,
            )
            self.next += 1
            due += PAUSE_S
            while (left_s := due - time.monotonic()) > 0:
                self._producer.poll(left_s)
            self._producer.poll(0)
            if self._refusal is not None:
                raise BenchFailed(f"a message was refused: {self._refusal}")

    def run_for(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        self.run_until(lambda: time.monotonic() >= end, timeout_s=seconds + 1)

    def finish(self) -> None:
        left = self._producer.flush(_FLUSH_S)
        require(
            left == 0 and self._refusal is None, f"{left} messages were not acknowledged: {self._refusal}"
        )

    def _note(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._refusal = str(error)
        else:
            self.acked.append(time.monotonic())

    def longest_gap_s(self, since: float) -> float:
        """Between two acknowledgements, from the last one before that moment on."""
        before = [at for at in self.acked if at <= since]
        after = [at for at in self.acked if at > since]
        require(bool(before and after), "nothing was acknowledged before, or after")
        return max(later - earlier for earlier, later in pairwise([before[-1], *after]))


def verify(address: str, topic: str, partition_count: int, count: int) -> None:
    """Messages 0 to `count` are there, each once, whole, and those of a partition in order."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "bench-verify",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "metadata.recovery.strategy": "none",
        }
    )
    readback = Readback(count, _VALUE_BYTES)
    deadline = time.monotonic() + _READ_S
    try:
        consumer.assign([TopicPartition(topic, index, 0) for index in range(partition_count)])
        while readback.seen_count < count and time.monotonic() < deadline:
            for message in consumer.consume(1_000, 0.2):
                partition, error = message.partition(), message.error()
                require(error is None and partition is not None, f"reading failed: {error}")
                assert partition is not None
                readback.add(partition, message.value())
    finally:
        consumer.close()
    readback.require_everything()
