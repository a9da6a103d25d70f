"""AlterPartitionReassignments and ListPartitionReassignments on a node that is alone: its partitions stay."""

from __future__ import annotations

from tests.support.kafka_calls import Kafka, requests, with_kafka

from goqueue.node.node import Node

_A = requests("alter_partition_reassignments")


def test_a_node_alone_moves_nothing() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        await node.topics.create("orders", partition_count=2, overrides={})
        wanted = [(0, [1], 0), (1, [2], 39), (0, None, 85), (7, [1], 3)]
        for version in kafka.versions("alter_partition_reassignments"):
            for index, replicas, code in wanted:
                partition = _A.ReassignablePartition(partition_index=index, replicas=replicas)
                topic = _A.ReassignableTopic(name="orders", partitions=[partition])
                answer = await kafka.call("alter_partition_reassignments", version, topics=[topic])
                (found,) = answer.responses[0].partitions
                assert (found.partition_index, found.error_code) == (index, code)
                assert (found.error_message is None) is (code == 0)

    with_kafka(main)


def test_a_partition_that_is_named_twice_is_refused() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        await node.topics.create("orders", partition_count=1, overrides={})
        twice = [_A.ReassignablePartition(partition_index=0, replicas=[1])] * 2
        topic = _A.ReassignableTopic(name="orders", partitions=twice)
        answer = await kafka.call("alter_partition_reassignments", 0, topics=[topic])
        assert [one.error_code for one in answer.responses[0].partitions] == [42, 42]

    with_kafka(main)


def test_nothing_is_being_moved_on_a_node_alone() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        answer = await kafka.call("list_partition_reassignments", 0, topics=None)
        assert (answer.error_code, list(answer.topics)) == (0, [])

    with_kafka(main)
