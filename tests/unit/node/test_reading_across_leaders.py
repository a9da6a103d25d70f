"""A partition gets another leader while somebody reads it here: what was read is not given out.

It may be another log by then, or one of which it is not known any more what was aborted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from tests.support.leaderships import PlayedLeadership, led
from tests.support.nodes import World, create, simulate
from tests.support.tenures import OTHER, TOPIC, Stage, on_stage

from goqueue.core.cluster.partitions import new_partition
from goqueue.log.batch import ATTRIBUTE_TRANSACTIONAL, encode_batch
from goqueue.log.partition_log import Slice
from goqueue.log.recovery import cut_back
from goqueue.model.cluster_errors import NotLeader
from goqueue.model.record import NewRecord, Producer
from goqueue.node.cluster.ports import ReplicaFound, ReplicaRound, ReplicaWant
from goqueue.node.fetch import FetchLimits, Wanted
from goqueue.node.node import Node
from goqueue.node.partition import Partition
from goqueue.node.replication.leadership import Leadership
from goqueue.node.replication.serving import ReplicaServer
from goqueue.node.requests import Isolation, ReadQuery

ME = 1
BYTES_MAX = 100_000
AT_ONCE = FetchLimits(wait_ms=0, bytes_min=1, bytes_max=BYTES_MAX)
Happen = Callable[[], Awaitable[None]]


def during_a_read(partition: Partition, *, before: Happen | None = None, after: Happen | None = None) -> None:
    """A thread reads the disk, and the loop goes on: something happens before it has looked, or after."""
    read = partition.read

    async def slow(offset: int, *, end: int, bytes_max: int, is_own: bool = False) -> Slice:
        if before is not None:
            await before()
        found = await read(offset, end=end, bytes_max=bytes_max, is_own=is_own)
        if after is not None:
            await after()
        return found

    partition.read = slow  # type: ignore[method-assign]  # a slow disk


# ---------------------------------------------------------------- clients


async def with_aborted(node: Node) -> Partition:
    """Led by this node, with one record, of a transaction that was aborted."""
    await create(node)
    partition = await led(node, 1)
    now_ms = node.clock.now_ms()
    header, batch = encode_batch(
        [NewRecord(None, b"aborted")],
        now_ms,
        producer=Producer(7, 0, 0),
        attributes=ATTRIBUTE_TRANSACTIONAL,
    )
    partition.append(batch, header, now_ms=now_ms)
    stored = partition.append_marker(7, 0, is_commit=False, coordinator_epoch=0, now_ms=now_ms)
    await partition.commit.wait(stored.end)
    return partition


def loses(world: World, partition: Partition, *, leads_again: bool) -> Happen:
    """Another one leads, and has nothing of what there is here."""

    async def lose() -> None:
        assert world.alive is not None
        partition.follow(OTHER, 2)
        cut_back(partition.log, world.alive.disk, partition.owner, 0, forced=True)
        assert partition.aborted(0, 1) == []
        if leads_again:
            partition.take_over(PlayedLeadership(3))

    return lose


@pytest.mark.parametrize("leads_again", [False, True])
def test_a_fetch_gives_no_records_whose_aborted_transactions_are_forgotten(leads_again: bool) -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            partition = await with_aborted(node)
            wanted = [Wanted("orders", 0, 0, BYTES_MAX)]
            (before,) = await node.fetcher.fetch(wanted, AT_ONCE, Isolation.READ_COMMITTED)
            assert (len(before.chunks), before.aborted) == (2, [(7, 0)])
            during_a_read(partition, after=loses(world, partition, leads_again=leads_again))
            (found,) = await node.fetcher.fetch(wanted, AT_ONCE, Isolation.READ_COMMITTED)
            assert isinstance(found.error, NotLeader)
            assert found.chunks == []

        await world.live(life)

    simulate(main)


@pytest.mark.parametrize("leads_again", [False, True])
def test_a_reader_sees_no_aborted_records_because_their_transactions_are_forgotten(leads_again: bool) -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            partition = await with_aborted(node)
            query = ReadQuery(offset=0, to_offset=1, isolation=Isolation.READ_COMMITTED)
            assert (await node.reader.read("orders", 0, query)).records == []
            during_a_read(partition, after=loses(world, partition, leads_again=leads_again))
            with pytest.raises(NotLeader):
                await node.reader.read("orders", 0, query)

        await world.live(life)

    simulate(main)


# ---------------------------------------------------------------- followers


def leadership(epoch: int) -> Leadership:
    return Leadership(
        ME,
        new_partition([ME, OTHER], epoch),
        min_in_sync=1,
        now_ms=0,
        when_changed=lambda partition, followers, has_more: None,
        when_failed=lambda: None,
    )


async def asked_by_a_follower(stage: Stage) -> ReplicaFound:
    server = ReplicaServer(stage.table, lambda partition: None, lambda follower, at_ms: None)
    want = ReplicaWant(TOPIC, 0, 0, last_epoch=-1, leader_epoch=0, log_start=0, bytes_max=BYTES_MAX)
    round = ReplicaRound(0, [want])
    (found,) = await server.fetch(OTHER, round, wait_ms=0, bytes_max=BYTES_MAX, stream=object())
    return found


@pytest.mark.parametrize("leads_again", [False, True])
def test_a_follower_is_not_given_what_another_leader_has_written_meanwhile(leads_again: bool) -> None:
    """It asked in an epoch, and would take it for something of that one."""

    async def play(stage: Stage) -> None:
        source = stage.source
        source.take_over(leadership(0))
        await source.lead()
        await stage.publish(b"never committed")
        before = await asked_by_a_follower(stage)
        assert (before.error, len(before.records) > 0) == (None, True)

        async def lose() -> None:
            await stage.follow()
            await stage.replace(source, 0, [NewRecord(None, b"of the next leader")])
            if leads_again:
                source.take_over(leadership(2))

        during_a_read(source, before=lose)
        found = await asked_by_a_follower(stage)
        assert isinstance(found.error, NotLeader)
        assert found.records == b""

    on_stage(play)
