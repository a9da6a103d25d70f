"""What Kafka's tools see of the inside of the broker: folders, leaders and producers."""

from __future__ import annotations

import errno
from typing import Any

from tests.support.kafka_calls import Kafka, requests, with_kafka
from tests.support.nodes import World, create, publish, simulate

from goqueue.model.record import Producer
from goqueue.node.node import Node

_L = requests("describe_log_dirs")
_E = requests("elect_leaders")
_P = requests("describe_producers")
NONE, TOPIC_NOT_FOUND, INVALID_NAME, INVALID_REQUEST, ELECTION_NOT_NEEDED = 0, 3, 17, 42, 84


async def sizes(kafka: Kafka, version: int, topics: list[Any] | None) -> dict[tuple[str, int], int]:
    response = await kafka.call("describe_log_dirs", version, topics=topics)
    (folder,) = response.results
    assert (response.error_code, folder.error_code, folder.log_dir) == (NONE, NONE, "logs")
    if version >= 4:
        assert 0 < folder.usable_bytes < folder.total_bytes
    return {
        (topic.name, one.partition_index): one.partition_size
        for topic in folder.topics
        for one in topic.partitions
    }


def test_the_sizes_of_all_partitions_are_told_in_every_version() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        await create(node, "orders", 2)
        await create(node, "payments")
        await publish(node, b"x" * 1_000, topic="orders", partition=1)
        for version in kafka.versions("describe_log_dirs"):
            found = await sizes(kafka, version, None)
            assert set(found) == {("orders", 0), ("orders", 1), ("payments", 0)}
            assert found["orders", 1] == node.topics.partition("orders", 1).size_bytes > 1_000
            assert found["orders", 0] == 0

    with_kafka(main)


def test_only_the_partitions_that_are_asked_for_and_exist_are_told() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        await create(node, "orders", 2)
        wanted = [
            _L.DescribableLogDirTopic(topic="orders", partitions=[1, 7]),
            _L.DescribableLogDirTopic(topic="none", partitions=[0]),
        ]
        for version in kafka.versions("describe_log_dirs"):
            assert set(await sizes(kafka, version, wanted)) == {("orders", 1)}
            assert await sizes(kafka, version, []) == {}

    with_kafka(main)


def test_a_disk_that_cannot_tell_its_room_leaves_it_unknown() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            world.device.fail_next("usage", error=errno.EIO)
            response = await Kafka(node).call("describe_log_dirs", 4, topics=None)
            (folder,) = response.results
            assert (folder.error_code, folder.total_bytes, folder.usable_bytes) == (NONE, -1, -1)
            assert [topic.name for topic in folder.topics] == ["orders"]

        await world.live(life)

    simulate(main)


def test_no_partition_needs_an_election() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        await create(node, "orders", 2)
        wanted = [
            _E.TopicPartitions(topic="orders", partitions=[0, 1, 2]),
            _E.TopicPartitions(topic="none", partitions=[0]),
        ]
        for version in kafka.versions("elect_leaders"):
            response = await kafka.call("elect_leaders", version, topic_partitions=wanted)
            assert response.error_code == NONE
            found = {
                (topic.topic, one.partition_id): one.error_code
                for topic in response.replica_election_results
                for one in topic.partition_result
            }
            assert found == {
                ("orders", 0): ELECTION_NOT_NEEDED,
                ("orders", 1): ELECTION_NOT_NEEDED,
                ("orders", 2): TOPIC_NOT_FOUND,
                ("none", 0): TOPIC_NOT_FOUND,
            }
            everywhere = await kafka.call("elect_leaders", version, topic_partitions=None)
            assert (everywhere.error_code, list(everywhere.replica_election_results)) == (NONE, [])

    with_kafka(main)


def test_an_unknown_kind_of_election_is_refused() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        await create(node)
        wanted = [_E.TopicPartitions(topic="orders", partitions=[0])]
        for version in (1, 2):
            for kind, code in ((0, NONE), (1, NONE), (2, INVALID_REQUEST)):
                response = await kafka.call(
                    "elect_leaders", version, election_type=kind, topic_partitions=wanted
                )
                assert response.error_code == code
                (result,) = response.replica_election_results[0].partition_result
                assert result.error_code == (code or ELECTION_NOT_NEEDED)

    with_kafka(main)


def test_a_stopped_partition_is_said_to_be_so_when_a_leader_is_asked_for() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            await publish(node, b"kept")
            world.device.fail_next("sync")
            await publish(node, b"lost")
            wanted = [_E.TopicPartitions(topic="orders", partitions=[0])]
            response = await Kafka(node).call("elect_leaders", 2, topic_partitions=wanted)
            (result,) = response.replica_election_results[0].partition_result
            assert result.error_code == 56
            assert "no other replica" in result.error_message

        await world.live(life)

    simulate(main)


def test_the_producers_of_a_partition_are_told() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        await create(node, "orders", 2)
        id, epoch = await node.producers.init()
        await publish(node, b"a", b"b", partition=1, producer=Producer(id, epoch, 0))
        await publish(node, b"c", partition=1)
        topic = _P.TopicRequest(name="orders", partition_indexes=[0, 1, 2])
        bad = _P.TopicRequest(name="a/b", partition_indexes=[0])
        response = await kafka.call("describe_producers", 0, topics=[topic, bad])
        first, second, third = response.topics[0].partitions
        assert (first.error_code, list(first.active_producers)) == (NONE, [])
        (producer,) = second.active_producers
        assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (id, epoch, 1)
        assert producer.last_timestamp > 0
        assert (producer.coordinator_epoch, producer.current_txn_start_offset) == (-1, -1)
        assert (third.partition_index, third.error_code) == (2, TOPIC_NOT_FOUND)
        assert "partition 2" in third.error_message
        assert response.topics[1].partitions[0].error_code == INVALID_NAME

    with_kafka(main)
