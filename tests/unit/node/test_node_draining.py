"""Partitions that are to go when their topic shrinks: what is still on its way from them keeps them."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.dead_letters import DLQ, dead_letters, poll, reject
from tests.support.keyed_topics import begin_shrinking, scaling_of, until
from tests.support.nodes import World, create, in_one_life, publish, simulate

from goqueue.log.batch import BatchHeader
from goqueue.model.errors import StorageError
from goqueue.node.node import Node
from goqueue.node.partition import Partition, Stored

LEAVING = 1
LOOKS_S = 10.0  # many looks at what is not drained, and less than a lease


class Refusing:
    """Stands in for a disk that takes no writes of a partition until it is well."""

    def __init__(self, partition: Partition) -> None:
        self._append = partition.append
        self.is_well = False
        self.refused_count = 0
        partition.append = self.append  # type: ignore[method-assign]  # as the class says

    def append(self, batch: bytes, header: BatchHeader, *, now_ms: int) -> Stored:
        if not self.is_well:
            self.refused_count += 1
            raise StorageError("the disk takes no writes")
        return self._append(batch, header, now_ms=now_ms)


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
