"""Only who was ready calls its end clean: another one does not know how what is on its disk has ended."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from tests.support.sim_clusters import PlayedCluster, in_cluster

from goqueue.node.cluster.identity import Identity
from goqueue.node.local_topics import LocalTopics
from goqueue.sim.cluster.host import SimHost


def is_clean(host: SimHost) -> bool:
    return msgspec.json.decode(host.disk.snapshot()["node.json"], type=Identity).is_clean


@pytest.mark.parametrize("was_clean", [False, True], ids=["power-cut", "stopped"])
def test_a_process_that_never_joins_leaves_it_at_how_the_one_before_ended(*, was_clean: bool) -> None:
    """Else a log that was torn by a power cut would count as whole, because somebody stopped the process that had found no quorum."""

    async def play(played: PlayedCluster) -> None:
        await played.create(replication_factor=3)
        hosts = list(played.cluster.hosts.values())
        for host in hosts:
            if was_clean:
                assert await host.stop()
            else:
                await host.crash(power_cut=True)
        alone = hosts[0]
        assert is_clean(alone) is was_clean
        alone.start()
        await asyncio.sleep(5.0)
        assert not alone.is_ready
        assert not is_clean(alone)
        began = played.loop.time()
        assert await alone.stop()
        assert played.loop.time() - began < 1.0, "it has nobody to tell"
        assert is_clean(alone) is was_clean

    in_cluster(play)


def test_a_process_that_stops_before_all_is_open_has_not_come_to_a_clean_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may have found damage that it has told nobody of."""
    start = LocalTopics.start

    async def play(played: PlayedCluster) -> None:
        await played.create(replication_factor=3)
        host = played.cluster.hosts["node-1"]
        assert await host.stop()
        assert is_clean(host)
        monkeypatch.setattr(LocalTopics, "start", never)
        host.start()
        await played.until(lambda: has_joined(host))
        assert await host.stop()
        assert not is_clean(host)
        monkeypatch.setattr(LocalTopics, "start", start)
        host.start()
        await played.until(lambda: not played.cluster.unsettled())
        assert await host.stop()
        assert is_clean(host)

    in_cluster(play)


def has_joined(host: SimHost) -> bool:
    return (
        host.node is not None and host.node.cluster is not None and host.node.cluster.replication.number >= 0
    )


async def never(_: LocalTopics) -> None:
    await asyncio.Event().wait()
