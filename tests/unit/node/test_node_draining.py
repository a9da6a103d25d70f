"""Partitions that are to go when their topic shrinks: what is still on its way from them keeps them."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.dead_letters import DLQ, dead_letters, poll, redrive, reject
from tests.support.keyed_topics import begin_shrinking, grow, scaling_of, until
from tests.support.nodes import World, counted, create, in_one_life, publish, read_values, simulate
from tests.support.refusing_partitions import Refusing

from goqueue.log.batch import encode_batch
from goqueue.model.partitioner import Partitioner, partition_for_key
from goqueue.model.record import NewRecord, Producer
from goqueue.node.node import Node

LEAVING = 1
PRODUCER = (7_000, 0)
LOOKS_S = 10.0  # many looks at what is not drained, and less than a lease


def move_count(node: Node) -> int:
    return sum(len(ledger.state.moves) for ledger in node.queue._ledgers.all())


@pytest.mark.parametrize("is_late", [False, True])
def test_a_partition_is_not_drained_while_a_dead_letter_is_on_its_way(is_late: bool) -> None:
    """Whether it died before the topic began to shrink or afterwards."""

    async def life(node: Node) -> None:
        await create(node, partition_count=2, scaling="keyed")
        await create(node, DLQ, partition_count=2)
        await publish(node, b"poison", partition=LEAVING)
        target = Refusing(node._table.get(DLQ).partition(LEAVING))
        (held,) = await poll(node)
        if is_late:
            await begin_shrinking(node, 1)
            await asyncio.sleep(LOOKS_S)
            assert scaling_of(node).undrained == (LEAVING,), "somebody holds a record"
        await reject(node, held)
        await until(lambda: target.refused_count > 0, "the dead letter is refused")
        if not is_late:
            await begin_shrinking(node, 1)
        await until(lambda: scaling_of(node).stage == "draining", "it waits for what is in the partition")
        await asyncio.sleep(LOOKS_S)
        assert (move_count(node), scaling_of(node).undrained) == (1, (LEAVING,))
        assert len(node.topics.partitions("orders")) == 2

        target.is_well = True
        await until(lambda: scaling_of(node).stage == "steady", "the partition is gone")
        assert len(node.topics.partitions("orders")) == 1
        assert [one.value for one in await dead_letters(node)] == [b"poison"]

    in_one_life(life)


def test_a_record_that_dies_while_the_ledger_is_not_on_disk_yet_keeps_its_partition() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node, partition_count=2, scaling="keyed")
            await create(node, DLQ, partition_count=2)
            await publish(node, b"good", b"poison", partition=LEAVING)
            target = Refusing(node._table.get(DLQ).partition(LEAVING))
            good, bad = await poll(node)
            await begin_shrinking(node, 1)
            await until(lambda: scaling_of(node).stage == "draining", "draining")
            world.device.slow("sync", 1.5)  # longer than it is from one look to the next
            acking = asyncio.create_task(node.queue.ack([good.receipt]))
            await asyncio.sleep(1.2)  # somebody has looked, and waits for the disk
            rejecting = asyncio.create_task(reject(node, bad))
            await asyncio.gather(acking, rejecting)
            world.device.calm()
            await asyncio.sleep(10)
            assert (move_count(node), scaling_of(node).undrained) == (1, (LEAVING,))
            target.is_well = True
            await until(lambda: scaling_of(node).stage == "steady", "the partition is gone")
            assert [one.value for one in await dead_letters(node)] == [b"poison"]

        await world.live(life)

    simulate(main)


# -------------------------------------------------------------------- what is sent back


async def bury(node: Node, *values: bytes, partition: int = LEAVING, key: bytes | None = None) -> None:
    """Publish messages, and let each die."""
    await publish(node, *values, partition=partition, key=key)
    await reject(node, *await poll(node))
    await until(lambda: move_count(node) == 0, "they are with the dead letters")


def test_what_is_sent_back_to_a_partition_that_goes_arrives_in_the_one_that_stays() -> None:
    async def life(node: Node) -> None:
        await create(node, partition_count=2, scaling="keyed")
        await create(node, DLQ, partition_count=2)
        await bury(node, b"poison")
        await publish(node, b"held", partition=LEAVING)
        (held,) = await poll(node)
        await begin_shrinking(node, 1)
        await until(lambda: scaling_of(node).stage == "draining", "somebody holds a record")
        assert (await redrive(node)).moved == 1
        await node.queue.ack([held.receipt])
        await until(lambda: scaling_of(node).stage == "steady", "the partition is gone")
        assert await read_values(node) == [b"poison"]
        assert [one.record.value for one in await poll(node)] == [b"poison"]
        assert (await redrive(node)).matched == 0

    in_one_life(life)


def test_what_was_to_go_back_when_the_topic_began_to_shrink_arrives_once_in_the_partition_that_stays() -> (
    None
):
    """What is sent on from the partition that goes is there before it is noted where it came from, and comes again until then."""

    async def life(node: Node) -> None:
        await create(node, partition_count=2, scaling="keyed")
        await create(node, DLQ, partition_count=2)
        await bury(node, b"a", b"b")
        await publish(node, b"held", partition=LEAVING)
        (held,) = await poll(node)
        target = Refusing(node._table.get("orders").partition(LEAVING))
        redriving = asyncio.create_task(redrive(node))
        await until(lambda: target.refused_count > 0, "it is refused")
        await begin_shrinking(node, 1)
        await until(lambda: scaling_of(node).stage == "draining", "somebody holds a record")
        refused_count = target.refused_count
        await until(lambda: target.refused_count > refused_count + 1, "it has come again")
        assert await read_values(node) == [b"a", b"b"]
        target.is_well = True
        assert (await redriving).moved == 2
        await node.queue.ack([held.receipt])
        await until(lambda: scaling_of(node).stage == "steady", "the partition is gone")
        assert await read_values(node) == [b"a", b"b"]

    in_one_life(life)


def test_a_partition_is_not_drained_while_something_is_sent_back_to_it() -> None:
    """Else it would go before that is noted where it came from, and would come again, or never."""

    async def life(node: Node) -> None:
        await create(node, partition_count=2, scaling="keyed")
        await create(node, DLQ, partition_count=2)
        await bury(node, b"a", b"b")
        target = Refusing(node._table.get("orders").partition(LEAVING))
        redriving = asyncio.create_task(redrive(node))
        await until(lambda: target.refused_count > 0, "it is refused")
        await begin_shrinking(node, 1)
        await until(lambda: scaling_of(node).stage == "draining", "draining")
        await asyncio.sleep(LOOKS_S)
        assert (move_count(node), scaling_of(node).undrained) == (1, (LEAVING,))
        assert len(node.topics.partitions("orders")) == 2

        target.is_well = True
        await until(lambda: scaling_of(node).stage == "steady", "the partition is gone")
        assert (await redriving).moved == 2
        assert await read_values(node) == [b"a", b"b"]
        assert (await redrive(node)).matched == 0

    in_one_life(life)


def test_what_waits_for_its_turn_while_its_partition_goes_is_sent_back_to_the_one_that_stays() -> None:
    async def life(node: Node) -> None:
        await create(node, partition_count=2, scaling="keyed")
        await create(node, DLQ, partition_count=2)
        await bury(node, b"a", partition=0)
        await bury(node, b"b")
        redriving = asyncio.create_task(redrive(node, per_second=1))
        await until(lambda: counted(node, "consumer_moved_total", cause="redriven") == 1, "one")
        await begin_shrinking(node, 1)
        await until(lambda: scaling_of(node).stage == "steady", "the partition is gone")
        assert not redriving.done()
        assert (await redriving).moved == 2
        assert await read_values(node) == [b"a", b"a", b"b"]

    in_one_life(life)


def test_what_is_sent_back_goes_where_its_key_lives_when_the_topic_has_grown() -> None:
    async def life(node: Node) -> None:
        await create(node, partition_count=1, scaling="keyed")
        await create(node, DLQ, partition_count=1)
        key = next(
            each
            for each in (b"%d" % at for at in range(100))
            if partition_for_key(Partitioner.MURMUR3, each, 2) == LEAVING
        )
        await bury(node, b"poison", partition=0, key=key)
        await grow(node, 2)
        assert (await redrive(node)).moved == 1
        assert await read_values(node) == [b"poison"]
        assert await read_values(node, partition=LEAVING) == [b"poison"]

    in_one_life(life)


def test_a_dead_letter_arrives_though_its_topic_has_fewer_partitions_soon() -> None:
    async def life(node: Node) -> None:
        await create(node, partition_count=2)
        await create(node, DLQ, partition_count=2, scaling="keyed")
        await publish(node, b"held", topic=DLQ, partition=LEAVING)
        (held,) = await poll(node, DLQ)
        await begin_shrinking(node, 1, DLQ)
        await until(lambda: scaling_of(node, DLQ).stage == "draining", "somebody holds a record")
        await bury(node, b"poison")
        await node.queue.ack([held.receipt])
        await until(lambda: scaling_of(node, DLQ).stage == "steady", "the partition is gone")
        assert [one.value for one in await dead_letters(node)] == [b"poison"]

    in_one_life(life)


def test_what_another_node_moves_to_a_partition_that_goes_arrives_once_in_the_one_that_stays() -> None:
    async def life(node: Node) -> None:
        await create(node, partition_count=2, scaling="keyed")
        await publish(node, b"held", partition=LEAVING)
        await poll(node)
        await begin_shrinking(node, 1)
        for _ in range(2):
            record = NewRecord(None, b"letter")
            batch = encode_batch([record], 0, producer=Producer(*PRODUCER, 0))[1]
            assert await node.arrivals.append("orders", LEAVING, PRODUCER, batch) == 0
        assert await node.arrivals.append("orders", LEAVING, PRODUCER, None) == 0
        assert await read_values(node) == [b"letter"]
        assert await read_values(node, partition=LEAVING) == [b"held"]

    in_one_life(life)
