"""Topics and settings managed by the admin clients that people use, on a real broker, next to the REST API."""

from __future__ import annotations

import asyncio
import re
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from tests.support.broker import Broker
from tests.support.kafka_admins import (
    Admin,
    AioAdmin,
    ConfluentAdmin,
    KafkaPythonAdmin,
    Refused,
    Setting,
    confluent,
    kafka_python,
)
from tests.support.kafka_clients import NO_COMPLAINT

from goqueue.client.rest import ApiError, RestClient

CLIENTS: dict[str, Callable[[str], Admin]] = {
    "confluent": ConfluentAdmin,
    "kafka-python": KafkaPythonAdmin,
    "aiokafka": AioAdmin,
}
TOPIC_NOT_FOUND, INVALID_NAME, EXISTS, INVALID_PARTITIONS = 3, 17, 36, 37
INVALID_REPLICATION, INVALID_CONFIG, ELECTION_NOT_NEEDED = 38, 40, 84
OF_TOPIC, STATIC, DEFAULT = 1, 4, 5  # where a setting comes from
TIMEOUT_S = 60.0
Rows = list[tuple[int, bytes, bytes | None]]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One broker for all tests of this module; each has topics of its own."""
    env = {"GOQUEUE_DEFAULT_PARTITIONS": "7", "GOQUEUE_TOPIC_DEFAULTS__SEGMENT_MS": "3600000"}
    with Broker(tmp_path_factory.mktemp("admin") / "data", env=env) as running:
        yield running
        assert running.stop() == 0
        complaints = [
            line for line in running.stderr.text().splitlines() if not re.search(NO_COMPLAINT, line)
        ]
        assert not complaints, "\n".join(complaints)
        assert "connection closed" not in running.stderr.text()  # what a client sent made no sense


@pytest.fixture
def rest(served: Broker) -> Iterator[RestClient]:
    with RestClient(served.url) as client:
        yield client


@pytest.fixture(params=list(CLIENTS))
def admin(request: pytest.FixtureRequest, served: Broker) -> Iterator[Admin]:
    client = CLIENTS[request.param](served.kafka)
    yield client
    client.close()


@pytest.fixture
def topic() -> str:
    return f"orders.{uuid.uuid4().hex[:8]}"


def refusal(work: Callable[[], object]) -> int:
    with pytest.raises(Refused) as caught:
        work()
    return caught.value.code


def test_a_topic_lives_and_dies(admin: Admin, rest: RestClient, topic: str) -> None:
    admin.create(topic, partitions=3, settings={"retention.ms": "5000"})
    assert admin.partition_count(topic) == rest.topic(topic).partitions == 3
    admin.grow(topic, 5)
    assert admin.partition_count(topic) == rest.topic(topic).partitions == 5
    admin.delete(topic)
    assert topic not in [one.name for one in rest.topics()]
    assert refusal(lambda: admin.delete(topic)) == TOPIC_NOT_FOUND
    admin.create(topic)
    assert admin.partition_count(topic) == 1


def test_validating_a_topic_does_not_make_it(admin: Admin, rest: RestClient, topic: str) -> None:
    admin.create(topic, validate_only=True)
    assert refusal(lambda: admin.create(topic, replicas=2, validate_only=True)) == INVALID_REPLICATION
    assert topic not in [one.name for one in rest.topics()]


def test_settings_of_kafka_and_of_rest_are_the_same(admin: Admin, rest: RestClient, topic: str) -> None:
    admin.create(topic, settings={"retention.ms": "5000"})
    assert rest.topic(topic).overrides == {"retention.ms": "5000"}
    found = admin.settings(topic)
    assert {name: setting.value for name, setting in found.items()} == rest.topic(topic).config
    assert found["retention.ms"] == Setting("5000", OF_TOPIC)
    assert found["segment.ms"] == Setting("3600000", STATIC)
    assert found["cleanup.policy"] == Setting("delete", DEFAULT)

    admin.change(topic, {"retention.ms": "6000"})
    assert rest.topic(topic).overrides == {"retention.ms": "6000"}
    rest.alter_topic(topic, {"retention.ms": None, "cleanup.policy": "compact"})
    found = admin.settings(topic)
    assert found["retention.ms"] == Setting("604800000", DEFAULT)
    assert found["cleanup.policy"] == Setting("compact", OF_TOPIC)


def test_a_topic_of_rest_is_managed_by_kafka(admin: Admin, rest: RestClient, topic: str) -> None:
    rest.create_topic(topic, partition_count=2, config={"segment.bytes": "2048"})
    assert admin.settings(topic)["segment.bytes"] == Setting("2048", OF_TOPIC)
    admin.grow(topic, 3)
    admin.delete(topic)
    with pytest.raises(ApiError):
        rest.topic(topic)


def test_the_broker_tells_its_own_settings(admin: Admin, served: Broker) -> None:
    found = admin.broker_settings()
    assert found["num.partitions"] == Setting("7", STATIC)
    assert found["log.roll.ms"] == Setting("3600000", STATIC)
    assert found["auto.create.topics.enable"] == Setting("true", DEFAULT)
    assert found["advertised.listeners"] == Setting(f"PLAINTEXT://{served.kafka}", STATIC)


def test_bad_input_is_refused_with_the_code_that_clients_know(admin: Admin, topic: str) -> None:
    admin.create(topic, partitions=2)
    assert refusal(lambda: admin.create(topic)) == EXISTS
    assert refusal(lambda: admin.create("a b")) == INVALID_NAME
    assert refusal(lambda: admin.create("__mine")) == INVALID_NAME
    assert refusal(lambda: admin.create(f"{topic}.new", replicas=3)) == INVALID_REPLICATION
    bad_value, bad_name = {"retention.ms": "soon"}, {"colour": "red"}
    assert refusal(lambda: admin.create(f"{topic}.new", settings=bad_value)) == INVALID_CONFIG
    assert refusal(lambda: admin.create(f"{topic}.new", settings=bad_name)) == INVALID_CONFIG
    assert refusal(lambda: admin.change(topic, bad_value)) == INVALID_CONFIG
    assert refusal(lambda: admin.change(topic, bad_name)) == INVALID_CONFIG
    assert refusal(lambda: admin.grow(topic, 2)) == INVALID_PARTITIONS
    assert refusal(lambda: admin.grow(topic, 1)) == INVALID_PARTITIONS
    for work in (
        lambda: admin.grow("none", 5),
        lambda: admin.delete("none"),
        lambda: admin.change("none", {"retention.ms": "1"}),
    ):
        assert refusal(work) == TOPIC_NOT_FOUND
    if not isinstance(admin, ConfluentAdmin):  # which never sends this
        assert refusal(lambda: admin.create(f"{topic}.new", partitions=0)) == INVALID_PARTITIONS


def test_lists_are_appended_to_and_subtracted_from(served: Broker, rest: RestClient, topic: str) -> None:
    admin = ConfluentAdmin(served.kafka)
    admin.create(topic, settings={"retention.ms": "5000"})
    ops = confluent.AlterConfigOpType
    entry = confluent.ConfigEntry
    admin.step(topic, entry("cleanup.policy", "compact", incremental_operation=ops.APPEND))
    assert rest.topic(topic).overrides == {"retention.ms": "5000", "cleanup.policy": "compact,delete"}
    admin.step(
        topic,
        entry("cleanup.policy", "delete", incremental_operation=ops.SUBTRACT),
        entry("retention.ms", None, incremental_operation=ops.DELETE),
    )
    assert rest.topic(topic).overrides == {"cleanup.policy": "compact"}


def test_partitions_are_assigned_by_hand(served: Broker, rest: RestClient, topic: str) -> None:
    client = ConfluentAdmin(served.kafka).client
    new = confluent.NewTopic(topic, 2, replica_assignment=[[1], [1]])
    client.create_topics([new])[topic].result(TIMEOUT_S)
    client.create_partitions([confluent.NewPartitions(topic, 3, replica_assignment=[[1]])])[topic].result(
        TIMEOUT_S
    )
    assert rest.topic(topic).partitions == 3


def test_kafka_python_sees_folders_leaders_and_producers_and_deletes_by_id(
    served: Broker, rest: RestClient, topic: str
) -> None:
    admin = KafkaPythonAdmin(served.kafka)
    try:
        admin.create(topic, partitions=2)
        producer = confluent_kafka.Producer({"bootstrap.servers": served.kafka, "enable.idempotence": True})
        producer.produce(topic, b"x" * 500, partition=1)
        assert producer.flush(TIMEOUT_S) == 0

        (folders,) = admin.client.describe_log_dirs({topic: [0, 1]})
        (folder,) = folders["log_dirs"]
        sizes = {one["partition_index"]: one["partition_size"] for one in folder["topics"][0]["partitions"]}
        assert sizes == {one.partition: one.size_bytes for one in rest.partitions(topic)}
        assert sizes[1] > 500
        assert folder["total_bytes"] > folder["usable_bytes"] > 0

        elected = admin.client.elect_leaders(0, {topic: [0]}).replica_election_results[0]
        assert elected.partition_result[0].error_code == ELECTION_NOT_NEEDED

        partition = kafka_python.TopicPartition(topic, 1)
        found = admin.client.describe_producers([partition])[partition]
        assert len(found.active_producers) == 1

        (described,) = admin.client.describe_topics([topic])
        admin.client.delete_topics([uuid.UUID(str(described["topic_id"]))])
        assert topic not in [one.name for one in rest.topics()]
    finally:
        admin.close()


def test_a_topic_grows_while_a_producer_runs(
    admin: Admin, served: Broker, rest: RestClient, topic: str
) -> None:
    """Every message that was acknowledged is there, and the new partitions get some of them."""
    admin.create(topic)
    stored: Counter[int] = Counter()
    errors: list[object] = []

    def on_delivery(error: object, message: Any) -> None:  # of a library without types
        if error is not None:
            errors.append(error)
        else:
            stored[message.partition()] += 1

    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": served.kafka,
            "enable.idempotence": True,
            "topic.metadata.refresh.interval.ms": 50,
            "sticky.partitioning.linger.ms": 0,
            "linger.ms": 1,
        }
    )
    has_grown = False
    deadline = time.monotonic() + TIMEOUT_S
    while len(stored) < 4 and time.monotonic() < deadline:
        producer.produce(topic, b"x", on_delivery=on_delivery)
        producer.poll(0.001)
        if not has_grown and stored[0] > 100:
            admin.grow(topic, 4)
            has_grown = True
    assert producer.flush(TIMEOUT_S) == 0
    assert errors == []
    offsets = rest.topic(topic).partition_offsets
    assert {int(index): one.latest for index, one in offsets.items()} == stored
    assert len(stored) == 4


def test_clients_see_the_newest_of_each_key_and_tombstones_vanish(tmp_path: Path) -> None:
    env = {"GOQUEUE_LOG__CLEANUP_INTERVAL_MS": "50"}
    settings = {
        "cleanup.policy": "compact",
        "segment.bytes": "1024",
        "min.cleanable.dirty.ratio": "0",
        "delete.retention.ms": "100",
    }
    topic = "prices"
    with Broker(tmp_path / "data", env=env) as broker:
        ConfluentAdmin(broker.kafka).create(topic, settings=settings)
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.kafka, "linger.ms": 0})
        newest: dict[bytes, tuple[int, bytes | None]] = {}
        keys = [b"key-%d" % at for at in range(10)]
        for at in range(10):
            for key in keys:
                _send(producer, topic, key, b"value %d " % at + b"x" * 50, newest)
        for key in keys[:5]:
            _send(producer, topic, key, None, newest)
        expected = [(newest[key][0], key, newest[key][1]) for key in keys[5:]]

        deadline = time.monotonic() + TIMEOUT_S
        seen: Rows = []
        while seen != expected and time.monotonic() < deadline:
            # Compaction leaves the open segment alone: something must be written for it to go on.
            for _ in range(5):
                _send(producer, topic, b"filler", b"x" * 300, newest)
            seen = [row for row in _confluent_rows(broker, topic) if row[1] != b"filler"]
        assert seen == expected

        everything = _confluent_rows(broker, topic)
        assert [row for row in everything if row[1] != b"filler"] == expected
        end = newest[b"filler"][0] + 1
        assert _last_of_each(_kafka_python_rows(broker, topic, end)) == _last_of_each(everything)
        assert _last_of_each(asyncio.run(_aio_rows(broker, topic, end))) == _last_of_each(everything)


def _send(
    producer: confluent_kafka.Producer,
    topic: str,
    key: bytes,
    value: bytes | None,
    newest: dict[bytes, tuple[int, bytes | None]],
) -> None:
    def on_delivery(error: object, message: Any) -> None:  # of a library without types
        assert error is None, error
        newest[key] = (message.offset(), value)

    producer.produce(topic, value, key, partition=0, on_delivery=on_delivery)
    assert producer.flush(TIMEOUT_S) == 0


def _last_of_each(rows: Rows) -> dict[bytes, tuple[int, bytes | None]]:
    """Compaction goes on between two readings, so only these stay the same."""
    return {key: (offset, value) for offset, key, value in rows}


def _confluent_rows(broker: Broker, topic: str) -> Rows:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.kafka,
            "group.id": "none",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, confluent_kafka.OFFSET_BEGINNING)])
        rows: Rows = []
        while True:
            message: Any = consumer.poll(TIMEOUT_S)
            assert message is not None, "no end of the partition within the time"
            if message.error() is None:
                rows.append((message.offset(), message.key(), message.value()))
            elif message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF:
                return rows
            else:
                raise AssertionError(message.error())
    finally:
        consumer.close()


def _kafka_python_rows(broker: Broker, topic: str, end: int) -> Rows:
    consumer: Any = kafka_python.KafkaConsumer(  # a library without types
        bootstrap_servers=broker.kafka, auto_offset_reset="earliest", enable_auto_commit=False
    )
    try:
        partition = kafka_python.TopicPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek_to_beginning(partition)
        rows: Rows = []
        deadline = time.monotonic() + TIMEOUT_S
        while consumer.position(partition) < end and time.monotonic() < deadline:
            for batch in consumer.poll(timeout_ms=1_000).values():
                rows += [(one.offset, one.key, one.value) for one in batch]
        return rows
    finally:
        consumer.close()


async def _aio_rows(broker: Broker, topic: str, end: int) -> Rows:
    consumer = AIOKafkaConsumer(bootstrap_servers=broker.kafka, enable_auto_commit=False)
    await consumer.start()
    try:
        partition = AioPartition(topic, 0)
        consumer.assign([partition])
        await consumer.seek_to_beginning(partition)
        rows: Rows = []
        async with asyncio.timeout(TIMEOUT_S):
            while await consumer.position(partition) < end:
                found = await consumer.getmany(timeout_ms=1_000)
                rows += [(one.offset, one.key, one.value) for batch in found.values() for one in batch]
        return rows
    finally:
        await consumer.stop()
