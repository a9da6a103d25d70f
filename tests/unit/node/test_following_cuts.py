"""A follower cuts what its leader does not have. What is committed is not among that, unless an election has lost it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TypeVar, cast

import pytest
from tests.support.nodes import End, World, create, publish, simulate

from goqueue.log.batch import build_batch
from goqueue.model.errors import InvariantViolation, OffsetOutOfRange
from goqueue.model.record import NewRecord
from goqueue.node.cluster.ports import PeerLinks, ReplicaFound, ReplicaRound
from goqueue.node.node import Node
from goqueue.node.partition import Partition
from goqueue.node.replication.following import Follower
from goqueue.node.replication.throttle import MoveThrottle
from goqueue.node.threads import Threads
from goqueue.sim.cluster.loud import loud

T = TypeVar("T")


class ShorterLeader:
    """Has only the first record."""

    async def fetch(
        self, target: str, round: ReplicaRound, *, wait_ms: int, bytes_max: int
    ) -> Sequence[ReplicaFound]:
        longer = [want for want in round.wants if want.offset > 1]
        if longer:
            return [
                ReplicaFound(want.topic, want.partition, log_start=0, diverging=(want.last_epoch, 1))
                for want in longer
            ]
        await asyncio.sleep(wait_ms / 1_000)
        return []


class LaterLeader:
    """Has nothing of what there was before offset 100, and nothing more."""

    async def fetch(
        self, target: str, round: ReplicaRound, *, wait_ms: int, bytes_max: int
    ) -> Sequence[ReplicaFound]:
        for want in round.wants:
            if want.offset < 100:
                error = OffsetOutOfRange(want.offset, earliest=100, latest=100)
                return [ReplicaFound(want.topic, want.partition, log_start=100, error=error)]
        await asyncio.sleep(wait_ms / 1_000)
        return []


class ReturningLeader(ShorterLeader):
    """Leads again when it answers what it was asked in its last tenure: since then it has got everything."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.may_answer = asyncio.Event()

    async def fetch(
        self, target: str, round: ReplicaRound, *, wait_ms: int, bytes_max: int
    ) -> Sequence[ReplicaFound]:
        if self.asked.is_set():
            await asyncio.sleep(wait_ms / 1_000)
            return []
        self.asked.set()
        await self.may_answer.wait()
        return await super().fetch(target, round, wait_ms=wait_ms, bytes_max=bytes_max)


class OtherLeader(ShorterLeader):
    """Has one record more, which was written in an epoch."""

    def __init__(self, epoch: int) -> None:
        self._epoch = epoch

    async def fetch(
        self, target: str, round: ReplicaRound, *, wait_ms: int, bytes_max: int
    ) -> Sequence[ReplicaFound]:
        for want in round.wants:
            if want.offset == 2:
                batch = bytearray(build_batch([NewRecord(None, b"more")], 0))
                batch[0:8] = want.offset.to_bytes(8, "big")
                batch[12:16] = self._epoch.to_bytes(4, "big")
                return [
                    ReplicaFound(
                        want.topic, want.partition, log_start=0, high_watermark=2, records=bytes(batch)
                    )
                ]
        await asyncio.sleep(wait_ms / 1_000)
        return []


class EventfulThreads(Threads):
    """Something happens to the partition at the moment at which its log is about to be cut."""

    def __init__(self, happen: Callable[[], None]) -> None:
        super().__init__(1)
        self._happen = happen

    async def run(self, work: Callable[[], T]) -> T:
        self._happen()
        return await super().run(work)


async def replica(node: Node) -> Partition:
    """With two committed records."""
    await create(node)
    await publish(node, b"kept")
    await publish(node, b"committed")
    partition = node._table.any_partition("orders", 0)
    assert (partition.log.high_watermark, partition.log.epochs.current) == (2, 0)
    return partition


async def follow(
    world: World,
    partition: Partition,
    unclean_epoch: int,
    leader: ShorterLeader | LaterLeader | None = None,
    threads: Threads | None = None,
) -> int:
    """Where its log ends after a while: of one that follows a leader who has the first record only, or another one."""
    follower = new_follower(world, unclean_epoch, leader or ShorterLeader(), threads)
    follower.put(partition)
    running = asyncio.ensure_future(follower.run())
    await asyncio.sleep(5.0)
    if running.done():
        await running
    running.cancel()
    return partition.log.end


def new_follower(
    world: World, unclean_epoch: int, leader: ShorterLeader | LaterLeader, threads: Threads | None = None
) -> Follower:
    assert world.alive is not None
    return Follower(
        2,
        lambda number: "node-2",
        cast(PeerLinks, leader),
        world.alive.disk,
        threads or Threads(1),
        world.clock,
        MoveThrottle(lambda topic, index: None),
        unclean_epoch_of=lambda topic, index: unclean_epoch,
        wait_ms=100,
        bytes_max=1_000_000,
    )


@pytest.mark.parametrize("unclean_epoch", [-1, 0])
def test_what_is_committed_is_never_cut(unclean_epoch: int, caplog: pytest.LogCaptureFixture) -> None:
    """The replica waits for another leader, and says so once."""

    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            assert await follow(world, await replica(node), unclean_epoch) == 2

        await world.live(life)

    simulate(main)
    errors = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(errors) == 1
    assert "a leader lacks what is committed" in errors[0]
    assert "below its high watermark 2" in errors[0]


def test_a_leader_that_lacks_what_is_committed_of_one_partition_is_followed_in_others() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            kept = await replica(node)
            await create(node, "others")
            for value in (b"kept", b"cut"):
                await publish(node, value, topic="others")
            other = node._table.any_partition("others", 0)
            other.log.high_watermark = 1
            follower = new_follower(world, -1, ShorterLeader())
            follower.put(kept)
            follower.put(other)
            running = asyncio.ensure_future(follower.run())
            await asyncio.sleep(20.0)
            assert not running.done()
            running.cancel()
            assert (kept.log.end, other.log.end) == (2, 1)

        await world.live(life)

    simulate(main)


def test_in_a_simulation_a_leader_that_lacks_what_is_committed_ends_the_node() -> None:
    """There it is a find."""

    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            with loud(), pytest.raises(InvariantViolation, match="below its high watermark 2"):
                await follow(world, await replica(node), -1)

        await world.live(life)

    simulate(main)


def test_what_an_unclean_election_has_lost_is_cut() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            assert await follow(world, await replica(node), 1) == 1

        await world.live(life)

    simulate(main)


def test_what_a_leader_said_in_an_earlier_tenure_does_not_count() -> None:
    """Another has led meanwhile, and what is there now may be committed."""

    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            partition, leader = await replica(node), ReturningLeader()
            follower = new_follower(world, 1, leader)
            follower.put(partition)
            running = asyncio.ensure_future(follower.run())
            await leader.asked.wait()
            await follower.remove(partition)
            follower.put(partition)
            leader.may_answer.set()
            await asyncio.sleep(5.0)
            running.cancel()
            assert partition.log.end == 2

        await world.live(life)

    simulate(main)


@pytest.mark.parametrize(("epoch", "end"), [(4, 3), (5, 3), (6, 2)])
def test_what_was_written_in_a_later_epoch_than_the_one_that_is_followed_is_not_taken(
    epoch: int, end: int
) -> None:
    """Who sent it has got it from the next leader by then, and does not lead any more."""

    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            partition = await replica(node)
            partition.is_solo = False
            partition.follow(2, 5)
            assert await follow(world, partition, -1, OtherLeader(epoch)) == end
            assert partition.log.epochs.current == (epoch if end == 3 else 0)

        await world.live(life)

    simulate(main)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("is_checkpoint", [False, True])
@pytest.mark.parametrize("leader", [ShorterLeader(), LaterLeader()])
def test_a_flush_that_is_asked_for_while_a_replica_is_cut_does_not_say_that_it_has_what_is_gone(
    leader: ShorterLeader | LaterLeader, is_checkpoint: bool, seed: int
) -> None:
    """What a replica has on disk is what it asks its leader from, and what it is counted as having. An fsync that began before the cut
    and ends behind it would say that of the log as it was."""

    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            partition = await replica(node)
            log = partition.log
            commit = partition.commit
            threads = EventfulThreads(commit.request_checkpoint if is_checkpoint else commit.request)
            end = await follow(world, partition, 1, leader, threads)
            assert end == (1 if isinstance(leader, ShorterLeader) else 100)
            assert (log.durable_end, log.end) == (end, end)

        async def after(node: Node) -> None:
            log = node._table.any_partition("orders", 0).log
            assert log.end == (1 if isinstance(leader, ShorterLeader) else 100)

        await world.live(life, end=End.POWER_CUT)
        await world.live(after)

    simulate(main, seed=seed)
