"""Disk-full protection: writes stop before the disk is full, everything else goes on, and they resume by themselves."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.nodes import (
    End,
    World,
    codes,
    counted,
    create,
    offsets,
    publish,
    read_values,
    simulate,
)

from goqueue.model.acks import Acks
from goqueue.model.codes import Code
from goqueue.model.errors import DiskFull, GoQueueError
from goqueue.model.record import Producer
from goqueue.node.node import Node

CAPACITY = 200_000


def resize(world: World, used_percent: float) -> None:
    """Make the disk of a size at which this much of it is used."""
    world.device.capacity_bytes = int(world.device.platter.used_bytes() * 100 / used_percent)


async def fill(node: Node) -> int:
    """Publish until it is refused; how many were stored."""
    for at in range(10_000):
        try:
            offsets(await publish(node, b"%d" % at * 200, acks=Acks.LEADER))
        except DiskFull:
            return at
        await asyncio.sleep(0.05)
    raise AssertionError("the disk never filled")


def test_writes_are_refused_before_the_disk_is_full_and_reads_go_on() -> None:
    async def main(world: World) -> None:
        world.device.capacity_bytes = CAPACITY

        async def life(node: Node) -> None:
            await create(node, segment_bytes="16384")
            count = await fill(node)
            assert world.device.usage().free_bytes > 0.05 * CAPACITY
            assert str(node.stats()["disk_used_percent"]).startswith("9")
            assert node.health().checks["disk"].startswith("full: 9")
            assert node.health().is_ready
            assert counted(node, "storage_writes_refused") == 1
            assert 0.9 <= counted(node, "storage_disk_used_ratio") <= 0.95
            assert counted(node, "broker_refused_messages_total", code="DISK_FULL") == 1
            assert len(await read_values(node)) == count
            for refused in (create(node, "other"), node.producers.init()):
                with pytest.raises(DiskFull):
                    await refused

        await world.live(life)
        world.device.calm()

    simulate(main)


def test_a_nearly_full_disk_is_a_warning_and_no_more() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            await publish(node, b"x" * 10_000)
            for percent, summary in ((80, "ok"), (87, "nearly full: 8"), (91, "full: 9"), (50, "ok")):
                resize(world, percent)
                await asyncio.sleep(1.1)
                assert node.health().checks["disk"].startswith(summary)
                if percent < 90:
                    offsets(await publish(node, b"a"))
                assert counted(node, "storage_writes_refused") == (percent > 90)

        await world.live(life)
        world.device.calm()

    simulate(main)


def test_writes_resume_by_themselves_when_there_is_room_again() -> None:
    async def main(world: World) -> None:
        world.device.capacity_bytes = CAPACITY

        async def life(node: Node) -> None:
            await create(node)
            count = await fill(node)
            world.device.free(CAPACITY)
            await asyncio.sleep(1.1)
            assert offsets(await publish(node, b"again")) == [count]

        await world.live(life)

    simulate(main)


@pytest.mark.parametrize("used_percent", [95, 100])
@pytest.mark.parametrize("end", list(End))
def test_a_node_starts_on_a_full_disk_and_is_read(used_percent: int, end: End) -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            for at in range(20):
                await publish(node, b"%d" % at * 100)

        await world.live(life, end=end)
        resize(world, used_percent)

        async def full(node: Node) -> None:
            assert len(await read_values(node)) == 20
            with pytest.raises(DiskFull):
                await publish(node, b"refused")
            world.device.capacity_bytes = CAPACITY
            await asyncio.sleep(1.1)
            assert offsets(await publish(node, b"again")) == [20]

        await world.live(full)

    simulate(main)


def test_deleting_a_topic_makes_room_on_a_full_disk() -> None:
    async def main(world: World) -> None:
        world.device.capacity_bytes = CAPACITY

        async def life(node: Node) -> None:
            await create(node, "kept")
            await publish(node, b"a", topic="kept")
            await create(node, segment_bytes="16384")
            await fill(node)
            with pytest.raises(DiskFull):
                await publish(node, b"b", topic="kept")
            await node.topics.delete("orders")
            await asyncio.sleep(1.1)
            assert offsets(await publish(node, b"b", topic="kept")) == [1]

        await world.live(life)

    simulate(main)


def test_a_shorter_retention_makes_room_on_a_full_disk() -> None:
    async def main(world: World) -> None:
        world.device.capacity_bytes = CAPACITY

        async def life(node: Node) -> None:
            await create(node, segment_bytes="16384")
            count = await fill(node)
            await node.topics.alter("orders", {"retention.bytes": "20000"})
            await asyncio.sleep(32)
            assert offsets(await publish(node, b"again")) == [count]

        await world.live(life)

    simulate(main)


def test_a_disk_that_fills_between_two_looks_at_it_refuses_the_write_whole() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            id, epoch = await node.producers.init()
            await publish(node, b"a")
            resize(world, 100)
            assert codes(await publish(node, b"b" * 100)) == [Code.DISK_FULL]
            producer = Producer(id, epoch, 0)
            assert codes(await publish(node, b"c" * 100, producer=producer)) == [Code.DISK_FULL]
            assert await read_values(node) == [b"a"]
            assert node.topics.partition("orders", 0).failure is None
            world.device.capacity_bytes = CAPACITY
            assert offsets(await publish(node, b"c" * 100, producer=producer)) == [1]

        await world.live(life, end=End.POWER_CUT)

        async def after(node: Node) -> None:
            assert await read_values(node) == [b"a", b"c" * 100]

        await world.live(after)

    simulate(main)


def test_the_first_write_to_a_partition_on_a_disk_without_room_says_so() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            resize(world, 100)
            assert await code_of(node) is Code.DISK_FULL
            world.device.capacity_bytes = CAPACITY
            assert offsets(await publish(node, b"a")) == [0]

        await world.live(life)

    simulate(main)


async def code_of(node: Node) -> Code | None:
    try:
        (code,) = codes(await publish(node, b"a"))
    except GoQueueError as error:
        return error.code
    return code


def test_background_work_survives_a_full_disk() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node, segment_bytes="1024", retention_ms="10000", cleanup_policy="compact,delete")
            for at in range(30):
                await publish(node, b"%d" % at * 100, key=b"key")
            resize(world, 100)
            await asyncio.sleep(100)
            assert not node.failed.is_set()
            assert node.topics.partition("orders", 0).failure is None
            world.device.capacity_bytes = CAPACITY
            await asyncio.sleep(100)
            offsets(await publish(node, b"again"))
            assert node.topics.partition("orders", 0).earliest == 30

        await world.live(life)

    simulate(main)
