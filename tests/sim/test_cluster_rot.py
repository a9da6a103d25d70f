"""A bit rots on the disk of a node that leads: another one, which has what is damaged, leads, and the first one fetches it again."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.sim_clusters import ORDERS, PlayedCluster, in_cluster

from goqueue.sim.cluster.disks import durable_batches
from goqueue.sim.cluster.readers import Fetched, fetch

VALUES = [f"v{number}" for number in range(6)]


async def filled(played: PlayedCluster) -> str:
    """The leader, whose disk has each value in a batch of its own."""
    await played.create()
    leader = await played.leader()
    for value in VALUES:
        assert (await played.produce(leader, value))[0] == 0
    await played.until(lambda: not played.cluster.unsettled())
    return leader


def rot(played: PlayedCluster, host: str, *, batch: int) -> None:
    """A bit of this batch's value, while the node runs."""
    disk = played.cluster.hosts[host].disk
    size = len(durable_batches(disk, ORDERS)[0].data)
    disk.flip_bit("logs/orders/0/00000000000000000000.log", 8 * (size * (batch + 1) - 2))
    partition = played.node(host)._table.any_partition("orders", 0)
    for segment in partition.log.segments:
        segment.release()


async def read_all(played: PlayedCluster) -> list[str]:
    """From the beginning, at whoever leads, again and again where it cannot be had."""
    found: dict[int, str] = {}
    async with asyncio.timeout(60):
        while len(found) < len(VALUES):
            played.client.leaders.clear()
            leader = await played.client.leader_of(ORDERS)
            read = await fetch(
                played.client,
                leader.host,
                ORDERS,
                len(found),
                epoch=leader.epoch,
                wait_ms=0,
                bytes_max=1_000_000,
            )
            if isinstance(read, Fetched):
                found |= read.values
            else:
                await asyncio.sleep(0.1)
    return [found[offset] for offset in sorted(found)]


@pytest.mark.parametrize("batch", [0, 3])
def test_what_rotted_is_served_by_another_and_mended(batch: int) -> None:
    async def play(played: PlayedCluster) -> None:
        leader = await filled(played)
        rot(played, leader, batch=batch)
        assert await read_all(played) == VALUES
        await played.until(lambda: not played.cluster.unsettled())
        logs = [host.disk.platter.durable_files() for host in played.cluster.hosts.values()]
        contents = {bytes(files["logs/orders/0/00000000000000000000.log"].durable) for files in logs}
        assert len(contents) == 1

    in_cluster(play)


def test_what_rotted_on_a_leader_that_was_cut_off_is_served_by_the_next_one() -> None:
    async def play(played: PlayedCluster) -> None:
        leader = await filled(played)
        for other in played.cluster.names:
            if other != leader:
                played.network.partition(leader, other)
        rot(played, leader, batch=3)
        others = [name for name in played.cluster.names if name != leader]
        await played.until(
            lambda: any(played.node(name)._table.any_partition("orders", 0).is_led for name in others)
        )
        played.heal()
        assert await read_all(played) == VALUES

    in_cluster(play)
