"""Consumer groups of stock clients: members come and go, restart, and resume; nothing is lost and nothing is skipped."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from tests.support.broker import Broker
from tests.support.kafka_admins import kafka_python
from tests.support.kafka_clients import (
    TIMEOUT_S,
    Confluent,
    Record,
    confluent,
    new_name,
    new_topic,
    quiet_broker,
    until,
)
from tests.support.kafka_members import (
    HEARTBEAT_MS,
    Member,
    aiokafka_member,
    confluent_member,
    kafka_python_member,
    until_shared,
)

PARTITION_COUNT = 6
SETTINGS = {"GOQUEUE_GROUPS__CONSUMER_HEARTBEAT_MS": str(HEARTBEAT_MS)}
Make = Callable[[str, str, str], Member]
KIP848 = {"group_protocol": "consumer"}
PROTOCOLS: dict[str, Make] = {
    "confluent-range": lambda *at: confluent_member(*at, partition_assignment_strategy="range"),
    "confluent-roundrobin": lambda *at: confluent_member(*at, partition_assignment_strategy="roundrobin"),
    "confluent-cooperative": lambda *at: confluent_member(
        *at, partition_assignment_strategy="cooperative-sticky"
    ),
    "confluent-kip848": lambda *at: confluent_member(*at, **KIP848),
    "kafka-python": kafka_python_member,
    "aiokafka": aiokafka_member,
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with quiet_broker(tmp_path_factory.mktemp("groups"), **SETTINGS) as running:
        yield running


def committed(kafka: str, group: str, topic: str) -> dict[int, int]:
    consumer = confluent.Consumer({"bootstrap.servers": kafka, "group.id": group})
    try:
        places = [confluent.TopicPartition(topic, index) for index in range(PARTITION_COUNT)]
        return {one.partition: one.offset for one in consumer.committed(places, timeout=TIMEOUT_S)}
    finally:
        consumer.close()


class Feed:
    def __init__(self, kafka: str, topic: str) -> None:
        self.sent: list[bytes] = []
        self._client, self._topic = Confluent(kafka), topic

    def send(self, count: int = 60) -> None:
        """The same number to each partition."""
        numbers = range(len(self.sent), len(self.sent) + count)
        records = [Record(b"%d" % at, partition=at % PARTITION_COUNT) for at in numbers]
        self._client.send(self._topic, records)
        self.sent += [one.value or b"" for one in records]

    def until_read(self, members: list[Member]) -> None:
        def is_read() -> bool:
            return {value for member in members for value in member.values} == set(self.sent)

        until(is_read, "every record is read by some member")

    @property
    def ends(self) -> dict[int, int]:
        return dict.fromkeys(range(PARTITION_COUNT), len(self.sent) // PARTITION_COUNT)


@pytest.mark.parametrize("make", PROTOCOLS.values(), ids=PROTOCOLS)
def test_a_group_of_one_three_six_and_two_members_reads_everything(served: Broker, make: Make) -> None:
    topic, group = new_topic(served, partitions=PARTITION_COUNT), new_name("g")
    feed = Feed(served.kafka, topic)
    everybody: list[Member] = []
    try:
        for size in (1, 3, 6):
            while len(everybody) < size:
                everybody.append(make(served.kafka, group, topic))
            until_shared(everybody, PARTITION_COUNT)
            feed.send()
            feed.until_read(everybody)
        for member in everybody[2:]:
            member.leaving.set()
        for member in everybody[2:]:
            member.leave()
        until_shared(everybody[:2], PARTITION_COUNT)
        feed.send()
        feed.until_read(everybody)
    finally:
        for member in everybody:
            member.leave()
    assert committed(served.kafka, group, topic) == feed.ends


def test_clients_of_three_libraries_share_one_group(served: Broker) -> None:
    topic, group = new_topic(served, partitions=PARTITION_COUNT), new_name("g")
    feed = Feed(served.kafka, topic)
    members = [
        confluent_member(served.kafka, group, topic),
        kafka_python_member(served.kafka, group, topic),
        aiokafka_member(served.kafka, group, topic, partition_assignment_strategy=(RangePartitionAssignor,)),
    ]
    try:
        until_shared(members, PARTITION_COUNT)
        assert [len(member.assigned) for member in members] == [2, 2, 2]
        feed.send()
        feed.until_read(members)
    finally:
        for member in members:
            member.leave()


@pytest.mark.parametrize("settings", [{}, KIP848], ids=["classic", "kip848"])
def test_a_pattern_subscribes_to_every_topic_it_matches(served: Broker, settings: dict[str, str]) -> None:
    prefix = new_name("pattern")
    topics = [f"{prefix}.{index}" for index in range(3)]
    for topic in [*topics, f"other-{prefix}"]:
        Confluent(served.kafka).send(topic, [Record(topic.encode())])
    member = confluent_member(
        served.kafka, new_name("g"), f"^{prefix}.*", topic_metadata_refresh_interval_ms=500, **settings
    )
    try:
        until(lambda: sorted(member.values) == [topic.encode() for topic in topics], "three topics read")
        late = f"{prefix}.late"
        Confluent(served.kafka).send(late, [Record(b"late")])
        until(lambda: b"late" in member.values, "a topic made later is read too")
    finally:
        member.leave()
    assert set(member.values) == {one.encode() for one in topics} | {b"late"}


@pytest.mark.parametrize("settings", [{}, KIP848], ids=["classic", "kip848"])
def test_a_static_member_that_restarts_gets_its_partitions_back_and_nobody_else_notices(
    served: Broker, settings: dict[str, str]
) -> None:
    topic, group = new_topic(served, partitions=PARTITION_COUNT), new_name("g")
    feed = Feed(served.kafka, topic)
    first = confluent_member(served.kafka, group, topic, group_instance_id="one", **settings)
    second = confluent_member(served.kafka, group, topic, group_instance_id="two", **settings)
    members = [first, second]
    try:
        until_shared(members, PARTITION_COUNT)
        feed.send()
        feed.until_read(members)
        changes, owned = second.changes, first.assigned
        first.leave()
        again = confluent_member(served.kafka, group, topic, group_instance_id="one", **settings)
        members.append(again)
        until(lambda: again.assigned == owned, "the same partitions again")
        feed.send()
        feed.until_read(members)
        assert second.changes == changes
    finally:
        for member in members:
            member.leave()
    assert committed(served.kafka, group, topic) == feed.ends


# Without kafka-python: it leaks the sockets of the connects that fail meanwhile, and other tests would hear of them.
SURVIVORS = {name: make for name, make in PROTOCOLS.items() if name != "kafka-python"}


@pytest.mark.parametrize("make", SURVIVORS.values(), ids=SURVIVORS)
def test_a_group_goes_on_where_it_was_after_kill_9_of_the_broker(tmp_path: Path, make: Make) -> None:
    with Broker(tmp_path, env=SETTINGS) as broker:
        kafka = broker.kafka
        topic, group = new_topic(broker, partitions=PARTITION_COUNT), new_name("g")
        feed = Feed(kafka, topic)
        feed.send()
        member = make(kafka, group, topic)
        feed.until_read([member])
        member.leave()
        broker.kill9()
    with Broker(tmp_path, env=SETTINGS, kafka=kafka):
        assert committed(kafka, group, topic) == feed.ends
        read_before = len(feed.sent)
        feed.send()
        second = make(kafka, group, topic)
        until(lambda: len(second.values) >= len(feed.sent) - read_before, "the rest is read")
        second.leave()
        assert sorted(second.values) == sorted(feed.sent[read_before:])


def test_members_live_through_kill_9_of_the_broker(tmp_path: Path) -> None:
    with Broker(tmp_path, env=SETTINGS) as broker:
        kafka = broker.kafka
        topic, group = new_topic(broker, partitions=PARTITION_COUNT), new_name("g")
        feed = Feed(kafka, topic)
        members = [confluent_member(kafka, group, topic), confluent_member(kafka, group, topic)]
        until_shared(members, PARTITION_COUNT)
        feed.send()
        feed.until_read(members)
        broker.kill9()
    with Broker(tmp_path, env=SETTINGS, kafka=kafka):
        feed.send()
        feed.until_read(members)
        for member in members:
            member.leave()
        assert committed(kafka, group, topic) == feed.ends


class TestCommits:
    """Whatever way an offset is committed, the next consumer starts there."""

    @pytest.fixture
    def topic(self, served: Broker) -> str:
        topic = new_topic(served)
        Confluent(served.kafka).send(topic, [Record(b"%d" % at) for at in range(10)])
        return topic

    def consumer(self, served: Broker, group: str, **settings: object) -> Any:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        return confluent.Consumer(
            {
                "bootstrap.servers": served.kafka,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **named,
            }
        )

    def read(self, consumer: Any, topic: str, count: int) -> list[bytes]:
        consumer.subscribe([topic])
        values = [message.value() for message in consumer.consume(count, TIMEOUT_S)]
        assert len(values) == count
        return values

    @pytest.mark.parametrize("how", ["sync", "async", "auto", "stored"])
    def test_with_confluent(self, served: Broker, topic: str, how: str) -> None:
        group = new_name("g")
        is_automatic = how in ("auto", "stored")
        consumer = self.consumer(
            served, group, enable_auto_commit=is_automatic, enable_auto_offset_store=how == "auto"
        )
        assert self.read(consumer, topic, 4) == [b"0", b"1", b"2", b"3"]
        place = confluent.TopicPartition(topic, 0, 4, "note")
        match how:
            case "sync":
                consumer.commit(offsets=[place], asynchronous=False)
            case "async":
                consumer.commit(offsets=[place], asynchronous=True)
            case "stored":
                consumer.store_offsets(offsets=[place])
            case _:
                pass
        consumer.close()
        second = self.consumer(served, group)
        assert self.read(second, topic, 6) == [b"%d" % at for at in range(4, 10)]
        second.close()

    def test_with_kafka_python(self, served: Broker, topic: str) -> None:
        group = new_name("g")
        place = kafka_python.TopicPartition(topic, 0)
        settings = {
            "bootstrap_servers": served.kafka,
            "group_id": group,
            "auto_offset_reset": "earliest",
            "max_poll_records": 2,
        }
        for how in ("sync", "async", "auto"):
            consumer = kafka_python.KafkaConsumer(topic, enable_auto_commit=how == "auto", **settings)
            before = consumer.committed(place) or 0
            values: list[bytes] = []
            while not values:
                values = [one.value for one in consumer.poll(timeout_ms=500).get(place, [])]
            assert values == [b"%d" % at for at in range(before, before + 2)]
            if how == "sync":
                consumer.commit()
            elif how == "async":
                answers: list[Any] = []
                consumer.pause(place)
                consumer.commit_async(callback=lambda *answer, to=answers: to.append(answer))
                while not answers:
                    consumer.poll(timeout_ms=50)
                assert not isinstance(answers[0][1], Exception)
            consumer.close()
            check = kafka_python.KafkaConsumer(**settings)
            assert check.committed(place) == before + 2
            check.close()

    def test_with_aiokafka(self, served: Broker, topic: str) -> None:
        group = new_name("g")

        async def read_two(*, auto: bool) -> list[bytes]:
            consumer = AIOKafkaConsumer(
                topic,
                bootstrap_servers=served.kafka,
                group_id=group,
                auto_offset_reset="earliest",
                enable_auto_commit=auto,
            )
            async with asyncio.timeout(TIMEOUT_S), consumer:
                values = [(await consumer.getone()).value for _ in range(2)]
                if not auto:
                    await consumer.commit()
                return values

        assert asyncio.run(read_two(auto=False)) == [b"0", b"1"]
        assert asyncio.run(read_two(auto=True)) == [b"2", b"3"]
        assert asyncio.run(read_two(auto=False)) == [b"4", b"5"]
