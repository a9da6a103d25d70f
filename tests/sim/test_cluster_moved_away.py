"""Replicas leave a node that is down: when it comes back, nothing of them stays on its disk."""

from __future__ import annotations

from tests.support.sim_clusters import ORDERS, PlayedCluster, in_cluster

from goqueue.node.folder import partition_folder
from goqueue.sim.cluster.operator_checkers import has_folder


def holders(played: PlayedCluster, topic: str = "orders") -> list[str]:
    """Who has a folder of the first partition."""
    folder = partition_folder(topic, 0)
    return [name for name, host in played.cluster.hosts.items() if has_folder(host.disk, folder)]


def test_a_node_that_was_down_throws_away_what_was_moved_elsewhere() -> None:
    async def play(played: PlayedCluster) -> None:
        await played.create(replication_factor=2, config={"min.insync.replicas": "1"})
        leader = await played.leader()
        body = {"messages": [{"value": "a"}, {"value": "b", "delay": "1h"}]}
        assert (await played.rest(leader, "POST", "/topics/orders/messages", body)).status == 200
        await played.until(lambda: len(holders(played, "__schedule.orders")) == 2)
        (away,) = [name for name in holders(played) if name != leader]
        (heir,) = [name for name in played.cluster.names if name not in holders(played)]
        await played.cluster.hosts[away].crash(power_cut=False)
        await played.until(lambda: played.cluster.controller() is not None)

        plan = [{"topic": "orders", "partition": 0, "replicas": [leader, heir]}]
        asked = await played.rest(leader, "POST", "/admin/reassignment", {"plan": plan})
        assert asked.status < 300, asked
        catalog = played.node(leader)._metadata.catalog
        wanted = {int(name.removeprefix("node-")) for name in (leader, heir)}
        await played.until(lambda: set(catalog.partitions.get(*ORDERS).replicas) == wanted)
        assert away in holders(played)

        played.cluster.hosts[away].start()
        await played.until(lambda: not played.cluster.unsettled())
        for topic in ("orders", "__schedule.orders"):
            assert set(holders(played, topic)) == {leader, heir}

    in_cluster(play)
