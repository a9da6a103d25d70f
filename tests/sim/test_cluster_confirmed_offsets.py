"""How far a group has come is told by who coordinates it, and not by who did until a moment ago and has not heard of it yet."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.support.sim_clusters import PlayedCluster, in_cluster

from goqueue.sim.kafka.client import requests

NOT_COORDINATOR = 16
ANSWERED_S_MAX = 5.0


async def commit(played: PlayedCluster, host: str, offset: int) -> int:
    kinds = requests("offset_commit")
    part = kinds.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topic = kinds.OffsetCommitRequestTopic(name="orders", partitions=[part])
    answer = await played.client.ask(host, "offset_commit", 8, group_id="workers", topics=[topic])
    return int(answer.topics[0].partitions[0].error_code)


async def fetch(played: PlayedCluster, host: str) -> tuple[int, list[int]]:
    """The error, or the offset."""
    kinds = requests("offset_fetch")
    topic = kinds.OffsetFetchRequestTopics(name="orders", partition_indexes=[0])
    group = kinds.OffsetFetchRequestGroup(group_id="workers", topics=[topic])
    answer = await played.client.ask(host, "offset_fetch", 8, groups=[group])
    (found,) = answer.groups
    return found.error_code, [one.committed_offset for topic in found.topics for one in topic.partitions]


def coordinators(played: PlayedCluster) -> list[str]:
    """Whoever takes itself for one."""
    return [name for name in played.cluster.names if played.node(name).groups.coordinates("workers")]


async def begin(played: PlayedCluster) -> str:
    await played.create()
    member = {"client_id": "anna", "topics": ["orders"], "mode": "stream"}
    joined = await played.rest("node-1", "POST", "/groups/workers/join", member)
    leave = {"member_id": joined.body["member_id"]}
    assert (await played.rest("node-1", "POST", "/groups/workers/leave", leave)).status == 200
    (coordinator,) = coordinators(played)
    assert await commit(played, coordinator, 3) == 0
    return coordinator


def test_a_coordinator_that_was_replaced_and_has_not_heard_of_it_tells_nothing() -> None:
    async def play(played: PlayedCluster) -> None:
        old = await begin(played)
        assert await fetch(played, old) == (0, [3])
        played.isolate(old)
        await played.until(lambda: len(coordinators(played)) == 2)
        (new,) = (name for name in coordinators(played) if name != old)
        async with asyncio.timeout(30):
            while await commit(played, new, 6):  # noqa: ASYNC110 - it reads its log first
                await asyncio.sleep(0.1)
        assert old in coordinators(played)
        started = played.loop.time()
        assert await fetch(played, old) == (NOT_COORDINATOR, [])
        assert played.loop.time() - started < ANSWERED_S_MAX
        assert await fetch(played, new) == (0, [6])
        played.heal()
        await played.until(lambda: not played.cluster.unsettled())

    in_cluster(play)


def test_who_leads_anew_and_has_not_come_to_that_tells_nothing_of_before() -> None:
    """Between its two leaderships another node may have coordinated the group."""

    async def play(played: PlayedCluster) -> None:
        old = await begin(played)
        node = played.node(old)
        follow, is_open = node._local.follow, asyncio.Event()

        async def late(name: str) -> None:
            if name == "__consumer_offsets":
                await is_open.wait()
            await follow(name)

        node._local.follow = late  # type: ignore[method-assign]  # a slow disk
        before = _epochs(played, old)
        drained = await played.rest(old, "POST", "/cluster/drain", {"node": old})
        assert drained.status == 200, drained
        await played.until(lambda: _epochs(played, old) != before)
        assert old in coordinators(played)
        assert await fetch(played, old) == (NOT_COORDINATOR, [])
        is_open.set()
        await played.until(lambda: not played.cluster.unsettled())

    in_cluster(play)


def _epochs(played: PlayedCluster, name: str) -> Any:
    catalog = played.node(name)._metadata.catalog
    return [state.leader_epoch for state in catalog.partitions_of("__consumer_offsets")]


def test_a_cluster_without_a_controller_tells_nothing_until_it_has_one() -> None:
    async def play(played: PlayedCluster) -> None:
        coordinator = await begin(played)
        others = [name for name in played.cluster.names if name != coordinator]
        for name in others:
            await played.cluster.hosts[name].crash(power_cut=False)
        assert (await fetch(played, coordinator))[0] == NOT_COORDINATOR
        told = await played.rest(coordinator, "GET", "/groups/workers/offsets")
        assert (told.status, told.code) == (503, "NOT_COORDINATOR"), told

    in_cluster(play)
