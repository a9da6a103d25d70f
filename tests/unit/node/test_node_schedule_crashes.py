"""Delayed messages when the node dies at any step: each is delivered once, and none that was acknowledged is lost."""

from __future__ import annotations

import asyncio
import contextlib
import errno

import pytest
from msgspec import structs
from tests.support.delays import delayed, later, now_ms, plain, send_batch
from tests.support.nodes import (
    Died,
    End,
    World,
    counted,
    create,
    offsets,
    publish,
    read_values,
    simulate,
)

from goqueue.model.acks import Acks
from goqueue.model.codes import Code
from goqueue.model.errors import GoQueueError
from goqueue.model.record import Producer
from goqueue.node import companions
from goqueue.node.config import LogConfig, NodeConfig
from goqueue.node.node import Node
from goqueue.node.requests import NewMessage
from goqueue.node.schedule import scheduler as scheduler_module
from goqueue.node.schedule import shard as schedule_shard

ENDS = pytest.mark.parametrize("end", list(End))
STEPS = range(1, 26)  # more mutating operations of the disk than there are in a firing
QUICK = NodeConfig(
    default_partition_count=1,
    log=LogConfig(sync_timeout_ms=10_000, cleanup_interval_ms=2_000, checkpoint_interval_ms=3_000),
)


@pytest.mark.parametrize("step", STEPS)
def test_a_power_cut_at_any_step_of_a_firing_delivers_each_message_once(step: int) -> None:
    async def main(world: World) -> None:
        async def first(node: Node) -> None:
            await create(node)
            for number in range(3):
                await later(node, b"%d" % number, 10)
            await publish(node, b"plain")
            await asyncio.sleep(9.9)
            world.device.crash_after(step)
            await asyncio.sleep(5)

        with contextlib.suppress(Died):
            await world.live(first, end=End.POWER_CUT)

        async def second(node: Node) -> None:
            await asyncio.sleep(15)
            assert await read_values(node) == [b"plain", b"0", b"1", b"2"]
            await later(node, b"again", 1)
            await asyncio.sleep(2)
            assert await read_values(node) == [b"plain", b"0", b"1", b"2", b"again"]

        await world.live(second, end=End.POWER_CUT)
        await world.live(second_look)

    async def second_look(node: Node) -> None:
        await asyncio.sleep(5)
        assert await read_values(node) == [b"plain", b"0", b"1", b"2", b"again"]

    simulate(main, seed=step)


@pytest.mark.parametrize("pause_ms", range(9_990, 10_040, 2))
def test_kill_9_at_any_moment_of_a_firing_delivers_each_message_once(pause_ms: int) -> None:
    async def main(world: World) -> None:
        async def first(node: Node) -> None:
            await create(node)
            start = now_ms()
            for number in range(3):
                await later(node, b"%d" % number, 10 - (now_ms() - start) / 1_000)
            await asyncio.sleep((start + pause_ms - now_ms()) / 1_000)

        await world.live(first, end=End.KILL)

        async def second(node: Node) -> None:
            await asyncio.sleep(5)
            assert await read_values(node) == [b"0", b"1", b"2"]
            assert node.scheduler.stats()[0].pending_count == 0

        await world.live(second)

    simulate(main, seed=pause_ms)


@pytest.mark.parametrize("step", range(1, 20))
def test_an_acknowledged_delay_or_cancel_survives_a_power_cut_at_any_step(step: int) -> None:
    async def main(world: World) -> None:
        kept: list[bytes] = []
        unknown: list[bytes] = []

        async def first(node: Node) -> None:
            await create(node)
            await later(node, b"warm", 3_600)
            world.device.crash_after(step)
            for number in range(4):
                value = b"%d" % number
                unknown.append(value)
                id = await later(node, value, 10)
                if number % 2:
                    await node.scheduler.cancel("orders", 0, id)
                else:
                    kept.append(value)
                unknown.clear()

        with contextlib.suppress(Died, GoQueueError):
            await world.live(first, end=End.POWER_CUT)

        async def second(node: Node) -> None:
            await asyncio.sleep(15)
            values = await read_values(node)
            assert [one for one in values if one not in unknown] == kept

        await world.live(second)

    simulate(main, seed=step)


@pytest.mark.parametrize("step", range(1, 14))
def test_a_batch_sent_again_after_a_power_cut_at_any_step_is_scheduled_once(step: int) -> None:
    """Between the schedule and the log, too."""

    async def main(world: World) -> None:
        records = [plain(b"a"), delayed(b"b", 10), plain(b"c"), delayed(b"d", 20)]

        async def init(node: Node) -> Producer:
            await create(node)
            await later(node, b"warm", 3_600)
            id, epoch = await node.producers.init()
            await send_batch(node, [plain(b"first")], producer=Producer(id, epoch, 0))
            return Producer(id, epoch, 1)

        producer = await world.live(init)

        async def first(node: Node) -> None:
            await later(node, b"warm 2", 3_600)
            await publish(node, b"second")
            world.device.crash_after(step)
            await send_batch(node, records, producer=producer)
            world.device.calm()

        with contextlib.suppress(Died, GoQueueError):
            await world.live(first, end=End.POWER_CUT)
        await asyncio.sleep(60)  # so that the delays are over by now

        async def second(node: Node) -> None:
            await send_batch(node, records, producer=producer)
            await send_batch(node, [plain(b"e")], producer=Producer(producer.id, producer.epoch, 5))
            await asyncio.sleep(1)
            values = await read_values(node)
            assert sorted(value or b"" for value in values) == sorted(
                [b"first", b"second", b"a", b"b", b"c", b"d", b"e"]
            )

        await world.live(second)

    simulate(main, seed=step)


@ENDS
def test_a_firing_that_was_interrupted_by_a_failed_write_goes_on(end: End) -> None:
    """The disk fills up when the batch is about to be written, and has room again later."""

    async def main(world: World) -> None:
        async def first(node: Node) -> None:
            await create(node)
            await publish(node, b"plain")
            await later(node, b"v", 10)
            world.device.fail_next("append", error=errno.ENOSPC, after=1)
            await asyncio.sleep(10.5)
            assert await read_values(node) == [b"plain"]
            await asyncio.sleep(2)
            assert await read_values(node) == [b"plain", b"v"]

        await world.live(first, end=end)

    simulate(main)


def test_a_failed_fsync_of_the_schedule_is_told_and_after_a_restart_all_is_well() -> None:
    async def main(world: World) -> None:
        async def first(node: Node) -> None:
            await create(node)
            await later(node, b"before", 10)
            world.device.fail_next("sync")
            message = NewMessage(delayed(b"unknown", 10), 0)
            (outcome,) = await node.publisher.publish("orders", [message], acks=Acks.ALL)
            assert outcome.error is not None
            assert outcome.error.code is Code.STORAGE_ERROR
            await asyncio.sleep(20)
            assert await read_values(node) == []  # nothing is fired that a restart might not know

        await world.live(first, end=End.KILL)

        async def second(node: Node) -> None:
            await asyncio.sleep(5)
            values = await read_values(node)
            assert [one for one in values if one != b"unknown"] == [b"before"]

        await world.live(second)

    simulate(main)


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments of which compaction takes many, tombstones that it removes at once, and an index that is often saved."""
    schedule = structs.replace(
        companions._SETTINGS[companions.Companion.SCHEDULE], segment_bytes=2_000, delete_retention_ms=3_000
    )
    settings = {**companions._SETTINGS, companions.Companion.SCHEDULE: schedule}
    monkeypatch.setattr(companions, "_SETTINGS", settings)
    monkeypatch.setattr(schedule_shard, "_SAVE_INTERVAL_MS", 2_000)
    monkeypatch.setattr(scheduler_module, "_KEEP_INTERVAL_S", 1.0)


@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize("seed", range(9))
def test_compaction_saved_indexes_and_restarts_in_between_change_nothing(seed: int) -> None:
    async def main(world: World) -> None:
        published = compacted = 0
        for life in range(4):

            async def live(node: Node, life: int = life) -> None:
                nonlocal published, compacted
                if life == 0:
                    await create(node)
                for _ in range(20):
                    batch = [delayed(b"%d" % (published + at), 3 + at % 5) for at in range(10)]
                    sent = [NewMessage(one, 0) for one in batch]
                    offsets(await node.publisher.publish("orders", sent, acks=Acks.ALL))
                    published += 10
                    far = await later(node, b"far", 30 * 86_400)
                    await node.scheduler.cancel("orders", 0, far)
                    await asyncio.sleep(1)
                compacted += int(counted(node, "storage_compacted_bytes_total"))

            await world.live(live, end=(End.STOP, End.KILL, End.POWER_CUT)[(seed + life) % 3])
            if seed % 2:
                await asyncio.sleep(100)
        assert compacted > 10_000

        async def last(node: Node) -> None:
            await asyncio.sleep(10)
            values = sorted(int(value or b"-1") for value in await read_values(node))
            assert values == list(range(published))
            assert node.scheduler.stats()[0].pending_count == 0

        await world.live(last)

    simulate(main, seed=seed, config=QUICK)


@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize("step", range(1, 40))
def test_a_power_cut_at_any_step_of_saving_the_index_loses_nothing(step: int) -> None:
    async def main(world: World) -> None:
        async def first(node: Node) -> None:
            await create(node)
            for number in range(3):
                await later(node, b"%d" % number, 10)
                await later(node, b"%d far" % number, 20 * 86_400)
            world.device.crash_after(step)
            await asyncio.sleep(8)

        with contextlib.suppress(Died):
            await world.live(first, end=End.POWER_CUT)

        async def second(node: Node) -> None:
            await asyncio.sleep(15)
            assert await read_values(node) == [b"0", b"1", b"2"]

        await world.live(second)
        await asyncio.sleep(20 * 86_400)

        async def third(node: Node) -> None:
            await asyncio.sleep(1)
            assert await read_values(node) == [b"0", b"1", b"2", b"0 far", b"1 far", b"2 far"]

        await world.live(third)

    simulate(main, seed=step)
