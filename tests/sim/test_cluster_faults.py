"""Single faults of a cluster, each alone and step by step: disks that fail at whoever leads, clocks that jump, links that are half open."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable

import pytest
from tests.support.sim_clusters import ORDERS, PlayedCluster, in_cluster

from goqueue.node.cluster import quorum

STORED = 0
PATIENCE_S = 30.0
DAY_MS = 24 * 3_600 * 1_000


async def until_stored(played: PlayedCluster, value: str) -> str:
    """By whoever leads; as a client that asks again. The leader."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            played.client.leaders.clear()
            leader = await played.leader()
            error, _ = await played.produce(leader, value)
            if error == STORED:
                return leader
            await asyncio.sleep(0.2)


def controller(played: PlayedCluster) -> str:
    found = played.cluster.controller()
    assert found is not None
    return found.name


def keep_failing(played: PlayedCluster, name: str) -> Callable[[], None]:
    """Every fsync on the disk of this node, until it is told to stop."""
    disk = played.cluster.hosts[name].disk

    async def fail() -> None:
        while True:
            disk.fail_next("sync", error=errno.EIO)
            await asyncio.sleep(0.05)

    task = asyncio.ensure_future(fail())

    def stop() -> None:
        task.cancel()
        disk.calm()

    return stop


def test_partition_whose_leader_has_a_broken_disk_gets_another_leader_with_all_that_was_stored() -> None:
    async def play(played: PlayedCluster) -> None:
        await played.create()
        leader = await until_stored(played, "before")
        stop = keep_failing(played, leader)
        assert await until_stored(played, "after") != leader
        stop()
        await played.cluster.hosts[leader].crash(power_cut=False)  # as the runbook says: its disk is replaced
        played.cluster.start()
        await played.until(lambda: not played.cluster.unsettled())
        assert len(played.cluster.holders(ORDERS, 0, ("before",))) == 3

    in_cluster(play)


def test_controller_that_cannot_write_its_log_is_followed_by_another() -> None:
    async def play(played: PlayedCluster) -> None:
        await played.create()
        leads = controller(played)
        stop = keep_failing(played, leads)
        refused = await played.rest(leads, "POST", "/topics", {"name": "asked", "num_partitions": 1})
        assert refused.status >= 500, refused  # without anything to write it would notice nothing
        await played.until(lambda: controller_is_another(played, leads))
        other = controller(played)
        answer = await played.rest(other, "POST", "/topics", {"name": "decided", "num_partitions": 1})
        assert answer.status == 201, answer
        stop()
        await played.cluster.hosts[leads].crash(power_cut=False)
        played.cluster.start()
        await played.until(lambda: not played.cluster.unsettled())
        assert played.node(leads)._metadata.catalog.find("decided") is not None

    def controller_is_another(played: PlayedCluster, leads: str) -> bool:
        found = played.cluster.controller()
        return found is not None and found.name != leads

    in_cluster(play)


def test_node_whose_clock_is_a_day_off_is_refused_and_comes_back_when_it_is_right() -> None:
    async def play(played: PlayedCluster) -> None:
        await played.create()
        off = next(name for name in played.cluster.names if name != controller(played))
        played.cluster.hosts[off].clock.ahead_ms = DAY_MS
        await until_stored(played, "meanwhile")
        await asyncio.sleep(5)
        played.cluster.hosts[off].clock.ahead_ms = 0
        await played.until(lambda: not played.cluster.unsettled())
        assert len(played.cluster.holders(ORDERS, 0, ("meanwhile",))) == 3

    in_cluster(play)


def test_node_that_hears_and_is_not_heard_leads_nothing_until_it_is() -> None:
    async def play(played: PlayedCluster) -> None:
        await played.create()
        leader = await until_stored(played, "before")
        for other in played.cluster.names:
            if other != leader:
                played.network.partition(leader, other, one_way=True)
        assert await until_stored(played, "after") != leader
        played.heal()
        await played.until(lambda: not played.cluster.unsettled())
        assert len(played.cluster.holders(ORDERS, 0, ("before",))) == 3

    in_cluster(play)


def test_damaged_metadata_of_a_node_is_put_aside_and_comes_back_as_a_snapshot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(quorum, "_SNAPSHOT_ENTRY_COUNT", 5)

    async def play(played: PlayedCluster) -> None:
        for number in range(8):
            await played.create(f"topic-{number}")
        host = next(one for one in played.cluster.hosts.values() if one.name != controller(played))
        await host.crash(power_cut=False)
        assert host.disk.flip_random_bit("logs/__cluster_metadata/0/*.snapshot") is not None
        host.start()
        await played.until(lambda: not played.cluster.unsettled())
        await played.until(lambda: not played.node(host.name)._quorum.raft.is_recovering)
        assert any(path.startswith("quarantine/logs/__cluster_metadata") for path in host.disk.snapshot())
        assert played.node(host.name)._quorum._snapshot_index > 0
        other = next(name for name in played.cluster.names if name not in (host.name, controller(played)))
        await played.cluster.hosts[other].crash(power_cut=False)  # now it has to count
        answer = await played.rest(host.name, "POST", "/topics", {"name": "decided", "num_partitions": 1})
        assert answer.status == 201, answer

    in_cluster(play)
