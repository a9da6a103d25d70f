"""A follower cuts what its leader does not have. What is committed is not among that, unless an election has lost it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

import pytest
from tests.support.nodes import World, create, publish, simulate

from goqueue.model.errors import InvariantViolation
from goqueue.node.cluster.ports import PeerLinks, ReplicaFound, ReplicaRound
from goqueue.node.node import Node
from goqueue.node.replication.following import Follower
from goqueue.node.replication.throttle import MoveThrottle
from goqueue.node.threads import Threads


class ShorterLeader:
    """Has only the first record."""

    async def fetch(
        self, target: str, round: ReplicaRound, *, wait_ms: int, bytes_max: int
    ) -> Sequence[ReplicaFound]:
        for want in round.wants:
            if want.offset > 1:
                return [ReplicaFound(want.topic, want.partition, log_start=0, diverging=(want.last_epoch, 1))]
        await asyncio.sleep(wait_ms / 1_000)
        return []


async def follow(world: World, node: Node, unclean_epoch: int) -> int:
    """Where the log of a replica ends that has two committed records and follows one who has the first only."""
    await create(node)
    await publish(node, b"kept")
    await publish(node, b"committed")
    partition = node._table.any_partition("orders", 0)
    assert (partition.log.high_watermark, partition.log.epochs.current) == (2, 0)
    assert world.alive is not None
    follower = Follower(
        2,
        lambda number: "node-2",
        cast(PeerLinks, ShorterLeader()),
        world.alive.disk,
        Threads(1),
        world.clock,
        MoveThrottle(lambda topic, index: None),
        unclean_epoch_of=lambda topic, index: unclean_epoch,
        wait_ms=100,
        bytes_max=1_000_000,
    )
    follower.put(partition)
    running = asyncio.ensure_future(follower.run())
    await asyncio.sleep(5.0)
    if running.done():
        await running
    running.cancel()
    return partition.log.end


def test_what_is_committed_is_never_cut() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            for unclean_epoch in (-1, 0):
                with pytest.raises(InvariantViolation, match="below its high watermark 2"):
                    await follow(world, node, unclean_epoch)
                await node.topics.delete("orders")

        await world.live(life)

    simulate(main)


def test_what_an_unclean_election_has_lost_is_cut() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            assert await follow(world, node, 1) == 1

        await world.live(life)

    simulate(main)
