"""The queue at its edges: each of these was wrong once."""

from __future__ import annotations

import asyncio
import sys
import tracemalloc
from collections.abc import Callable, Iterable

import pytest
from tests.support.nodes import BRISK, SLUGGISH, World, create, publish, read_values, simulate

from goqueue.core.lease import moves
from goqueue.core.lease.decisions import Claim, Fresh, lease, let_go, open_group, settle, tick
from goqueue.core.lease.events import Postponed
from goqueue.core.lease.ledger import Ledger
from goqueue.core.lease.policy import LeasePolicy
from goqueue.core.lease.window import Window
from goqueue.model.acks import Acks
from goqueue.model.errors import CoordinatorNotAvailable, GoQueueError, GroupNotEmpty, StorageError
from goqueue.model.priority import LANE_COUNT, NORMAL
from goqueue.model.record import NewRecord
from goqueue.node.groups.member_requests import GroupMode, Join, PollRequest, Who
from goqueue.node.node import Node
from goqueue.node.queue.polling import Poll
from goqueue.node.queue.requests import Delivered, Message
from goqueue.node.requests import NewMessage


async def poll(
    node: Node,
    *topics: str,
    group: str = "g",
    member: str = "m",
    limit: int = 100,
    wait_ms: int = 0,
) -> list[Delivered]:
    places = [
        (topic, one.partition) for topic in topics or ("orders",) for one in node.topics.partitions(topic)
    ]
    return await node.queue.poll(Poll(group, member, places, limit, wait_ms))


def values(delivered: list[Delivered]) -> list[bytes | None]:
    return [one.record.value for one in delivered]


async def send(node: Node, *pairs: tuple[bytes, bytes], topic: str = "orders") -> None:
    messages = [NewMessage(NewRecord(key, value), 0) for key, value in pairs]
    await node.publisher.publish(topic, messages, acks=Acks.ALL)


def test_a_record_of_a_free_key_is_found_behind_those_that_are_held() -> None:
    async def main(node: Node) -> None:
        await create(node, ordering="key")
        await send(node, (b"k", b"k1"), (b"k", b"k2"), (b"j", b"j1"))
        assert values(await poll(node, limit=1)) == [b"k1"]
        started = asyncio.get_running_loop().time()
        assert values(await poll(node, limit=1, member="other", wait_ms=10_000)) == [b"j1"]
        assert asyncio.get_running_loop().time() - started < 1

    simulate(lambda world: world.live(main))


def test_a_poll_that_waits_for_nothing_finds_a_free_key_too() -> None:
    async def main(node: Node) -> None:
        await create(node, ordering="key")
        await send(node, (b"k", b"k1"), (b"k", b"k2"), (b"j", b"j1"))
        assert values(await poll(node, limit=1)) == [b"k1"]
        assert values(await poll(node, limit=1, member="other")) == [b"j1"]

    simulate(lambda world: world.live(main))


def test_polls_of_one_member_together_hold_no_more_than_one_may() -> None:
    async def main(node: Node) -> None:
        await create(node)
        await publish(node, *[b"x"] * 3_000)
        got = await asyncio.gather(*(poll(node, limit=1_000) for _ in range(3)))
        assert sum(map(len, got)) == 1_000

    simulate(lambda world: world.live(main))


def test_two_topics_whose_dead_letters_share_a_new_topic_lose_none() -> None:
    async def main(node: Node) -> None:
        await create(node, "small", 1, dlq_topic="dead")
        await create(node, "large", 3, dlq_topic="dead")
        await publish(node, b"s", topic="small")
        await publish(node, b"l1", b"l2", topic="large", partition=2)
        (small,), large = await poll(node, "small"), await poll(node, "large")
        await asyncio.gather(
            node.queue.reject([small.receipt], reason="no"),
            node.queue.reject([large[0].receipt], reason="no"),
        )
        await asyncio.sleep(5)
        await node.queue.reject([large[1].receipt], reason="no")
        await asyncio.sleep(5)
        found: list[bytes] = []
        for one in node.topics.partitions("dead"):
            found += [value or b"" for value in await read_values(node, "dead", one.partition)]
        assert sorted(found) == [b"l1", b"l2", b"s"]

    simulate(lambda world: world.live(main))


@pytest.mark.timeout(20)  # it was an endless loop
def test_a_waiting_member_is_let_go_when_the_node_drains() -> None:
    async def main(node: Node) -> None:
        await create(node)
        who = await node.members.join(Join("g", "client", ("orders",)), GroupMode.QUEUE)
        waiting = asyncio.create_task(node.members.poll(PollRequest(Who("g", who.member_id), 10, 60_000)))
        await asyncio.sleep(3)
        started = asyncio.get_running_loop().time()
        await node.drain()
        polled = await waiting
        assert polled.messages == []
        assert asyncio.get_running_loop().time() - started < 1

    simulate(lambda world: world.live(main))


def test_what_another_poll_has_read_ahead_and_left_wakes_one_that_was_busy_elsewhere() -> None:
    async def main(node: Node) -> None:
        await create(node, partition_count=2)
        await poll(node)  # the group has begun, and the next poll begins with the other partition
        await poll(node)
        second = node._table.get("orders").partition(1)
        slow, wait = asyncio.Event(), second.commit.wait

        async def slow_wait(end: int, *, since: float | None = None) -> None:
            await slow.wait()
            await wait(end, since=since)

        second.commit.wait = slow_wait  # type: ignore[method-assign]  # a sync that takes long
        waiting = asyncio.create_task(poll(node, wait_ms=30_000))
        await asyncio.sleep(1)  # it has found nothing in the first and looks at the second
        await publish(node, b"a", b"b", partition=0)
        got = await node.queue.poll(Poll("g", "other", [("orders", 0)], 1))
        assert values(got) == [b"a"]
        started = asyncio.get_running_loop().time()
        slow.set()
        assert values(await waiting) == [b"b"]
        assert asyncio.get_running_loop().time() - started < 1

    simulate(lambda world: world.live(main))


def test_a_topic_that_cannot_be_read_does_not_use_up_the_retries_of_another() -> None:
    async def main(node: Node) -> None:
        await create(node, "well", retry_backoff_ms="0")
        await create(node, "ill")
        await publish(node, b"a", topic="well")
        await publish(node, b"b", topic="ill")
        await poll(node, "ill", limit=1, group="warm")
        ill = node._table.get("ill").partition(0)

        async def broken(offset: int, *, end: int, bytes_max: int) -> object:
            raise StorageError("reading failed")

        ill.read = broken  # type: ignore[method-assign,assignment]
        seen: list[Delivered] = []
        for _ in range(20):
            try:
                seen += await poll(node, "well", "ill")
            except GoQueueError:
                pass
            await asyncio.sleep(31)
        dead = [one.name for one in node.topics.list() if one.name == "well.dlq"]
        assert seen or not dead

    simulate(lambda world: world.live(main))


def test_a_deleted_group_leaves_nothing_in_memory() -> None:
    async def main(node: Node) -> None:
        await create(node)
        await publish(node, *[b"x"] * 10)
        for index in range(20):
            await poll(node, group=f"g{index}", limit=1)
            await node.queue.forget(f"g{index}")
        (ledger,) = node.queue._ledgers.all()
        assert not ledger.state.windows
        assert not ledger._feeds
        assert not node.queue.polling._turns

    simulate(lambda world: world.live(main))


def test_a_client_that_hangs_up_while_its_lease_is_written_leaves_the_record_to_others() -> None:
    async def main(node: Node) -> None:
        await create(node)
        await publish(node, b"a")
        await poll(node, limit=1, group="warm")
        (ledger,) = node.queue._ledgers.all()
        gone = asyncio.create_task(poll(node))
        for _ in range(1_000):
            await asyncio.sleep(0)
            window = ledger.state.find("g")
            if window is not None and window.in_flight_count:
                break
        gone.cancel()
        await asyncio.wait([gone])
        started = asyncio.get_running_loop().time()
        assert values(await poll(node, member="other", wait_ms=60_000)) == [b"a"]
        assert asyncio.get_running_loop().time() - started < 5

    simulate(lambda world: world.live(main))


def test_a_group_that_begins_at_the_end_begins_in_every_partition_with_its_first_poll() -> None:
    async def main(node: Node) -> None:
        await create(node, "one")
        await create(node, "two")
        await publish(node, b"a", b"b", topic="one")
        await poll(node, "one", limit=1)  # it has a backlog there
        places = [("one", 0), ("two", 0)]
        node.queue.polling._turns["g"] = 0
        got = await node.queue.poll(Poll("g", "m", places, 1, from_latest=True))
        assert values(got) == [b"b"]
        await publish(node, b"c", topic="two")
        got = await node.queue.poll(Poll("g", "m", places, 1, from_latest=True))
        assert values(got) == [b"c"]

    simulate(lambda world: world.live(main))


def test_a_record_that_waits_for_its_key_wakes_a_poll_though_the_order_is_no_longer_kept() -> None:
    async def main(node: Node) -> None:
        await create(node, ordering="key")
        await send(node, (b"k", b"k1"), (b"k", b"k2"))
        (got,) = await poll(node)
        await node.topics.alter("orders", {"ordering": None})
        waiting = asyncio.create_task(poll(node, member="other", wait_ms=20_000))
        await asyncio.sleep(1)
        await node.queue.ack([got.receipt])
        started = asyncio.get_running_loop().time()
        assert values(await waiting) == [b"k2"]
        assert asyncio.get_running_loop().time() - started < 1

    simulate(lambda world: world.live(main))


def test_a_record_that_is_gone_when_it_comes_again_does_not_keep_the_next_one_back() -> None:
    async def main(node: Node) -> None:
        await create(node, cleanup_policy="compact")
        await send(node, (b"k", b"old"), (b"j", b"other"), (b"k", b"new"))
        (got,) = await poll(node, limit=1)
        await node.queue.nack([got.receipt], delay_ms=1_000)
        (ledger,) = node.queue._ledgers.all()
        window = ledger.state.find("g")
        assert window is not None
        feed = ledger.feed(window)

        async def none(offsets: Iterable[int]) -> tuple[dict[int, object], list[int]]:
            return {}, list(offsets)

        feed.again = none  # type: ignore[method-assign,assignment]  # as after compaction
        started = asyncio.get_running_loop().time()
        await asyncio.sleep(2)
        assert values(await poll(node, limit=1, wait_ms=10_000)) == [b"other"]
        assert asyncio.get_running_loop().time() - started < 4

    simulate(lambda world: world.live(main))


async def send_urgent(node: Node, *batches: bytes) -> None:
    for value in batches:
        record = NewRecord(None, value, (("gq-priority", b"0"),))
        await node.publisher.publish("orders", [NewMessage(record, 0)], acks=Acks.ALL)


def flip(world: World, content: bytes) -> None:
    path = "logs/orders/0/00000000000000000000.log"
    world.device.flip_bit(path, 8 * world.device.snapshot()[path].index(content))


def test_damage_to_an_urgent_record_does_not_stop_the_others() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            await send_urgent(node, b"first content", b"second content", b"third content")
            assert len(await poll(node, limit=1, group="warm")) == 1  # the lists of the lanes are known
            await asyncio.sleep(2)
            flip(world, b"second content")
            node.queue._ledgers.all()[0]._feeds.clear()
            assert values(await poll(node, group="g")) == [b"first content", b"third content"]

        await world.live(life)

    simulate(main)


def test_damage_to_a_record_that_comes_again_does_not_stop_the_others() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            for value in (b"first content", b"second content", b"third content"):
                await publish(node, value)
            got = await poll(node, limit=2)
            await node.queue.nack([one.receipt for one in got], delay_ms=0)
            await asyncio.sleep(2)
            flip(world, b"second content")
            node.queue._ledgers.all()[0]._feeds.clear()
            assert values(await poll(node, limit=3)) == [b"first content", b"third content"]

        await world.live(life)

    simulate(main)


def test_dead_letters_that_cannot_go_anywhere_do_not_keep_other_leases_from_their_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(moves, "OPEN_MOVE_COUNT_MAX", 0)  # as if so many waited that no more may

    async def main(node: Node) -> None:
        await create(node, max_retries="0")
        await publish(node, b"a")
        await node.groups.configure("patient", {"max.retries": "5"})
        assert len(await poll(node, group="hasty")) == 1
        assert len(await poll(node, group="patient")) == 1
        (again,) = await poll(node, group="patient", member="other", wait_ms=60_000)
        assert again.deliveries == 2

    simulate(lambda world: world.live(main))


def test_more_deaths_at_once_than_may_be_under_way_come_one_after_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A hundred of them are a move."""
    monkeypatch.setattr(moves, "OPEN_MOVE_COUNT_MAX", 2)

    async def main(node: Node) -> None:
        await create(node, max_retries="0")
        await publish(node, *[b"x"] * 500)
        assert len(await poll(node, limit=500)) == 500
        await asyncio.sleep(300)
        assert [one.name for one in node.topics.list()] == ["orders", "orders.dlq"]
        assert len(await read_values(node, "orders.dlq")) == 500

    simulate(lambda world: world.live(main))


def test_retention_while_a_poll_reads_is_no_error() -> None:
    async def main(node: Node) -> None:
        await create(node)
        for _ in range(8):
            await publish(node, *[b"x" * 50_000] * 4)
        partition = node._table.get("orders").partition(0)
        read = partition.read
        count = 0

        async def slow_read(offset: int, *, end: int, bytes_max: int) -> object:
            nonlocal count
            count += 1
            if count == 2:
                await node.topics.delete_records("orders", 0, 30)
            return await read(offset, end=end, bytes_max=bytes_max)

        partition.read = slow_read  # type: ignore[method-assign,assignment]
        got = await poll(node)
        assert count >= 2
        assert got

    simulate(lambda world: world.live(main))


def test_a_group_that_is_sent_back_while_its_urgent_records_are_read_misses_none() -> None:
    async def main(node: Node) -> None:
        await create(node)
        await send_urgent(node, *(b"%d" % index for index in range(4)))
        got = await poll(node, limit=2)
        await node.queue.ack([one.receipt for one in got])
        partition = node._table.get("orders").partition(0)
        (ledger,) = node.queue._ledgers.all()
        ledger._feeds.clear()  # as after a restart
        read, is_sent_back = partition.read, False

        async def slow_read(offset: int, *, end: int, bytes_max: int, is_own: bool = False) -> object:
            nonlocal is_sent_back
            found = await read(offset, end=end, bytes_max=bytes_max, is_own=is_own)
            if not is_sent_back and offset == 2 and bytes_max < 100_000:
                is_sent_back = True
                await node.queue.seek("g", "orders", 0, 0)
                window = ledger.state.find("g")
                assert window is not None
                ledger.feed(window)  # as a poll of another member does before it waits
            return found

        partition.read = slow_read  # type: ignore[method-assign,assignment]
        seen: list[bytes | None] = []
        for _ in range(5):
            seen += values(await poll(node))
        assert is_sent_back
        assert sorted(value or b"" for value in seen) == [b"0", b"1", b"2", b"3"]

    simulate(lambda world: world.live(main))


def test_a_poll_that_ends_after_its_group_was_deleted_does_not_bring_it_back() -> None:
    async def main(node: Node) -> None:
        await create(node, partition_count=2)
        is_member = True
        await poll(node, group="warm")
        first = node._table.get("orders").partition(0)
        slow, wait = asyncio.Event(), first.commit.wait

        async def slow_wait(end: int, *, since: float | None = None) -> None:
            await slow.wait()
            await wait(end, since=since)

        first.commit.wait = slow_wait  # type: ignore[method-assign]
        places = [("orders", 0), ("orders", 1)]
        asked = Poll("g", "m", places, 10, 0, is_wanted=lambda: is_member)
        waiting = asyncio.create_task(node.queue.poll(asked))
        await asyncio.sleep(1)
        is_member = False
        await node.queue.forget("g")
        slow.set()
        await waiting
        assert node.queue.places("g") == []

    simulate(lambda world: world.live(main))


def test_a_partition_that_cannot_be_written_does_not_keep_what_a_member_held_elsewhere() -> None:
    async def main(node: Node) -> None:
        await create(node, "ill")
        await create(node, "well")
        await publish(node, b"a", topic="ill")
        await publish(node, b"b", topic="well")
        who = await node.members.join(Join("g", "client", ("ill", "well")), GroupMode.QUEUE)
        for _ in range(2):
            await node.members.poll(PollRequest(Who("g", who.member_id), 10, 0))
        ill, _ = node.queue._ledgers.all()
        assert ill.source.topic == "ill"
        ill._lost = CoordinatorNotAvailable("its log has failed")
        await node.members.leave(Who("g", who.member_id))
        assert values(await poll(node, "well", member="other")) == [b"b"]

    simulate(lambda world: world.live(main))


def test_a_member_that_reads_other_topics_now_holds_no_more_in_all_of_them() -> None:
    async def main(node: Node) -> None:
        for topic in ("one", "two"):
            await create(node, topic)
            await publish(node, *[b"x"] * 1_000, topic=topic)
        got = await poll(node, "one", limit=1_000)
        got += await poll(node, "two", limit=1_000)
        assert len(got) == 1_000

    simulate(lambda world: world.live(main))


def test_an_answer_with_records_that_come_again_is_no_larger_than_one_with_new_ones() -> None:
    async def main(node: Node) -> None:
        await create(node)
        for _ in range(30):
            await publish(node, b"x" * 900_000)
        got: list[Delivered] = []
        largest = 0
        while some := await poll(node):
            largest = max(largest, sum(len(one.record.value or b"") for one in some))
            got += some
        assert len(got) == 30
        await node.queue.nack([one.receipt for one in got], delay_ms=0)
        again = await poll(node)
        assert sum(len(one.record.value or b"") for one in again) <= max(largest, 8 * 1024 * 1024)

    simulate(lambda world: world.live(main))


def test_an_answer_from_many_partitions_is_no_larger_than_one_from_a_few() -> None:
    async def main(node: Node) -> None:
        await create(node, partition_count=20)
        for partition in range(20):
            for _ in range(3):
                await publish(node, b"x" * 900_000, partition=partition)
        got = 0
        while some := await poll(node):
            assert sum(len(one.record.value or b"") for one in some) <= 12 * 1024 * 1024
            got += len(some)
        assert got == 60

    simulate(lambda world: world.live(main))


def test_a_group_that_is_not_deleted_after_all_has_not_lost_its_place() -> None:
    async def main(node: Node) -> None:
        await create(node)
        await publish(node, b"a", b"b")
        who = await node.members.join(Join("g", "client", ("orders",)), GroupMode.QUEUE)
        polled = await node.members.poll(PollRequest(Who("g", who.member_id), 1, 0))
        await node.queue.ack([one.receipt for one in polled.messages if isinstance(one, Delivered)])
        await node.members.leave(Who("g", who.member_id))

        async def join(group_id: str) -> None:
            await node.members.join(Join(group_id, "another", ("orders",), "late"), GroupMode.QUEUE)

        node.groups.when_group_deleted(join)  # while its place is being forgotten
        with pytest.raises(GroupNotEmpty):
            await node.groups.delete("g")
        polled = await node.members.poll(PollRequest(Who("g", "late"), 10, 0))
        assert [one.record.value for one in polled.messages] == [b"b"]

    simulate(lambda world: world.live(main))


def test_records_of_one_key_are_not_under_way_together_after_the_order_is_asked_for() -> None:
    async def main(node: Node) -> None:
        await create(node)
        await send(node, (b"k", b"k1"), (b"k", b"k2"))
        assert values(await poll(node, limit=1)) == [b"k1"]
        await node.topics.alter("orders", {"ordering": "key"})
        assert values(await poll(node, member="other")) == []

    simulate(lambda world: world.live(main))


def test_a_member_that_comes_back_at_once_keeps_what_it_gets_then() -> None:
    async def main(node: Node) -> None:
        for topic in ("one", "two"):
            await create(node, topic)
        await publish(node, b"a", topic="one")
        join = Join("g", "client", ("one", "two"), "m")
        await node.members.join(join, GroupMode.QUEUE)
        for _ in range(2):
            await node.members.poll(PollRequest(Who("g", "m"), 10, 0))
        one, _ = node.queue._ledgers.all()
        assert one.source.topic == "one"
        slow, settled = asyncio.Event(), one.settled

        async def slow_settled(*, gives_up: bool = False) -> None:
            await slow.wait()
            await settled(gives_up=gives_up)

        one.settled = slow_settled  # type: ignore[method-assign]  # a sync that takes long
        leaving = asyncio.create_task(node.members.leave(Who("g", "m")))
        await asyncio.sleep(0.1)
        await publish(node, b"b", topic="two")
        again = asyncio.create_task(node.members.join(join, GroupMode.QUEUE))
        await asyncio.sleep(1)
        polled: list[Message] = []
        if again.done():
            places = [("two", 0)]
            polled += await node.queue.poll(Poll("g", "m", places, 10))
        slow.set()
        await asyncio.wait([leaving, again])
        await asyncio.sleep(1)
        others = await poll(node, "two", member="other")
        assert not (polled and others)

    simulate(lambda world: world.live(main))


def test_polls_do_not_wait_for_each_other_and_for_a_slow_disk_one_after_another() -> None:
    """There is a durable backlog; what is published meanwhile is nothing that anybody has to wait for."""

    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            await publish(node, *[b"x"] * 100)
            await poll(node, limit=1)
            world.loop.executor_latency = SLUGGISH
            loop = asyncio.get_running_loop()
            started = loop.time()

            async def publish_on() -> None:
                while loop.time() < started + 60:
                    await publish(node, b"y", acks=Acks.LEADER)
                    await asyncio.sleep(0.05)

            publishing = asyncio.create_task(publish_on())
            await asyncio.sleep(3)
            polls = [poll(node, member=f"m{index}", limit=1) for index in range(10)]
            assert [len(got) for got in await asyncio.gather(*polls)] == [1] * 10
            took_s = loop.time() - started - 3
            await publishing
            world.loop.executor_latency = BRISK
            assert took_s < 10

        await world.live(life)

    simulate(main)


# -------------------------------------------------------------------- the state machine alone


def opened() -> tuple[Ledger, Window]:
    ledger = Ledger()
    for event in open_group(ledger, "g", 0).events:
        ledger.apply(event)
    window = ledger.find("g")
    assert window is not None
    return ledger, window


def take(
    ledger: Ledger,
    window: Window,
    start: int,
    count: int,
    *,
    visibility_ms: int = 30_000,
    now_ms: int = 0,
    member: str = "m",
) -> None:
    end = start + count
    offer = tuple(Fresh(range(start, end) if lane == NORMAL else (), end) for lane in range(LANE_COUNT))
    decision = lease(
        ledger,
        window,
        member,
        offer,
        limit=count,
        visibility_ms=visibility_ms,
        now_ms=now_ms,
        policy=LeasePolicy(),
    )
    for event in decision.events:
        ledger.apply(event)


def finish(ledger: Ledger, window: Window, start: int, count: int, *, now_ms: int = 0) -> None:
    claims = [Claim(offset, 1) for offset in range(start, start + count)]
    for event in settle(window, claims, now_ms=now_ms, cursors=window.cursors).events:
        ledger.apply(event)


def held_bytes(work: Callable[[Ledger, Window], None]) -> int:
    """How much more memory the state needs after some work."""
    ledger, window = opened()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        work(ledger, window)
        assert window.committed_offset >= 0
        return tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


def steps_of(work: Callable[[], object]) -> int:
    """How many calls and lines it takes: the same on every machine."""
    count = 0

    def trace(frame: object, event: str, argument: object) -> object:
        nonlocal count
        count += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)  # type: ignore[arg-type]  # it gives itself back
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def test_a_record_that_is_held_for_long_costs_no_memory_for_those_finished_behind_it() -> None:
    def work(ledger: Ledger, window: Window) -> None:
        take(ledger, window, 0, 1, visibility_ms=12 * 3_600_000)
        for start in range(1, 50_001, 500):
            take(ledger, window, start, 500)
            finish(ledger, window, start, 500)

    assert held_bytes(work) < 500_000


def test_leases_that_are_finished_cost_no_memory_until_their_time_would_be_up() -> None:
    def work(ledger: Ledger, window: Window) -> None:
        for start in range(10_000):
            take(ledger, window, start, 1, visibility_ms=12 * 3_600_000)
            finish(ledger, window, start, 1)

    assert held_bytes(work) < 500_000


def test_one_tick_ends_no_more_leases_than_the_event_loop_can_wait_for() -> None:
    ledger, window = opened()
    for start in range(0, 100_000, 1_000):
        take(ledger, window, start, 1_000)
    decision = tick(ledger, lambda _: LeasePolicy(), 60_000)
    assert 0 < sum(len(event.items) for event in decision.events if isinstance(event, Postponed)) <= 20_000


def test_a_poll_is_quick_though_very_much_has_come_back_at_once() -> None:
    ledger, window = opened()
    for start in range(0, 200_000, 1_000):
        take(ledger, window, start, 1_000)
    while events := tick(ledger, lambda _: LeasePolicy(), 60_000).events:
        for event in events:
            ledger.apply(event)
    assert steps_of(lambda: take(ledger, window, 200_000, 10, now_ms=200_000)) < 50_000


def test_a_member_leaves_quickly_however_much_others_hold() -> None:
    ledger, window = opened()
    for start in range(0, 500_000, 1_000):
        take(ledger, window, start, 1_000, member="other")
    take(ledger, window, 500_000, 1)
    assert steps_of(lambda: let_go(ledger, window, "m", policy=LeasePolicy(), now_ms=1)) < 1_000
