"""A node comes back with an empty disk under its old name: nobody may count on what it once had."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.sim_clusters import ORDERS, PlayedCluster, in_cluster

from goqueue.node.cluster.ports import ReplicaRound, ReplicaWant
from goqueue.node.monotonic import monotonic_ms
from goqueue.sim.kafka.history import Part

OTHERS = Part("others", 0)
LAG_MS = 2_000


def test_a_follower_that_begins_anew_is_not_in_sync_with_what_it_had_before() -> None:
    """It says where it is in one partition after the other, and an empty one takes long to fill. Meanwhile what it had of the
    rest before its disk was lost must not count."""

    async def play(played: PlayedCluster) -> None:
        for part in (ORDERS, OTHERS):
            await played.create(part.topic, replication_factor=3)
        leader = await played.leader()
        node = played.node(leader)
        cluster = node.cluster
        assert cluster is not None
        away = next(name for name in played.cluster.names if name != leader)
        number = int(away.removeprefix("node-"))
        assert await played.produce(leader, "a") == (0, 0)
        leadership = cluster.replication.leadership(*ORDERS)
        assert leadership is not None
        await played.cluster.hosts[away].crash(power_cut=False)
        follower = leadership.replicas._followers[number]
        await played.until(lambda: follower.left_ms is not None)

        server = cluster.replication.server
        want = ReplicaWant("others", 0, 0, -1, 0, 0, 1_000)
        await server.fetch(number, ReplicaRound(0, [want], ()), wait_ms=1, bytes_max=1_000, stream=object())
        wanted = leadership.replicas.proposal(
            monotonic_ms(), heard_ms=server.heard_ms, lag_ms_max=LAG_MS, retry_ms=0
        )
        assert wanted is None or number not in wanted

    in_cluster(play)


@pytest.mark.parametrize("is_controller", [True, False])
def test_a_node_with_an_empty_disk_gets_everything_back(is_controller: bool) -> None:
    """Whether it was the controller, or another is that goes on and remembers how far it had come."""

    async def play(played: PlayedCluster) -> None:
        await played.create(replication_factor=3)
        leader = await played.leader()
        assert await played.produce(leader, "a", "b") == (0, 0)
        controller = played.cluster.controller()
        assert controller is not None
        others = [name for name in played.cluster.names if name != controller.name]
        host = played.cluster.hosts[controller.name if is_controller else others[0]]
        await host.crash(power_cut=False)
        host.disk.wipe()
        host.start()
        await played.until(lambda: not played.cluster.unsettled())
        await played.until(lambda: not played.node(host.name)._quorum.raft.is_recovering)
        assert len(played.cluster.holders(ORDERS, 0, ("a", "b"))) == 3

    in_cluster(play)


def test_a_voter_with_an_empty_disk_does_not_help_one_that_lacks_what_was_decided() -> None:
    async def play(played: PlayedCluster) -> None:
        controller = played.cluster.controller()
        assert controller is not None
        lost, behind = (
            played.cluster.hosts[name] for name in played.cluster.names if name != controller.name
        )
        played.isolate(behind.name)
        answer = await played.rest(
            controller.name, "POST", "/topics", {"name": "orders", "num_partitions": 1}
        )
        assert answer.status == 201, answer
        await controller.crash(power_cut=False)
        await lost.crash(power_cut=False)
        lost.disk.wipe()
        played.heal()
        lost.start()
        await asyncio.sleep(20)  # many election timeouts: there is no majority that remembers
        assert played.cluster.controller() is None
        controller.start()
        await played.until(lambda: not played.cluster.unsettled())
        for name in played.cluster.names:
            assert played.node(name)._metadata.catalog.find("orders") is not None

    in_cluster(play)
