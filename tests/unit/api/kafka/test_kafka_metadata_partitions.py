"""DescribeTopicPartitions, as Java's admin clients ask it before a stream begins."""

from __future__ import annotations

from tests.support.kafka_calls import Kafka, requests, with_kafka
from tests.support.nodes import create

from goqueue.node.node import Node

_R = requests("describe_topic_partitions")


def test_no_list_of_replicas_is_null() -> None:
    """The schema allows it for two of them, but clients before 4.0 take none for a list and fail."""

    async def main(kafka: Kafka, node: Node) -> None:
        await create(node, "orders")
        answer = await kafka.call(
            "describe_topic_partitions",
            0,
            topics=[_R.TopicRequest(name="orders")],
            response_partition_limit=10,
            cursor=None,
        )
        ((part,),) = [topic.partitions for topic in answer.topics]
        assert [tuple(found) for found in (part.eligible_leader_replicas, part.last_known_elr)] == [(), ()]

    with_kafka(main)
