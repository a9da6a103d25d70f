"""Positions of a group, asked of a node that does not coordinate it: everything that was asked for is in the answer."""

from __future__ import annotations

from typing import Any

from tests.support.sim_clusters import PlayedCluster, in_cluster

from goqueue.sim.kafka.client import requests

NOT_COORDINATOR, STALE_MEMBER_EPOCH = 16, 113
PAUSE_S = 0.1


async def fetch(played: PlayedCluster, host: str, version: int) -> Any:
    kinds = requests("offset_fetch")
    topic = kinds.OffsetFetchRequestTopics(name="orders", partition_indexes=[0, 1])
    group = kinds.OffsetFetchRequestGroup(group_id="workers", topics=[topic])
    answer = await played.client.ask(host, "offset_fetch", version, groups=[group])
    return answer.groups[0]


def test_who_asks_the_wrong_node_is_told_of_every_partition_to_ask_again() -> None:
    async def play(played: PlayedCluster) -> None:
        await played.create(num_partitions=2)
        assert (await played.rest("node-1", "POST", "/groups/workers/join", _MEMBER)).status == 200
        is_coordinator = {
            name: played.node(name).groups.coordinates("workers") for name in played.cluster.names
        }
        for name, is_right in is_coordinator.items():
            started = played.loop.time()
            group = await fetch(played, name, 9)
            codes = [one.error_code for topic in group.topics for one in topic.partitions]
            if is_right:
                assert (group.error_code, codes) == (0, [0, 0])
            else:
                assert (group.error_code, codes) == (NOT_COORDINATOR, [STALE_MEMBER_EPOCH] * 2)
                assert played.loop.time() - started >= PAUSE_S  # it asks again at once
                old = await fetch(played, name, 8)
                assert (old.error_code, list(old.topics)) == (NOT_COORDINATOR, [])
        assert sum(is_coordinator.values()) == 1

    in_cluster(play)


_MEMBER = {"client_id": "anna", "topics": ["orders"], "mode": "stream"}
