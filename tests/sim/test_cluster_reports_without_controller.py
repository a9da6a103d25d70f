"""A node that reports damage while there is no controller is who it was until one has heard of it: leaders that it follows wait for it."""

from __future__ import annotations

import asyncio

from tests.support.sim_clusters import PlayedCluster, in_cluster

from goqueue.core.cluster.partitions import PartitionState
from goqueue.node.cluster.member import ClusterMember

DAMAGED = ("bills", 0)
LONG_S = 10.0  # more than it takes to find a connection broken, or to make one


def test_a_node_that_reports_damage_without_a_controller_can_connect_to_its_leaders_again() -> None:
    async def play(played: PlayedCluster) -> None:
        await played.create(replication_factor=2, config={"min.insync.replicas": "2"})
        await played.create(DAMAGED[0], replication_factor=5)
        leader = await played.leader()
        state = state_of(played, leader, "orders")
        follower = next(f"node-{number}" for number in state.replicas if number != state.leader)
        others = [name for name in played.cluster.names if name not in (leader, follower)]
        for name in others:
            await played.cluster.hosts[name].crash(power_cut=False)
        await asyncio.sleep(LONG_S)  # nobody leads the quorum any more

        member, directory = member_of(played, follower), played.node(leader).directory
        before = directory.incarnation_of(follower)
        entry = played.node(follower)._metadata.catalog.node(follower)
        assert entry is not None
        reporting = asyncio.create_task(member.report_lost(entry.endpoints, [DAMAGED]))
        await asyncio.sleep(1)
        played.network.partition(leader, follower)
        await asyncio.sleep(LONG_S)
        played.heal()
        await asyncio.sleep(LONG_S)
        assert directory.incarnation_of(follower) == before != member.membership.incarnation
        assert state_of(played, leader, "orders").in_sync == state.in_sync
        assert (await played.produce(leader, "a"))[0] == 0
        assert not reporting.done()

        for name in others:
            played.cluster.hosts[name].start()
        await reporting
        assert entry.number not in state_of(played, follower, DAMAGED[0]).in_sync
        await played.until(lambda: not played.cluster.unsettled())
        assert directory.incarnation_of(follower) == member.membership.incarnation
        assert (await played.produce(leader, "b"))[0] == 0

    in_cluster(play, size=5)


def state_of(played: PlayedCluster, name: str, topic: str) -> PartitionState:
    return played.node(name)._metadata.catalog.partition(topic, 0)


def member_of(played: PlayedCluster, name: str) -> ClusterMember:
    member = played.node(name).cluster
    assert member is not None
    return member
