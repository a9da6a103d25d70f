"""A join over REST whose coordinator is replaced after it has written it, and before it knows whether that counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from tests.support.sim_clusters import PlayedCluster, in_cluster

from goqueue.model.cluster_errors import ReplicationUnknown
from goqueue.node.internal_topics import PARTITION_COUNT, coordinator_partition
from goqueue.node.state_log import StateLog

GROUP = "workers"
JOIN = {"topics": ["orders"], "client_id": "c"}


class LostAnswer:
    """Of one log: the next thing that is written counts, and whoever waits for it is told that nobody knows."""

    def __init__(self, log: StateLog[Any]) -> None:
        self._append = log.append
        self._settled = log.settled
        self._is_next = False
        self.count = 0

    def append(self, events: Sequence[object]) -> None:
        self._append(events)
        self._is_next = bool(events) and not self.count

    async def settled(self, *, gives_up: bool = False) -> None:
        is_lost, self._is_next = self._is_next, False
        await self._settled(gives_up=gives_up)
        if is_lost:
            self.count += 1
            raise ReplicationUnknown("another node leads by now")


async def members(played: PlayedCluster, host: str) -> list[str]:
    said = await played.rest(host, "GET", f"/groups/{GROUP}")
    assert said.status == 200, said
    found: Any = said.body["members"]
    return [one["member_id"] for one in found]


@pytest.mark.parametrize("is_here", [True, False])
def test_a_join_that_may_count_is_not_repeated(is_here: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    async def play(played: PlayedCluster) -> None:
        await played.create(replication_factor=3)
        named = JOIN | {"member_id": "first"}
        said = await played.rest(played.cluster.names[0], "POST", f"/groups/{GROUP}/join", named)
        assert said.status == 200, said
        hosts = played.cluster.names
        coordinator = next(name for name in hosts if played.node(name).groups.coordinates(GROUP))
        shard = played.node(coordinator).groups.shards.at(coordinator_partition(GROUP, PARTITION_COUNT))
        lost = LostAnswer(shard._log)
        monkeypatch.setattr(shard._log, "append", lost.append)
        monkeypatch.setattr(shard._log, "settled", lost.settled)

        asked = coordinator if is_here else next(name for name in hosts if name != coordinator)
        said = await played.rest(asked, "POST", f"/groups/{GROUP}/join", JOIN)
        assert (said.status, said.body["code"]) == (504, "COORDINATION_UNKNOWN")
        assert lost.count == 1
        found = await members(played, asked)
        assert len(found) == 2
        assert "first" in found

    in_cluster(play)
