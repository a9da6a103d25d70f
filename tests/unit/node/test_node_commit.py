"""When a publish is answered: after the fsync it was promised, with an error where there was none, never in between."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.nodes import (
    CONFIG,
    End,
    World,
    codes,
    counted,
    create,
    messages,
    offsets,
    publish,
    read_values,
    simulate,
)

from goqueue.model.acks import Acks
from goqueue.model.codes import Code
from goqueue.model.errors import GoQueueError, TimedOut
from goqueue.node.node import Node
from goqueue.node.requests import Outcome


async def code_of(call: asyncio.Future[list[Outcome]]) -> Code | None:
    """What one publish of one message came to, however it was told."""
    try:
        (code,) = codes(await call)
    except GoQueueError as error:
        return error.code
    return code


def test_publishes_at_the_same_time_share_an_fsync() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            await publish(node, b"first")
            before = world.device.counters.syncs
            done = await asyncio.gather(*(publish(node, b"%d" % at) for at in range(200)))
            assert sorted(offset for outcomes in done for offset in offsets(outcomes)) == list(range(1, 201))
            assert world.device.counters.syncs - before <= 2

        await world.live(life)

    simulate(main)


def test_a_steady_stream_of_publishers_costs_far_fewer_fsyncs_than_publishes() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            before = world.device.counters.syncs

            async def publisher(number: int) -> None:
                for at in range(20):
                    offsets(await publish(node, b"%d-%d" % (number, at)))

            await asyncio.gather(*(publisher(number) for number in range(50)))
            assert world.device.counters.syncs - before < 1_000 / 10

        await world.live(life)

    simulate(main)


@pytest.mark.parametrize("seed", range(25))
def test_what_is_answered_survives_a_power_cut_at_that_very_moment(seed: int) -> None:
    """Trap 7: an answer may only come of an fsync that began after the append."""

    async def main(world: World) -> None:
        acked: dict[tuple[int, int], bytes] = {}

        async def life(node: Node) -> None:
            await create(node, partition_count=2, segment_bytes="1024")
            enough = asyncio.Event()
            target = world.device.rng.randint(1, 60)

            async def publisher(number: int) -> None:
                for at in range(100):
                    value = b"%d-%d " % (number, at) * 5
                    await asyncio.sleep(world.device.rng.uniform(0, 0.005))
                    (outcome,) = await publish(node, value, partition=number % 2)
                    assert outcome.partition is not None
                    assert outcome.offset is not None
                    if not enough.is_set():
                        acked[outcome.partition, outcome.offset] = value
                    if len(acked) >= target:
                        enough.set()

            tasks = [asyncio.ensure_future(publisher(number)) for number in range(6)]
            await enough.wait()
            assert not any(task.done() for task in tasks)

        await world.live(life, end=End.POWER_CUT)

        async def after(node: Node) -> None:
            for partition in (0, 1):
                values = await read_values(node, partition=partition)
                for (at, offset), value in acked.items():
                    if at == partition:
                        assert values[offset] == value

        await world.live(after)

    simulate(main, seed=seed)


def test_a_failed_fsync_fails_everybody_who_waits_and_stops_only_that_partition() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node, partition_count=2)
            await publish(node, b"safe", partition=0)
            await publish(node, b"other", partition=1)
            world.device.fail_next("sync")
            done = await asyncio.gather(
                *(code_of(asyncio.ensure_future(publish(node, b"%d" % at))) for at in range(10))
            )
            assert done == [Code.STORAGE_ERROR] * 10
            assert counted(node, "storage_sync_failures_total") == 1
            for acks in Acks:
                assert codes(await publish(node, b"late", acks=acks)) == [Code.PARTITION_OFFLINE]
            assert (await read_values(node))[0] == b"safe"
            assert offsets(await publish(node, b"more", partition=1)) == [1]
            facts = node.topics.partition("orders", 0)
            assert facts.failure is not None
            assert "fsync failed" in facts.failure
            assert node.topics.partition("orders", 1).failure is None
            assert node.health().checks["partitions"] == "offline: logs/orders/0"
            assert node.health().is_ready
            assert not node.failed.is_set()

        await world.live(life)

        async def after(node: Node) -> None:
            assert (await read_values(node))[0] == b"safe"
            assert await read_values(node, partition=1) == [b"other", b"more"]
            offsets(await publish(node, b"again", partition=0))
            assert node.health().checks["partitions"] == "ok"

        await world.live(after)

    simulate(main)


@pytest.mark.parametrize("seed", range(10))
def test_what_was_answered_before_a_failed_fsync_survives_it(seed: int) -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> int:
            await create(node)
            offsets(await publish(node, b"safe"))
            world.device.fail_next("sync")
            assert codes(await publish(node, b"lost?")) == [Code.STORAGE_ERROR]
            return 0

        await world.live(life, end=End.KILL)

        async def again(node: Node) -> None:
            """The page cache has it all; the start must not take that for durable."""
            values = await read_values(node)
            acked.extend([*values, b"more"])
            offsets(await publish(node, b"more"))

        acked: list[bytes | None] = []
        await world.live(again, end=End.POWER_CUT)

        async def after(node: Node) -> None:
            assert await read_values(node) == acked

        await world.live(after)
        assert acked[0] == b"safe"

    simulate(main, seed=seed)


def test_an_fsync_that_hangs_is_a_time_out_and_never_a_success() -> None:
    """Trap 7: a time-out is never success."""

    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node, partition_count=3)
            for partition in range(3):
                await publish(node, b"before", partition=partition)
            world.device.slow("sync", 1_000)
            started = world.loop.time()
            done = await asyncio.gather(
                *(code_of(asyncio.ensure_future(publish(node, b"%d" % at))) for at in range(5))
            )
            assert done == [Code.TIMEOUT] * 5
            assert world.loop.time() - started == pytest.approx(CONFIG.log.sync_timeout_ms / 1_000, abs=0.1)
            assert (await read_values(node))[0] == b"before"
            assert node.topics.partition("orders", 0).failure is None
            world.device.slow("sync", 0)
            await asyncio.sleep(2_000)
            offsets(await publish(node, b"after"))
            assert await read_values(node) == [b"before", *(b"%d" % at for at in range(5)), b"after"]

        await world.live(life)

    simulate(main)


def test_the_time_runs_once_for_all_partitions_of_a_publish() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node, partition_count=5)
            for partition in range(5):
                await publish(node, b"before", partition=partition)
            world.device.slow("sync", 1_000)
            started = world.loop.time()
            batch = [message for at in range(5) for message in messages(b"x", partition=at)]
            done = await node.publisher.publish("orders", batch, acks=Acks.ALL)
            assert codes(done) == [Code.TIMEOUT] * 5
            assert world.loop.time() - started < 1.5 * CONFIG.log.sync_timeout_ms / 1_000
            world.device.slow("sync", 0)
            await asyncio.sleep(2_000)

        await world.live(life)

    simulate(main)


def test_the_first_publish_after_a_start_does_not_wait_for_ever_either() -> None:
    """It begins a leader epoch, which needs the disk before anything is appended."""

    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            world.device.slow("sync", 1_000)
            started = world.loop.time()
            assert await code_of(asyncio.ensure_future(publish(node, b"a"))) == Code.TIMEOUT
            assert world.loop.time() - started == pytest.approx(CONFIG.log.sync_timeout_ms / 1_000, abs=0.1)
            world.device.slow("sync", 0)
            await asyncio.sleep(3_000)
            assert offsets(await publish(node, b"b")) == [0]

        await world.live(life)

    simulate(main)


def test_publishers_that_begin_together_lead_once() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            await asyncio.gather(*(publish(node, b"%d" % at) for at in range(20)))
            assert node.topics.partition("orders", 0).leader_epoch == 0

        await world.live(life, end=End.KILL)

        async def after(node: Node) -> None:
            await publish(node, b"a")
            assert node.topics.partition("orders", 0).leader_epoch == 1

        await world.live(after)

    simulate(main)


@pytest.mark.parametrize("seed", range(5))
def test_a_publisher_that_gives_up_while_the_partition_starts_does_not_hinder_the_next(seed: int) -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            for steps in range(10):
                task = asyncio.ensure_future(publish(node, b"given up"))
                await asyncio.sleep(0.0005 * steps)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            (offset,) = offsets(await publish(node, b"stays"))
            assert (await read_values(node))[offset] == b"stays"

        await world.live(life)

    simulate(main, seed=seed)


@pytest.mark.parametrize("acks", [Acks.NONE, Acks.LEADER])
def test_what_need_not_be_durable_is_answered_at_once(acks: Acks) -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            await publish(node, b"first")
            syncs, now = world.device.counters.syncs, world.loop.time()
            assert offsets(await publish(node, b"a", b"b", acks=acks)) == [1, 2]
            assert (world.device.counters.syncs, world.loop.time()) == (syncs, now)
            assert await read_values(node) == [b"first", b"a", b"b"]

        await world.live(life)

    simulate(main)


@pytest.mark.parametrize("seed", range(10))
def test_acks_leader_is_on_disk_within_the_flush_interval(seed: int) -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node, segment_bytes="1024")
            await asyncio.sleep(world.device.rng.uniform(0, 2))
            for at in range(10):
                await publish(node, b"%d" % at * 200, acks=Acks.LEADER)
            await asyncio.sleep(CONFIG.log.flush_interval_ms / 1_000)

        await world.live(life, end=End.POWER_CUT)

        async def after(node: Node) -> None:
            assert await read_values(node) == [b"%d" % at * 200 for at in range(10)]

        await world.live(after)

    simulate(main, seed=seed)


@pytest.mark.parametrize("seed", range(10))
def test_the_promise_of_acks_leader_stands_also_after_kill_9(seed: int) -> None:
    """What the killed process wrote is in the page cache only: the next one has to flush it."""

    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            await publish(node, b"durable")
            await publish(node, b"cached", acks=Acks.LEADER)

        async def next_life(node: Node) -> None:
            assert await read_values(node) == [b"durable", b"cached"]
            await asyncio.sleep(CONFIG.log.flush_interval_ms / 1_000)

        async def after(node: Node) -> None:
            assert await read_values(node) == [b"durable", b"cached"]

        await world.live(life, end=End.KILL)
        await world.live(next_life, end=End.POWER_CUT)
        await world.live(after)

    simulate(main, seed=seed)


def test_a_write_that_cannot_be_taken_back_stops_the_partition_and_tells_those_who_wait() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node, partition_count=2)
            await publish(node, b"safe")
            world.device.fail_next("append", after=1)
            world.device.fail_next("truncate")
            started = world.loop.time()
            first, second = await asyncio.gather(
                code_of(asyncio.ensure_future(publish(node, b"waits" * 50))),
                code_of(asyncio.ensure_future(publish(node, b"fails" * 50))),
            )
            assert second is Code.STORAGE_ERROR
            assert first in (Code.STORAGE_ERROR, None)
            assert world.loop.time() - started < 1
            assert codes(await publish(node, b"late")) == [Code.PARTITION_OFFLINE]
            assert (await read_values(node))[0] == b"safe"
            offsets(await publish(node, b"elsewhere", partition=1))

        await world.live(life)

        async def after(node: Node) -> None:
            assert (await read_values(node))[0] == b"safe"
            offsets(await publish(node, b"again"))

        await world.live(after)

    simulate(main)


def test_a_failed_write_that_was_taken_back_leaves_no_trace() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            await publish(node, b"a")
            world.device.fail_next("append")
            assert codes(await publish(node, b"b" * 100)) == [Code.STORAGE_ERROR]
            assert offsets(await publish(node, b"c")) == [1]
            assert await read_values(node) == [b"a", b"c"]

        await world.live(life, end=End.POWER_CUT)

        async def after(node: Node) -> None:
            assert await read_values(node) == [b"a", b"c"]

        await world.live(after)

    simulate(main)


def test_a_producer_id_that_timed_out_is_not_handed_out_later() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            first, _ = await node.producers.init()
            world.device.slow("sync", 100)
            with pytest.raises(TimedOut):
                await node.producers.init()
            world.device.slow("sync", 0)
            await asyncio.sleep(300)
            second, _ = await node.producers.init()
            assert second > first

        await world.live(life)

    simulate(main)
