"""Transactions on a running node: all of it is seen or nothing, and only from the producer that owns the id."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.nodes import CONFIG, SLUGGISH, World, counted, create, in_one_life, simulate
from tests.support.transactional import Sender, committed, is_held_up, written

from goqueue.core.group.commands import CommitInTransaction, FetchOffsets, NewOffset
from goqueue.core.txn.config import TxnConfig
from goqueue.core.txn.events import ProducerEpoch, TopicPartition, TxnState
from goqueue.core.txn.outcome import MarkerWork
from goqueue.model.errors import (
    ConcurrentTransactions,
    InvalidProducerIdMapping,
    InvalidRequest,
    InvalidTransactionState,
    InvalidTransactionTimeout,
    PartitionNotFound,
    ProducerFenced,
    TopicNotFound,
    TransactionAbortable,
    TransactionalIdNotFound,
    TransactionalProducerFenced,
)
from goqueue.node.node import Node

ORDERS = TopicPartition("orders", 0)
OTHER = TopicPartition("orders", 1)
BOTH_KINDS = pytest.mark.parametrize("bumps_epoch", [True, False], ids=["KIP-890", "KIP-98"])


async def offset_of(node: Node, group_id: str = "workers") -> int:
    fetched = await node.groups.fetch(FetchOffsets(group_id, (("orders", (0,)),)))
    return fetched.offsets[0].offset


async def commit_offset(node: Node, sender: Sender, offset: int, group_id: str = "workers") -> None:
    await node.transactions.verify_for_offsets(sender.id, *sender.who, group_id, may_add=True)
    results = await node.groups.commit_in_transaction(
        CommitInTransaction(group_id, *sender.who, (NewOffset("orders", 0, offset),))
    )
    assert [one.error for one in results.partitions] == [None]


@BOTH_KINDS
def test_what_is_committed_is_seen_at_once_and_what_is_aborted_never(bumps_epoch: bool) -> None:
    async def life(node: Node) -> None:
        await create(node, partition_count=2)
        sender = Sender(bumps_epoch=bumps_epoch)
        await sender.init(node)
        for at in range(5):
            await sender.write(node, b"%d" % at)
            await sender.write(node, b"%d" % at, partition=1)
            assert await is_held_up(node)
            await sender.end(node, is_commit=at % 2 == 0)
            seen = [b"%d" % one for one in range(0, at + 1, 2)]
            assert await committed(node) == await committed(node, partition=1) == seen
        assert len(await written(node)) == 5
        assert sender.who.epoch == (5 if bumps_epoch else 0)
        assert counted(node, "broker_transactions_total", outcome="committed") == 3
        assert counted(node, "broker_transactions_total", outcome="aborted") == 2

    in_one_life(life)


def test_offsets_count_with_the_transaction_they_are_committed_in() -> None:
    async def life(node: Node) -> None:
        await create(node)
        sender = Sender()
        await sender.init(node)
        for offset, is_commit, seen in ((5, True, 5), (9, False, 5), (7, True, 7)):
            await commit_offset(node, sender, offset)
            await sender.write(node, b"x")
            await sender.end(node, is_commit=is_commit)
            assert await offset_of(node) == seen

    in_one_life(life)


def test_a_batch_is_refused_unless_its_partition_is_in_the_transaction() -> None:
    async def life(node: Node) -> None:
        await create(node, partition_count=2)
        sender = Sender(bumps_epoch=False)
        await sender.init(node)
        with pytest.raises(TransactionAbortable):
            await sender.write_batch(node, ORDERS, b"x")
        await node.transactions.add_partitions(sender.id, *sender.who, [ORDERS])
        await sender.write_batch(node, ORDERS, b"x")
        with pytest.raises(TransactionAbortable):
            await sender.write_batch(node, OTHER, b"x")
        refusals = await node.transactions.verify(sender.id, *sender.who, [ORDERS, OTHER])
        assert list(refusals) == [OTHER]
        await sender.commit(node)
        with pytest.raises(TransactionAbortable):  # late: it would open the transaction again
            await sender.write_batch(node, ORDERS, b"late")
        assert await committed(node) == [b"x"]
        assert not await is_held_up(node)
        with pytest.raises(TransactionAbortable):
            await node.transactions.verify_for_offsets(sender.id, *sender.who, "workers", may_add=False)
        with pytest.raises(InvalidRequest):
            await node.transactions.verify_for_write(None, *sender.who, *ORDERS, may_add=True)

    in_one_life(life)


def test_partitions_that_do_not_exist_are_named_and_then_none_is_added() -> None:
    async def life(node: Node) -> None:
        await create(node)
        sender = Sender()
        await sender.init(node)
        nowhere = TopicPartition("nowhere", 0)
        refusals = await node.transactions.add_partitions(sender.id, *sender.who, [ORDERS, OTHER, nowhere])
        assert {part: type(error) for part, error in refusals.items()} == {
            OTHER: PartitionNotFound,
            nowhere: TopicNotFound,
        }
        assert (await node.transactions.describe(sender.id)).state is TxnState.EMPTY

    in_one_life(life)


@BOTH_KINDS
def test_a_newer_producer_fences_the_older_and_aborts_what_it_left_open(bumps_epoch: bool) -> None:
    async def life(node: Node) -> None:
        await create(node, partition_count=2)
        zombie, sender = Sender(bumps_epoch=bumps_epoch), Sender(bumps_epoch=bumps_epoch)
        await zombie.init(node)
        await zombie.write(node, b"half")
        with pytest.raises(ConcurrentTransactions):
            await node.transactions.init_producer("app", 60_000)
        await sender.init(node)
        assert sender.who == (zombie.who.producer_id, 2)
        for part in (ORDERS, OTHER):
            with pytest.raises(ProducerFenced):
                await zombie.write_batch(node, part, b"more")
        with pytest.raises(TransactionalProducerFenced):
            await node.transactions.add_partitions(zombie.id, *zombie.who, [OTHER])
        with pytest.raises(TransactionalProducerFenced):
            await commit_offset(node, zombie, 3)
        with pytest.raises(TransactionalProducerFenced):
            await zombie.commit(node)
        await sender.write(node, b"whole")
        await sender.commit(node)
        assert await committed(node) == [b"whole"]

    in_one_life(life)


def test_a_transaction_that_takes_too_long_is_aborted_and_its_readers_go_on() -> None:
    async def life(node: Node) -> None:
        await create(node)
        sender, quick = Sender(timeout_ms=60_000), Sender("quick", timeout_ms=5_000)
        await sender.init(node)
        await quick.init(node)
        await sender.write(node, b"slow")
        await quick.write(node, b"quick")
        await asyncio.sleep(4.9)
        assert (await node.transactions.describe("quick")).state is TxnState.ONGOING
        await asyncio.sleep(0.2)
        assert (await node.transactions.describe("quick")).state is TxnState.COMPLETE_ABORT
        await asyncio.sleep(54)
        assert await is_held_up(node)
        await asyncio.sleep(1.1)
        assert not await is_held_up(node)
        assert await committed(node) == []
        assert counted(node, "broker_transaction_timeouts_total") == 2
        with pytest.raises(ProducerFenced):
            await sender.write_batch(node, ORDERS, b"late")
        with pytest.raises(InvalidTransactionState):
            await sender.commit(node)
        await sender.abort(node)
        await sender.write(node, b"again")
        await sender.commit(node)
        assert await committed(node) == [b"again"]

    in_one_life(life)


def test_an_id_that_nobody_uses_is_forgotten() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            await Sender("idle").init(node)
            await Sender("later").init(node)
            await asyncio.sleep(0.6)
            later = Sender("later")
            await later.init(node)
            await asyncio.sleep(0.6)
            assert [saved.transactional_id for saved in await node.transactions.list()] == ["later"]
            with pytest.raises(TransactionalIdNotFound):
                await node.transactions.describe("idle")

        await world.live(life)

        async def after(node: Node) -> None:
            found = await node.transactions.list()
            assert [saved.transactional_id for saved in found] in ([], ["later"])

        await world.live(after)

    config = CONFIG.__class__(
        default_partition_count=1, log=CONFIG.log, transactions=TxnConfig(id_expiration_ms=1_000)
    )
    simulate(main, config=config)


def test_listing_filters_by_state_producer_and_duration() -> None:
    async def life(node: Node) -> None:
        await create(node)
        senders = {id: Sender(id) for id in ("c", "a", "b")}
        for sender in senders.values():
            await sender.init(node)
        await senders["a"].write(node, b"x")
        await asyncio.sleep(10)
        await senders["b"].write(node, b"x")
        ask = node.transactions.list
        assert [one.transactional_id for one in await ask()] == ["a", "b", "c"]
        assert [one.transactional_id for one in await ask(states=[TxnState.EMPTY])] == ["c"]
        assert [one.transactional_id for one in await ask(running_ms_min=5_000)] == ["a"]
        producer_id = senders["b"].who.producer_id
        assert [one.transactional_id for one in await ask(producer_ids=[producer_id])] == ["b"]
        facts = await node.transactions.describe("b")
        assert (facts.producer, facts.partitions) == (senders["b"].who, {"orders": (0,)})

    in_one_life(life)


def test_a_node_without_transactional_producers_knows_none_and_makes_no_log_for_them() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            nobody = ProducerEpoch(1, 0)
            assert await node.transactions.list() == []
            with pytest.raises(TransactionalIdNotFound):
                await node.transactions.describe("app")
            with pytest.raises(InvalidProducerIdMapping):
                await node.transactions.add_partitions("app", *nobody, [ORDERS])
            with pytest.raises(InvalidProducerIdMapping):
                await node.transactions.end("app", *nobody, is_commit=True, bumps_epoch=True)
            with pytest.raises(InvalidProducerIdMapping):
                await node.transactions.verify_for_write("app", *nobody, *ORDERS, may_add=True)
            with pytest.raises(InvalidTransactionTimeout):
                await node.transactions.init_producer("app", 0)
            with pytest.raises(InvalidRequest):
                await node.transactions.init_producer("", 60_000)
            assert world.files("logs/__transaction_state") == []

        await world.live(life)

    simulate(main)


def test_many_producers_that_begin_at_once_share_one_log_and_get_ids_of_their_own() -> None:
    async def life(node: Node) -> None:
        await create(node)
        senders = [Sender(f"app-{at}") for at in range(20)]
        await asyncio.gather(*(sender.init(node) for sender in senders))
        assert len({sender.who for sender in senders}) == 20

        async def work(sender: Sender) -> None:
            for is_commit in (True, False, True):
                await sender.write(node, sender.id.encode())
                await sender.end(node, is_commit=is_commit)

        await asyncio.gather(*(work(sender) for sender in senders))
        assert sorted(map(str, await committed(node))) == sorted(
            str(sender.id.encode()) for sender in senders for _ in range(2)
        )

    in_one_life(life)


def test_one_that_commits_is_answered_though_a_partition_is_slow_and_the_next_must_wait() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            sender = Sender()
            await sender.init(node)
            await sender.write(node, b"x")
            partition = node._table.get("orders").partition(0)
            wait = partition.commit.wait
            gate = asyncio.Event()

            async def gated(end: int, *, since: float | None = None) -> None:
                await gate.wait()
                await wait(end, since=since)

            partition.commit.wait = gated  # type: ignore[method-assign]  # a disk that hangs for this log alone
            began = world.loop.time()
            before = sender.who
            await sender.commit(node)
            assert 5 <= world.loop.time() - began < 6
            assert (await node.transactions.describe("app")).state is TxnState.PREPARE_COMMIT
            with pytest.raises(ConcurrentTransactions):
                await sender.write_batch(node, ORDERS, b"next")
            with pytest.raises(ConcurrentTransactions):
                await node.transactions.init_producer("app", 60_000)
            repeated = asyncio.ensure_future(
                node.transactions.end("app", *before, is_commit=True, bumps_epoch=True)
            )
            await asyncio.sleep(1)
            gate.set()
            assert await repeated == sender.who
            await sender.write(node, b"next")
            await sender.commit(node)
            assert await committed(node) == [b"x", b"next"]

        await world.live(life)

    simulate(main)


def test_a_client_that_goes_away_does_not_stop_what_was_decided() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            sender = Sender()
            await sender.init(node)
            await sender.write(node, b"x")
            world.loop.executor_latency = SLUGGISH
            ending = asyncio.ensure_future(sender.commit(node))
            await asyncio.sleep(0.1)
            ending.cancel()
            await asyncio.gather(ending, return_exceptions=True)
            await asyncio.sleep(20)
            assert await committed(node) == [b"x"]
            assert (await node.transactions.describe("app")).state is TxnState.COMPLETE_COMMIT

        await world.live(life)

    simulate(main)


def test_a_marker_that_comes_late_does_not_end_the_next_transaction() -> None:
    async def life(node: Node) -> None:
        await create(node)
        sender = Sender()
        await sender.init(node)
        await sender.write(node, b"x")
        late = MarkerWork("app", 1, ProducerEpoch(sender.who.producer_id, 1), True, False, (ORDERS,), ())
        await sender.commit(node)
        await sender.write(node, b"y")
        await node.transactions._markers.write(late, 0)
        assert await is_held_up(node)
        await sender.commit(node)
        assert await committed(node) == [b"x", b"y"]

    in_one_life(life)


def test_a_batch_that_waited_while_its_transaction_ended_is_refused() -> None:
    """Verified, then overtaken by the end: were it appended now, it would open the transaction again for ever."""

    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            sender = Sender(bumps_epoch=False)
            await sender.init(node)
            await sender.write(node, b"first")
            await sender.commit(node)
            await node.transactions.add_partitions(sender.id, *sender.who, [ORDERS])
            world.loop.executor_latency = SLUGGISH
            adding = asyncio.ensure_future(
                node.transactions.add_offsets(sender.id, *sender.who, "workers")
            )  # so that there is something to wait for
            await asyncio.sleep(0)
            writing = asyncio.ensure_future(sender.write_batch(node, ORDERS, b"overtaken"))
            await asyncio.sleep(0)
            await sender.commit(node)
            await adding
            with pytest.raises((ConcurrentTransactions, TransactionAbortable)):
                await writing
            assert await written(node) == [b"first"]
            assert not await is_held_up(node)

        await world.live(life)

    simulate(main)


def test_a_deleted_topic_does_not_hold_up_the_end() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            await create(node, "gone")
            sender = Sender()
            await sender.init(node)
            await sender.write(node, b"x")
            await sender.write(node, b"y", topic="gone")
            await node.topics.delete("gone")
            began = world.loop.time()
            await sender.commit(node)
            assert world.loop.time() - began < 1
            assert await committed(node) == [b"x"]
            assert (await node.transactions.describe("app")).state is TxnState.COMPLETE_COMMIT

        await world.live(life)

    simulate(main)
