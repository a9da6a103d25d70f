"""Redrive of a whole node: dead letters go back once, those that were asked for, and none is lost on the way."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.support.dead_letters import DLQ, dead_letters, poll, redrive, reject, told
from tests.support.nodes import Died, World, create, publish, read_all, read_values, simulate

from goqueue.core.redrive import RedriveFilter
from goqueue.model.acks import Acks
from goqueue.model.errors import (
    GoQueueError,
    InvalidRequest,
    OffsetOutOfRange,
    PartitionNotFound,
    TopicNotFound,
)
from goqueue.model.record import NewRecord
from goqueue.node.dead_letters.redrive import RedriveRequest
from goqueue.node.node import Node
from goqueue.node.requests import NewMessage


def one_life(main: Callable[[Node], Awaitable[None]]) -> None:
    simulate(lambda world: world.live(main))


async def kill(node: Node, *values: bytes, partition: int = 0, reason: str = "bad") -> None:
    """Publish messages, and let each die."""
    await publish(node, *values, partition=partition)
    got = await poll(node)
    assert len(got) == len(values)
    await reject(node, *got, reason=reason)
    await settled(node)


async def settled(node: Node) -> None:
    """Until nothing is on its way."""
    for _ in range(10_000):
        if not any(ledger.state.moves for ledger in node.queue._ledgers.all()):
            return
        await asyncio.sleep(0.01)
    raise AssertionError("moves do not end")


async def values_of(node: Node, topic: str = "orders") -> list[bytes | None]:
    return [
        value
        for one in node.topics.partitions(topic)
        for value in await read_values(node, topic, one.partition)
    ]


# -------------------------------------------------------------------- there and back


def test_a_message_goes_back_as_it_was_and_says_how_often() -> None:
    async def main(node: Node) -> None:
        await create(node, partition_count=3)
        record = NewRecord(b"k", b"body", (("color", b"red"),))
        await node.publisher.publish("orders", [NewMessage(record, 2)], acks=Acks.ALL)
        for attempt in (1, 2):
            (got,) = await poll(node)
            await reject(node, got)
            await settled(node)
            result = await redrive(node)
            assert (result.moved, result.matched, result.failed, result.remaining) == (1, 1, 0, 0)
            again = (await read_all(node, "orders", 2))[attempt]
            assert (again.key, again.value) == (b"k", b"body")
            assert again.headers == (("color", b"red"), ("gq-redrive-count", b"%d" % attempt))

    one_life(main)


def test_each_goes_once_however_often_somebody_asks() -> None:
    async def main(node: Node) -> None:
        await create(node)
        await kill(node, b"a", b"b", b"c")
        results = await asyncio.gather(*(redrive(node) for _ in range(4)))
        assert sum(one.moved for one in results) == 3
        assert (await redrive(node)).matched == 0
        assert await values_of(node) == [b"a", b"b", b"c"] * 2
        assert len(await dead_letters(node)) == 3

    one_life(main)


def test_a_limit_is_kept_and_the_next_call_goes_on() -> None:
    async def main(node: Node) -> None:
        await create(node, partition_count=2)
        await kill(node, *[b"%d" % at for at in range(7)], partition=0)
        await kill(node, *[b"%d" % at for at in range(7, 12)], partition=1)
        counts = [(await redrive(node, limit=5)) for _ in range(4)]
        assert [one.moved for one in counts] == [5, 5, 2, 0]
        assert [one.remaining for one in counts] == [7, 2, 0, 0]
        assert await read_values(node) == [b"%d" % at for at in range(7)] * 2
        assert await read_values(node, partition=1) == [b"%d" % at for at in range(7, 12)] * 2

    one_life(main)


def test_a_dry_run_says_what_would_be_and_changes_nothing() -> None:
    async def main(node: Node) -> None:
        await create(node)
        await kill(node, b"a", b"b", b"c")
        would = await redrive(node, dry_run=True, limit=2)
        assert (would.moved, would.matched, would.dry_run) == (2, 2, True)
        assert len(await values_of(node)) == 3
        assert (await redrive(node, dry_run=True)).moved == 3
        assert (await redrive(node, limit=1)).moved == 1
        assert (await redrive(node, dry_run=True)).moved == 2

    one_life(main)


def test_a_single_message_goes_by_its_partition_and_offset() -> None:
    async def main(node: Node) -> None:
        await create(node)
        await kill(node, b"a", b"b", b"c")
        assert (await redrive(node, partition=0, offset=1)).moved == 1
        assert (await redrive(node, partition=0, offset=1)).moved == 0
        assert await values_of(node) == [b"a", b"b", b"c", b"b"]
        assert (await redrive(node)).moved == 2
        with pytest.raises(OffsetOutOfRange):
            await redrive(node, partition=0, offset=3)
        with pytest.raises(PartitionNotFound):
            await redrive(node, partition=1)
        with pytest.raises(InvalidRequest, match="needs a partition"):
            await redrive(node, offset=1)

    one_life(main)


def test_only_what_matches_goes_and_the_rest_waits_for_another_call() -> None:
    async def main(node: Node) -> None:
        await create(node, partition_count=2)
        await kill(node, b"a0", b"a1", reason="smtp: timeout")
        middle_ms = node.clock.now_ms()
        await asyncio.sleep(5)
        await kill(node, b"b0", partition=1, reason="no such user")
        record = NewRecord(b"key", b"c0", (("tenant", b"acme"),))
        await node.publisher.publish("orders", [NewMessage(record, 0)], acks=Acks.ALL)
        await reject(node, *await poll(node, group="others", limit=1_000), reason="other")
        await settled(node)

        async def matching(**of: object) -> list[str]:
            chosen = RedriveFilter(**of)  # type: ignore[arg-type]  # by name
            result = await redrive(node, filter=chosen, dry_run=True)
            assert result.skipped == 7 - result.matched
            return [str(result.moved)]

        assert await matching() == ["7"]
        assert await matching(group="others") == ["4"]
        assert await matching(reason="rejected", group="workers") == ["3"]
        assert await matching(reason="retries exhausted") == ["0"]
        assert await matching(error_contains="timeout") == ["2"]
        assert await matching(key=b"key") == ["1"]
        assert await matching(headers={"tenant": b"acme"}) == ["1"]
        assert await matching(headers={"tenant": b"other"}) == ["0"]
        assert await matching(partition=1) == ["2"]
        assert await matching(partition=0, offset_start=1, offset_end=2) == ["2"]
        assert await matching(time_end_ms=middle_ms + 1) == ["2"]
        assert await matching(time_start_ms=middle_ms + 1) == ["5"]
        assert (await redrive(node, filter=RedriveFilter(error_contains="timeout"))).moved == 2
        assert (await redrive(node)).moved == 5

    one_life(main)


# -------------------------------------------------------------------- where to


def test_messages_may_go_to_another_topic_by_their_keys() -> None:
    async def main(node: Node) -> None:
        await create(node)
        await create(node, "fixed", partition_count=4)
        for key in (b"k1", b"k2", b"k3"):
            await publish(node, b"v" + key, key=key)
        await publish(node, b"keyless")
        await reject(node, *await poll(node))
        await settled(node)
        assert (await redrive(node, to="fixed")).moved == 4
        for key in (b"k1", b"k2", b"k3"):
            await publish(node, b"new", topic="fixed", key=key, partition=None)
        for partition in range(4):
            keys = [one.key for one in await read_all(node, "fixed", partition) if one.key is not None]
            assert sorted(keys) == sorted([*set(keys)] * 2)
        assert len(await values_of(node)) == 4

    one_life(main)


def test_a_partition_that_is_not_there_any_more_is_chosen_by_key() -> None:
    async def main(node: Node) -> None:
        await create(node, partition_count=3)
        await publish(node, b"a", key=b"k", partition=2)
        await reject(node, *await poll(node))
        await settled(node)
        await node.topics.delete("orders")
        await create(node, partition_count=1)
        assert (await redrive(node)).moved == 1
        assert await read_values(node) == [b"a"]

    one_life(main)


def test_a_missing_target_is_an_error_and_nothing_moves() -> None:
    async def main(node: Node) -> None:
        await create(node)
        await kill(node, b"a", b"b")
        with pytest.raises(TopicNotFound, match="elsewhere"):
            await redrive(node, to="elsewhere")
        await node.topics.delete("orders")
        for dry_run in (True, False):
            with pytest.raises(TopicNotFound, match="orders"):
                await redrive(node, dry_run=dry_run)
        await create(node)
        assert (await redrive(node)).moved == 2
        with pytest.raises(TopicNotFound, match=r"nothing\.dlq"):
            await redrive(node, "nothing.dlq")

    one_life(main)


def test_one_missing_topic_does_not_keep_the_others_back() -> None:
    async def main(node: Node) -> None:
        await create(node, dlq_topic="morgue")
        await create(node, "bills", dlq_topic="morgue")
        await kill(node, b"order")
        await publish(node, b"bill", topic="bills")
        await reject(node, *await poll(node, "bills"))
        await settled(node)
        await node.topics.delete("bills")
        result = await redrive(node, "morgue")
        assert (result.moved, result.failed, result.remaining) == (1, 1, 1)
        assert "bills" in result.errors[0]

    one_life(main)


def test_a_redrive_never_goes_into_itself_or_into_other_dead_letters() -> None:
    async def main(node: Node) -> None:
        await create(node, dlq_topic="morgue")
        await create(node, "other.dlq")
        await kill(node, b"a")
        for to in ("morgue", "other.dlq"):
            with pytest.raises(InvalidRequest, match=to):
                await redrive(node, "morgue", to=to)
        with pytest.raises(InvalidRequest, match="takes dead letters"):
            await redrive(node, "other.dlq", to="morgue")
        assert await values_of(node) == [b"a"]

    one_life(main)


def test_dead_letters_of_dead_letters_go_back_one_step_at_a_time() -> None:
    async def main(node: Node) -> None:
        await create(node)
        await create(node, DLQ, dlq_topic="morgue")
        await kill(node, b"a", reason="first")
        await reject(node, *await poll(node, DLQ), reason="second")
        await settled(node)
        assert (await redrive(node, "morgue")).moved == 1
        _, back = await dead_letters(node)
        assert (told(back)["gq-dlq-topic"], told(back)["gq-dlq-error"]) == ("orders", "first")
        assert (await redrive(node)).moved == 2
        assert await values_of(node) == [b"a"] * 3

    one_life(main)


def test_what_is_no_dead_letter_stays_where_it_is() -> None:
    async def main(node: Node) -> None:
        await create(node)
        await kill(node, b"a")
        await publish(node, b"by hand", topic=DLQ)
        forged = NewRecord(None, b"forged", (("gq-dlq-topic", DLQ.encode()), ("gq-dlq-partition", b"0")))
        looping = NewRecord(None, b"loop", (*forged.headers, ("gq-dlq-offset", b"0")))
        internal = NewRecord(
            None,
            b"x",
            (("gq-dlq-topic", b"__ledger.orders"), ("gq-dlq-partition", b"0"), ("gq-dlq-offset", b"0")),
        )
        for record in (forged, looping, internal):
            await node.publisher.publish(DLQ, [NewMessage(record, 0)], acks=Acks.ALL)
        result = await redrive(node)
        assert (result.moved, result.skipped, result.failed) == (1, 2, 2)
        assert len(await dead_letters(node)) == 5

    one_life(main)


def test_a_message_that_is_too_large_for_its_target_stays() -> None:
    async def main(node: Node) -> None:
        await create(node)
        await create(node, "small", max_message_bytes="2000")
        await kill(node, b"x" * 3_000, b"y")
        result = await redrive(node, to="small")
        assert (result.moved, result.failed) == (1, 1)
        assert "2000" in result.errors[0]
        assert (await redrive(node)).moved == 1

    one_life(main)


# -------------------------------------------------------------------- limits


def test_a_message_that_keeps_dying_is_parked() -> None:
    async def main(node: Node) -> None:
        await create(node)
        await kill(node, b"poison")
        for _ in range(5):
            assert (await redrive(node)).moved == 1
            await reject(node, *await poll(node))
            await settled(node)
        stuck = await redrive(node)
        assert (stuck.moved, stuck.parked, stuck.matched, stuck.remaining) == (0, 1, 1, 1)
        assert (await redrive(node)).parked == 1
        assert (await redrive(node, redrives_max=6)).moved == 1
        await reject(node, *await poll(node))
        await settled(node)
        assert (await redrive(node)).parked == 1
        assert (await redrive(node, force=True)).moved == 1

    one_life(main)


def test_what_dies_again_at_once_is_not_sent_back_by_the_same_call() -> None:
    async def main(node: Node) -> None:
        await create(node)
        await kill(node, b"a", b"b")

        async def fail_for_ever() -> None:
            while True:
                await reject(node, *await poll(node, wait_ms=60_000))

        failing = asyncio.create_task(fail_for_ever())
        assert (await redrive(node, per_second=1)).moved == 2
        failing.cancel()
        assert len(await values_of(node)) == 4

    one_life(main)


def test_a_rate_is_kept() -> None:
    async def main(node: Node) -> None:
        await create(node)
        await kill(node, *[b"%d" % at for at in range(100)])
        started = asyncio.get_running_loop().time()
        redriving = asyncio.create_task(redrive(node, per_second=20))
        await asyncio.sleep(2)
        assert 38 <= len(await values_of(node)) - 100 <= 44
        assert (await redriving).moved == 100
        assert 4.8 <= asyncio.get_running_loop().time() - started <= 5.5

    one_life(main)


@pytest.mark.parametrize(
    "wrong", [{"limit": 0}, {"limit": 100_001}, {"per_second": 0}, {"redrives_max": 0}], ids=str
)
def test_numbers_out_of_range_are_refused(wrong: dict[str, int]) -> None:
    async def main(node: Node) -> None:
        await create(node)
        await kill(node, b"a")
        ((name, number),) = wrong.items()
        with pytest.raises(InvalidRequest, match=f"{name} is {number}; it must be 1 to"):
            await node.redrive.redrive(RedriveRequest(DLQ, **wrong))  # type: ignore[arg-type]  # numbers by name
        with pytest.raises(InvalidRequest, match="take longer"):
            await redrive(node, limit=100_000, per_second=1)

    one_life(main)


def test_a_caller_that_goes_away_stops_it_between_two_steps_and_another_goes_on() -> None:
    async def main(node: Node) -> None:
        await create(node)
        await kill(node, *[b"%d" % at for at in range(50)])
        redriving = asyncio.create_task(redrive(node, per_second=10))
        await asyncio.sleep(2)
        redriving.cancel()
        await asyncio.sleep(10)
        count = len(await values_of(node)) - 50
        assert 15 <= count <= 25
        assert (await redrive(node)).moved == 50 - count
        assert await values_of(node) == [b"%d" % at for at in range(50)] * 2

    one_life(main)


def test_retention_takes_what_was_redriven_and_what_was_not() -> None:
    async def main(node: Node) -> None:
        await create(node)
        await kill(node, b"a", b"b", b"c", b"d")
        assert (await redrive(node, limit=1)).moved == 1
        await node.topics.delete_records(DLQ, 0, 2)
        result = await redrive(node, limit=1)
        assert (result.moved, result.remaining) == (1, 1)
        (ledger,) = (one for one in node.queue._ledgers.all() if one.source.topic == DLQ)
        assert [tuple(run) for run in ledger.state.redriven.runs()] == [(2, 1)]
        assert await values_of(node) == [b"a", b"b", b"c", b"d", b"a", b"c"]

    one_life(main)


# -------------------------------------------------------------------- what goes wrong


def test_messages_are_put_back_when_their_target_is_deleted_on_the_way() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            await create(node, "fixed")
            await kill(node, b"a", b"b")
            world.device.slow("sync", 0.5)
            redriving = asyncio.create_task(redrive(node, to="fixed"))
            for _ in range(10_000):
                if any(ledger.state.moves for ledger in node.queue._ledgers.all()):
                    break
                await asyncio.sleep(0.01)
            await node.topics.delete("fixed")
            with pytest.raises(TopicNotFound, match="fixed"):
                await redriving
            world.device.calm()
            assert (await redrive(node)).moved == 2
            assert await values_of(node) == [b"a", b"b"] * 2

        await world.live(life)

    simulate(main)


def test_a_target_that_takes_nothing_ends_the_call_and_its_messages_arrive_later() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            await kill(node, b"x" * 10_000)

            async def fill() -> None:
                for _ in range(10_000):
                    if any(ledger.state.moves for ledger in node.queue._ledgers.all()):
                        break
                    await asyncio.sleep(0.0001)
                world.device.capacity_bytes = int(world.device.platter.used_bytes() * 100 / 99)
                node._disk_watch.check()

            filling = asyncio.create_task(fill())
            result = await redrive(node)
            await filling
            assert (result.moved, result.pending, result.matched) == (0, 1, 1)
            assert "on their way" in result.errors[0]
            world.device.capacity_bytes = int(world.device.platter.used_bytes() * 100 / 50)
            await asyncio.sleep(12)
            assert len(await values_of(node)) == 2
            assert (await redrive(node)).matched == 0

        await world.live(life)

    simulate(main)


def test_a_record_that_goes_while_it_is_sent_back_leaves_no_empty_message() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            for value in (b"a", b"b", b"c"):
                await kill(node, value)
            world.device.slow("sync", 0.5)
            redriving = asyncio.create_task(redrive(node))
            for _ in range(10_000):
                if any(ledger.state.moves for ledger in node.queue._ledgers.all()):
                    break
                await asyncio.sleep(0.01)
            await node.topics.delete_records(DLQ, 0, 2)
            await redriving
            world.device.calm()
            assert await values_of(node) == [b"a", b"b", b"c", b"c"]
            await kill_all(node)
            assert (await redrive(node)).moved == 1
            assert await values_of(node) == [b"a", b"b", b"c", b"c", b"c"]

        async def kill_all(node: Node) -> None:
            await reject(node, *await poll(node))
            await settled(node)

        await world.live(life)

    simulate(main)


async def prepare(node: Node) -> None:
    await create(node, partition_count=2)
    await create(node, "fixed", partition_count=2)
    for partition in range(2):
        await kill(node, *[b"%d" % at for at in range(4)], partition=partition)


async def check(node: Node) -> None:
    await settled(node)
    await redrive(node)
    for partition in range(2):
        values = await read_values(node, "orders", partition)
        assert values == [b"%d" % at for at in range(4)] * 2
    assert (await redrive(node)).matched == 0


@pytest.mark.parametrize("operation", range(1, 196))
def test_a_power_cut_at_any_operation_of_the_disk_sends_each_message_back_once(operation: int) -> None:
    async def main(world: World) -> None:
        await world.live(prepare)

        async def cut(node: Node) -> None:
            world.device.crash_after(operation)
            for _ in range(3):
                await redrive(node, limit=3)

        try:
            await world.live(cut)
        except (Died, GoQueueError):
            pass
        world.device.calm()
        await world.live(check)

    simulate(main, seed=operation)
