"""Plans, as a node tells them that has just been started and knows only an old catalogue."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.support.sim_clusters import PlayedCluster, in_cluster

from goqueue.sim.http import NoAnswer


def test_a_node_that_starts_does_not_say_that_there_are_no_plans() -> None:
    async def play(played: PlayedCluster) -> None:
        await played.create(replication_factor=2, config={"min.insync.replicas": "1"})
        leader = await played.leader()
        others = [name for name in played.cluster.names if name != leader]
        plan = [{"topic": "orders", "partition": 0, "replicas": others}]
        made = await played.rest(leader, "POST", "/admin/reassignment", {"plan": plan})
        assert made.status < 300, made
        host = played.cluster.hosts[others[0]]
        await host.crash(power_cut=False)
        host.start()
        refused_count = 0
        while True:
            try:
                said = await played.rest(others[0], "GET", "/admin/reassignment")
            except (NoAnswer, OSError):
                await asyncio.sleep(0.001)
                continue
            if said.status == 200:
                break
            assert said.status == 503, said
            refused_count += 1
            await asyncio.sleep(0.001)
        told: Any = said.body["reassignments"]
        assert [one["id"] for one in told] == [made.body["id"]]
        assert refused_count > 0

    in_cluster(play)
