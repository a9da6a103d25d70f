"""Dead letters of a whole node: what they tell, where they go, and that each arrives once."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable

import pytest
from msgspec import structs
from tests.support.dead_letters import DLQ, dead_letters, nack, poll, reject, told
from tests.support.nodes import (
    CONFIG,
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
from goqueue.model.duration import format_instant
from goqueue.model.errors import GoQueueError
from goqueue.model.limits import Limits
from goqueue.model.record import NewRecord
from goqueue.node.node import Node
from goqueue.node.requests import NewMessage


def one_life(main: Callable[[Node], Awaitable[None]]) -> None:
    simulate(lambda world: world.live(main))


async def arrived(node: Node, count: int, topic: str = DLQ) -> None:
    """Until so many dead letters are there."""
    for _ in range(72_000):
        if len(await dead_letters(node, topic)) >= count:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"there are never {count} dead letters")


# -------------------------------------------------------------------- what they tell


def test_a_rejected_record_is_a_dead_letter_with_its_bytes_and_its_story() -> None:
    async def main(node: Node) -> None:
        await create(node, partition_count=2)
        record = NewRecord(b"k", b"\x00body", (("color", b"red"), ("gq-priority", b"2")))
        await node.publisher.publish("orders", [NewMessage(record, 1)], acks=Acks.ALL)
        published_ms = node.clock.now_ms()
        await asyncio.sleep(2)
        (got,) = await poll(node)
        given_ms = node.clock.now_ms()
        await reject(node, got, reason="no such street")
        await arrived(node, 1)
        (letter,) = await dead_letters(node)
        assert (letter.key, letter.value, letter.headers[:2]) == (b"k", b"\x00body", record.headers)
        headers = told(letter)
        times = {name: headers.pop(f"gq-dlq-{name}") for name in ("timestamp", "first-delivery")}
        assert times["timestamp"] <= format_instant(published_ms)
        assert times["first-delivery"] == headers.pop("gq-dlq-last-delivery") <= format_instant(given_ms)
        assert headers == {
            "color": "red",
            "gq-priority": "2",
            "gq-dlq-topic": "orders",
            "gq-dlq-partition": "1",
            "gq-dlq-offset": "0",
            "gq-dlq-attempts": "1",
            "gq-dlq-group": "workers",
            "gq-dlq-consumer": "ann",
            "gq-dlq-reason": "rejected",
            "gq-dlq-error": "no such street",
        }
        assert await read_values(node, DLQ, 1) == [b"\x00body"]
        assert counted(node, "consumer_moved_total", cause="rejected") == 1

    one_life(main)


def test_a_record_dies_after_its_last_retry_and_not_before() -> None:
    """Trap 13."""

    async def main(node: Node) -> None:
        await create(node)
        await publish(node, b"a")
        for attempt in range(1, 5):
            (got,) = await poll(node, wait_ms=60_000)
            assert got.deliveries == attempt
            assert await dead_letters(node) == []
            # Who says nothing the last time has said something before.
            (back,) = await nack(node, got, reason=f"error {attempt}" if attempt < 4 else "")
            assert back.is_dead == (attempt == 4)
        await arrived(node, 1)
        (letter,) = await dead_letters(node)
        headers = told(letter)
        assert headers["gq-dlq-attempts"] == "4"
        assert headers["gq-dlq-reason"] == "retries exhausted"
        assert headers["gq-dlq-error"] == "error 3"
        assert await poll(node) == []

    one_life(main)


def test_a_record_that_nobody_ever_finishes_dies_too() -> None:
    async def main(node: Node) -> None:
        await create(node, visibility_ms="1000", max_retries="1")
        await publish(node, b"a")
        for _ in range(2):
            await poll(node, wait_ms=30_000)
        await arrived(node, 1)
        (letter,) = await dead_letters(node)
        headers = told(letter)
        assert (headers["gq-dlq-attempts"], headers["gq-dlq-reason"]) == ("2", "retries exhausted")
        assert headers["gq-dlq-error"] == "the visibility timeout passed"
        assert headers["gq-dlq-first-delivery"] < headers["gq-dlq-last-delivery"]

    one_life(main)


def test_a_rejected_record_does_not_hold_the_committed_offset_back() -> None:
    """Trap 15."""

    async def main(node: Node) -> None:
        await create(node)
        await publish(node, b"a", b"b", b"c")
        got = await poll(node)
        await node.queue.ack([got[0].receipt, got[2].receipt])
        assert node.queue.committed("workers", "orders", 0) == 1
        await reject(node, got[1])
        assert node.queue.committed("workers", "orders", 0) == 3

    one_life(main)


def test_the_group_is_told_though_it_is_gone_when_the_letter_is_written() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            await publish(node, b"a")
            (got,) = await poll(node)
            world.device.slow("sync", 1.0)
            await reject(node, got)
            await node.queue.forget("workers")
            await arrived(node, 1)
            assert told((await dead_letters(node))[0])["gq-dlq-group"] == "workers"

        await world.live(life)

    simulate(main)


def test_a_record_that_is_gone_before_it_is_copied_leaves_a_letter_without_a_body() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            await publish(node, b"a")
            await publish(node, b"b")
            got = await poll(node)
            world.device.slow("sync", 0.5)
            rejecting = asyncio.create_task(reject(node, *got))
            await asyncio.sleep(0.1)
            await node.topics.delete_records("orders", 0, 1)
            await rejecting
            await arrived(node, 2)
            gone, kept = await dead_letters(node)
            assert (gone.key, gone.value, kept.value) == (None, b"", b"b")
            assert told(gone)["gq-dlq-missing"].startswith("the record was gone")
            assert told(gone)["gq-dlq-offset"] == "0"
            assert "gq-dlq-missing" not in told(kept)

        await world.live(life)

    simulate(main)


# -------------------------------------------------------------------- where they go


def test_the_topic_of_dead_letters_is_made_like_its_source_and_kept_for_two_weeks() -> None:
    async def main(node: Node) -> None:
        await create(node, partition_count=3, max_message_bytes="5000")
        await publish(node, b"x" * 4_900, partition=2)
        await reject(node, *await poll(node))
        await arrived(node, 1)
        facts = node.topics.get(DLQ)
        assert facts.partition_count == 3
        assert facts.settings["retention.ms"] == str(14 * 24 * 3_600_000)
        assert int(facts.settings["max.message.bytes"]) > 5_000 + 4_000
        assert await read_values(node, DLQ, 2) == [b"x" * 4_900]

    one_life(main)


def test_dead_letters_go_where_the_topic_says_though_that_has_fewer_partitions() -> None:
    async def main(node: Node) -> None:
        await create(node, "morgue", partition_count=2)
        await create(node, partition_count=3, dlq_topic="morgue")
        for partition in range(3):
            await publish(node, b"%d" % partition, partition=partition)
        await reject(node, *await poll(node))
        await arrived(node, 3, "morgue")
        assert sorted(await read_values(node, "morgue", 0), key=str) == [b"0", b"2"]
        assert await read_values(node, "morgue", 1) == [b"1"]
        assert await dead_letters(node) == []

    one_life(main)


def test_dead_letters_have_no_dead_letters_so_their_retries_never_end() -> None:
    async def main(node: Node) -> None:
        await create(node, DLQ, max_retries="1", retry_backoff_ms="0")
        await publish(node, b"a", topic=DLQ)
        for attempt in range(1, 8):
            (got,) = await poll(node, DLQ, wait_ms=1_000)
            assert got.deliveries == attempt
            (back,) = await nack(node, got)
            assert not back.is_dead
        (got,) = await poll(node, DLQ, wait_ms=1_000)
        await reject(node, got)
        assert await poll(node, DLQ) == []
        assert [one.name for one in node.topics.list()] == [DLQ]

    one_life(main)


def test_dead_letters_may_have_dead_letters_where_somebody_says_so() -> None:
    async def main(node: Node) -> None:
        await create(node)
        await create(node, DLQ, dlq_topic="morgue")
        await publish(node, b"a")
        await reject(node, *await poll(node), reason="first")
        await arrived(node, 1)
        await reject(node, *await poll(node, DLQ), reason="second")
        await arrived(node, 1, "morgue")
        (letter,) = await dead_letters(node, "morgue")
        topics = [value for name, value in letter.headers if name == "gq-dlq-topic"]
        assert topics == [b"orders", DLQ.encode()]

    one_life(main)


def test_records_too_large_for_one_batch_arrive_in_several() -> None:
    async def main(node: Node) -> None:
        await create(node, max_message_bytes="400000")
        bodies = [b"%03d" % at * 100_000 for at in range(9)]
        for body in bodies:
            await publish(node, body)
        await reject(node, *await poll(node))
        await arrived(node, 9)
        assert await read_values(node, DLQ) == bodies

    one_life(main)


# -------------------------------------------------------------------- what goes wrong


def test_a_topic_limit_delays_dead_letters_and_loses_none() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            await create(node, "other")
            await publish(node, b"a", b"b")
            await reject(node, *await poll(node))
            await asyncio.sleep(60)
            assert await dead_letters(node) == []
            assert 5 < counted(node, "consumer_move_retries_total") < 20
            await node.topics.delete("other")
            await asyncio.sleep(10.1)
            assert [one.value for one in await dead_letters(node)] == [b"a", b"b"]

        # Topics that clients do not see count, too.
        limits = Limits(topic_count_max=2)
        await world.live(life, config=structs.replace(CONFIG, limits=limits))

    simulate(main)


def test_a_full_disk_delays_dead_letters_and_loses_none() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            await publish(node, b"x" * 10_000)
            got = await poll(node)
            world.device.capacity_bytes = int(world.device.platter.used_bytes() * 100 / 91)
            await asyncio.sleep(1.1)
            await reject(node, *got)
            await asyncio.sleep(20)
            assert await dead_letters(node) == []
            world.device.capacity_bytes = int(world.device.platter.used_bytes() * 100 / 50)
            await asyncio.sleep(12)
            assert [one.value for one in await dead_letters(node)] == [b"x" * 10_000]

        await world.live(life)

    simulate(main)


def test_a_target_that_cannot_sync_gets_its_dead_letters_at_the_next_start() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            await create(node, DLQ)
            await publish(node, b"a")
            await publish(node, b"before", topic=DLQ)
            got = await poll(node)
            rejecting = asyncio.create_task(reject(node, *got))
            for _ in range(10_000):
                if len(await dead_letters(node)) == 2:
                    break
                await asyncio.sleep(0.0001)
            world.device.fail_next("sync", error=errno.EIO)
            await rejecting
            await asyncio.sleep(30)
            assert [facts.failure is None for facts in node.topics.partitions(DLQ)] == [False]

        async def after(node: Node) -> None:
            await arrived(node, 2)
            await asyncio.sleep(30)
            assert [one.value for one in await dead_letters(node)] == [b"before", b"a"]

        await world.live(life, end=End.KILL)
        world.device.calm()
        await world.live(after)

    simulate(main)


def test_letters_that_the_target_has_lost_do_not_stop_those_that_follow() -> None:
    async def main(node: Node) -> None:
        await create(node)
        await publish(node, b"a", b"b", b"c")
        first, second, third = await poll(node)
        await reject(node, first)
        await arrived(node, 1)
        (ledger,) = node.queue._ledgers.all()
        before = ledger.state.producer
        for target in ledger.state.sequences:
            ledger.state.sequences[target] += 7
        await reject(node, second)
        await reject(node, third)
        await arrived(node, 3)
        assert [one.value for one in await dead_letters(node)] == [b"a", b"b", b"c"]
        assert ledger.state.producer not in (None, before)

    one_life(main)


def test_dead_letters_begin_anew_where_their_topic_was_deleted() -> None:
    async def main(node: Node) -> None:
        await create(node)
        await publish(node, b"a", b"b")
        first, second = await poll(node)
        await reject(node, first)
        await arrived(node, 1)
        await node.topics.delete(DLQ)
        await reject(node, second)
        await arrived(node, 1)
        assert [one.value for one in await dead_letters(node)] == [b"b"]

    one_life(main)


def test_nothing_waits_for_a_topic_that_is_deleted() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            await publish(node, b"a")
            got = await poll(node)
            world.device.slow("sync", 1.0)
            rejecting = asyncio.create_task(node.queue.reject([got[0].receipt], reason="x"))
            await asyncio.sleep(0.1)
            await node.topics.delete("orders")
            await asyncio.gather(rejecting, return_exceptions=True)
            await asyncio.sleep(60)
            assert not node.redrive._mover._busy

        await world.live(life)

    simulate(main)


# -------------------------------------------------------------------- crashes


async def prepare(node: Node) -> None:
    await create(node, max_message_bytes="20000")
    for at in range(8):
        await publish(node, b"%d" % at * 9_000)


async def work(node: Node) -> None:
    """Reject two, acknowledge two; several batches, because each is large."""
    got = await poll(node, limit=4)
    if len(got) == 4:
        await reject(node, got[0], got[2])
        await node.queue.ack([got[1].receipt, got[3].receipt])
    await asyncio.sleep(1)


async def check(node: Node) -> None:
    """Every record that was given is in exactly one place, once all are."""
    while got := await poll(node, wait_ms=60_000):
        await reject(node, *got)
    await asyncio.sleep(60)
    letters = [told(one)["gq-dlq-offset"] for one in await dead_letters(node)]
    assert len(letters) == len(set(letters))
    (ledger,) = node.queue._ledgers.all()
    assert ledger.state.moves == {}
    window = ledger.state.windows[1]
    assert window.committed_offset == 8
    assert window.moved_count == len(letters)
    assert window.settled_count + window.moved_count == 8
    assert {one.value for one in await dead_letters(node)} <= {b"%d" % at * 9_000 for at in range(8)}


@pytest.mark.parametrize("operation", range(1, 121))
def test_a_power_cut_at_any_operation_of_the_disk_leaves_each_dead_letter_once(operation: int) -> None:
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


@pytest.mark.parametrize("end", [End.KILL, End.POWER_CUT])
@pytest.mark.parametrize("tenths_ms", range(1, 160, 5))
def test_an_end_at_any_moment_leaves_each_dead_letter_once(end: End, tenths_ms: int) -> None:
    async def main(world: World) -> None:
        await world.live(prepare)

        async def cut_short(node: Node) -> None:
            working = asyncio.create_task(work(node))
            await asyncio.sleep(tenths_ms / 10_000)
            working.cancel()

        await world.live(cut_short, end=end)
        await world.live(check)

    simulate(main, seed=tenths_ms)


@pytest.mark.parametrize("seed", range(12))
def test_a_power_cut_as_soon_as_a_letter_is_durable_leaves_it_once(seed: int) -> None:
    """What the ledger has decided must be durable before."""

    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            await create(node, DLQ)
            await publish(node, b"a")
            got = await poll(node)
            rejecting = asyncio.create_task(reject(node, *got))
            (partition,) = node._table.get(DLQ).partitions
            for _ in range(10_000):
                if partition.log.durable_end:
                    break
                await asyncio.sleep(0.00005)
            rejecting.cancel()

        async def after(node: Node) -> None:
            await arrived(node, 1)
            assert await poll(node, wait_ms=60_000) == []
            assert len(await dead_letters(node)) == 1

        await world.live(life, end=End.POWER_CUT)
        await world.live(after)

    simulate(main, seed=seed)


@pytest.mark.parametrize("seed", range(12))
def test_a_power_cut_as_soon_as_a_move_is_done_loses_nothing(seed: int) -> None:
    """The letter must be durable before the ledger forgets it."""

    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            await create(node, DLQ)
            await publish(node, b"a")
            await reject(node, *await poll(node))
            (ledger,) = node.queue._ledgers.all()
            for _ in range(10_000):
                if not ledger.state.moves:
                    break
                await asyncio.sleep(0.00005)
            await ledger.settled()

        async def after(node: Node) -> None:
            await asyncio.sleep(1)
            assert [one.value for one in await dead_letters(node)] == [b"a"]

        await world.live(life, end=End.POWER_CUT)
        await world.live(after)

    simulate(main, seed=seed)


def test_crashes_one_after_another_leave_each_dead_letter_once() -> None:
    async def main(world: World) -> None:
        await world.live(prepare)
        for _ in range(10):

            async def cut(node: Node) -> None:
                world.device.crash_after(world.device.rng.randint(1, 40))
                await asyncio.sleep(31)  # what is leased comes back
                await work(node)

            try:
                await world.live(cut)
            except (Died, GoQueueError):
                pass
            world.device.calm()
        await world.live(check)

    for seed in range(6):
        simulate(main, seed=seed)


def test_what_was_published_is_not_touched_by_its_death() -> None:
    async def main(node: Node) -> None:
        await create(node)
        assert offsets(await publish(node, b"a")) == [0]
        await reject(node, *await poll(node))
        await arrived(node, 1)
        assert await read_values(node) == [b"a"]

    one_life(main)
