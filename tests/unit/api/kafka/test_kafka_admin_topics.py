"""Topics made, grown and deleted by Kafka's admin APIs, in every version."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest
from tests.support.kafka_calls import Kafka, requests, with_kafka
from tests.support.nodes import CONFIG, create, publish

from goqueue.model.errors import TopicNotFound
from goqueue.model.topic_ids import topic_uuid
from goqueue.node.node import Node
from goqueue.wire.schema import NO_UUID

_C = requests("create_topics")
_D = requests("delete_topics")
_P = requests("create_partitions")
NONE, TOPIC_NOT_FOUND, TIMED_OUT, INVALID_NAME, EXISTS = 0, 3, 7, 17, 36
INVALID_PARTITIONS, INVALID_REPLICATION, INVALID_ASSIGNMENT = 37, 38, 39
INVALID_CONFIG, INVALID_REQUEST, UNKNOWN_TOPIC_ID = 40, 42, 100


def new_topic(name: str = "orders", partitions: int = 3, **fields: Any) -> Any:
    configs = [_C.CreatableTopicConfig(name=key, value=value) for key, value in fields.pop("configs", [])]
    assignments = [
        _C.CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
        for index, brokers in fields.pop("assignments", [])
    ]
    fields = {"replication_factor": 1} | fields
    return _C.CreatableTopic(
        name=name, num_partitions=partitions, configs=configs, assignments=assignments, **fields
    )


async def created(kafka: Kafka, *topics: Any, version: int = 7, **fields: Any) -> list[Any]:
    fields = {"timeout_ms": 5_000} | fields
    response = await kafka.call("create_topics", version, topics=topics, **fields)
    return list(response.topics)


def names(node: Node) -> list[str]:
    return [topic.name for topic in node.topics.list()]


def test_a_topic_is_created_in_every_version() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        for version in kafka.versions("create_topics"):
            name = f"orders-{version}"
            topic = new_topic(name, 2, configs=[("retention.ms", "1000"), ("cleanup.policy", "compact")])
            (result,) = await created(kafka, topic, version=version)
            assert (result.name, result.error_code, result.error_message) == (name, NONE, None)
            facts = node.topics.get(name)
            assert facts.partition_count == 2
            assert facts.overrides == {"retention.ms": "1000", "cleanup.policy": "compact"}

    with_kafka(main)


def test_the_answer_tells_what_was_made() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        for version in (5, 6, 7):
            topic = new_topic(
                f"orders-{version}", -1, replication_factor=-1, configs=[("segment.ms", "5000")]
            )
            (result,) = await created(kafka, topic, version=version)
            assert (result.num_partitions, result.replication_factor) == (CONFIG.default_partition_count, 1)
            configs = {config.name: config for config in result.configs}
            assert (configs["segment.ms"].value, configs["segment.ms"].config_source) == ("5000", 1)
            assert (configs["retention.ms"].value, configs["retention.ms"].config_source) == ("604800000", 5)
            assert set(configs) == set(node.topics.get(topic.name).settings)
        assert result.topic_id == topic_uuid(node.topics.get("orders-7").id).bytes

    with_kafka(main)


def test_validate_only_makes_nothing_and_says_what_it_would_make() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        (result,) = await created(kafka, new_topic(partitions=4), validate_only=True)
        assert (result.error_code, result.num_partitions, result.topic_id) == (NONE, 4, NO_UUID)
        assert len(result.configs) > 10
        (refused,) = await created(kafka, new_topic(partitions=0), validate_only=True)
        assert refused.error_code == INVALID_PARTITIONS
        assert names(node) == []

    with_kafka(main)


@pytest.mark.parametrize(
    ("topic", "code", "word"),
    [
        (new_topic("a/b"), INVALID_NAME, "a/b"),
        (new_topic(""), INVALID_NAME, "empty"),
        (new_topic("__mine"), INVALID_NAME, "internal"),
        (new_topic("x" * 32_000), INVALID_NAME, "249"),
        (new_topic("taken"), EXISTS, "taken"),
        (new_topic(partitions=0), INVALID_PARTITIONS, "not 0"),
        (new_topic(partitions=-2), INVALID_PARTITIONS, "not -2"),
        (new_topic(replication_factor=3), INVALID_REPLICATION, "3"),
        (new_topic(replication_factor=0), INVALID_REPLICATION, "0"),
        (new_topic(configs=[("retention.ms", "long")]), INVALID_CONFIG, "'long'"),
        (new_topic(configs=[("colour", "red")]), INVALID_CONFIG, "colour"),
        (new_topic(configs=[("y" * 32_000, "red")]), INVALID_CONFIG, "yyy"),
        (new_topic(configs=[("retention.ms", None)]), INVALID_CONFIG, "no value"),
        (new_topic(configs=[("retention.ms", "1"), ("retention.ms", "2")]), INVALID_REQUEST, "twice"),
    ],
)
def test_what_cannot_be_created_is_refused_with_a_reason(topic: Any, code: int, word: str) -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        await create(node, "taken")
        for version in kafka.versions("create_topics"):
            for validate_only in (True, False):
                (result,) = await created(kafka, topic, version=version, validate_only=validate_only)
                assert result.error_code == code
                assert word in result.error_message
        assert names(node) == ["taken"]

    with_kafka(main)


def test_one_refused_topic_does_not_stop_the_others() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        results = await created(kafka, new_topic("a"), new_topic("b", 0), new_topic("c"))
        assert [(one.name, one.error_code) for one in results] == [
            ("a", NONE),
            ("b", INVALID_PARTITIONS),
            ("c", NONE),
        ]
        assert names(node) == ["a", "c"]

    with_kafka(main)


def test_a_topic_that_is_named_twice_is_refused_once() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        results = await created(kafka, new_topic("a"), new_topic("b"), new_topic("a", 5))
        assert [(one.name, one.error_code) for one in results] == [("a", INVALID_REQUEST), ("b", NONE)]
        assert names(node) == ["b"]

    with_kafka(main)


def test_partitions_may_be_assigned_to_the_one_broker() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        topic = new_topic(partitions=-1, replication_factor=-1, assignments=[(1, [1]), (0, [1])])
        (result,) = await created(kafka, topic)
        assert (result.error_code, result.num_partitions) == (NONE, 2)

    with_kafka(main)


@pytest.mark.parametrize(
    ("assignments", "word"),
    [
        ([(0, [1]), (2, [1])], "0 to 1"),
        ([(0, [1]), (0, [1])], "once"),
        ([(1, [1])], "0 to 0"),
        ([(0, [2])], "[2]"),
        ([(0, [1, 1])], "[1, 1]"),
        ([(0, [])], "[]"),
    ],
)
def test_a_wrong_assignment_is_refused(assignments: list[tuple[int, list[int]]], word: str) -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        topic = new_topic(partitions=-1, replication_factor=-1, assignments=assignments)
        (result,) = await created(kafka, topic)
        assert result.error_code == INVALID_ASSIGNMENT
        assert word in result.error_message
        assert names(node) == []

    with_kafka(main)


@pytest.mark.parametrize(("partitions", "factor"), [(1, -1), (-1, 1)])
def test_assigned_partitions_are_not_counted_as_well(partitions: int, factor: int) -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        topic = new_topic(partitions=partitions, replication_factor=factor, assignments=[(0, [1])])
        (result,) = await created(kafka, topic)
        assert result.error_code == INVALID_REQUEST

    with_kafka(main)


def test_a_creation_that_takes_longer_than_allowed_is_an_error_and_goes_on() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        for timeout_ms in (0, -1):
            name = f"orders{timeout_ms}"
            (result,) = await created(kafka, new_topic(name), timeout_ms=timeout_ms)
            assert result.error_code == TIMED_OUT
            await asyncio.sleep(1)  # of virtual time
            assert node.topics.get(name).partition_count == 3

    with_kafka(main)


def test_a_topic_is_deleted_by_name_in_every_version() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        for version in kafka.versions("delete_topics"):
            await create(node)
            id = topic_uuid(node.topics.get("orders").id).bytes
            if version >= 6:
                fields = {"topics": [_D.DeleteTopicState(name=name) for name in ("orders", "none")]}
            else:
                fields = {"topic_names": ["orders", "none"]}
            response = await kafka.call("delete_topics", version, timeout_ms=5_000, **fields)
            assert [(one.name, one.error_code) for one in response.responses] == [
                ("orders", NONE),
                ("none", TOPIC_NOT_FOUND),
            ]
            if version >= 5:
                assert "none" in response.responses[1].error_message
            if version >= 6:
                assert response.responses[0].topic_id == id
            assert names(node) == []

    with_kafka(main)


def test_a_topic_is_deleted_by_its_id() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        await create(node)
        id = topic_uuid(node.topics.get("orders").id).bytes
        wanted = [_D.DeleteTopicState(name=None, topic_id=one) for one in (id, UUID(int=7).bytes)]
        response = await kafka.call("delete_topics", 6, topics=wanted, timeout_ms=5_000)
        assert [(one.name, one.topic_id, one.error_code) for one in response.responses] == [
            ("orders", id, NONE),
            (None, UUID(int=7).bytes, UNKNOWN_TOPIC_ID),
        ]
        with pytest.raises(TopicNotFound):
            node.topics.get("orders")

    with_kafka(main)


def test_a_deletion_names_each_topic_once_and_in_one_way() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        await create(node, "a")
        await create(node, "b")
        id = topic_uuid(node.topics.get("a").id).bytes
        wanted = [
            _D.DeleteTopicState(name="a"),
            _D.DeleteTopicState(name=None, topic_id=id),
            _D.DeleteTopicState(name="b", topic_id=id),
            _D.DeleteTopicState(name=None),
        ]
        response = await kafka.call("delete_topics", 6, topics=wanted, timeout_ms=5_000)
        assert [one.error_code for one in response.responses] == [INVALID_REQUEST] * 4
        assert names(node) == ["a", "b"]

    with_kafka(main)


def test_a_deletion_that_takes_longer_than_allowed_is_an_error_and_goes_on() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        await create(node)
        response = await kafka.call("delete_topics", 5, topic_names=["orders"], timeout_ms=0)
        assert response.responses[0].error_code == TIMED_OUT
        await asyncio.sleep(1)  # of virtual time
        assert names(node) == []

    with_kafka(main)


async def grown(
    kafka: Kafka, name: str, count: int, assigned: list[list[int]] | None = None, **fields: Any
) -> tuple[int, str | None]:
    assignments = (
        None
        if assigned is None
        else [_P.CreatePartitionsAssignment(broker_ids=brokers) for brokers in assigned]
    )
    topic = _P.CreatePartitionsTopic(name=name, count=count, assignments=assignments)
    version = fields.pop("version", 3)
    fields = {"timeout_ms": 5_000} | fields
    response = await kafka.call("create_partitions", version, topics=[topic], **fields)
    (result,) = response.results
    assert result.name == name
    return result.error_code, result.error_message


def test_partitions_are_added_in_every_version_and_what_was_there_stays() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        await create(node)
        await publish(node, b"first")
        for version in kafka.versions("create_partitions"):
            count = version + 2
            assert await grown(kafka, "orders", count, version=version) == (NONE, None)
            assert node.topics.get("orders").partition_count == count
            await publish(node, b"new", partition=count - 1)
        assert node.topics.partition("orders", 0).latest == 1

    with_kafka(main)


def test_growth_may_only_be_validated() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        await create(node)
        assert await grown(kafka, "orders", 5, validate_only=True) == (NONE, None)
        assert (await grown(kafka, "orders", 1, validate_only=True))[0] == INVALID_PARTITIONS
        assert node.topics.get("orders").partition_count == 1

    with_kafka(main)


@pytest.mark.parametrize(
    ("name", "count", "assigned", "code"),
    [
        ("orders", 2, None, INVALID_PARTITIONS),  # as many as there are
        ("orders", 1, None, INVALID_PARTITIONS),
        ("orders", 0, None, INVALID_PARTITIONS),
        ("orders", 1_000_000, None, INVALID_PARTITIONS),
        ("none", 5, None, TOPIC_NOT_FOUND),
        ("a/b", 5, None, INVALID_NAME),
        ("orders", 4, [[1]], INVALID_ASSIGNMENT),
        ("orders", 4, [], INVALID_ASSIGNMENT),
        ("orders", 3, [[2]], INVALID_ASSIGNMENT),
        ("orders", 3, [[]], INVALID_ASSIGNMENT),
    ],
)
def test_impossible_growth_is_refused(
    name: str, count: int, assigned: list[list[int]] | None, code: int
) -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        await create(node, partition_count=2)
        for version in kafka.versions("create_partitions"):
            assert (await grown(kafka, name, count, assigned, version=version))[0] == code
        assert node.topics.get("orders").partition_count == 2

    with_kafka(main)


def test_added_partitions_may_be_assigned_to_the_one_broker() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        await create(node)
        assert await grown(kafka, "orders", 3, [[1], [1]]) == (NONE, None)
        assert node.topics.get("orders").partition_count == 3

    with_kafka(main)


def test_growth_names_each_topic_once() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        await create(node)
        topics = [_P.CreatePartitionsTopic(name="orders", count=count, assignments=None) for count in (2, 3)]
        response = await kafka.call("create_partitions", 3, topics=topics, timeout_ms=5_000)
        assert [(one.name, one.error_code) for one in response.results] == [("orders", INVALID_REQUEST)]
        assert node.topics.get("orders").partition_count == 1

    with_kafka(main)
