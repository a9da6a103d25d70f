"""A group whose position is known before it reads, as somebody sets it who cannot afford what librdkafka 2.16 does otherwise.

A consumer without a committed position asks the leader where the log begins. If that leader dies or changes before it has answered, and
the application seeks meanwhile, librdkafka undoes the seek as soon as that node is back (or its late answer comes): it asks for the beginning
once more and goes there. tests/integration/test_librdkafka_beginnings.py shows it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import confluent_kafka

confluent: Any = confluent_kafka  # its types and its documentation disagree

_CALL_S = 15.0
_PATIENCE_S = 60.0


def commit_beginnings(
    kafka: str, group: str, topic: str, partition_count: int, settings: Mapping[str, object] | None = None
) -> None:
    """Offset 0 in each partition, of a topic that begins there and a group without members."""
    consumer = confluent.Consumer(
        {
            "bootstrap.servers": kafka,
            "group.id": group,
            "enable.auto.commit": False,
            "socket.timeout.ms": int(_CALL_S * 1_000),
            **(settings or {}),
        }
    )
    places = [confluent.TopicPartition(topic, at, 0) for at in range(partition_count)]
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            answers = consumer.commit(offsets=places, asynchronous=False)
            failed = [one.error for one in answers if one.error is not None]
            if not failed:
                consumer.close()
                return
            raise confluent.KafkaException(failed[0])
        except confluent.KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
