"""Topics of different sizes that share a topic for their dead letters, which is made when the first of them dies."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.dead_letters import DLQ, dead_letters, poll, redrive, reject, told
from tests.support.nodes import Died, World, create, publish, simulate

from goqueue.model.errors import GoQueueError
from goqueue.node.node import Node

MORGUE = "morgue"


async def prepare(node: Node) -> None:
    await create(node, "small", dlq_topic=MORGUE)
    await create(node, "large", 3, dlq_topic=MORGUE)
    await publish(node, b"s0", b"s1", topic="small")
    for partition in range(3):
        await publish(node, b"l0", b"l1", topic="large", partition=partition)


async def work(node: Node) -> None:
    """The first to die is of the topic with one partition; those of the other were decided meanwhile."""
    small, *_ = await poll(node, "small")
    large = await poll(node, "large")
    await asyncio.gather(reject(node, small), reject(node, *large[:4]))
    await asyncio.sleep(1)


async def check(node: Node) -> None:
    for topic in ("small", "large"):
        while got := await poll(node, topic, wait_ms=60_000):
            await reject(node, *got)
    await asyncio.sleep(60)
    stories = [told(one) for one in await dead_letters(node, MORGUE)]
    origins = [tuple(one[f"gq-dlq-{name}"] for name in ("topic", "partition", "offset")) for one in stories]
    assert sorted(origins) == sorted(
        (topic, str(partition), str(offset))
        for topic, count in (("small", 1), ("large", 3))
        for partition in range(count)
        for offset in range(2)
    )


def test_the_topic_gets_the_partitions_that_it_lacks() -> None:
    async def main(node: Node) -> None:
        await prepare(node)
        await work(node)
        await check(node)
        assert len(node.topics.partitions(MORGUE)) == 3

    simulate(lambda world: world.live(main))


@pytest.mark.parametrize("operation", range(2, 201, 3))
def test_a_power_cut_at_any_operation_of_the_disk_leaves_each_once(operation: int) -> None:
    async def main(world: World) -> None:
        await world.live(prepare)

        async def cut(node: Node) -> None:
            world.device.crash_after(operation)
            await work(node)

        try:
            await world.live(cut)
        except (Died, GoQueueError):
            pass
        world.device.calm()
        await world.live(check)

    simulate(main, seed=operation)


def test_messages_are_put_back_when_their_target_has_lost_its_partition_on_the_way() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node, partition_count=2)
            await publish(node, b"a", b"b", partition=1)
            await reject(node, *await poll(node))
            await asyncio.sleep(5)
            world.device.slow("sync", 0.5)
            redriving = asyncio.create_task(redrive(node))
            for _ in range(10_000):
                if any(ledger.state.moves for ledger in node.queue._ledgers.all()):
                    break
                await asyncio.sleep(0.01)
            await node.topics.delete("orders")
            await create(node, partition_count=1)
            result = await redriving
            world.device.calm()
            assert (result.moved, result.failed) == (0, 2)
            assert "no partition 1" in result.errors[0]
            assert len(node.topics.partitions("orders")) == 1  # other people's topics do not grow
            assert (await redrive(node)).moved == 2
            assert [one.value for one in await dead_letters(node, "orders")] == [b"a", b"b"]
            assert len(await dead_letters(node, DLQ)) == 2

        await world.live(life)

    simulate(main)
