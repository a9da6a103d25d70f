"""A leader whose disk is full: others that are in sync lead what it led, as long as that is so."""

from __future__ import annotations

import asyncio
import errno

from tests.support.sim_clusters import PlayedCluster, in_cluster

from goqueue.core.cluster.nodes import NodeState
from goqueue.node.config import DiskConfig

BALANCED_S = 15.0  # longer than the controller waits before it looks for preferred leaders


def fill(played: PlayedCluster, name: str) -> None:
    """It is as if too much of the disk were used, though there is room, for recovery and not for clients."""
    played.node(name)._disk_watch._config = DiskConfig(refuse_percent=0.0)


def make_room(played: PlayedCluster, name: str) -> None:
    played.node(name)._disk_watch._config = DiskConfig()


def leaders(played: PlayedCluster) -> set[str]:
    controller = played.cluster.controller()
    assert controller is not None
    catalog = played.node(controller.name)._metadata.catalog
    return {f"node-{catalog.partitions.get(*place).leader}" for place in catalog.partitions.all()}


def test_a_node_with_a_full_disk_gives_its_leaderships_away_until_there_is_room() -> None:
    async def play(played: PlayedCluster) -> None:
        await played.create(num_partitions=6)
        full = await played.leader()
        fill(played, full)
        await played.until(lambda: full not in leaders(played))
        played.client.leaders.clear()
        assert (await played.produce(await played.leader(), "goes on"))[0] == 0
        body = {"messages": [{"value": "by the full one", "partition": 0}]}
        assert (await played.rest(full, "POST", "/topics/orders/messages", body)).status == 200
        await asyncio.sleep(BALANCED_S)
        assert full not in leaders(played)
        assert not played.cluster.unsettled()  # it is in sync: it has room for what others have taken
        make_room(played, full)
        await played.until(lambda: full in leaders(played))

    in_cluster(play)


def test_where_all_disks_are_full_leaderships_stay_where_they_are() -> None:
    async def play(played: PlayedCluster) -> None:
        await played.create()
        for name in played.cluster.names:
            fill(played, name)
        await asyncio.sleep(BALANCED_S)
        catalog = played.node("node-1")._metadata.catalog
        epochs = [catalog.partitions.get(*place).leader_epoch for place in catalog.partitions.all()]
        await asyncio.sleep(BALANCED_S)
        assert [catalog.partitions.get(*place).leader_epoch for place in catalog.partitions.all()] == epochs

    in_cluster(play)


def test_a_leader_that_finds_no_space_resigns_at_once() -> None:
    async def play(played: PlayedCluster) -> None:
        await played.create()
        leader = await played.leader()
        assert (await played.produce(leader, "before"))[0] == 0
        disk = played.cluster.hosts[leader].disk
        disk.fail_next("append", error=errno.ENOSPC)
        started = played.loop.time()
        while (await played.produce(leader, "refused"))[0] == 0:
            disk.fail_next("append", error=errno.ENOSPC)
        played.client.leaders.clear()
        await played.until(lambda: leader not in leaders(played))
        assert played.loop.time() - started < 1.0  # it would be 2 s and more if it waited to be looked at

    in_cluster(play)


def test_node_joins_when_the_controller_has_room_again() -> None:
    async def play(played: PlayedCluster) -> None:
        controller = played.cluster.controller()
        assert controller is not None
        late = next(host for host in played.cluster.hosts.values() if host is not controller)
        await late.crash(power_cut=False)
        catalog = played.node(controller.name)._metadata.catalog
        await played.until(lambda: any(node.state is NodeState.FENCED for node in catalog.nodes()))
        controller.disk.fail_next("append", error=errno.ENOSPC)
        late.start()
        await played.until(lambda: not played.cluster.unsettled())
        assert not late.problems

    in_cluster(play)
