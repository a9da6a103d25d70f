"""One turn per partition that a follower writes to: the same for whoever writes and whoever waits for that, and then none."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Sequence
from typing import cast

import pytest
from tests.support.nodes import World, create, publish, simulate

from goqueue.node.cluster.ports import PeerLinks, ReplicaFound, ReplicaRound
from goqueue.node.node import Node
from goqueue.node.partition import Partition
from goqueue.node.replication.following import Follower
from goqueue.node.replication.throttle import MoveThrottle
from goqueue.node.threads import Threads


class Leader:
    """Tells a high watermark of whatever it is asked about, once."""

    def __init__(self) -> None:
        self.answered_count = 0

    async def fetch(
        self, target: str, round: ReplicaRound, *, wait_ms: int, bytes_max: int
    ) -> Sequence[ReplicaFound]:
        self.answered_count += 1
        if self.answered_count > 1:
            await asyncio.sleep(wait_ms / 1_000)
            return []
        return [ReplicaFound(one.topic, one.partition, high_watermark=one.offset) for one in round.wants]


def follower_of(world: World, leader: Leader) -> Follower:
    assert world.alive is not None
    return Follower(
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


def test_nothing_is_kept_of_partitions_that_are_followed_no_longer() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            await publish(node, b"a")
            partition, leader = node._table.any_partition("orders", 0), Leader()
            follower = follower_of(world, leader)
            follower.put(partition)
            running = asyncio.ensure_future(follower.run())
            await asyncio.sleep(1.0)
            assert leader.answered_count > 1
            await follower.remove(partition)
            running.cancel()
            await asyncio.wait([running])
            gc.collect()
            assert len(follower._busy) == 0

        await world.live(life)

    simulate(main)


def test_a_removal_waits_for_what_is_being_written_though_the_partition_was_put_again_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            await publish(node, b"a")
            partition, leader = node._table.any_partition("orders", 0), Leader()
            follower = follower_of(world, leader)
            may_end, has_begun = asyncio.Event(), asyncio.Event()

            async def write_slowly(partition: Partition, found: ReplicaFound) -> bool:
                has_begun.set()
                await may_end.wait()
                return False

            monkeypatch.setattr(follower, "_take_one", write_slowly)
            follower.put(partition)
            running = asyncio.ensure_future(follower.run())
            await has_begun.wait()
            removals = [asyncio.ensure_future(follower.remove(partition))]
            await asyncio.sleep(0.1)
            follower.put(partition)
            removals.append(asyncio.ensure_future(follower.remove(partition)))
            await asyncio.sleep(0.1)
            gc.collect()
            assert not any(one.done() for one in removals)
            may_end.set()
            await asyncio.gather(*removals)
            running.cancel()

        await world.live(life)

    simulate(main)
