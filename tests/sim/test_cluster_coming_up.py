"""What is made while nodes come up, for the first time or again."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.sim_clusters import PlayedCluster, in_cluster

from goqueue.core.cluster.nodes import NodeState
from goqueue.node.local_topics import LocalTopics
from goqueue.sim.kafka.client import requests
from goqueue.sim.loop import SimLoop, run

_COORDINATOR_NOT_AVAILABLE = 15


def test_topics_and_coordinators_wait_for_the_third_node_unless_fewer_replicas_are_wanted() -> None:
    async def main(loop: SimLoop) -> None:
        played = PlayedCluster(loop, 3)
        try:
            *early, late = played.cluster.hosts.values()
            for host in early:
                host.start()
            await played.until(lambda: all(host.is_well for host in early) and are_alive(played, 2))
            refused = await played.rest("node-1", "POST", "/topics", {"name": "orders"})
            assert (refused.status, refused.body["code"]) == (409, "NOT_ENOUGH_REPLICAS")
            assert "start node-3, or give a replication factor of at most 2" in str(refused.body["error"])
            assert await coordinator_errors(played) == [_COORDINATOR_NOT_AVAILABLE] * 2
            assert await writing_errors(played) == [_COORDINATOR_NOT_AVAILABLE] * 2
            member = {"client_id": "c", "topics": ["orders"], "mode": "stream"}
            joined = await played.rest("node-2", "POST", "/groups/g/join", member)
            assert (joined.status, joined.body["code"]) == (503, "COORDINATOR_NOT_AVAILABLE")
            asked = {"name": "narrow", "replication_factor": 2}
            assert (await played.rest("node-2", "POST", "/topics", asked)).status == 201

            late.start()
            await played.until(lambda: not played.cluster.unsettled() and are_alive(played, 3))
            await played.create("orders")
            assert await coordinator_errors(played) == [0, 0]
            await played.until(lambda: not played.cluster.unsettled())
            assert {
                name: replica_count(played, name) for name in ("orders", "narrow", "__consumer_offsets")
            } == {
                "orders": 3,
                "narrow": 2,
                "__consumer_offsets": 3,
            }
            await late.crash(power_cut=False)
            await played.until(lambda: are_alive(played, 2))
            made = await played.rest("node-1", "POST", "/topics", {"name": "afterwards"})
            assert made.status == 201, made  # it has joined before, and catches up when it is back
            assert replica_count(played, "afterwards") == 3
        finally:
            await played.end()

    run(main, seed=1)


def are_alive(played: PlayedCluster, count: int) -> bool:
    nodes = played.node("node-1")._metadata.catalog.nodes()
    return sum(node.state is NodeState.ALIVE for node in nodes) == count


def replica_count(played: PlayedCluster, topic: str) -> int:
    return len(played.node("node-1")._metadata.catalog.partitions.get(topic, 0).replicas)


async def coordinator_errors(played: PlayedCluster) -> list[int]:
    """Of who looks for that of a group, and of a transactional id."""
    answers = [
        await played.client.ask("node-1", "find_coordinator", 2, key="key", key_type=key_type)
        for key_type in (0, 1)
    ]
    return [int(answer.error_code) for answer in answers]


async def writing_errors(played: PlayedCluster) -> list[int]:
    """Of who takes this node for the coordinator, and commits an offset or begins with transactions."""
    kinds = requests("offset_commit")
    offset = kinds.OffsetCommitRequestPartition(partition_index=0, committed_offset=7)
    topic = kinds.OffsetCommitRequestTopic(name="orders", partitions=[offset])
    committed = await played.client.ask(
        "node-1",
        "offset_commit",
        7,
        group_id="group",
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[topic],
    )
    begun = await played.client.ask(
        "node-1",
        "init_producer_id",
        4,
        transactional_id="app",
        transaction_timeout_ms=60_000,
        producer_id=-1,
        producer_epoch=-1,
    )
    return [int(committed.topics[0].partitions[0].error_code), int(begun.error_code)]


def test_topic_that_is_made_while_a_node_starts_keeps_its_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    look = LocalTopics._folder_owners

    async def play(played: PlayedCluster) -> None:
        host = played.cluster.hosts["node-2"]
        await host.crash(power_cut=False)
        await played.until(lambda: are_alive(played, 2))

        async def look_slowly(local: LocalTopics) -> list[str]:
            """The node has noted which topics there are, and has not swept away yet what belongs to none of them."""
            made = await played.rest("node-1", "POST", "/topics", {"name": "late", "num_partitions": 6})
            assert made.status == 201, made
            await asyncio.sleep(1.0)
            return await look(local)

        async def publish() -> None:
            messages = [{"value": "x", "partition": index} for index in range(6)]
            answer = await played.rest("node-1", "POST", "/topics/late/messages", {"messages": messages})
            assert answer.status == 200, answer

        monkeypatch.setattr(LocalTopics, "_folder_owners", look_slowly)
        host.start()
        await played.until(lambda: not played.cluster.unsettled())
        assert replica_count(played, "late") == 3
        await publish()
        await asyncio.sleep(10.0)  # longer than one that does not follow is in sync
        assert not played.cluster.unsettled()

    in_cluster(play)
