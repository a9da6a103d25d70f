"""Firing when the clock jumps, when the topic's log is not what it was, and for consumers of the queue."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.support.delays import delayed, later
from tests.support.nodes import (
    SLUGGISH,
    Died,
    End,
    World,
    counted,
    create,
    publish,
    read_all,
    read_values,
    simulate,
)

from goqueue.core.producer import ProducerTable
from goqueue.core.schedule.events import Fired
from goqueue.model.acks import Acks
from goqueue.node.node import Node
from goqueue.node.queue.polling import Poll
from goqueue.node.requests import NewMessage
from goqueue.sim.broker import SimClock

FOLDER = "logs/__schedule.orders/0"


class JumpingClock(SimClock):
    jump_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.jump_ms


def with_clock(life: Callable[[Node, JumpingClock], Awaitable[None]]) -> None:
    async def main(world: World) -> None:
        clock = world.clock = JumpingClock(world.loop)
        await world.live(lambda node: life(node, clock))

    simulate(main)


def test_a_clock_that_jumps_forward_makes_due_what_it_jumps_over() -> None:
    async def life(node: Node, clock: JumpingClock) -> None:
        await create(node)
        await later(node, b"v", 3_600)
        await later(node, b"later", 10_000)
        await asyncio.sleep(1)
        clock.jump_ms = 3_700_000
        await asyncio.sleep(1)
        assert await read_values(node) == [b"v"]

    with_clock(life)


def test_a_clock_that_jumps_back_makes_nothing_early_and_nothing_come_twice() -> None:
    async def life(node: Node, clock: JumpingClock) -> None:
        await create(node)
        await later(node, b"first", 5)
        await later(node, b"second", 10)
        await asyncio.sleep(6)
        clock.jump_ms = -3_600_000
        await asyncio.sleep(600)
        assert await read_values(node) == [b"first"]
        await asyncio.sleep(3_100)
        assert await read_values(node) == [b"first", b"second"]

    with_clock(life)


def test_a_clock_that_jumps_back_while_a_firing_is_read_does_not_make_it_early() -> None:
    async def life(node: Node, clock: JumpingClock) -> None:
        await create(node)
        await later(node, b"v", 50)
        schedule = node.scheduler._schedules["orders", 0]
        clock.jump_ms = 60_000
        await schedule.ripen(clock.now_ms())
        assert len(schedule.state.ripe) == 1
        clock.jump_ms = 0
        await asyncio.sleep(40)
        assert await read_values(node) == []
        await asyncio.sleep(11)
        assert await read_values(node) == [b"v"]

    with_clock(life)


def test_a_task_with_an_eta_six_times_its_visibility_runs_once() -> None:
    """The Celery complaint: brokers that hand a task to a worker which then waits give it to others meanwhile."""

    async def life(node: Node) -> None:
        await create(node, visibility_ms="5000")
        await later(node, b"task", 30)
        taken: list[tuple[int, int]] = []

        async def worker(name: str) -> None:
            while True:
                poll = Poll("workers", name, [("orders", 0)], 10, wait_ms=20_000)
                for one in await node.queue.poll(poll):
                    taken.append((one.deliveries, int(asyncio.get_running_loop().time())))
                    await node.queue.ack([one.receipt])

        workers = [asyncio.create_task(worker(f"w{number}")) for number in range(3)]
        await asyncio.sleep(120)
        for task in workers:
            task.cancel()
        assert taken == [(1, 30)]

    simulate(lambda world: world.live(life))


def test_a_delayed_message_reaches_a_queue_group_that_has_finished_what_came_after_it() -> None:
    """Trap 2, for the queue."""

    async def life(node: Node) -> None:
        await create(node)
        await later(node, b"late", 10)
        await publish(node, b"early")
        poll = Poll("workers", "w", [("orders", 0)], 10, wait_ms=30_000)
        (early,) = await node.queue.poll(poll)
        await node.queue.ack([early.receipt])
        (late,) = await node.queue.poll(poll)
        assert (early.record.value, late.record.value) == (b"early", b"late")

    simulate(lambda world: world.live(life))


def test_a_schedule_goes_on_when_its_partition_has_lost_what_it_knew_of_the_schedule() -> None:
    """The last batch is gone from the log, and so the sequence has a gap: a new one begins."""

    async def life(node: Node) -> None:
        await create(node)
        await later(node, b"a", 1)
        await asyncio.sleep(2)
        schedule = node.scheduler._schedules["orders", 0]
        last = schedule.state.last_fired
        assert last is not None
        schedule.carry_out([Fired(last.producer_id, last.epoch, last.sequence + 7)])
        await later(node, b"b", 1)
        await asyncio.sleep(2)
        await later(node, b"c", 1)
        await asyncio.sleep(2)
        assert await read_values(node) == [b"a", b"b", b"c"]

    simulate(lambda world: world.live(life))


def test_a_schedule_goes_on_when_its_partition_has_forgotten_it() -> None:
    async def life(node: Node) -> None:
        await create(node)
        for value in (b"a", b"b", b"c"):
            await later(node, value, 1)
            await asyncio.sleep(2)
            node._table.get("orders").partition(0)._producers.table = ProducerTable()
        assert await read_values(node) == [b"a", b"b", b"c"]

    simulate(lambda world: world.live(life))


@pytest.mark.parametrize("is_there", [True, False])
def test_a_record_that_is_damaged_between_the_decision_and_its_repetition(is_there: bool) -> None:
    """If the batch is in the partition already nothing is missing; if not, the others come."""

    async def main(world: World) -> None:
        async def first(node: Node) -> None:
            await create(node)
            await publish(node, b"plain")
            for one in [delayed(b"payload %d" % number, 10) for number in range(3)]:
                await node.publisher.publish("orders", [NewMessage(one, 0)], acks=Acks.ALL)
            schedule = node.scheduler._schedules["orders", 0]
            carry_out = schedule.carry_out
            append = schedule.source.append

            def die_after(*args: object, **kwargs: object) -> None:
                raise Died

            if is_there:  # the second event of a firing says that it is done
                schedule.carry_out = lambda events: (  # type: ignore[method-assign]  # to stop it right there
                    carry_out(events) if len(events) == 1 else die_after()
                )
            else:
                schedule.source.append = die_after  # type: ignore[method-assign,assignment]
            await asyncio.sleep(11)
            await schedule.source.commit.wait(schedule.source.log.end)
            schedule.source.append = append  # type: ignore[method-assign]

        await world.live(first, end=End.KILL, may_fail=True)
        path = f"{FOLDER}/{0:020d}.log"
        at = world.device.snapshot()[path].index(b"payload 1")
        world.device.flip_bit(path, 8 * at)

        async def second(node: Node) -> None:
            await asyncio.sleep(5)
            expected = [0, 1, 2] if is_there else [0, 2]
            assert await read_values(node) == [b"plain"] + [b"payload %d" % number for number in expected]
            await later(node, b"on", 1)
            await asyncio.sleep(2)
            assert (await read_values(node))[-1] == b"on"
            assert node.scheduler.stats()[0].pending_count == 0

        await world.live(second)

    simulate(main)


def test_fired_records_follow_the_settings_of_their_topic() -> None:
    async def life(node: Node) -> None:
        await create(
            node, compression_type="gzip", message_timestamp_type="LogAppendTime", max_message_bytes="2000"
        )
        sent = [NewMessage(delayed(b"%d" % number + b"x" * 500, 5), 0) for number in range(9)]
        await node.publisher.publish("orders", sent, acks=Acks.ALL)
        await asyncio.sleep(6)
        found = await read_all(node)
        assert [(one.value or b"")[:1] for one in found] == [b"%d" % number for number in range(9)]
        assert all(one.timestamp_ms >= 1_700_000_005_000 for one in found)
        sizes = [
            batch.header.size
            for batch in (
                await node._table.get("orders").partition(0).read(0, end=9, bytes_max=10**6)
            ).batches
        ]
        assert len(sizes) >= 3

    simulate(lambda world: world.live(life))


def test_a_message_on_its_way_into_the_topic_is_still_counted() -> None:
    """Else it would be nowhere, for as long as the disk takes: nothing pending, and nothing in the topic."""

    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            await later(node, b"v", 5)
            world.loop.executor_latency = SLUGGISH
            moments = set[tuple[int, float, int]]()
            while not node.topics.partition("orders", 0).latest:
                (stats,) = node.scheduler.stats()
                pending = counted(node, "broker_delayed_pending_messages")
                moments.add((stats.pending_count, pending, stats.fired_count))
                await asyncio.sleep(0.05)
            assert moments == {(1, 1.0, 0)}
            await asyncio.sleep(10)
            (stats,) = node.scheduler.stats()
            assert (stats.pending_count, stats.fired_count) == (0, 1)
            assert counted(node, "broker_delayed_pending_messages") == 0

        await world.live(life)

    simulate(main)
