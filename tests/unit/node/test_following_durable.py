"""A follower asks its leader about all that it has, not before that is on disk, and not about what is damaged."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

from tests.support.nodes import World, create, publish, simulate

from goqueue.model.acks import Acks
from goqueue.node.cluster.ports import PeerLinks, ReplicaFound, ReplicaRound, ReplicaWant
from goqueue.node.node import Node
from goqueue.node.partition import Partition
from goqueue.node.replication.following import Follower
from goqueue.node.replication.throttle import MoveThrottle
from goqueue.node.threads import Threads


class Leader:
    """Has nothing to say, and remembers what it was asked."""

    def __init__(self) -> None:
        self.wants: list[ReplicaWant] = []

    async def fetch(
        self, target: str, round: ReplicaRound, *, wait_ms: int, bytes_max: int
    ) -> Sequence[ReplicaFound]:
        self.wants += round.wants
        await asyncio.sleep(wait_ms / 1_000)
        return []


async def follow(world: World, partition: Partition, leader: Leader) -> None:
    """For a while."""
    assert world.alive is not None
    follower = Follower(
        2,
        lambda number: "node-2",
        cast(PeerLinks, leader),
        world.alive.disk,
        Threads(1),
        world.clock,
        MoveThrottle(lambda topic, index: None),
        unclean_epoch_of=lambda topic, index: -1,
        wait_ms=100,
        bytes_max=1_000_000,
    )
    follower.put(partition)
    running = asyncio.ensure_future(follower.run())
    await asyncio.sleep(5.0)
    running.cancel()


def test_what_is_not_on_disk_yet_is_asked_about_once_it_is() -> None:
    """The leader compares the log up to the offset that it is asked for. What lies behind that offset would never be
    compared, and may be what a leader before never committed."""

    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            await publish(node, b"durable")
            world.device.slow("sync", 1.0)
            await publish(node, b"not yet", acks=Acks.LEADER)
            partition, leader = node._table.any_partition("orders", 0), Leader()
            assert partition.log.durable_end < partition.log.end
            await follow(world, partition, leader)
            assert [want.offset for want in leader.wants] == [partition.log.end]

        await world.live(life)

    simulate(main)


def test_what_is_damaged_is_given_up_before_the_leader_is_asked() -> None:
    """Else the leader takes a damaged replica for one that has everything, and lets it be in sync; and where the leader has
    nothing new to say, it stays damaged."""

    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            await publish(node, b"sound")
            await publish(node, b"damaged")
            partition, leader = node._table.any_partition("orders", 0), Leader()
            partition.damaged_from = 1
            await follow(world, partition, leader)
            assert [want.offset for want in leader.wants] == [1]
            assert partition.log.end == 1
            assert partition.damaged_from is None

        await world.live(life)

    simulate(main)
