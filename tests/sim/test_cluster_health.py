"""What any node says of the cluster, so that an operator knows when the next node may be taken down."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tests.support.sim_clusters import PlayedCluster, in_cluster

from goqueue.core.catalog import ReassignPartitions
from goqueue.sim.cluster.host import SimHost
from goqueue.sim.http import NoAnswer


async def health(played: PlayedCluster, name: str) -> tuple[object, object]:
    """The status, and the voters that do not count."""
    try:
        said = await played.rest(name, "GET", "/cluster/health")
    except NoAnswer:  # the connection was to a life that is over
        said = await played.rest(name, "GET", "/cluster/health")
    assert said.status == 200, said
    return said.body["status"], said.body["voters_not_counting"]


def controller_of(played: PlayedCluster) -> SimHost:
    found = played.cluster.controller()
    assert found is not None
    return found


async def until_said(played: PlayedCluster, names: Sequence[str], *said: object) -> None:
    async with asyncio.timeout(60):
        for name in names:
            while await health(played, name) != said:
                pass


def test_a_voter_that_has_lost_its_metadata_is_named_by_every_node_until_it_counts() -> None:
    async def play(played: PlayedCluster) -> None:
        await played.create(replication_factor=3)
        await until_said(played, played.cluster.names, "ok", [])
        controller = controller_of(played)
        lost = next(host for host in played.cluster.hosts.values() if host is not controller)
        await lost.crash(power_cut=False)
        lost.disk.wipe()
        lost.start()
        await played.until(lambda: not played.cluster.unsettled())  # all is led and on all disks
        assert played.node(lost.name)._quorum.raft.is_recovering
        for name in played.cluster.names:
            assert await health(played, name) == ("degraded", [lost.name])
        await played.until(lambda: not played.node(lost.name)._quorum.raft.is_recovering)
        await until_said(played, played.cluster.names, "ok", [])

    in_cluster(play)


def test_a_voter_that_is_dead_is_named_though_no_partition_misses_it() -> None:
    async def play(played: PlayedCluster) -> None:
        controller = controller_of(played)
        dead, asked = (name for name in played.cluster.names if name != controller.name)
        await played.cluster.hosts[dead].crash(power_cut=False)
        await until_said(played, [asked, controller.name], "degraded", [dead])

    in_cluster(play)


def test_where_the_controller_does_not_answer_nobody_says_that_all_is_well() -> None:
    async def play(played: PlayedCluster) -> None:
        controller = controller_of(played)
        asked = next(name for name in played.cluster.names if name != controller.name)
        played.isolate(controller.name)
        assert await health(played, asked) in (("degraded", None), ("no controller", None))

    in_cluster(play)


async def statuses(played: PlayedCluster, asked: str) -> dict[str, tuple[str, bool]]:
    """By node: its status, and whether it is known when it was heard of."""
    said = await played.rest(asked, "GET", "/cluster/nodes")
    assert said.status == 200, said
    nodes = said.body["nodes"]
    assert isinstance(nodes, list)
    return {node["name"]: (node["status"], node["last_heard_ms"] is not None) for node in nodes}


def test_every_node_says_the_same_of_the_others() -> None:
    """A node that is drained lives; one that has not been heard of for a while is suspect, though nothing was decided about it."""

    async def play(played: PlayedCluster) -> None:
        controller = controller_of(played)
        drained, paused = (name for name in played.cluster.names if name != controller.name)
        assert (await played.rest(drained, "POST", "/cluster/drain", {"node": drained})).status == 200
        well = dict.fromkeys(played.cluster.names, ("alive", True))
        assert [await statuses(played, name) for name in played.cluster.names] == [well] * 3
        played.isolate(paused)
        async with asyncio.timeout(60):
            while (await statuses(played, controller.name))[paused] != ("suspect", True):
                pass
        assert await statuses(played, drained) == {**well, paused: ("suspect", True)}

    in_cluster(play)


def test_where_the_controller_does_not_answer_a_node_says_what_it_knows_itself() -> None:
    async def play(played: PlayedCluster) -> None:
        controller = controller_of(played)
        asked = next(name for name in played.cluster.names if name != controller.name)
        played.isolate(controller.name)
        found = await statuses(played, asked)
        assert (set(found), found[controller.name][1]) == (set(played.cluster.names), False)

    in_cluster(play)


def test_a_node_that_stops_is_leaving_while_it_waits_for_others_to_lead() -> None:
    async def play(played: PlayedCluster) -> None:
        controller = controller_of(played)
        leaving = next(name for name in played.cluster.names if name != controller.name)
        await played.create(replication_factor=1)
        to_it = ReassignPartitions([("orders", 0, [played.node(leaving).directory.number])])
        await played.node(controller.name)._metadata.execute(to_it)
        await played.until(lambda: not played.cluster.unsettled())
        stopping = asyncio.ensure_future(played.cluster.hosts[leaving].stop())  # nobody else can lead it
        async with asyncio.timeout(60):
            while (await statuses(played, controller.name))[leaving] != ("leaving", True):
                pass
        assert not stopping.done()
        assert await stopping
        async with asyncio.timeout(60):
            while (await statuses(played, controller.name))[leaving] != ("dead", True):
                pass

    in_cluster(play)


def test_a_node_that_is_cut_off_calls_the_others_unknown() -> None:
    async def play(played: PlayedCluster) -> None:
        asked = next(name for name in played.cluster.names if name != controller_of(played).name)
        played.isolate(asked)
        unknown = dict.fromkeys(played.cluster.names, ("unknown", False))
        assert await statuses(played, asked) == {**unknown, asked: ("alive", False)}

    in_cluster(play)
