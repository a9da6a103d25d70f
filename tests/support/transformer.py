"""A consume-transform-produce worker as a process of its own: `python tests/support/transformer.py KAFKA NAME ABORT_RATE`.

Each poll is one transaction: what was read from `in` is written to the same partition of `out`, and the offsets are
committed with it. When its producer is fenced or broken for good it ends, as an application would, to be started again.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer

BATCH = 40
POLL_S = 0.2
CALL_S = 30.0
# When every broker is gone librdkafka 2.16 bootstraps anew, and then may wait for ever on the handle of the group's old
# coordinator in `send_offsets_to_transaction`. Here the broker comes back where it was.
_COMMON = {"log_level": 0, "metadata.recovery.strategy": "none"}


class StartAgain(Exception):
    """The producer is fenced or broken for good."""


class Transformer:
    def __init__(self, kafka: str, name: str, abort_rate: float) -> None:
        self._abort_rate = abort_rate
        self._consumer = Consumer(
            {
                "bootstrap.servers": kafka,
                "group.id": "transformers",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "session.timeout.ms": 6000,
                "heartbeat.interval.ms": 500,
                **_COMMON,
            }
        )
        self._producer = Producer(
            {
                "bootstrap.servers": kafka,
                "transactional.id": f"transformer-{name}",
                "transaction.timeout.ms": 10_000,
                **_COMMON,
            }
        )

    def run(self) -> None:
        self._retry(lambda: self._producer.init_transactions(CALL_S))
        self._consumer.subscribe(["in"])
        while True:
            records = [one for one in self._consumer.consume(BATCH, POLL_S) if one.error() is None]
            if records:
                try:
                    self._transform(records)
                except KafkaException as error:
                    if error.args[0].fatal():
                        raise StartAgain from error
                    self._abort_and_rewind()

    def _transform(self, records: list[Any]) -> None:
        self._producer.begin_transaction()
        for record in records:
            self._producer.produce("out", record.value(), partition=record.partition())
        positions = self._consumer.position(self._consumer.assignment())
        self._producer.send_offsets_to_transaction(
            positions, self._consumer.consumer_group_metadata(), CALL_S
        )
        if random.random() < self._abort_rate:
            self._abort_and_rewind()
            return
        self._retry(lambda: self._producer.commit_transaction(CALL_S))

    def _abort_and_rewind(self) -> None:
        self._retry(lambda: self._producer.abort_transaction(CALL_S))
        for place in self._consumer.committed(self._consumer.assignment(), timeout=CALL_S):
            place.offset = max(place.offset, 0)
            self._consumer.seek(place)

    def _retry(self, call: Callable[[], None]) -> None:
        while True:
            try:
                call()
                return
            except KafkaException as error:
                cause = error.args[0]
                if cause.fatal():
                    raise StartAgain from error
                if not cause.retriable():
                    raise


def main() -> None:
    try:
        Transformer(sys.argv[1], sys.argv[2], float(sys.argv[3])).run()
    except (StartAgain, KafkaException) as error:
        print(f"ending after {error!r} {error.__cause__!r}", flush=True)
        os._exit(
            1
        )  # taking the clients down in order can hang in librdkafka; whoever runs this starts another


if __name__ == "__main__":
    main()
