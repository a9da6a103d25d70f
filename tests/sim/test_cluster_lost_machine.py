"""A machine is lost for good that had the only replica of some topics. docs/cluster.md says what to do with those."""

from __future__ import annotations

from tests.support.sim_clusters import ORDERS, PlayedCluster, in_cluster

from goqueue.core.catalog import ReassignPartitions

ONLY_THERE = (("orders", 0), ("logs", 0))


def test_what_was_only_there_is_deleted_or_given_up_and_moved_before_the_rest_is_drained() -> None:
    async def play(played: PlayedCluster) -> None:
        controller = played.cluster.controller()
        assert controller is not None
        lost, other = (name for name in played.cluster.names if name != controller.name)
        node = played.node(controller.name)
        number = {name: played.node(name).directory.number for name in played.cluster.names}
        await played.create("kept", replication_factor=2)
        for topic, index in ONLY_THERE:
            await played.create(topic, replication_factor=1)
            await node._metadata.execute(ReassignPartitions([(topic, index, [number[lost]])]))
        await node._metadata.execute(ReassignPartitions([("kept", 0, [number[lost], number[other]])]))
        await played.until(lambda: not played.cluster.unsettled())
        assert await played.produce(lost, "a", "b") == (0, 0)
        await played.cluster.hosts[lost].crash(power_cut=False)
        table = node._metadata.catalog.partitions
        await played.until(lambda: table.get("orders", 0).leader == -1)

        drain = {"drain": lost}
        refused = await played.rest(other, "POST", "/admin/reassignment", drain)
        assert refused.status == 400, refused
        assert "has no leader that could be copied" in str(refused.body["error"])

        assert (await played.rest(other, "DELETE", "/topics/logs")).status == 200
        cluster = played.node(other).cluster
        assert cluster is not None
        orders = cluster.partition_orders  # what Kafka's tools ask for
        target = {("orders", 0): [number[other]]}
        assert await orders.reassign(target, keeps_count=True) == {("orders", 0): None}
        assert await orders.elect([("orders", 0)], is_unclean=True) == {("orders", 0): None}
        await played.until(lambda: table.get("orders", 0).replicas == (number[other],))
        await played.until(lambda: leads(played, other))
        assert await played.produce(other, "c", part=ORDERS) == (0, 0)  # with nothing of what it had

        made = await played.rest(other, "POST", "/admin/reassignment", drain)
        assert made.status < 300, made
        await played.until(lambda: table.replica_count(number[lost]) == 0)

    in_cluster(play)


def leads(played: PlayedCluster, name: str) -> bool:
    cluster = played.node(name).cluster
    return cluster is not None and cluster.replication.leads("orders", 0)
