"""How far groups had come in a topic that was deleted says nothing of the next one of its name, also where they commit while it is going."""

from __future__ import annotations

import asyncio

from tests.support.sim_clusters import PlayedCluster, in_cluster

from goqueue.core.catalog import CreateTopic, DeleteTopic
from goqueue.node.node import Node
from goqueue.sim.kafka.client import requests

NOTHING = -1
GROUP_KIND = 0
UNKNOWN_TOPIC_OR_PARTITION = 3


async def commit(played: PlayedCluster, host: str, group: str, offset: int) -> int:
    kinds = requests("offset_commit")
    part = kinds.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topic = kinds.OffsetCommitRequestTopic(name="orders", partitions=[part])
    answer = await played.client.ask(host, "offset_commit", 8, group_id=group, topics=[topic])
    return int(answer.topics[0].partitions[0].error_code)


async def committed(played: PlayedCluster, host: str, group: str) -> int:
    kinds = requests("offset_fetch")
    topic = kinds.OffsetFetchRequestTopics(name="orders", partition_indexes=[0])
    wanted = kinds.OffsetFetchRequestGroup(group_id=group, topics=[topic])
    answer = await played.client.ask(host, "offset_fetch", 8, groups=[wanted])
    (found,) = answer.groups
    assert found.error_code == 0
    return int(found.topics[0].partitions[0].committed_offset)


def coordinators(played: PlayedCluster, group: str) -> list[str]:
    hosts = played.cluster.hosts.values()
    running = [host.node for host in hosts if host.node is not None]
    return [node.config.node_id for node in running if node.groups.coordinates(group)]


async def begin(played: PlayedCluster) -> tuple[str, str]:
    """A group that has come to 1000, and its coordinator, which is not the controller."""
    await played.create()
    names = [f"workers-{at}" for at in range(50)]
    asked = played.cluster.names[0]
    found = await played.client.ask(
        asked, "find_coordinator", 4, key_type=GROUP_KIND, coordinator_keys=names[:1]
    )
    assert found.coordinators[0].error_code == 0
    await played.until(lambda: not played.cluster.unsettled())
    controller = played.cluster.controller()
    assert controller is not None
    group = next(one for one in names if coordinators(played, one) not in ([], [controller.name]))
    (coordinator,) = coordinators(played, group)
    assert await commit(played, coordinator, group, 1000) == 0
    assert await committed(played, coordinator, group) == 1000
    return group, coordinator


async def make_again(played: PlayedCluster) -> None:
    """Decided; nobody has followed yet."""
    controller = played.cluster.controller()
    assert controller is not None
    metadata = played.node(controller.name)._metadata
    await metadata.execute(DeleteTopic("orders"))
    await metadata.execute(CreateTopic("orders", 1, {}))


def test_what_a_group_has_committed_for_a_topic_is_not_of_the_next_one_that_was_made_while_nobody_coordinated() -> (
    None
):
    async def play(played: PlayedCluster) -> None:
        group, old = await begin(played)
        await played.cluster.hosts[old].crash(power_cut=False)
        await make_again(played)
        assert coordinators(played, group) == []
        await played.until(lambda: bool(coordinators(played, group)))
        (new,) = coordinators(played, group)
        shards = played.node(new).groups.shards
        await played.until(lambda: not shards.is_loading())
        assert await committed(played, new, group) == NOTHING
        await played.until(lambda: shards.state(group).offsets.topics() == [])
        assert await commit(played, new, group, 5) == 0
        assert await committed(played, new, group) == 5

    in_cluster(play)


def test_nothing_is_committed_for_a_new_topic_while_the_old_one_takes_long_to_go() -> None:
    """What consumers of the old one commit would be taken for the new one's, of which they know nothing."""

    async def play(played: PlayedCluster) -> None:
        group, coordinator = await begin(played)
        node, is_free = played.node(coordinator), asyncio.Event()
        follow = node._local.follow
        before = node._metadata.catalog.topic("orders").id

        async def late(name: str) -> None:
            await is_free.wait()
            await follow(name)

        node._local.follow = late  # type: ignore[method-assign]  # a slow disk
        await make_again(played)
        await played.until(lambda: _id(played, coordinator) not in (None, before))
        assert await committed(played, coordinator, group) == NOTHING
        assert await commit(played, coordinator, group, 1_000_000) == UNKNOWN_TOPIC_OR_PARTITION
        assert await committed(played, coordinator, group) == NOTHING
        is_free.set()
        await played.until(lambda: not played.cluster.unsettled())
        await played.until(lambda: _open_id(node) == _id(played, coordinator))
        assert await committed(played, coordinator, group) == NOTHING
        assert await commit(played, coordinator, group, 100) == 0
        assert await committed(played, coordinator, group) == 100

    in_cluster(play)


def _open_id(node: Node) -> int | None:
    found = node._table.any_topic("orders")
    return None if found is None else found.facts.id


def _id(played: PlayedCluster, name: str) -> int | None:
    found = played.node(name)._metadata.catalog.find("orders")
    return None if found is None else found.id
