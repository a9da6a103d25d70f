"""A follower asks its leader about all that it has, not before that is on disk, and not about what is damaged."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

import pytest
from tests.support.nodes import World, create, publish, simulate

from goqueue.log.batch import build_batch, decode_rows, read_header, rebuild_batch
from goqueue.model.acks import Acks
from goqueue.model.record import NewRecord
from goqueue.node.cluster.ports import PeerLinks, ReplicaFound, ReplicaRound, ReplicaWant
from goqueue.node.node import Node
from goqueue.node.partition import Partition
from goqueue.node.replication.following import Follower
from goqueue.node.replication.throttle import MoveThrottle
from goqueue.node.threads import Threads

MEBIBYTE = 1024 * 1024


class FarAhead:
    """Has all that is asked for, three quarters of what may be in an answer at a time; then nothing more."""

    def __init__(self, answer_count: int) -> None:
        self.wants: list[ReplicaWant] = []
        self._left = answer_count

    async def fetch(
        self, target: str, round: ReplicaRound, *, wait_ms: int, bytes_max: int
    ) -> Sequence[ReplicaFound]:
        self.wants += round.wants
        await asyncio.sleep(0.01)
        if not round.wants or self._left == 0:
            return []
        self._left -= 1
        (want,) = round.wants
        value = bytes(3 * want.bytes_max // 4)
        header = read_header(batch := build_batch([NewRecord(None, value)], 0))
        header = header._replace(base_offset=want.offset, leader_epoch=0)
        batch = rebuild_batch(header, decode_rows(batch, header), delete_horizon_ms=None)
        return [ReplicaFound("orders", 0, high_watermark=want.offset, records=batch)]


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


async def follow(
    world: World, partition: Partition, leader: Leader | FarAhead, *, bytes_max: int = 1_000_000
) -> None:
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
        bytes_max=bytes_max,
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


@pytest.mark.parametrize("is_compacted", [False, True])
def test_a_compacted_log_that_is_damaged_is_given_up_whole(is_compacted: bool) -> None:
    """The others may have forgotten a tombstone that is behind the damage, and the value before it would be back for good."""

    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node, cleanup_policy="compact" if is_compacted else "delete")
            await publish(node, b"old", key=b"deleted")
            await publish(node, b"damaged", key=b"other")
            await publish(node, None, key=b"deleted")
            partition, leader = node._table.any_partition("orders", 0), Leader()
            partition.damaged_from = 1
            await follow(world, partition, leader)
            kept = 0 if is_compacted else 1
            assert [want.offset for want in leader.wants] == [kept]
            assert partition.log.end == kept
            assert partition.damaged_from is None

        await world.live(life)

    simulate(main)


def test_who_is_far_behind_asks_for_more_up_to_what_an_answer_holds() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            partition, leader = node._table.any_partition("orders", 0), FarAhead(5)
            await follow(world, partition, leader, bytes_max=8 * MEBIBYTE)
            asked = [want.bytes_max // MEBIBYTE for want in leader.wants]
            assert asked == [1, 2, 4, 8, 8, 8]
            assert partition.log.end == 5

        await world.live(life)

    simulate(main)
