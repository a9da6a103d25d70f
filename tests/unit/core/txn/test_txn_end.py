"""From the first participant of a transaction to the last that hears how it ended."""

from __future__ import annotations

import pytest
from tests.support.txns import ORDERS, PAYMENTS, Coordinator

from goqueue.core.txn.config import TxnConfig
from goqueue.core.txn.events import ProducerEpoch, TopicPartition, TxnState
from goqueue.core.txn.outcome import MarkerWork
from goqueue.core.txn.transitions import EPOCH_MAX
from goqueue.model.errors import (
    ConcurrentTransactions,
    GoQueueError,
    InvalidGroupId,
    InvalidProducerIdMapping,
    InvalidTransactionState,
    LimitExceeded,
    TransactionAbortable,
    TransactionalProducerFenced,
)

COMPLETE = {True: TxnState.COMPLETE_COMMIT, False: TxnState.COMPLETE_ABORT}
PREPARED = {True: TxnState.PREPARE_COMMIT, False: TxnState.PREPARE_ABORT}


def test_the_first_participant_begins_the_transaction_and_more_may_join() -> None:
    coordinator = Coordinator()
    who = coordinator.init()
    coordinator.add(who, PAYMENTS)
    started_ms = coordinator.now_ms
    coordinator.now_ms += 10
    coordinator.add(who, ORDERS, TopicPartition("orders", 2), PAYMENTS)
    coordinator.add_group(who, "workers")
    saved = coordinator.saved()
    assert (saved.state, saved.started_ms, saved.serial) == (TxnState.ONGOING, started_ms, 1)
    assert (saved.partitions, saved.groups) == ({"payments": (3,), "orders": (0, 2)}, ("workers",))


def test_participants_that_are_in_it_already_are_not_written_again() -> None:
    coordinator = Coordinator()
    who = coordinator.begun(ORDERS, PAYMENTS)
    coordinator.add_group(who, "workers")
    written = len(coordinator.log)
    coordinator.add(who, PAYMENTS)
    coordinator.add(who)
    coordinator.add_group(who, "workers")
    assert len(coordinator.log) == written


def test_no_participants_begin_nothing() -> None:
    coordinator = Coordinator()
    coordinator.add(coordinator.init())
    assert coordinator.state() is TxnState.EMPTY


def test_the_number_of_participants_is_limited() -> None:
    coordinator = Coordinator(TxnConfig(partition_count_max=3))
    who = coordinator.init()
    coordinator.add(who, ORDERS, PAYMENTS)
    coordinator.add_group(who, "workers")
    with pytest.raises(LimitExceeded):
        coordinator.add(who, TopicPartition("orders", 1))
    assert coordinator.end(who) == (1, 1)


@pytest.mark.parametrize("group_id", ["", "g" * 1_025])
def test_a_group_id_that_is_none_is_refused(group_id: str) -> None:
    coordinator = Coordinator()
    who = coordinator.init()
    with pytest.raises(InvalidGroupId):
        coordinator.add_group(who, group_id)


def test_partitions_are_verified_against_the_open_transaction() -> None:
    coordinator = Coordinator()
    who = coordinator.init()
    assert set(coordinator.shard.verify("app", *who, [ORDERS])) == {ORDERS}
    coordinator.add(who, ORDERS)
    coordinator.add_group(who, "workers")
    refusals = coordinator.shard.verify("app", *who, [ORDERS, PAYMENTS])
    assert {part: type(error) for part, error in refusals.items()} == {PAYMENTS: TransactionAbortable}
    coordinator.shard.verify_group("app", *who, "workers")
    with pytest.raises(TransactionAbortable):
        coordinator.shard.verify_group("app", *who, "others")


@pytest.mark.parametrize("bumps_epoch", [True, False])
@pytest.mark.parametrize("is_commit", [True, False])
def test_a_transaction_is_decided_then_told_then_complete(is_commit: bool, bumps_epoch: bool) -> None:
    coordinator = Coordinator()
    who = coordinator.begun(ORDERS, PAYMENTS)
    coordinator.add_group(who, "workers")
    after = coordinator.end(who, is_commit=is_commit, bumps_epoch=bumps_epoch)
    assert after == (1, 1 if bumps_epoch else 0)
    assert coordinator.state() is PREPARED[is_commit]
    assert coordinator.complete() == MarkerWork(
        "app", 1, after, bumps_epoch, is_commit, (ORDERS, PAYMENTS), ("workers",)
    )
    saved = coordinator.saved()
    assert (saved.state, saved.partitions, saved.groups) == (COMPLETE[is_commit], {}, ())
    coordinator.add(after, PAYMENTS)
    assert coordinator.saved().serial == 2


@pytest.mark.parametrize("bumps_epoch", [True, False])
@pytest.mark.parametrize("is_commit", [True, False])
def test_while_markers_are_written_nobody_begins_anything(is_commit: bool, bumps_epoch: bool) -> None:
    coordinator = Coordinator()
    who = coordinator.begun()
    after = coordinator.end(who, is_commit=is_commit, bumps_epoch=bumps_epoch)
    for call in (
        lambda: coordinator.add(after, PAYMENTS),
        lambda: coordinator.add_group(after, "workers"),
        lambda: coordinator.shard.verify("app", *after, [ORDERS]),
        lambda: coordinator.shard.verify_group("app", *after, "workers"),
        lambda: coordinator.end(who, is_commit=is_commit, bumps_epoch=bumps_epoch),
    ):
        with pytest.raises(ConcurrentTransactions):
            call()
    with pytest.raises(InvalidTransactionState):
        coordinator.end(who, is_commit=not is_commit, bumps_epoch=bumps_epoch)
    if bumps_epoch:  # the end of the next one
        with pytest.raises(ConcurrentTransactions):
            coordinator.end(after, is_commit=False)


@pytest.mark.parametrize("bumps_epoch", [True, False])
@pytest.mark.parametrize("is_commit", [True, False])
def test_an_end_that_is_asked_for_again_has_the_same_answer(is_commit: bool, bumps_epoch: bool) -> None:
    coordinator = Coordinator()
    who = coordinator.begun()
    after = coordinator.end(who, is_commit=is_commit, bumps_epoch=bumps_epoch)
    coordinator.complete()
    for _ in range(2):
        assert coordinator.end(who, is_commit=is_commit, bumps_epoch=bumps_epoch) == after
        coordinator.crash()
    with pytest.raises(InvalidTransactionState):
        coordinator.end(who, is_commit=not is_commit, bumps_epoch=bumps_epoch)
    assert coordinator.pending == []


Answer = type[GoQueueError] | int  # an error, or how far the epoch has come


@pytest.mark.parametrize(
    ("ended_by", "is_commit", "is_again", "answer"),
    [
        (None, False, True, TransactionalProducerFenced),
        (None, False, False, 2),
        (None, True, True, TransactionalProducerFenced),
        (None, True, False, InvalidTransactionState),
        ("abort", False, True, 1),
        ("abort", False, False, 2),
        ("abort", True, True, InvalidTransactionState),
        ("abort", True, False, InvalidTransactionState),
        ("commit", False, True, InvalidTransactionState),
        ("commit", False, False, 2),
        ("commit", True, True, 1),
        ("commit", True, False, InvalidTransactionState),
    ],
)
def test_an_end_without_a_transaction_is_judged_by_kafka_s_table(
    ended_by: str | None, is_commit: bool, is_again: bool, answer: Answer
) -> None:
    """Of KIP-890, in TransactionCoordinator.scala: a client that does not know whether it had begun aborts."""
    coordinator = Coordinator()
    if ended_by is None:
        coordinator.init(given=coordinator.init())
    else:
        coordinator.end(coordinator.begun(), is_commit=ended_by == "commit")
        coordinator.complete()
    assert coordinator.saved().producer == (1, 1)
    who = ProducerEpoch(1, 0 if is_again else 1)
    if isinstance(answer, int):
        assert coordinator.end(who, is_commit=is_commit) == (1, answer)
        assert coordinator.pending == []
    else:
        with pytest.raises(answer):
            coordinator.end(who, is_commit=is_commit)


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_client_without_kip_890_cannot_end_what_it_never_began(is_commit: bool) -> None:
    coordinator = Coordinator()
    who = coordinator.init()
    with pytest.raises(InvalidTransactionState):
        coordinator.end(who, is_commit=is_commit, bumps_epoch=False)


@pytest.mark.parametrize("is_commit", [True, False])
def test_at_the_last_epoch_the_end_brings_a_fresh_producer_id(is_commit: bool) -> None:
    coordinator = Coordinator()
    coordinator.begun()
    last = coordinator.at_epoch(EPOCH_MAX)
    after = coordinator.end(last, is_commit=is_commit)
    assert after == (2, 0)
    with pytest.raises(ConcurrentTransactions):
        coordinator.end(last, is_commit=is_commit)
    for call in (
        lambda: coordinator.add(after, ORDERS),
        lambda: coordinator.init(given=after),
    ):
        with pytest.raises(ConcurrentTransactions):
            call()
    assert coordinator.complete().producer == (1, EPOCH_MAX + 1)
    assert coordinator.end(last, is_commit=is_commit) == (2, 0)
    with pytest.raises(InvalidProducerIdMapping):
        coordinator.add(last, ORDERS)
    coordinator.add(after, ORDERS)
    with pytest.raises(InvalidProducerIdMapping):
        coordinator.end(last, is_commit=is_commit)
    assert coordinator.end(after) == (2, 1)


def test_an_empty_abort_at_the_last_epoch_brings_a_fresh_producer_id_too() -> None:
    coordinator = Coordinator()
    coordinator.init()
    last = coordinator.at_epoch(EPOCH_MAX)
    assert coordinator.end(last, is_commit=False) == (2, 0)
    assert coordinator.end(last, is_commit=False) == (2, 0)
    assert coordinator.ids_given == 2


def test_markers_that_are_reported_again_complete_nothing_else() -> None:
    """Transactions of a client without KIP-890 have all the same epoch."""
    coordinator = Coordinator()
    who = coordinator.begun()
    coordinator.end(who, bumps_epoch=False)
    first = coordinator.complete()
    coordinator.written(first)
    coordinator.add(who, ORDERS)
    coordinator.written(first)
    assert coordinator.state() is TxnState.ONGOING
    coordinator.end(who, bumps_epoch=False)
    coordinator.written(first)
    assert coordinator.state() is TxnState.PREPARE_COMMIT
    coordinator.complete()
    assert coordinator.state() is TxnState.COMPLETE_COMMIT


def test_a_decided_transaction_is_told_again_after_a_crash() -> None:
    coordinator = Coordinator()
    for id in ("c", "a", "b"):
        who = coordinator.begun(id=id)
        coordinator.end(who, is_commit=id != "b", id=id)
    coordinator.complete(id="a")
    told = sorted(coordinator.pending, key=lambda work: work.transactional_id)
    coordinator.crash()
    assert coordinator.pending == told
    assert [(work.transactional_id, work.is_commit) for work in told] == [("b", False), ("c", True)]


def test_deciding_changes_nothing() -> None:
    coordinator = Coordinator()
    who = coordinator.begun()
    before = coordinator.saved()
    now_ms = coordinator.now_ms + 100_000
    shard = coordinator.shard
    shard.init_producer("app", 1, None, fresh_producer_id=None, now_ms=now_ms)
    shard.add_partitions("app", *who, [PAYMENTS], now_ms)
    shard.add_offsets("app", *who, "workers", now_ms)
    shard.end("app", *who, is_commit=True, bumps_epoch=True, fresh_producer_id=None, now_ms=now_ms)
    assert len(shard.tick(now_ms).events) == 1
    assert (coordinator.saved(), shard.tick(now_ms).events != []) == (before, True)
