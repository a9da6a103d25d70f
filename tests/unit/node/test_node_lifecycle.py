"""A node from start to stop: what it takes when, what it says about itself, and what makes it give up."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.nodes import End, World, counted, create, nothing, offsets, publish, read_values, simulate

from goqueue.model.errors import NotReady
from goqueue.node.node import Node
from goqueue.node.requests import ReadQuery
from goqueue.sim.broker import SimClock


async def refuse_writes(node: Node) -> None:
    for call in (
        publish(node, b"a"),
        create(node, "other"),
        node.topics.alter("orders", {}),
        node.topics.delete("orders"),
        node.producers.init(),
    ):
        with pytest.raises(NotReady):
            await call


def test_a_draining_node_refuses_writes_and_serves_reads() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            await publish(node, b"a")
            assert (node.health().is_ready, node.health().state) == (True, "ready")
            await node.drain()
            await refuse_writes(node)
            assert await read_values(node) == [b"a"]
            assert (node.health().is_live, node.health().is_ready) == (True, False)
            assert node.health().state == node.health().checks["node"] == "draining"
            assert counted(node, "broker_refused_messages_total", code="NOT_READY") == 1

        await world.live(life)

    simulate(main)


def test_what_is_under_way_when_the_node_drains_is_finished() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            await publish(node, b"a")
            world.device.slow("sync", 1)
            under_way = asyncio.ensure_future(publish(node, b"b"))
            await asyncio.sleep(0.01)
            await node.drain()
            assert offsets(await under_way) == [1]
            world.device.slow("sync", 0)

        await world.live(life)

    simulate(main)


def test_before_its_start_and_after_its_stop_a_node_takes_nothing() -> None:
    async def main(world: World) -> None:
        node = Node(world.config, world.device.mount(), world.clock)
        assert (node.health().is_ready, node.health().state) == (False, "starting")
        await refuse_writes(node)
        with pytest.raises(NotReady):
            await node.reader.read("orders", 0, ReadQuery())
        await node.start()
        await create(node)
        await node.stop()
        await refuse_writes(node)
        with pytest.raises(NotReady):
            await node.reader.read("orders", 0, ReadQuery())
        assert node.health().state == "stopped"
        await node.stop()

    simulate(main)


def test_a_node_that_never_started_can_be_stopped() -> None:
    async def main(world: World) -> None:
        node = Node(world.config, world.device.mount(), world.clock)
        await node.stop()
        assert world.device.counters.operations == 0

    simulate(main)


def test_a_node_whose_start_failed_can_be_stopped() -> None:
    async def main(world: World) -> None:
        node = Node(world.config, world.device.mount(), world.clock)
        world.device.fail_next("make_dir")
        with pytest.raises(OSError, match="Input/output error"):
            await node.start()
        await node.stop()
        await world.live(nothing)

    simulate(main)


def test_health_names_a_metadata_log_that_has_stopped() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            await publish(node, b"a")
            world.device.fail_next("sync", after=0)
            with pytest.raises(Exception, match="could not be written"):
                await node.topics.alter("orders", {"retention.ms": "1000"})
            assert node.health().checks["partitions"] == "offline: logs/__cluster_metadata/0"
            offsets(await publish(node, b"b"))
            assert not node.failed.is_set()

        await world.live(life)

        async def after(node: Node) -> None:
            assert await read_values(node) == [b"a", b"b"]
            assert node.topics.get("orders").overrides in ({}, {"retention.ms": "1000"})
            await node.topics.alter("orders", {"retention.ms": "2000"})

        await world.live(after)

    simulate(main)


def test_stats_add_everything_up() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node, "a", partition_count=2)
            await create(node, "b", partition_count=3)
            await publish(node, b"1", b"2", topic="a", partition=1)
            await publish(node, b"3", topic="b", partition=2)
            await asyncio.sleep(2)
            stats = node.stats()
            assert stats["node_id"] == "node-1"
            assert stats["state"] == "ready"
            assert (stats["topics"], stats["partitions"], stats["messages"]) == (2, 5, 3)
            sizes = [one.size_bytes for name in ("a", "b") for one in node.topics.partitions(name)]
            assert stats["bytes"] == sum(sizes) > 0
            assert stats["parked_reads"] == 0
            assert node.health().uptime_ms >= 2_000

        await world.live(life)

    simulate(main)


class BrokenClock(SimClock):
    """Fails, once asked to, with an error that nobody expects."""

    is_broken = False

    def now_ms(self) -> int:
        if self.is_broken:
            raise ZeroDivisionError
        return super().now_ms()


def test_a_background_task_that_fails_is_seen() -> None:
    async def main(world: World) -> None:
        world.clock = clock = BrokenClock(world.loop)

        async def life(node: Node) -> None:
            await create(node)
            await publish(node, b"a")
            clock.is_broken = True
            await asyncio.wait_for(node.failed.wait(), 60)
            assert not node.health().is_live
            assert not node.health().is_ready

        await world.live(life, end=End.KILL, may_fail=True)

    simulate(main)


def test_an_unknown_disk_usage_is_not_the_end() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            for _ in range(3):
                world.device.fail_next("usage")
                await asyncio.sleep(1)
            assert not node.failed.is_set()
            offsets(await publish(node, b"a"))

        await world.live(life)

    simulate(main)


def test_many_starts_leave_no_trace_but_the_data() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node, partition_count=2)
            await publish(node, b"a")

        await world.live(life)
        before = sorted(world.device.snapshot())
        for _ in range(5):
            await world.live(nothing)
        assert sorted(world.device.snapshot()) == before

    simulate(main)
