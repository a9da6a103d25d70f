"""All nodes lose their power at once, and one stays away: the others have everything that was acknowledged, and go on without it."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.sim_clusters import ORDERS, PlayedCluster, in_cluster

from goqueue.sim.cluster.readers import Fetched, fetch
from goqueue.sim.http import NoAnswer

VALUES = [f"v{number}" for number in range(5)]
AWAY_S = 5.0  # several times `dead_ms`


@pytest.mark.parametrize("power_cut", [True, False], ids=["power-cut", "killed"])
@pytest.mark.parametrize("away", ["node-1", "node-2", "node-3"])
def test_the_others_serve_everything_and_one_that_comes_back_empty_gets_it_from_them(
    away: str, *, power_cut: bool
) -> None:
    async def play(played: PlayedCluster) -> None:
        await played.create(replication_factor=3, config={"min.insync.replicas": "2"})
        for offset, value in enumerate(VALUES):
            assert await played.produce(await played.leader(), value) == (0, offset)
        await played.until(lambda: not played.cluster.unsettled())
        for host in played.cluster.hosts.values():
            await host.crash(power_cut=power_cut)
        others = [name for name in played.cluster.names if name != away]
        for name in others:
            played.cluster.hosts[name].start()
        await asyncio.sleep(AWAY_S)
        assert await read_all(played) == VALUES
        assert await produce_at_last(played, "v5") == (0, len(VALUES))
        assert not has_given_up(played, others[0])

        empty = played.cluster.hosts[away]
        empty.disk.wipe()
        empty.start()
        await played.until(lambda: not played.cluster.unsettled())
        for offset, value in enumerate([*VALUES, "v5"]):
            assert len(played.cluster.holders(ORDERS, offset, (value,))) == 3
        assert await read_all(played) == [*VALUES, "v5"]
        assert not has_given_up(played, others[0])

    in_cluster(play)


def has_given_up(played: PlayedCluster, name: str) -> bool:
    """Whether what somebody had was declared lost."""
    return played.node(name)._metadata.catalog.partition("orders", 0).unclean_epoch >= 0


async def produce_at_last(played: PlayedCluster, value: str) -> tuple[int, int]:
    """Connections may be from before the crash; what was sent over one of those has not arrived."""
    async with asyncio.timeout(30):
        while True:
            try:
                return await played.produce(await played.leader(), value)
            except NoAnswer:
                played.client.doubt(ORDERS)
                await asyncio.sleep(0.1)


async def read_all(played: PlayedCluster) -> list[str]:
    """From the beginning to the high watermark, at the leader."""
    async with asyncio.timeout(30):
        while True:
            try:
                played.client.doubt(ORDERS)
                leader = await played.client.leader_of(ORDERS)
                read = await fetch(
                    played.client, leader.host, ORDERS, 0, epoch=leader.epoch, wait_ms=0, bytes_max=1_000_000
                )
                if isinstance(read, Fetched) and len(read.values) >= len(VALUES):
                    return [read.values[offset] for offset in sorted(read.values)]
            except NoAnswer:
                pass
            await asyncio.sleep(0.1)
