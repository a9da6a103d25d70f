"""Delayed messages on a whole node in virtual time: on time, once, listed, cancelled."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.delays import delayed, later, now_ms
from tests.support.nodes import (
    End,
    World,
    codes,
    counted,
    create,
    messages,
    nothing,
    offsets,
    publish,
    read_all,
    read_values,
    simulate,
)

from goqueue.core.schedule.states import State
from goqueue.model.acks import Acks
from goqueue.model.codes import Code
from goqueue.model.delay import DELIVER_AT_HEADER
from goqueue.model.errors import InvalidRequest, ScheduleFired, ScheduleNotFound, TopicNotFound
from goqueue.model.priority import PRIORITY_HEADER
from goqueue.model.record import NewRecord
from goqueue.node.node import Node
from goqueue.node.requests import NewMessage, ReadQuery

ENDS = pytest.mark.parametrize("end", list(End))


def test_a_delayed_message_is_delivered_when_it_is_due_and_not_before() -> None:
    async def life(node: Node) -> None:
        await create(node)
        due_ms = now_ms() + 5_000
        record = NewRecord(b"k", b"v", ((DELIVER_AT_HEADER, b"%d" % due_ms), ("mine", b"x")))
        (outcome,) = await node.publisher.publish("orders", [NewMessage(record, 0)], acks=Acks.ALL)
        assert (outcome.offset, outcome.deliver_at_ms) == (0, due_ms)
        await asyncio.sleep(4.99)
        assert await read_all(node) == []
        await asyncio.sleep(0.06)
        (stored,) = await read_all(node)
        assert (stored.key, stored.value, stored.headers) == (record.key, record.value, record.headers)
        assert due_ms <= stored.timestamp_ms < due_ms + 50
        assert counted(node, "broker_delayed_fired_messages_total") == 1
        assert counted(node, "broker_delayed_pending_messages") == 0

    simulate(lambda world: world.live(life))


def test_a_message_that_is_due_now_or_was_long_ago_takes_the_normal_path() -> None:
    async def life(node: Node) -> None:
        await create(node)
        records = [delayed(b"now", 0), delayed(b"past", -3_600)]
        outcomes = await node.publisher.publish(
            "orders", [NewMessage(one, 0) for one in records], acks=Acks.ALL
        )
        assert offsets(outcomes) == [0, 1]
        assert [one.deliver_at_ms for one in outcomes] == [None, None]
        assert await read_values(node) == [b"now", b"past"]
        assert (await node.scheduler.list("orders")).messages == []

    simulate(lambda world: world.live(life))


def test_a_delayed_message_reaches_a_reader_that_has_read_past_it() -> None:
    """Trap 2."""

    async def life(node: Node) -> None:
        await create(node)
        await later(node, b"late", 10)
        await publish(node, b"early")
        page = await node.reader.read("orders", 0, ReadQuery(offset=0))
        assert [one.value for one in page.records] == [b"early"]
        waiting = node.reader.read("orders", 0, ReadQuery(offset=page.next_offset, wait_ms=30_000))
        assert [one.value for one in (await waiting).records] == [b"late"]

    simulate(lambda world: world.live(life))


def test_messages_for_the_same_instant_come_in_the_order_in_which_they_were_published() -> None:
    async def life(node: Node) -> None:
        await create(node)
        due_ms = now_ms() + 600_000
        for number in range(60):
            record = NewRecord(None, b"%d" % number, ((DELIVER_AT_HEADER, b"%d" % due_ms),))
            await node.publisher.publish("orders", [NewMessage(record, 0)], acks=Acks.ALL)
            await asyncio.sleep(9.9)
        await asyncio.sleep(20)
        assert await read_values(node) == [b"%d" % number for number in range(60)]

    simulate(lambda world: world.live(life))


def test_delays_of_two_partitions_with_the_same_offset_do_not_collide() -> None:
    """Trap 19."""

    async def main(world: World) -> None:
        async def first(node: Node) -> None:
            await create(node, partition_count=2)
            ids = [await later(node, b"%d" % index, 60, partition=index) for index in (0, 1)]
            assert ids == [0, 0]
            await node.scheduler.cancel("orders", 1, 0)

        await world.live(first, end=End.KILL)

        async def second(node: Node) -> None:
            assert [one.partition for one in (await node.scheduler.list("orders")).messages] == [0]
            await asyncio.sleep(61)
            assert (await read_values(node), await read_values(node, partition=1)) == ([b"0"], [])

        await world.live(second)

    simulate(main)


@ENDS
def test_what_is_due_while_the_node_is_down_comes_when_it_is_back(end: End) -> None:
    async def main(world: World) -> None:
        async def first(node: Node) -> None:
            await create(node)
            for number in range(5):
                await later(node, b"%d" % number, 100 + number)
            await later(node, b"much later", 40 * 86_400)

        await world.live(first, end=end)
        await asyncio.sleep(3_600)

        async def second(node: Node) -> None:
            await asyncio.sleep(1)
            assert await read_values(node) == [b"0", b"1", b"2", b"3", b"4"]
            assert (await node.scheduler.list("orders")).pending_count == 1

        await world.live(second, end=end)

        async def third(node: Node) -> None:
            await asyncio.sleep(1)
            assert await read_values(node) == [b"0", b"1", b"2", b"3", b"4"]

        await world.live(third, end=end)

    simulate(main)


@ENDS
def test_a_cancelled_message_is_never_delivered(end: End) -> None:
    async def main(world: World) -> None:
        async def first(node: Node) -> None:
            await create(node)
            id = await later(node, b"unwanted", 10)
            await later(node, b"wanted", 10)
            await node.scheduler.cancel("orders", 0, id)
            with pytest.raises(ScheduleNotFound, match="cancelled"):
                await node.scheduler.cancel("orders", 0, id)
            with pytest.raises(ScheduleNotFound):
                await node.scheduler.get("orders", 0, id)

        await world.live(first, end=end)

        async def second(node: Node) -> None:
            await asyncio.sleep(20)
            assert await read_values(node) == [b"wanted"]

        await world.live(second, end=end)

    simulate(main)


def test_a_message_can_no_longer_be_cancelled_when_it_was_delivered() -> None:
    async def life(node: Node) -> None:
        await create(node)
        id = await later(node, b"v", 1)
        await asyncio.sleep(2)
        with pytest.raises(ScheduleFired, match="delivered"):
            await node.scheduler.cancel("orders", 0, id)
        with pytest.raises(ScheduleNotFound):
            await node.scheduler.get("orders", 0, id)
        for unknown in (id + 1, 10**12, -1):
            with pytest.raises(ScheduleNotFound):
                await node.scheduler.cancel("orders", 0, unknown)
        with pytest.raises(TopicNotFound):
            await node.scheduler.cancel("payments", 0, 0)

    simulate(lambda world: world.live(life))


def test_delayed_messages_are_listed_soonest_first() -> None:
    async def life(node: Node) -> None:
        await create(node, partition_count=2)
        start = now_ms()
        delays = [30, 5, 86_400 * 20, 500, 60_000, 7]
        for at, delay_s in enumerate(delays):
            await later(node, b"v", delay_s, partition=at % 2)
        page = await node.scheduler.list("orders", limit=1_000)
        assert [(one.deliver_at_ms - start) // 1_000 for one in page.messages] == sorted(delays)
        assert {one.state for one in page.messages} == {State.PENDING}
        assert page.pending_count == 6
        page = await node.scheduler.list("orders", limit=2, skip=3)
        assert [(one.deliver_at_ms - start) // 1_000 for one in page.messages] == [500, 60_000]
        for limit, skip in ((0, 0), (1_001, 0), (1, -1), (1, 10**6)):
            with pytest.raises(InvalidRequest, match="limit"):
                await node.scheduler.list("orders", limit=limit, skip=skip)
        with pytest.raises(TopicNotFound):
            await node.scheduler.list("payments")

    simulate(lambda world: world.live(life))


def test_a_delayed_message_can_be_looked_at() -> None:
    async def life(node: Node) -> None:
        await create(node)
        due_ms = now_ms() + 10_000
        headers = ((DELIVER_AT_HEADER, b"%d" % due_ms), (PRIORITY_HEADER, b"critical"))
        message = NewMessage(NewRecord(None, b"v", headers), 0)
        (id,) = offsets(await node.publisher.publish("orders", [message], acks=Acks.ALL))
        found = await node.scheduler.get("orders", 0, id)
        assert (found.offset, found.deliver_at_ms, found.state, found.lane) == (id, due_ms, State.PENDING, 0)
        (stats,) = node.scheduler.stats()
        assert (stats.topic, stats.pending_count, stats.fired_count) == ("orders", 1, 0)

    simulate(lambda world: world.live(life))


def test_a_delay_that_is_too_long_or_makes_no_sense_is_refused_and_the_others_are_kept() -> None:
    async def life(node: Node) -> None:
        await create(node, delay_max_ms="60000")
        wrong = NewRecord(None, b"wrong", ((DELIVER_AT_HEADER, b"tomorrow"),))
        empty = NewRecord(None, b"empty", ((DELIVER_AT_HEADER, None),))
        records = [delayed(b"long", 61), wrong, empty, delayed(b"fine", 59), NewRecord(None, b"plain")]
        outcomes = await node.publisher.publish(
            "orders", [NewMessage(one, 0) for one in records], acks=Acks.ALL
        )
        assert codes(outcomes) == [Code.INVALID_DELAY] * 3 + [None, None]
        assert outcomes[0].error is not None
        assert "60000" in outcomes[0].error.sentence
        assert await read_values(node) == [b"plain"]
        await asyncio.sleep(60)
        assert await read_values(node) == [b"plain", b"fine"]

    simulate(lambda world: world.live(life))


def test_a_deleted_topic_takes_its_delayed_messages_along() -> None:
    async def main(world: World) -> None:
        async def first(node: Node) -> None:
            await create(node)
            await later(node, b"old", 10)
            await node.topics.delete("orders")
            await create(node)
            await asyncio.sleep(20)
            assert await read_values(node) == []
            assert (await node.scheduler.list("orders")).pending_count == 0
            assert node.scheduler.stats() == []

        await world.live(first, end=End.KILL)
        await world.live(nothing)

    simulate(main)


def test_a_topic_that_grows_has_delays_in_its_new_partitions() -> None:
    async def life(node: Node) -> None:
        await create(node)
        await later(node, b"old", 10)
        await node.topics.grow("orders", 3)
        await later(node, b"new", 10, partition=2)
        await asyncio.sleep(11)
        assert (await read_values(node), await read_values(node, partition=2)) == ([b"old"], [b"new"])

    simulate(lambda world: world.live(life))


def test_a_burst_for_one_instant_is_delivered_whole() -> None:
    async def life(node: Node) -> None:
        await create(node)
        record = delayed(b"v" * 700, 30)
        for _ in range(5):
            batch = [NewMessage(record, 0)] * 1_000
            await node.publisher.publish("orders", batch, acks=Acks.ALL)
        await asyncio.sleep(31)
        assert len(await read_all(node)) == 5_000

    simulate(lambda world: world.live(life))


def test_plain_messages_of_a_request_with_delayed_ones_are_stored_at_once() -> None:
    async def life(node: Node) -> None:
        await create(node)
        mixed = [*messages(b"a"), NewMessage(delayed(b"b", 5), 0), *messages(b"c")]
        outcomes = await node.publisher.publish("orders", mixed, acks=Acks.LEADER)
        assert [one.deliver_at_ms is not None for one in outcomes] == [False, True, False]
        assert await read_values(node) == [b"a", b"c"]
        await asyncio.sleep(6)
        assert await read_values(node) == [b"a", b"c", b"b"]

    simulate(lambda world: world.live(life))
