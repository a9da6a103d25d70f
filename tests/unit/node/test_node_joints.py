"""Joints on a node: what is seen of a batch is all of it or nothing, once."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from tests.support.joints import JOINT, abort, commit, enrolled, known_ids
from tests.support.nodes import CONFIG, End, World, counted, create, in_one_life, simulate
from tests.support.transactional import Sender, committed, is_held_up, written

from goqueue.core.txn.config import TxnConfig
from goqueue.core.txn.events import TopicPartition, TxnState
from goqueue.core.txn.joint import AlreadyCommitted
from goqueue.model.errors import (
    CoordinatorNotAvailable,
    DiskFull,
    InvalidProducerIdMapping,
    LimitExceeded,
    ProducerFenced,
    TransactionAbortable,
)
from goqueue.node.internal_topics import coordinator_partition, transaction_partition
from goqueue.node.node import Node

ENDS = pytest.mark.parametrize("end", list(End))
PARTS = [TopicPartition("orders", 0), TopicPartition("orders", 1)]


def test_a_batch_is_seen_whole_when_the_commit_is_answered_and_losers_never() -> None:
    async def life(node: Node) -> None:
        await create(node, partition_count=2)
        first, second, loser = [await enrolled(node, name) for name in ("a", "b", "a2")]
        idle = await enrolled(node, "idle")
        for sender, value in ((loser, b"lost"), (first, b"1"), (second, b"2")):
            for partition in (0, 1):
                await sender.write(node, value, partition=partition)
        assert await committed(node) == []
        assert await commit(node, first, second, idle) is False
        for partition in (0, 1):
            assert await committed(node, partition=partition) == [b"1", b"2"]
            assert await written(node, partition=partition) == [b"lost", b"1", b"2"]
        assert await known_ids(node) == []
        assert counted(node, "broker_transactions_total", outcome="committed") == 2
        assert counted(node, "broker_transactions_total", outcome="aborted") == 1

    in_one_life(life)


def test_a_batch_that_is_replayed_after_its_commit_is_not_written_again() -> None:
    async def life(node: Node) -> None:
        await create(node)
        sender = await enrolled(node)
        await sender.write(node, b"x")
        await commit(node, sender)
        assert await node.transactions.joints.enrol(JOINT, 0, "again", 1_000) == AlreadyCommitted()
        assert await commit(node, sender) is True
        assert await commit(node) is True
        assert await abort(node) is True
        assert await committed(node) == [b"x"]

    in_one_life(life)


def test_joints_and_their_verdicts_are_counted() -> None:
    async def life(node: Node) -> None:
        await enrolled(node, joint="open")
        sender = await enrolled(node)
        assert counted(node, "broker_open_joints") == 2
        assert counted(node, "broker_joints") == 0
        await commit(node, sender)
        assert counted(node, "broker_open_joints") == 1
        assert counted(node, "broker_joints") == 1
        assert counted(node, "broker_joint_replays_total") == 0
        await commit(node, sender)
        await abort(node)
        await node.transactions.joints.enrol(JOINT, 0, "again", 1_000)
        assert counted(node, "broker_joint_replays_total") == 3
        await abort(node, joint="open")
        for outcome in ("committed", "aborted"):
            assert counted(node, "broker_joint_batches_total", outcome=outcome) == 1
        assert counted(node, "broker_open_joints") == 0

    in_one_life(life)


def test_a_zombie_is_refused_in_every_partition_after_the_verdict() -> None:
    async def life(node: Node) -> None:
        await create(node, partition_count=2)
        winner, loser, idle = [await enrolled(node, name) for name in ("w", "l", "i")]
        for sender in (winner, loser):
            await sender.write(node, b"x")
        await commit(node, winner)
        successor = await enrolled(node, "s", batch=1)  # has the producer id of one of them
        await successor.write(node, b"next")
        for zombie in (winner, loser, idle):
            for part in PARTS:
                with pytest.raises((ProducerFenced, InvalidProducerIdMapping)):
                    await zombie.write_batch(node, part, b"late")
        await commit(node, successor, batch=1)
        assert await committed(node) == [b"x", b"next"]
        assert await written(node, partition=1) == []

    in_one_life(life)


def test_an_abort_frees_the_readers_and_the_batch_can_be_written_again() -> None:
    async def life(node: Node) -> None:
        await create(node)
        sender = await enrolled(node)
        await sender.write(node, b"first")
        assert await is_held_up(node)
        assert await abort(node) is False
        assert not await is_held_up(node)
        with pytest.raises(TransactionAbortable):
            await commit(node, sender)
        again = await enrolled(node)
        await again.write(node, b"second")
        await commit(node, again)
        assert await committed(node) == [b"second"]

    in_one_life(life)


def test_a_task_that_enrols_again_under_its_name_takes_over_from_itself() -> None:
    async def life(node: Node) -> None:
        await create(node)
        lost = await enrolled(node)
        await lost.write(node, b"half")
        again = await enrolled(node)
        with pytest.raises((ProducerFenced, InvalidProducerIdMapping)):
            await lost.write_batch(node, PARTS[0], b"late")
        await again.write(node, b"whole")
        with pytest.raises(TransactionAbortable):
            await commit(node, lost)
        await commit(node, again)
        assert await committed(node) == [b"whole"]

    in_one_life(life)


def test_the_next_batch_ends_what_the_one_before_left_open() -> None:
    async def life(node: Node) -> None:
        await create(node)
        orphan = await enrolled(node, batch=3)
        await orphan.write(node, b"orphan")
        sender = await enrolled(node, batch=4)
        await asyncio.sleep(0.1)
        assert not await is_held_up(node)
        await sender.write(node, b"x")
        await commit(node, sender, batch=4)
        assert await committed(node) == [b"x"]

    in_one_life(life)


def test_members_end_by_themselves_when_their_time_is_up() -> None:
    async def life(node: Node) -> None:
        await create(node)
        sender = await enrolled(node, "w", timeout_ms=5_000)
        await sender.write(node, b"x")
        idle = await enrolled(node, "i", timeout_ms=5_000)
        await asyncio.sleep(4.9)
        assert len(await known_ids(node)) == 2
        await asyncio.sleep(0.5)
        assert await known_ids(node) == []
        assert not await is_held_up(node)
        assert counted(node, "broker_transaction_timeouts_total") == 1
        for one in (sender, idle):
            with pytest.raises(TransactionAbortable) as caught:
                await commit(node, one)
            assert caught.value.details["transactional_id"] == one.id

    in_one_life(life)


@ENDS
def test_an_open_batch_is_committed_after_a_restart(end: End) -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> tuple[Sender, Sender]:
            await create(node)
            winner, idle = await enrolled(node, "w"), await enrolled(node, "i")
            await winner.write(node, b"before")
            return winner, idle

        winner, idle = await world.live(life, end=end)

        async def after(node: Node) -> None:
            assert len(await known_ids(node)) == 2
            await winner.write(node, b"after")
            assert await commit(node, winner, idle) is False
            assert await committed(node) == [b"before", b"after"]

        await world.live(after, end=end)

        async def later(node: Node) -> None:
            assert await commit(node, winner, idle) is True
            assert await known_ids(node) == []
            assert await committed(node) == [b"before", b"after"]

        await world.live(later, end=end)

    simulate(main)


@ENDS
@pytest.mark.parametrize("is_commit", [True, False])
def test_a_verdict_is_carried_out_after_a_restart(end: End, is_commit: bool) -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            winner, loser = await enrolled(node, "w"), await enrolled(node, "l")
            await winner.write(node, b"x")
            await loser.write(node, b"lost")

            async def never(work: object, coordinator_epoch: int) -> None:
                await asyncio.Event().wait()

            node.transactions._markers.write = never  # type: ignore[method-assign]  # the crash comes first
            await (commit(node, winner) if is_commit else abort(node))
            assert await is_held_up(node)

        await world.live(life, end=end)

        async def after(node: Node) -> None:
            assert await commit(node) is is_commit  # waits for what is being carried out
            assert not await is_held_up(node)
            assert await committed(node) == ([b"x"] if is_commit else [])
            assert await known_ids(node) == []

        await world.live(after)

    simulate(main)


def test_one_that_commits_is_answered_though_a_partition_is_slow() -> None:
    async def life(node: Node) -> None:
        await create(node)
        sender = await enrolled(node)
        await sender.write(node, b"x")
        go, write = asyncio.Event(), node.transactions._markers.write

        async def slow(work: object, coordinator_epoch: int) -> None:
            await go.wait()
            await write(work, coordinator_epoch)  # type: ignore[arg-type]  # it is MarkerWork

        node.transactions._markers.write = slow  # type: ignore[method-assign]
        began = asyncio.get_running_loop().time()
        assert await commit(node, sender) is False
        assert asyncio.get_running_loop().time() - began == pytest.approx(5.0, abs=0.1)
        assert (await node.transactions.describe(sender.id)).state is TxnState.PREPARE_COMMIT
        again = asyncio.ensure_future(commit(node, sender))
        await asyncio.sleep(1)
        assert not again.done()  # who asks again waits as well: it must find what was committed
        go.set()
        assert await again is True
        assert await committed(node) == [b"x"]

    in_one_life(life)


def test_a_driver_that_goes_away_does_not_stop_its_verdict() -> None:
    async def life(node: Node) -> None:
        await create(node)
        sender = await enrolled(node)
        await sender.write(node, b"x")
        task = asyncio.ensure_future(commit(node, sender))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert await commit(node, sender) is True
        assert await committed(node) == [b"x"]

    in_one_life(life)


def test_a_full_disk_refuses_members_and_lets_batches_end() -> None:
    async def life(node: Node) -> None:
        await create(node)
        first, second = await enrolled(node, batch=0), await enrolled(node, batch=1)
        await second.write(node, b"x")
        node._disk_watch._level = "full"
        with pytest.raises(DiskFull):
            await enrolled(node, batch=2)
        assert await abort(node, batch=0) is False
        assert await commit(node, second, batch=1) is False
        assert await committed(node) == [b"x"]
        assert first.id not in await known_ids(node)

    in_one_life(life)


def test_a_full_disk_refuses_to_begin_the_log_of_the_coordinator_for_an_empty_batch() -> None:
    async def life(node: Node) -> None:
        node._disk_watch._level = "full"
        assert await abort(node) is False
        with pytest.raises(DiskFull):
            await commit(node)
        node._disk_watch._level = "ok"
        assert await commit(node) is False
        assert await commit(node) is True

    in_one_life(life)


def test_a_verdict_that_cannot_be_written_was_not_given() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            winner, loser = await enrolled(node, "w"), await enrolled(node, "l")
            await winner.write(node, b"x")
            await loser.write(node, b"lost")
            world.device.fail_next("append")
            with pytest.raises(CoordinatorNotAvailable):
                await commit(node, winner)
            await loser.write(node, b"more")  # it is as open as before
            assert await commit(node, winner) is False
            assert await committed(node) == [b"x"]

        await world.live(life)

    simulate(main)


def test_many_batches_of_many_tasks_use_few_producer_ids() -> None:
    async def life(node: Node) -> None:
        await create(node)
        seen: set[int] = set()
        for batch in range(30):
            senders = await asyncio.gather(*(enrolled(node, f"{n}", batch=batch) for n in range(4)))
            for sender in senders:
                await sender.write(node, b"%d" % batch)
                seen.add(sender.who.producer_id)
            await commit(node, *senders, batch=batch)
        assert len(seen) == 4
        assert [int(value or b"") for value in await committed(node)] == [
            batch for batch in range(30) for _ in range(4)
        ]

    in_one_life(life)


def test_the_largest_joint_is_committed_in_one_decision() -> None:
    """Its names are the longest there can be: the verdict must fit the log."""
    count = 1_500
    config = msgspec.structs.replace(CONFIG, transactions=TxnConfig(member_count_max=count))

    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            senders: list[Sender] = []
            for number in range(count):
                sender = await enrolled(node, f"{number}".rjust(200, "ü"), joint="j" * 200)
                await sender.write(node, b"x")
                senders.append(sender)
            with pytest.raises(LimitExceeded):
                await enrolled(node, "one more", joint="j" * 200)
            assert await commit(node, *senders, joint="j" * 200) is False
            await asyncio.sleep(10)
            assert await known_ids(node) == []
            assert not await is_held_up(node)

        await world.live(life, config=config)

    simulate(main, config=config)


def test_a_joint_and_all_its_members_are_in_one_partition() -> None:
    for joint in ("query", "a", "7b1e", "ü"):
        home = transaction_partition(f"{{{joint}}}", 50)
        assert home == coordinator_partition(joint, 50)
        assert {transaction_partition(f"{{{joint}}}/{n}/task-{n}", 50) for n in range(100)} == {home}


@pytest.mark.parametrize("id", ["app", "a{b}c", "{}", "{}/1", "{open", "}{", ""])
def test_other_transactional_ids_are_where_kafka_has_them(id: str) -> None:
    assert transaction_partition(id, 50) == coordinator_partition(id, 50)
