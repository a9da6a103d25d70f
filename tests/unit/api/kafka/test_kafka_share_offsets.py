"""Describe-, Alter- and DeleteShareGroupOffsets."""

from __future__ import annotations

from typing import Any

from tests.support.kafka_calls import Kafka, requests, with_kafka
from tests.support.nodes import create, publish
from tests.support.share_calls import ACCEPT, Got, Said, ShareMember

from goqueue.node.node import Node

_S = requests("describe_share_group_offsets")
_A = requests("alter_share_group_offsets")
_D = requests("delete_share_group_offsets")
GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP, UNKNOWN_TOPIC_OR_PARTITION, OFFSET_OUT_OF_RANGE = 69, 68, 3, 1


async def member(kafka: Kafka, node: Node) -> ShareMember:
    """Of a group that has ten records before it in the first of two partitions."""
    await create(node, partition_count=2)
    await node.groups.configure("g", {"share.auto.offset.reset": "earliest"})
    await publish(node, *[b"%d" % index for index in range(10)])
    one = ShareMember(kafka, node)
    await one.join()
    return one


async def describe(kafka: Kafka, *partitions: int, topic: str = "orders", group: str = "g") -> Any:
    topics = None
    if partitions:
        topics = [
            _S.DescribeShareGroupOffsetsRequestTopic(topic_name=topic, partitions=list(partitions)),
        ]
    wanted = _S.DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=topics)
    (answer,) = (await kafka.call("describe_share_group_offsets", 1, groups=[wanted])).groups
    return answer


def starts(answer: Any) -> list[tuple[int, int, int]]:
    assert answer.error_code == 0, answer.error_message
    return [
        (one.partition_index, one.start_offset, one.lag)
        for topic in answer.topics
        for one in topic.partitions
    ]


async def alter(
    kafka: Kafka, start: int, *, partition: int = 0, topic: str = "orders", group: str = "g"
) -> Any:
    one = _A.AlterShareGroupOffsetsRequestPartition(partition_index=partition, start_offset=start)
    topics = [_A.AlterShareGroupOffsetsRequestTopic(topic_name=topic, partitions=[one])]
    return await kafka.call("alter_share_group_offsets", 0, group_id=group, topics=topics)


async def delete(kafka: Kafka, topic: str = "orders", group: str = "g") -> Any:
    topics = [_D.DeleteShareGroupOffsetsRequestTopic(topic_name=topic)]
    return await kafka.call("delete_share_group_offsets", 0, group_id=group, topics=topics)


def test_a_group_tells_where_it_is_and_how_much_is_left() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        one = await member(kafka, node)
        assert starts(await describe(kafka)) == []
        assert starts(await describe(kafka, 0, 1)) == [(0, -1, -1), (1, -1, -1)]
        await one.open(0, 1, limit=4)
        assert starts(await describe(kafka)) == [(0, 0, 10), (1, 0, 0)]
        await one.say(Said(0, 0, [ACCEPT]), Said(2, 2, [ACCEPT]))
        assert starts(await describe(kafka, 0)) == [(0, 1, 8)]

    with_kafka(main)


def test_unknown_groups_and_partitions_are_named() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        await member(kafka, node)
        assert (await describe(kafka, group="nobody")).error_code == GROUP_ID_NOT_FOUND
        answer = await describe(kafka, 7)
        assert answer.topics[0].partitions[0].error_code == UNKNOWN_TOPIC_OR_PARTITION
        assert (await alter(kafka, 0, group="nobody")).error_code == GROUP_ID_NOT_FOUND
        assert (await delete(kafka, group="nobody")).error_code == GROUP_ID_NOT_FOUND

    with_kafka(main)


def test_offsets_stay_while_somebody_is_in_the_group() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        one = await member(kafka, node)
        await one.open()
        refused = await alter(kafka, 5)
        assert refused.error_code == NON_EMPTY_GROUP
        assert "has 1 members" in refused.error_message
        assert (await delete(kafka)).error_code == NON_EMPTY_GROUP
        assert starts(await describe(kafka, 0)) == [(0, 0, 10)]

    with_kafka(main)


def test_an_empty_group_goes_on_where_it_is_sent() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        one = await member(kafka, node)
        await one.open()
        await one.say(Said(0, 9, [ACCEPT]), epoch=-1)
        await one.leave()
        answer = await alter(kafka, 8)
        assert (answer.error_code, answer.responses[0].partitions[0].error_code) == (0, 0)
        await one.join()
        assert await one.open() == [Got(0, 8, b"8", 1), Got(0, 9, b"9", 1)]

    with_kafka(main)


def test_a_group_is_not_sent_where_there_is_nothing() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        one = await member(kafka, node)
        await one.open()
        await one.say(epoch=-1)
        await one.leave()
        for start in (-1, 11):
            (part,) = (await alter(kafka, start)).responses[0].partitions
            assert part.error_code == OFFSET_OUT_OF_RANGE
            assert str(start) in part.error_message
        for place in ({"partition": 7}, {"topic": "unknown"}):
            (part,) = (await alter(kafka, 0, **place)).responses[0].partitions
            assert part.error_code == UNKNOWN_TOPIC_OR_PARTITION
        assert (await delete(kafka, "unknown")).responses[0].error_code == UNKNOWN_TOPIC_OR_PARTITION

    with_kafka(main)


def test_a_group_that_forgets_a_topic_begins_anew() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        one = await member(kafka, node)
        await one.open()
        await one.say(Said(0, 9, [ACCEPT]), epoch=-1)
        await one.leave()
        assert (await delete(kafka)).responses[0].error_code == 0
        assert starts(await describe(kafka)) == []
        await one.join()
        assert len(await one.open()) == 10

    with_kafka(main)
