"""An idempotent producer with several batches under way at a leader that takes nothing for a moment: the order is kept."""

from __future__ import annotations

import asyncio

from tests.support.sim_clusters import ORDERS, PlayedCluster, in_cluster

from goqueue.model.record import Producer

NOT_LEADER, TOO_FEW, UNKNOWN, OUT_OF_ORDER = 6, 19, 20, 45
PRODUCER_ID = 7


async def send(played: PlayedCluster, leader: str, sequence: int) -> tuple[int, int]:
    return await played.produce(leader, f"v{sequence}", producer=Producer(PRODUCER_ID, 0, sequence))


def test_what_comes_after_a_batch_that_was_refused_is_refused_until_that_one_is_back() -> None:
    async def play(played: PlayedCluster) -> None:
        controller = played.cluster.controller()
        assert controller is not None
        others = [name for name in played.cluster.names if name != controller.name]
        await played.create(replica_assignments={"0": [*others, controller.name]})
        leader = others[0]
        leadership = played.node(leader).cluster.replication.leadership(ORDERS.topic, 0)  # type: ignore[union-attr]  # it is one
        assert leadership is not None
        assert await send(played, leader, 0) == (0, 0)
        gone = [host for name, host in played.cluster.hosts.items() if name != leader]
        for host in gone:
            await host.crash(power_cut=False)
        assert (await send(played, leader, 1))[0] == UNKNOWN
        assert (await send(played, leader, 2))[0] == NOT_LEADER
        for host in gone:
            host.start()
        await played.until(lambda: not leadership.is_cut_off)
        assert (await send(played, leader, 3))[0] == TOO_FEW
        assert [await send(played, leader, one) for one in (1, 2, 3)] == [(0, 1), (0, 2), (0, 3)]
        assert (await send(played, leader, 5))[0] == TOO_FEW  # the missing one may come
        await asyncio.sleep(5)
        assert (await send(played, leader, 5))[0] == OUT_OF_ORDER

    in_cluster(play)
