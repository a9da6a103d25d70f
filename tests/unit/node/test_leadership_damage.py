"""A leader that finds damage in its log: whether another replica is to lead, or it says so to whoever reads."""

from __future__ import annotations

import asyncio
from typing import cast

from goqueue.core.cluster.partitions import PartitionState
from goqueue.node.partition import Partition
from goqueue.node.replication.leadership import Leadership
from goqueue.sim.loop import SimLoop, run

COMES_BACK_S = 30.0
DAMAGED = cast(Partition, object())


def leader(replicas: tuple[int, ...], in_sync: tuple[int, ...]) -> Leadership:
    return Leadership(
        1,
        PartitionState(replicas, in_sync, leader=1, leader_epoch=4, epoch=7),
        min_in_sync=1,
        now_ms=0,
        when_changed=lambda partition, followers, has_more: None,
        when_failed=lambda: None,
    )


def test_where_another_replica_is_in_sync_that_one_is_to_lead() -> None:
    async def scenario(loop: SimLoop) -> None:
        leadership = leader((1, 2), (1, 2))
        assert leadership.damaged(DAMAGED)
        await asyncio.sleep(2 * COMES_BACK_S)
        assert leadership.damaged(DAMAGED)

    run(scenario, seed=1)


def test_who_is_alone_in_sync_waits_for_another_replica_to_come_back_and_then_says_so() -> None:
    async def scenario(loop: SimLoop) -> None:
        leadership = leader((1, 2), (1,))
        assert leadership.damaged(DAMAGED)
        await asyncio.sleep(COMES_BACK_S - 1)
        assert leadership.damaged(DAMAGED)
        await asyncio.sleep(1)
        assert not leadership.damaged(DAMAGED)

    run(scenario, seed=1)


def test_the_only_replica_says_so_at_once() -> None:
    async def scenario(loop: SimLoop) -> None:
        assert not leader((1,), (1,)).damaged(DAMAGED)

    run(scenario, seed=1)
