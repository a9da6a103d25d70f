"""confluent-kafka's ShareConsumer as a member of a share group, and its admin client at the group's settings. It cannot
describe share groups, so the test asks for that by itself."""

from __future__ import annotations

import json
import socket
import struct
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any  # the share consumer has no types, the messages are made at run time

import confluent_kafka
import pytest
from tests.support.broker import Broker
from tests.support.kafka_admins import ConfluentAdmin
from tests.support.kafka_admins import confluent as admin

from goqueue.wire.codec import Output, request_writer, response_reader
from goqueue.wire.schema import api_key, request_schema

confluent: Any = confluent_kafka
TIMEOUT_S = 60.0
OF_GROUP = 8


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("data")) as broker:
        yield broker


@pytest.fixture
def topic(broker: Broker) -> str:
    name = f"orders-{uuid.uuid4().hex[:8]}"
    ConfluentAdmin(broker.kafka).create(name, partitions=2)
    return name


def described(address: str, group: str) -> Any:
    """What ShareGroupDescribe says of a group."""
    api, version = "share_group_describe", 1
    schema = request_schema(api)
    body = Output()
    request_writer(api, version)(body, schema.classes[schema.root](group_ids=[group]))
    content = struct.pack(">hhihB", api_key(api), version, 1, -1, 0) + bytes(body)
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=TIMEOUT_S) as connection:
        connection.sendall(struct.pack(">i", len(content)) + content)
        stream = connection.makefile("rb")
        with stream:
            (length,) = struct.unpack(">i", stream.read(4))
            frame = stream.read(length)
    (found,) = response_reader(api, version)(frame, 5).groups
    return found


def member(address: str, group: str, topic: str, *, heartbeats: list[int] | None = None) -> Any:
    """One that has its partitions: librdkafka 2.16 may never come back from closing a share consumer that just gets them.
    `heartbeats` is filled with how many it has sent so far."""
    sizes: list[int] = []

    def heard(statistics: str) -> None:
        told = json.loads(statistics)
        sizes.append(told.get("cgrp", {}).get("assignment_size", 0))
        if heartbeats is not None:
            heartbeats.append(sum(one["req"]["ShareGroupHeartbeat"] for one in told["brokers"].values()))

    settings = {"bootstrap.servers": address, "group.id": group, "log_level": 0}
    consumer = confluent.ShareConsumer({**settings, "statistics.interval.ms": 50, "stats_cb": heard})
    consumer.subscribe([topic])
    until(lambda: any(sizes), consumer)
    return consumer


def until(holds: Callable[[], bool], *consumers: Any) -> None:
    """Let the consumers poll until it does."""
    deadline = time.monotonic() + TIMEOUT_S
    while not holds():
        assert time.monotonic() < deadline, "it never came true"
        for consumer in consumers:
            consumer.poll(0.1)


def configure(address: str, group: str, **texts: str) -> None:
    steps = [
        admin.ConfigEntry(name.replace("_", "."), text, incremental_operation=admin.AlterConfigOpType.SET)
        for name, text in texts.items()
    ]
    resource = admin.ConfigResource(admin.ResourceType.GROUP, group, incremental_configs=steps)
    client = ConfluentAdmin(address).client
    (future,) = client.incremental_alter_configs([resource]).values()
    future.result(TIMEOUT_S)


def test_more_share_consumers_than_partitions_are_members_until_they_close(
    broker: Broker, topic: str
) -> None:
    group = f"workers-{topic}"
    consumers = [member(broker.kafka, group, topic) for _ in range(3)]
    until(lambda: len(described(broker.kafka, group).members) == 3, *consumers)
    facts = described(broker.kafka, group)
    assert (facts.error_code, facts.group_state) == (0, "Stable")
    for one in facts.members:
        assert list(one.subscribed_topic_names) == [topic]
        assert [list(part.partitions) for part in one.assignment.topic_partitions] == [[0, 1]]
    for consumer in consumers:
        consumer.close()
    assert described(broker.kafka, group).group_state == "Empty"


def test_share_consumer_stays_the_same_member_while_it_is_heard_of(broker: Broker, topic: str) -> None:
    """As often as the group says. What a heartbeat is worth is tested where time is virtual: a machine that is busy otherwise
    would be the end of a session that is short enough to wait for."""
    group, heartbeats = f"workers-{topic}", [0]
    configure(broker.kafka, group, share_heartbeat_interval_ms="300")
    consumer = member(broker.kafka, group, topic, heartbeats=heartbeats)
    until(lambda: len(described(broker.kafka, group).members) == 1, consumer)
    (before,) = described(broker.kafka, group).members
    sent = heartbeats[-1]
    until(lambda: heartbeats[-1] >= sent + 10, consumer)
    (after,) = described(broker.kafka, group).members
    assert (after.member_id, after.member_epoch) == (before.member_id, before.member_epoch)
    consumer.close()


def test_share_consumer_learns_of_new_partitions(broker: Broker, topic: str) -> None:
    group = f"workers-{topic}"
    configure(broker.kafka, group, share_heartbeat_interval_ms="300", share_auto_offset_reset="earliest")
    consumer = member(broker.kafka, group, topic)
    until(lambda: len(described(broker.kafka, group).members) == 1, consumer)
    ConfluentAdmin(broker.kafka).grow(topic, 4)

    def has_four() -> bool:
        (one,) = described(broker.kafka, group).members
        return [list(part.partitions) for part in one.assignment.topic_partitions] == [[0, 1, 2, 3]]

    until(has_four, consumer)
    consumer.close()


def test_share_consumer_goes_on_as_the_same_member_after_kill_9(tmp_path: Path) -> None:
    with Broker(tmp_path / "data") as broker:
        address = broker.kafka
        ConfluentAdmin(address).create("orders", partitions=2)
        configure(address, "workers", share_heartbeat_interval_ms="300")
        heartbeats = [0]
        consumer = member(address, "workers", "orders", heartbeats=heartbeats)
        until(lambda: len(described(address, "workers").members) == 1, consumer)
        (before,) = described(address, "workers").members
        broker.kill9()
    with Broker(tmp_path / "data", kafka=address):
        (found,) = described(address, "workers").members
        assert (found.member_id, found.member_epoch) == (before.member_id, before.member_epoch)
        sent = heartbeats[-1]
        until(lambda: heartbeats[-1] >= sent + 5, consumer)
        (after,) = described(address, "workers").members
        assert after.member_id == before.member_id
        consumer.close()
        assert described(address, "workers").group_state == "Empty"


def test_settings_of_a_group_are_set_and_seen_by_the_admin_client(broker: Broker) -> None:
    configure(
        broker.kafka, "tuned", share_auto_offset_reset="earliest", share_record_lock_duration_ms="15000"
    )
    resource = admin.ConfigResource(admin.ResourceType.GROUP, "tuned")
    client = ConfluentAdmin(broker.kafka).client
    (future,) = client.describe_configs([resource]).values()
    found = {name: (one.value, one.source) for name, one in future.result(TIMEOUT_S).items()}
    assert found["share.auto.offset.reset"] == ("earliest", OF_GROUP)
    assert found["visibility.ms"] == found["share.record.lock.duration.ms"] == ("15000", OF_GROUP)
    assert found["max.retries"] == ("3", 5)
