"""Groups and their offsets seen and changed by the admin clients that people use."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import confluent_kafka.admin
import pytest
from aiokafka.admin import AIOKafkaAdminClient
from tests.support.broker import Broker
from tests.support.kafka_admins import ConfluentAdmin, KafkaPythonAdmin, kafka_python
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
from tests.support.kafka_members import Member, confluent_member

confluent_admin: Any = confluent_kafka.admin  # it exports in a way that mypy does not follow
NON_EMPTY_GROUP = 68
GROUP_NOT_FOUND = 69
UNKNOWN_MEMBER = 25


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with quiet_broker(tmp_path_factory.mktemp("group-admin")) as running:
        yield running


@pytest.fixture
def topic(served: Broker) -> str:
    made = new_topic(served, partitions=2)
    Confluent(served.kafka).send(made, [Record(b"%d" % at, partition=at % 2) for at in range(10)])
    return made


def group_of(served: Broker, topic: str, **settings: object) -> tuple[str, Member]:
    """A group with one member that has read and committed everything."""
    group = new_name("g")
    member = confluent_member(served.kafka, group, topic, client_id="the-reader", **settings)
    until(lambda: len(member.values) == 10, "everything is read")
    return group, member


def answer(futures: dict[str, Any]) -> Any:
    (future,) = futures.values()
    return future.result(TIMEOUT_S)


def code_of(futures: dict[str, Any]) -> int:
    with pytest.raises(confluent.KafkaException) as caught:
        answer(futures)
    code: int = caught.value.args[0].code()
    return code


@pytest.mark.parametrize("settings", [{}, {"group_protocol": "consumer"}], ids=["classic", "kip848"])
def test_confluent_manages_a_group(served: Broker, topic: str, settings: dict[str, str]) -> None:
    group, member = group_of(served, topic, **settings)
    admin = ConfluentAdmin(served.kafka).client
    try:
        listed = {one.group_id: one for one in admin.list_consumer_groups().result(TIMEOUT_S).valid}
        assert listed[group].state.name == "STABLE"
        assert listed[group].type.name == ("CONSUMER" if settings else "CLASSIC")
        described = answer(admin.describe_consumer_groups([group]))
        (one,) = described.members
        assert one.client_id == "the-reader"
        assert {place.partition for place in one.assignment.topic_partitions} == {0, 1}
        assert code_of(admin.delete_consumer_groups([group])) == NON_EMPTY_GROUP
        (refused,) = answer(alter(admin, group, topic, 1)).topic_partitions
        assert refused.error.code() == UNKNOWN_MEMBER
    finally:
        member.leave()

    def is_empty() -> bool:
        return bool(answer(admin.describe_consumer_groups([group])).state.name == "EMPTY")

    until(is_empty, "the group is empty")
    assert offsets(admin, group) == {0: 5, 1: 5}
    answer(alter(admin, group, topic, 1))
    assert offsets(admin, group) == {0: 1, 1: 5}
    again = confluent_member(served.kafka, group, topic, **settings)
    until(lambda: len(again.values) == 4, "it is read again from where the admin put it")
    again.leave()
    until(is_empty, "the group is empty again")
    answer(admin.delete_consumer_groups([group]))
    assert code_of(admin.delete_consumer_groups([group])) == GROUP_NOT_FOUND
    assert group not in {one.group_id for one in admin.list_consumer_groups().result(TIMEOUT_S).valid}


def alter(admin: Any, group: str, topic: str, offset: int) -> dict[str, Any]:
    places = confluent.ConsumerGroupTopicPartitions(group, [confluent.TopicPartition(topic, 0, offset)])
    futures: dict[str, Any] = admin.alter_consumer_group_offsets([places])
    return futures


def offsets(admin: Any, group: str) -> dict[int, int]:
    asked = admin.list_consumer_group_offsets([confluent.ConsumerGroupTopicPartitions(group)])
    return {one.partition: one.offset for one in answer(asked).topic_partitions}


def test_kafka_python_manages_a_group(served: Broker, topic: str) -> None:
    group, member = group_of(served, topic)
    admin = KafkaPythonAdmin(served.kafka).client
    places = [kafka_python.TopicPartition(topic, index) for index in range(2)]
    try:
        assert group in repr(admin.list_groups())
        assert "the-reader" in repr(admin.describe_groups([group]))
    finally:
        member.leave()

    def committed() -> dict[Any, int]:
        found = admin.list_group_offsets([group])[group]
        return {place: one.offset for place, one in found.items() if one.offset >= 0}

    assert committed() == dict.fromkeys(places, 5)
    admin.alter_group_offsets(group, {places[0]: kafka_python.structs.OffsetAndMetadata(2, "moved", -1)})
    assert committed() == {places[0]: 2, places[1]: 5}
    admin.delete_group_offsets(group, [places[0]])
    assert committed() == {places[1]: 5}
    admin.delete_groups([group])
    assert group not in repr(admin.list_groups())
    admin.close()


def test_aiokafka_sees_a_group(served: Broker, topic: str) -> None:
    group, member = group_of(served, topic)

    async def main() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=served.kafka)
        await admin.start()
        try:
            assert group in [name for name, *_ in await admin.list_consumer_groups()]
            (described,) = await admin.describe_consumer_groups([group])
            assert "the-reader" in repr(described)
            deadline = time.monotonic() + TIMEOUT_S  # the last commit may be under way
            while True:
                found = await admin.list_consumer_group_offsets(group)
                offsets = sorted((place.partition, one.offset) for place, one in found.items())
                if offsets == [(0, 5), (1, 5)]:
                    break
                assert time.monotonic() < deadline, offsets
        finally:
            await admin.close()

    try:
        asyncio.run(main())
    finally:
        member.leave()
