"""A client makes something through one node and uses it through another, which has not heard of it yet."""

from __future__ import annotations

from tests.support.sim_clusters import PlayedCluster, in_cluster

from goqueue.sim.kafka.client import requests
from goqueue.sim.latency import Latency

SLOW = Latency(usual_s_min=0.1, usual_s_max=0.15, tail_s_max=0.15, tail_rate=0.0)
UNKNOWN_TOPIC = 3


async def late_node(played: PlayedCluster) -> str:
    """One that hears of everything later than the others."""
    controller = played.cluster.controller()
    assert controller is not None
    name = next(one for one in played.cluster.names if one != controller.name)
    for other in played.cluster.names:
        if other != name:
            played.network.slow(name, other, SLOW)
    return name


async def create_over_kafka(played: PlayedCluster, topic: str) -> None:
    """Through the controller, which does not wait for the others."""
    controller = played.cluster.controller()
    assert controller is not None
    kinds = requests("create_topics")
    wanted = kinds.CreatableTopic(name=topic, num_partitions=1, replication_factor=3)
    answer = await played.client.ask(
        controller.name, "create_topics", 7, topics=[wanted], timeout_ms=5_000, validate_only=False
    )
    assert answer.topics[0].error_code == 0


def test_a_topic_that_was_made_through_another_node_is_found_over_rest() -> None:
    async def play(played: PlayedCluster) -> None:
        late = await late_node(played)
        for at in range(3):
            topic = f"orders-{at}"
            await create_over_kafka(played, topic)
            assert played.node(late)._metadata.catalog.find(topic) is None
            body = {"messages": [{"value": "a"}]}
            sent = await played.rest(late, "POST", f"/topics/{topic}/messages", body)
            assert sent.status == 200, sent

    in_cluster(play)


def test_a_topic_that_was_made_through_another_node_is_found_over_kafka() -> None:
    async def play(played: PlayedCluster) -> None:
        late = await late_node(played)
        kinds = requests("metadata")
        await create_over_kafka(played, "orders")
        answer = await played.client.ask(
            late,
            "metadata",
            12,
            topics=[kinds.MetadataRequestTopic(name="orders"), kinds.MetadataRequestTopic(name="nothing")],
            allow_auto_topic_creation=False,
        )
        assert {topic.name: topic.error_code for topic in answer.topics} == {
            "orders": 0,
            "nothing": UNKNOWN_TOPIC,
        }

    in_cluster(play)


def test_partitions_that_were_added_through_another_node_are_found() -> None:
    async def play(played: PlayedCluster) -> None:
        await played.create()
        late = await late_node(played)
        controller = played.cluster.controller()
        assert controller is not None
        kinds = requests("create_partitions")
        wanted = kinds.CreatePartitionsTopic(name="orders", count=3, assignments=None)
        answer = await played.client.ask(
            controller.name, "create_partitions", 3, topics=[wanted], timeout_ms=5_000, validate_only=False
        )
        assert answer.results[0].error_code == 0
        read = await played.rest(late, "GET", "/topics/orders/partitions/2/messages")
        assert read.status == 200, read

    in_cluster(play)


def test_who_asks_for_what_was_never_there_does_not_ask_the_controller_each_time() -> None:
    async def play(played: PlayedCluster) -> None:
        controller = played.cluster.controller()
        assert controller is not None
        name = next(one for one in played.cluster.names if one != controller.name)
        links = played.node(name).catching_up._links
        assert links is not None
        asked: list[str] = []
        state = links.state

        async def counted(target: str) -> object:
            asked.append(target)
            return await state(target)

        setattr(links, "state", counted)  # noqa: B010 - for mypy
        started = played.loop.time()
        for _ in range(100):
            assert (await played.rest(name, "GET", "/topics/nothing")).status == 404
        rounds_max = (played.loop.time() - started) / 0.05 + 2
        assert 0 < len(asked) <= rounds_max

    in_cluster(play)
