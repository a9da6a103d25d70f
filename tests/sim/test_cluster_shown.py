"""What a leader shows to readers is on its own disk, too."""

from __future__ import annotations

import asyncio

from tests.support.sim_clusters import ORDERS, PlayedCluster, in_cluster


def test_what_only_followers_have_on_disk_is_shown_to_nobody() -> None:
    async def play(played: PlayedCluster) -> None:
        await played.create()
        leader = await played.leader()
        body = {"messages": [{"value": "before"}], "acks": "all"}
        assert (await played.rest(leader, "POST", "/topics/orders/messages", body)).status == 200
        disk = played.cluster.hosts[leader].disk
        disk.slow("sync", 1.0)
        body = {"messages": [{"value": "soon"}], "acks": "leader"}
        assert (await played.rest(leader, "POST", "/topics/orders/messages", body)).status == 200

        def ends() -> dict[str, int]:
            """What each node has on disk."""
            partitions = {
                name: played.node(name)._table.any_partition(*ORDERS) for name in played.cluster.names
            }
            return {name: partition.log.durable_end for name, partition in partitions.items()}

        log = played.node(leader)._table.any_partition(*ORDERS).log
        await played.until(lambda: all(end == 2 for name, end in ends().items() if name != leader))
        await asyncio.sleep(0.2)  # and it has heard of that
        assert (ends()[leader], log.high_watermark) == (1, 1)
        await played.until(lambda: log.high_watermark == 2)
        assert ends()[leader] == 2

    in_cluster(play)
