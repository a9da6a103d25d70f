"""The index of a schedule on disk: whatever happens to it, the log gives it back."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.delays import later
from tests.support.nodes import End, World, counted, create, nothing, publish, read_values, simulate

from goqueue.core.schedule.events import Message
from goqueue.core.schedule.wheel import BUCKET_MS
from goqueue.model.record import NewRecord
from goqueue.node.node import Node
from goqueue.node.schedule import shard as schedule_shard
from goqueue.sim.disk import Operation

FOLDER = "logs/__schedule.orders/0"
INDEX = f"{FOLDER}/schedule.index"
DAY_S = 86_400


async def fill(node: Node) -> None:
    await create(node)
    for number in range(20):
        await later(node, b"near %d" % number, 3_600 + number)
        await later(node, b"far %d" % number, 30 * DAY_S + number)
    await node.scheduler.cancel("orders", 0, 0)
    await node.scheduler.cancel("orders", 0, 1)


EXPECTED = [b"near %d" % number for number in range(1, 20)] + [b"far %d" % number for number in range(1, 20)]


async def delivered(world: World) -> None:
    """Everything comes once, in lives that go on from each other."""

    async def look(node: Node) -> None:
        page = await node.scheduler.list("orders", limit=100)
        assert page.pending_count == len(page.messages) == 38
        assert [one.offset for one in page.messages] == [*range(2, 40, 2), *range(3, 41, 2)]

    await world.live(look)
    await asyncio.sleep(2 * 3_600)

    async def fire(node: Node) -> None:
        await asyncio.sleep(1)

    await world.live(fire, end=End.KILL)
    await asyncio.sleep(31 * DAY_S)

    async def last(node: Node) -> None:
        await asyncio.sleep(1)
        assert await read_values(node) == EXPECTED
        assert (await node.scheduler.list("orders")).pending_count == 0

    await world.live(last)


def parked_files(world: World) -> list[str]:
    return [path for path in world.files(FOLDER) if path.endswith(".far")]


def test_a_clean_stop_saves_the_index_and_parks_what_is_due_in_weeks() -> None:
    async def main(world: World) -> None:
        await world.live(fill)
        assert INDEX in world.files(FOLDER)
        (path,) = parked_files(world)

        async def look(node: Node) -> None:
            (stats,) = node.scheduler.stats()
            assert (stats.pending_count, stats.parked_count) == (38, 20)
            assert (
                node.scheduler._schedules["orders", 0]._unsaved_count == 0
            )  # nothing had to be read off the log

        await world.live(look)
        assert parked_files(world) == [path]
        await delivered(world)
        assert parked_files(world) == []

    simulate(main)


@pytest.mark.parametrize("where", ["schedule.index", "*.far"])
@pytest.mark.parametrize("seed", range(8))
def test_a_flipped_bit_in_the_index_costs_nothing(where: str, seed: int) -> None:
    async def main(world: World) -> None:
        await world.live(fill)
        assert world.device.flip_random_bit(f"{FOLDER}/{where}") is not None
        await delivered(world)

    simulate(main, seed=seed)


@pytest.mark.parametrize("where", ["schedule.index", ".far"])
def test_a_missing_file_of_the_index_costs_nothing(where: str) -> None:
    async def main(world: World) -> None:
        await world.live(fill)
        disk = world.device.mount()
        for path in world.files(FOLDER):
            if path.endswith(where):
                disk.remove(path)
                disk.sync_dir(FOLDER)
        await delivered(world)

    simulate(main)


def test_what_came_after_the_index_was_saved_is_read_off_the_log() -> None:
    async def main(world: World) -> None:
        await world.live(fill)

        async def more(node: Node) -> None:
            await later(node, b"more", 10)
            await later(node, b"much more", 30 * DAY_S + 5)
            await node.scheduler.cancel("orders", 0, 5)

        await world.live(more, end=End.KILL)

        async def look(node: Node) -> None:
            await asyncio.sleep(11)
            assert await read_values(node) == [b"more"]
            offsets = [one.offset for one in (await node.scheduler.list("orders", limit=100)).messages]
            assert 5 not in offsets
            assert len(offsets) == 38

        await world.live(look, end=End.POWER_CUT)
        await asyncio.sleep(31 * DAY_S)

        async def last(node: Node) -> None:
            await asyncio.sleep(1)
            values = await read_values(node)
            expected = [b"more", *EXPECTED, b"much more"]
            assert sorted(value or b"" for value in values) == sorted(
                one for one in expected if one != b"far 2"
            )

        await world.live(last)

    simulate(main)


def test_an_index_that_could_not_be_saved_is_saved_later() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await fill(node)
            schedule = node.scheduler._schedules["orders", 0]
            failing: list[Operation] = ["rename", "sync", "append"]
            for operation in failing:
                world.device.fail_next(operation)
                await schedule.save()
                assert (await node.scheduler.list("orders")).pending_count == 38
                assert len((await node.scheduler.list("orders", limit=50)).messages) == 38

        await world.live(life)
        await delivered(world)

    simulate(main)


def test_what_was_cancelled_leaves_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule_shard, "_STALE_COUNT_MIN", 10)
    monkeypatch.setattr("goqueue.core.schedule.wheel.BLOCK_NUMBERS", 8)

    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            ids = [await later(node, b"%d" % number, 5_000) for number in range(40)]
            for id in ids[:30]:
                await node.scheduler.cancel("orders", 0, id)
            schedule = node.scheduler._schedules["orders", 0]
            await schedule.save()
            held = [one.id for part in schedule.state.wheel.parts() for one in part.pairs()]
            assert held == ids[30:]

        await world.live(life)
        await asyncio.sleep(6_000)

        async def after(node: Node) -> None:
            await asyncio.sleep(1)
            assert await read_values(node) == [b"%d" % number for number in range(30, 40)]

        await world.live(after)

    simulate(main)


def test_a_delayed_record_that_is_damaged_is_given_up_and_reported_and_the_others_come() -> None:
    async def main(world: World) -> None:
        async def first(node: Node) -> None:
            await create(node)
            for number in range(3):
                await later(node, b"payload %d" % number, 10)

        await world.live(first)
        path = f"{FOLDER}/{0:020d}.log"
        at = world.device.snapshot()[path].index(b"payload 1")
        world.device.flip_bit(path, 8 * at)

        async def second(node: Node) -> None:
            await asyncio.sleep(15)
            assert await read_values(node) == [b"payload 0", b"payload 2"]
            assert counted(node, "broker_delayed_lost_messages_total") == 1
            await publish(node, b"on")
            await later(node, b"and on", 1)
            await asyncio.sleep(2)
            assert await read_values(node) == [b"payload 0", b"payload 2", b"on", b"and on"]

        await world.live(second)

    simulate(main)


def test_a_start_with_a_parked_bucket_that_is_long_overdue_delivers_it() -> None:
    async def main(world: World) -> None:
        await world.live(fill)
        await asyncio.sleep(3 * BUCKET_MS / 1_000 + 31 * DAY_S)
        await world.live(nothing, end=End.KILL)

        async def last(node: Node) -> None:
            await asyncio.sleep(1)
            assert await read_values(node) == EXPECTED

        await world.live(last)

    simulate(main)


def test_the_index_never_knows_more_than_what_is_durable_in_the_log() -> None:
    """Otherwise a power cut would let it name records that are not there, or others."""

    async def life(node: Node) -> None:
        await create(node)
        await later(node, b"v", 3_600)
        schedule = node.scheduler._schedules["orders", 0]
        schedule.add([Message(1_800_000_000_000, 2, NewRecord(None, b"w"))])
        assert schedule.log.partition.log.durable_end == 1
        await schedule.save()
        assert schedule.log.partition.log.durable_end == 2

    simulate(lambda world: world.live(life))
