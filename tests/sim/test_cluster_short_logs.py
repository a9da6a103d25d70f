"""A log that has lost what was on disk: nobody counts on it, and nobody gives up for it what others have."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from tests.support.sim_clusters import ORDERS, PlayedCluster, in_cluster

from goqueue.core.cluster.partitions import PartitionState
from goqueue.node.partition import Partition
from goqueue.sim.cluster.disks import durable_batches

FOLDER = "logs/orders/0"
COUNT = 5


async def filled(played: PlayedCluster, min_insync_replicas: int, **config: str) -> list[str]:
    """Its nodes, the leader first. What they have is in their checkpoints."""
    settings = {"min.insync.replicas": str(min_insync_replicas), **config}
    await played.create(replication_factor=3, config=settings)
    for number in range(COUNT):
        assert (await played.produce(await played.leader(), f"v{number}"))[0] == 0
    await asyncio.sleep(10)
    leader = await played.leader()
    return [leader, *(name for name in played.cluster.names if name != leader)]


async def stop(played: PlayedCluster, *names: str) -> None:
    for name in names:
        assert await played.cluster.hosts[name].stop()
        await asyncio.sleep(1)


def lose(played: PlayedCluster, name: str) -> None:
    """Its files, but for the checkpoint."""
    disk = played.cluster.hosts[name].disk.mount()
    for entry in disk.list(FOLDER):
        if entry.name.endswith(".log"):
            disk.remove(f"{FOLDER}/{entry.name}")
    disk.sync_dir(FOLDER)


def shorten(played: PlayedCluster, name: str) -> None:
    disk = played.cluster.hosts[name].disk.mount()
    for entry in disk.list(FOLDER):
        if entry.name.endswith(".log"):
            file = disk.open(f"{FOLDER}/{entry.name}")
            file.truncate(file.size() // 2)
            file.sync()


def start(played: PlayedCluster, *names: str) -> None:
    for name in names:
        played.cluster.hosts[name].start()


def partition_on(played: PlayedCluster, name: str) -> Partition:
    return played.node(name)._table.any_partition("orders", 0)


def state(played: PlayedCluster, name: str) -> PartitionState:
    return played.node(name)._metadata.catalog.partition("orders", 0)


def bytes_on(played: PlayedCluster, name: str) -> bytes:
    return b"".join(batch.data for batch in durable_batches(played.cluster.hosts[name].disk, ORDERS).values())


def assert_well(played: PlayedCluster) -> None:
    """No node has ended as none should."""
    for host in played.cluster.hosts.values():
        assert host.problems == []
        assert host.node is None or not host.node.failed.is_set()


@pytest.mark.parametrize("spoil", [lose, shorten])
def test_the_last_in_sync_that_is_short_waits_for_who_is_eligible(
    spoil: Callable[[PlayedCluster, str], None],
) -> None:
    async def play(played: PlayedCluster) -> None:
        leader, early, late = await filled(played, 2)
        await stop(played, early, late, leader)
        spoil(played, leader)
        start(played, leader, early)  # the one that is eligible stays away
        await asyncio.sleep(30)
        assert state(played, early).leader == -1
        assert partition_on(played, early).log.end == COUNT
        assert_well(played)
        start(played, late)
        await played.until(lambda: not played.cluster.unsettled())
        assert state(played, early).unclean_epoch == -1
        for name in played.cluster.names:
            assert partition_on(played, name).log.end == COUNT
        assert_well(played)

    in_cluster(play)


def test_who_is_short_and_was_alone_in_sync_says_that_something_is_lost() -> None:
    """The others give up more than is committed there; before, that ended them whenever they started."""

    async def play(played: PlayedCluster) -> None:
        leader, *others = await filled(played, 1)
        await stop(played, *others, leader)
        lose(played, leader)
        start(played, *played.cluster.names)
        await asyncio.sleep(30)
        await played.until(lambda: not played.cluster.unsettled())
        assert state(played, leader).unclean_epoch > 0
        assert {partition_on(played, name).log.end for name in played.cluster.names} == {0}
        assert_well(played)

    in_cluster(play)


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_who_is_short_while_others_are_in_sync_gets_everything_again(policy: str) -> None:
    async def play(played: PlayedCluster) -> None:
        leader, *_ = await filled(played, 1, **{"cleanup.policy": policy})
        await stop(played, leader)
        shorten(played, leader)
        start(played, leader)
        await played.until(lambda: not played.cluster.unsettled())
        assert state(played, leader).unclean_epoch == -1
        assert len({bytes_on(played, name) for name in played.cluster.names}) == 1
        assert partition_on(played, leader).log.end == COUNT
        assert_well(played)

    in_cluster(play)
