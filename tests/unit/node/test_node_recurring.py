"""Recurring schedules on a whole node in virtual time: on the grid, once, across every kind of end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

import pytest
from msgspec import structs
from tests.support.delays import later, now_ms
from tests.support.nodes import Died, End, World, counted, create, publish, read_all, simulate

from goqueue.core.schedule.recurring import Recurring
from goqueue.model.duration import parse_instant_ms
from goqueue.model.errors import (
    GoQueueError,
    InvalidSchedule,
    NotReady,
    ScheduleExists,
    ScheduleFired,
    ScheduleNotFound,
)
from goqueue.model.record import NewRecord
from goqueue.model.recurrence import parse_recurrence
from goqueue.node import companions
from goqueue.node.config import LogConfig, NodeConfig
from goqueue.node.node import Node
from goqueue.node.requests import NewMessage
from goqueue.node.schedule import due_times as due_times_module
from goqueue.node.schedule import scheduler as scheduler_module
from goqueue.node.schedule import shard as schedule_shard
from goqueue.sim.broker import SimClock

ENDS = pytest.mark.parametrize("end", list(End))
QUICK = NodeConfig(
    default_partition_count=1,
    log=LogConfig(sync_timeout_ms=10_000, cleanup_interval_ms=2_000, checkpoint_interval_ms=3_000),
)


async def make(
    node: Node,
    name: str = "beat",
    *,
    value: bytes = b"v",
    partition: int | None = 0,
    key: bytes | None = None,
    every: str | None = None,
    cron: str | None = None,
    start_at: str | None = None,
    end_at: str | None = None,
    max_fires: int | None = None,
) -> Recurring:
    recurrence = parse_recurrence(
        every=every, cron=cron, start_at=start_at, end_at=end_at, max_fires=max_fires
    )
    message = NewMessage(NewRecord(key, value), partition)
    return (await node.recurring.create("orders", name, recurrence, message)).recurring


async def shown(node: Node, name: str = "beat") -> Recurring:
    return (await node.recurring.get("orders", name)).recurring


async def due_times(node: Node, name: str = "beat", partition: int = 0) -> list[int]:
    """Of what a schedule has sent, in the order of the log."""
    found: list[int] = []
    for record in await read_all(node, partition=partition):
        headers = dict(record.headers)
        if headers.get("gq-schedule") == name.encode():
            due_ms = parse_instant_ms((headers["gq-scheduled-at"] or b"").decode())
            assert record.timestamp_ms >= due_ms
            found.append(due_ms)
    return found


async def between_two(node: Node, name: str) -> None:
    """Until half-way between two due times of ten seconds, where no firing is under way."""
    created_ms = (await shown(node, name)).created_ms
    await asyncio.sleep((5_000 - (now_ms() - created_ms)) % 10_000 / 1_000)


def grid(start_ms: int, every_ms: int, count: int) -> list[int]:
    return [start_ms + at * every_ms for at in range(count)]


def check(one: Recurring, due: Sequence[int], every_ms: int) -> None:
    """Every due time up to the last was fired, or stood for by another."""
    assert list(due) == sorted(set(due))
    assert one.fired_count == len(due)
    assert {(at_ms - due[0]) % every_ms for at_ms in due} == {0}
    assert one.next_ms is not None
    assert (one.next_ms - due[0]) // every_ms == one.fired_count + one.missed_count


def test_a_schedule_fires_on_its_grid_and_never_drifts() -> None:
    async def main(world: World) -> None:
        async def live(node: Node) -> None:
            await create(node)
            one = await make(node, every="7s")
            assert one.next_ms == one.created_ms + 7_000
            await asyncio.sleep(7 * 100.5)
            assert await due_times(node) == grid(one.next_ms, 7_000, 100)
            after = await shown(node)
            assert (after.fired_count, after.missed_count) == (100, 0)
            assert after.last_fired_ms is not None
            assert 0 <= after.last_fired_ms - (one.next_ms + 99 * 7_000) < 50
            assert counted(node, "broker_delayed_fired_messages_total") == 100
            assert node.scheduler.stats()[0].pending_count == 1

        await world.live(live)

    simulate(main)


def test_a_cron_fires_at_each_minute_and_beside_it_delays_go_on() -> None:
    async def main(world: World) -> None:
        async def live(node: Node) -> None:
            await create(node)
            one = await make(node, cron="*/2 * * * *")
            assert one.next_ms is not None
            assert one.next_ms % 120_000 == 0
            await later(node, b"delayed", 300)
            await asyncio.sleep(600)
            assert await due_times(node) == grid(one.next_ms, 120_000, 5)
            assert b"delayed" in [record.value for record in await read_all(node)]

        await world.live(live)

    simulate(main)


def test_start_and_end_and_a_number_of_times_bound_it() -> None:
    async def main(world: World) -> None:
        async def live(node: Node) -> None:
            await create(node)
            start = now_ms() + 10_000
            await make(node, "both", every="3s", start_at=str(start), end_at=str(start + 9_000))
            await make(node, "times", every="3s", start_at=str(start - 100_000), max_fires=2)
            await asyncio.sleep(60)
            assert await due_times(node, "both") == grid(start, 3_000, 3)  # the end is exclusive
            first = await due_times(node, "times")
            assert len(first) == 2
            assert (first[0] - start + 100_000) % 3_000 == 0
            assert first[0] - start + 10_000 <= 3_000  # on the grid from the past, and none of the past
            for name in ("both", "times"):
                assert (await shown(node, name)).next_ms is None
            assert node.scheduler.stats()[0].pending_count == 0

        await world.live(live)

    simulate(main)


@ENDS
def test_after_a_time_of_being_down_one_message_stands_for_all_due_times(end: End) -> None:
    async def main(world: World) -> None:
        async def first(node: Node) -> Recurring:
            await create(node)
            await make(node, "minutes", cron="* * * * *")
            one = await make(node, every="10s")
            await asyncio.sleep(35)
            return one

        one = await world.live(first, end=end)
        assert one.next_ms is not None
        await asyncio.sleep(3_600)

        async def second(node: Node) -> None:
            await asyncio.sleep(30)
            found = await due_times(node)
            assert found[:4] == grid(one.next_ms or 0, 10_000, 4)
            assert found[4] - found[3] > 3_500_000  # the fourth is late and stands for those in between
            after = await shown(node)
            check(after, found, 10_000)
            assert 355 <= after.missed_count <= 362
            minutes = await shown(node, "minutes")
            check(minutes, await due_times(node, "minutes"), 60_000)
            assert 57 <= minutes.missed_count <= 60

        await world.live(second, end=end)

    simulate(main)


@pytest.mark.parametrize("step", range(1, 30))
def test_a_power_cut_at_any_step_of_a_firing_fires_each_due_time_once(step: int) -> None:
    async def main(world: World) -> None:
        async def first(node: Node) -> None:
            await create(node)
            await make(node, every="10s", max_fires=4)
            await make(node, "other", every="10s", value=b"w")
            await publish(node, b"plain")
            await asyncio.sleep(9)
            world.device.crash_after(step)
            await asyncio.sleep(30)

        with contextlib.suppress(Died):
            await world.live(first, end=End.POWER_CUT)

        async def second(node: Node) -> None:
            await asyncio.sleep(90)
            await between_two(node, "other")
            check(await shown(node, "other"), await due_times(node, "other"), 10_000)
            found = await due_times(node)
            assert len(found) == len(set(found)) == 4
            finished = await shown(node)
            assert (finished.fired_count, finished.next_ms) == (4, None)
            values = [record.value for record in await read_all(node)]
            assert (values.count(b"plain"), values.count(b"v")) == (1, 4)

        await world.live(second, end=End.POWER_CUT)

        async def third(node: Node) -> None:
            await asyncio.sleep(10)  # what the end interrupted is finished
            await between_two(node, "other")
            check(await shown(node, "other"), await due_times(node, "other"), 10_000)

        await world.live(third)

    simulate(main, seed=step)


@pytest.mark.parametrize("pause_ms", range(9_990, 10_040, 2))
def test_kill_9_at_any_moment_of_a_firing_fires_each_due_time_once(pause_ms: int) -> None:
    async def main(world: World) -> None:
        async def first(node: Node) -> None:
            await create(node)
            one = await make(node, every="10s")
            await asyncio.sleep((one.created_ms + pause_ms - now_ms()) / 1_000)

        await world.live(first, end=End.KILL)

        async def second(node: Node) -> None:
            await asyncio.sleep(35)
            one, found = await shown(node), await due_times(node)
            assert found == grid(one.created_ms + 10_000, 10_000, 4)
            check(one, found, 10_000)
            assert one.missed_count == 0

        await world.live(second)

    simulate(main, seed=pause_ms)


@pytest.mark.parametrize("step", range(1, 20))
def test_what_was_answered_survives_a_power_cut_at_any_step(step: int) -> None:
    async def main(world: World) -> None:
        known: set[str] = set()
        unknown: set[str] = set()

        async def first(node: Node) -> None:
            await create(node)
            await make(node, "warm", every="1h")
            world.device.crash_after(step)
            for number in range(4):
                name = f"s{number}"
                unknown.add(name)
                await make(node, name, every="10s")
                known.add(name)
                unknown.clear()
                if number % 2:
                    unknown.add(name)
                    await node.recurring.delete("orders", name)
                    known.discard(name)
                    unknown.clear()

        with contextlib.suppress(Died, GoQueueError):
            await world.live(first, end=End.POWER_CUT)

        async def second(node: Node) -> None:
            await asyncio.sleep(15)
            page = await node.recurring.list("orders")
            names = {one.recurring.name for one in page.schedules}
            assert names - unknown - {"warm"} == known - unknown
            for name in ("s0", "s1", "s2", "s3"):
                assert len(await due_times(node, name)) == (1 if name in names else 0)

        await world.live(second)

    simulate(main, seed=step)


@pytest.mark.parametrize("pause_ms", range(9_994, 10_030, 2))
def test_a_delete_during_a_firing_is_decided_once(pause_ms: int) -> None:
    async def main(world: World) -> None:
        async def first(node: Node) -> int:
            await create(node)
            one = await make(node, every="10s")
            await asyncio.sleep((one.created_ms + pause_ms - now_ms()) / 1_000)
            await node.recurring.delete("orders", "beat")
            await make(node, every="20s", value=b"new")
            await asyncio.sleep(5)
            count = len(await due_times(node))
            assert count <= 1
            return count

        count = await world.live(first, end=End.KILL)

        async def second(node: Node) -> None:
            await asyncio.sleep(30)
            values = [record.value for record in await read_all(node)]
            assert values.count(b"v") == count
            assert values.count(b"new") == 1
            assert (await shown(node)).fired_count == 1

        await world.live(second)

    simulate(main, seed=pause_ms)


def test_requests_at_the_same_time_make_one_schedule() -> None:
    async def main(world: World) -> None:
        async def live(node: Node) -> None:
            await create(node, partition_count=3)
            made = await asyncio.gather(
                *(make(node, every="10s", partition=at % 3) for at in range(9)), return_exceptions=True
            )
            good = [one for one in made if isinstance(one, Recurring)]
            assert len(good) == 3
            assert len({one.created_ms for one in good}) == 1
            assert all(isinstance(one, Recurring | ScheduleExists) for one in made)
            page = await node.recurring.list("orders")
            assert page.count == 1
            await asyncio.sleep(11)
            sent = [await due_times(node, partition=partition) for partition in range(3)]
            assert sum(map(len, sent)) == 1

        await world.live(live)

    simulate(main)


def test_where_messages_go_is_decided_once_by_the_key_or_by_the_name() -> None:
    async def main(world: World) -> None:
        async def live(node: Node) -> None:
            await create(node, partition_count=2)
            places: dict[str, int] = {}
            for number in range(9):
                name = f"s{number}"
                await make(node, name, every="10s", partition=None, key=b"k" if number < 3 else None)
                places[name] = (await node.recurring.get("orders", name)).partition
            outcome = (await publish(node, b"v", partition=None, key=b"k"))[0]
            assert {places[name] for name in ("s0", "s1", "s2")} == {outcome.partition}
            assert {places[f"s{number}"] for number in range(3, 9)} == {0, 1}
            await node.topics.grow("orders", 8)
            again = await make(node, "s5", every="10s", partition=None)
            assert (again.name, (await node.recurring.get("orders", "s5")).partition) == ("s5", places["s5"])
            await asyncio.sleep(11)
            for name, partition in places.items():
                assert len(await due_times(node, name, partition)) == 1

        await world.live(live)

    simulate(main)


def test_deleting_the_topic_deletes_its_schedules() -> None:
    async def main(world: World) -> None:
        async def live(node: Node) -> None:
            await create(node)
            await make(node, every="10s")
            await node.topics.delete("orders")
            await create(node)
            assert (await node.recurring.list("orders")).count == 0
            await asyncio.sleep(30)
            assert await read_all(node) == []
            await make(node, every="5s", value=b"new")
            await asyncio.sleep(6)
            assert [record.value for record in await read_all(node)] == [b"new"]

        await world.live(live)

        async def second(node: Node) -> None:
            assert (await node.recurring.list("orders")).count == 1

        await world.live(second)

    simulate(main)


def test_a_skip_and_a_firing_at_the_same_time_do_not_both_happen() -> None:
    async def main(world: World) -> None:
        async def live(node: Node) -> None:
            await create(node)
            skipped = 0
            one = await make(node, every="10s")
            for number in range(20):
                one = await shown(node)
                assert one.next_ms is not None
                await asyncio.sleep((one.next_ms - now_ms() - 10 + number) / 1_000)
                try:
                    await node.scheduler.cancel("orders", 0, one.next_id)
                    skipped += 1
                except (ScheduleFired, ScheduleNotFound):
                    pass
                await asyncio.sleep(2)
            found = await due_times(node)
            assert len(found) + skipped == 20
            assert 0 < skipped < 20
            after = await shown(node)
            assert (after.fired_count, after.missed_count) == (len(found), 0)
            assert after.next_ms == one.created_ms + 21 * 10_000

        await world.live(live)

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
@pytest.mark.parametrize("seed", range(6))
def test_compaction_saved_indexes_and_restarts_in_between_change_nothing(seed: int) -> None:
    async def main(world: World) -> None:
        compacted = 0
        for life in range(4):

            async def live(node: Node, life: int = life) -> None:
                nonlocal compacted
                if life == 0:
                    await create(node)
                    for number in range(5):
                        await make(node, f"s{number}", every=f"{number + 1}s", value=b"v" * 100)
                await make(node, f"life{life}", every="1s")
                await asyncio.sleep(20)
                await node.recurring.delete("orders", f"life{life}")
                compacted += int(counted(node, "storage_compacted_bytes_total"))

            await world.live(live, end=(End.STOP, End.KILL, End.POWER_CUT)[(seed + life) % 3])
            if seed % 2:
                await asyncio.sleep(100)
        assert compacted > 1_000

        async def last(node: Node) -> None:
            await asyncio.sleep(10)
            assert (await node.recurring.list("orders")).count == 5
            for number in range(5):
                name = f"s{number}"
                check(await shown(node, name), await due_times(node, name), 1_000 * (number + 1))

        await world.live(last)

    simulate(main, seed=seed, config=QUICK)


def test_a_schedule_in_a_time_zone_that_is_no_longer_known_ends_and_nothing_else_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main(world: World) -> None:
        async def live(node: Node) -> None:
            await create(node)
            await make(node, "minutes", cron="* * * * *")
            await make(node, every="10s")

            def unknown(timezone: str) -> None:
                raise InvalidSchedule(f"no {timezone}")

            monkeypatch.setattr(due_times_module, "_zone", unknown)
            await asyncio.sleep(200)
            ended = await shown(node, "minutes")
            assert (ended.fired_count, ended.next_ms) == (1, None)
            assert (await shown(node)).fired_count >= 19

        await world.live(live)

    simulate(main)


def test_a_firing_that_is_damaged_on_disk_takes_its_schedule_with_it_and_no_other() -> None:
    async def main(world: World) -> None:
        async def first(node: Node) -> None:
            await create(node)
            await make(node, "damaged", every="1m", value=b"payload 1")
            await make(node, every="1m", value=b"payload 2")

        await world.live(first)
        path = f"logs/__schedule.orders/0/{0:020d}.log"
        at = world.device.snapshot()[path].index(b"payload 1")
        world.device.flip_bit(path, 8 * at)

        async def second(node: Node) -> None:
            await asyncio.sleep(150)
            assert [record.value for record in await read_all(node)] == [b"payload 2", b"payload 2"]
            with pytest.raises(ScheduleNotFound):
                await shown(node, "damaged")
            assert counted(node, "broker_delayed_lost_messages_total") == 1
            await make(node, "damaged", every="1m", value=b"again")
            await asyncio.sleep(65)

        await world.live(second, end=End.KILL)

        async def third(node: Node) -> None:
            await asyncio.sleep(1)
            assert (await shown(node, "damaged")).fired_count == 1
            assert (await shown(node)).fired_count == 3

        await world.live(third)

    simulate(main)


def test_a_clock_that_jumps_forward_fires_once_and_after_a_jump_back_nothing_comes_twice() -> None:
    class JumpingClock(SimClock):
        jump_ms = 0

        def now_ms(self) -> int:
            return super().now_ms() + self.jump_ms

    async def main(world: World) -> None:
        clock = world.clock = JumpingClock(world.loop)

        async def live(node: Node) -> None:
            await create(node)
            one = await make(node, every="10s")
            clock.jump_ms = 3_605_000
            await asyncio.sleep(1)
            after = await shown(node)
            assert (after.fired_count, after.missed_count) == (1, 359)
            assert after.next_ms == one.created_ms + 3_610_000
            clock.jump_ms = 3_000_000
            await asyncio.sleep(600)
            assert (await shown(node)).fired_count == 1
            await asyncio.sleep(20)
            found = await due_times(node)
            assert found[:2] == [one.created_ms + 10_000, one.created_ms + 3_610_000]
            assert found == sorted(set(found))

        await world.live(live)

    simulate(main)


def test_a_node_that_drains_takes_no_schedules_and_shows_them() -> None:
    async def main(world: World) -> None:
        async def live(node: Node) -> None:
            await create(node)
            await make(node, every="10s")
            await node.drain()
            with pytest.raises(NotReady):
                await make(node, "late", every="10s")
            with pytest.raises(NotReady):
                await node.recurring.delete("orders", "beat")
            assert (await shown(node)).name == "beat"

        await world.live(live)

    simulate(main)
