"""Partitions in which nothing happens cost their followers and leaders next to nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from tests.support.sim_clusters import PlayedCluster, in_cluster

from goqueue.node.cluster.ports import ReplicaFound, ReplicaRound
from goqueue.node.replication.serving import ReplicaServer

Counts = list[tuple[int, int]]  # of each round: partitions that were asked about, and that were spoken of


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> Counts:
    seen: Counts = []
    fetch = ReplicaServer.fetch

    async def counted(
        self: ReplicaServer, follower: int, round: ReplicaRound, **options: Any
    ) -> Sequence[ReplicaFound]:
        found = await fetch(self, follower, round, **options)
        seen.append((len(round.wants), len(found)))
        return found

    monkeypatch.setattr(ReplicaServer, "fetch", counted)
    return seen


def test_rounds_are_empty_while_nothing_happens(rounds: Counts) -> None:
    async def play(played: PlayedCluster) -> None:
        await played.create(num_partitions=6)
        assert (await played.produce(await played.leader(), "a"))[0] == 0
        await asyncio.sleep(5)
        rounds.clear()
        await asyncio.sleep(10)
        assert len(rounds) >= 30
        assert set(rounds) == {(0, 0)}

    in_cluster(play)


def test_followers_hear_where_a_quiet_log_begins(rounds: Counts) -> None:
    async def play(played: PlayedCluster) -> None:
        await played.create()
        leader = await played.leader()
        for value in ("a", "b", "c"):
            assert (await played.produce(leader, value))[0] == 0
        await asyncio.sleep(5)
        await played.node(leader).topics.delete_records("orders", 0, 2)
        logs = [played.node(name)._table.any_partition("orders", 0).log for name in played.cluster.names]
        await played.until(lambda: all(log.log_start == 2 for log in logs))
        await asyncio.sleep(5)
        rounds.clear()
        await asyncio.sleep(5)
        assert set(rounds) == {(0, 0)}

    in_cluster(play)
