"""Members of share groups as librdkafka's share consumer (confluent-kafka) is one, for tests against a real broker."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import confluent_kafka.admin
from tests.support.broker import Broker
from tests.support.kafka_admins import ConfluentAdmin
from tests.support.kafka_clients import TIMEOUT_S, Confluent, Record, confluent, new_name

admin: Any = confluent_kafka.admin  # as with `confluent`
ACCEPT, RELEASE, REJECT = 1, 2, 3


def new_group(kafka: str, **settings: str) -> str:
    """One that reads from the beginning. Settings are given as `visibility_ms="1000"`."""
    group = new_name("g")
    configure(kafka, group, share_auto_offset_reset="earliest", **settings)
    return group


def configure(kafka: str, group: str, **settings: str) -> None:
    """What it holds already is not changed by that."""
    entries = [
        admin.ConfigEntry(name.replace("_", "."), text, incremental_operation=admin.AlterConfigOpType.SET)
        for name, text in settings.items()
    ]
    kind = admin.ResourceType.GROUP
    resource = admin.ConfigResource(kind, group, incremental_configs=entries)
    client = ConfluentAdmin(kafka).client  # must outlive the call
    (done,) = client.incremental_alter_configs([resource]).values()
    done.result(TIMEOUT_S)


@contextmanager
def member(kafka: str, group: str, *topics: str, is_explicit: bool = False, **more: str) -> Iterator[Any]:
    mode = {"share.acknowledgement.mode": "explicit"} if is_explicit else {}
    named = {name.replace("_", "."): text for name, text in more.items()}
    consumer = confluent.ShareConsumer(
        {"bootstrap.servers": kafka, "group.id": group, "log_level": 2} | mode | named
    )
    try:
        consumer.subscribe(list(topics))
        yield consumer
    finally:
        consumer.close()


def take(consumer: Any, count: int, *, says: int | None = None) -> list[Any]:
    """So many records; of each it says what becomes of it, if anything."""
    found: list[Any] = []
    deadline = time.monotonic() + TIMEOUT_S
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} came: {values(found)}"
        for one in consumer.poll(0.2):
            assert one.error() is None, one.error()
            found.append(one)
            if says is not None:
                consumer.acknowledge(one, says)
    return found


def commit(consumer: Any) -> None:
    results = consumer.commit_sync(TIMEOUT_S)
    assert results
    assert set(results.values()) == {None}


def values(messages: Sequence[Any]) -> list[bytes]:
    return [one.value() for one in messages]


def send(broker: Broker, topic: str, *texts: str, partition: int = 0) -> list[bytes]:
    Confluent(broker.kafka).send(topic, [Record(text.encode(), partition=partition) for text in texts])
    return [text.encode() for text in texts]
