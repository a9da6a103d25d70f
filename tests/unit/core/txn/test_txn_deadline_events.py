"""Transactions that take too long, and transactional ids that nobody uses."""

from __future__ import annotations

import pytest
from tests.support.txns import ORDERS, PAYMENTS, Coordinator

from goqueue.core.txn.config import DAY_MS, TxnConfig
from goqueue.core.txn.events import TopicPartition, TxnState
from goqueue.core.txn.shard import TICK_COUNT_MAX
from goqueue.core.txn.transitions import EPOCH_MAX
from goqueue.model.errors import (
    ConcurrentTransactions,
    InvalidProducerIdMapping,
    InvalidTransactionState,
    TransactionalProducerFenced,
)


def timed_out(coordinator: Coordinator) -> None:
    coordinator.tick(60_000)
    assert coordinator.state() is TxnState.PREPARE_ABORT


def test_an_open_transaction_has_a_deadline_from_its_first_participant_on() -> None:
    coordinator = Coordinator()
    who = coordinator.init(timeout_ms=60_000)
    began_ms = coordinator.now_ms
    coordinator.add(who, ORDERS)
    assert coordinator.shard.next_tick_ms() == began_ms + 60_000
    coordinator.now_ms += 1_000
    coordinator.add(who, PAYMENTS)
    assert coordinator.shard.next_tick_ms() == began_ms + 60_000
    coordinator.tick(58_999)
    assert coordinator.state() is TxnState.ONGOING
    coordinator.tick(1)
    assert coordinator.state() is TxnState.PREPARE_ABORT


@pytest.mark.parametrize("crash", [True, False])
def test_one_that_takes_too_long_is_aborted_with_an_epoch_that_fences_its_producer(crash: bool) -> None:
    coordinator = Coordinator()
    who = coordinator.begun(ORDERS, PAYMENTS)
    if crash:  # trap 25: it survives a restart as open
        coordinator.crash()
        assert coordinator.state() is TxnState.ONGOING
    timed_out(coordinator)
    for call in (
        lambda: coordinator.add(who, ORDERS),
        lambda: coordinator.add_group(who, "workers"),
        lambda: coordinator.shard.verify("app", *who, [ORDERS]),
        lambda: coordinator.end(who, bumps_epoch=False),
    ):
        with pytest.raises(TransactionalProducerFenced):
            call()
    with pytest.raises(InvalidTransactionState):
        coordinator.end(who, is_commit=True)
    work = coordinator.complete()
    assert (work.producer, work.is_commit, work.partitions) == ((1, 1), False, (ORDERS, PAYMENTS))
    assert coordinator.state() is TxnState.COMPLETE_ABORT


def test_a_producer_whose_transaction_timed_out_may_abort_it_and_go_on() -> None:
    coordinator = Coordinator()
    who = coordinator.begun()
    timed_out(coordinator)
    with pytest.raises(ConcurrentTransactions):
        coordinator.end(who, is_commit=False)
    coordinator.complete()
    after = coordinator.end(who, is_commit=False)
    assert after == (1, 1)
    assert coordinator.init(given=who) == (1, 1)
    coordinator.add(after, ORDERS)


def test_a_producer_whose_transaction_timed_out_does_not_go_on_once_another_took_over() -> None:
    coordinator = Coordinator()
    who = coordinator.begun()
    timed_out(coordinator)
    coordinator.complete()
    assert coordinator.init() == (1, 2)
    with pytest.raises(TransactionalProducerFenced):
        coordinator.end(who, is_commit=False)
    with pytest.raises(TransactionalProducerFenced):
        coordinator.init(given=who)


def test_at_the_last_epoch_a_timeout_ends_the_producer() -> None:
    """The epoch above the last is for its markers; were the producer told it, nothing could fence it."""
    coordinator = Coordinator()
    coordinator.begun()
    last = coordinator.at_epoch(EPOCH_MAX)
    timed_out(coordinator)
    coordinator.complete()
    with pytest.raises(TransactionalProducerFenced):
        coordinator.end(last, is_commit=False)
    with pytest.raises(TransactionalProducerFenced):
        coordinator.init(given=last)
    assert coordinator.init() == (2, 0)


def test_one_that_is_decided_does_not_time_out() -> None:
    coordinator = Coordinator()
    coordinator.end(coordinator.begun())
    assert coordinator.shard.next_tick_ms() is None
    coordinator.tick(10 * DAY_MS)
    assert coordinator.state() is TxnState.PREPARE_COMMIT


def test_an_id_that_is_idle_for_a_week_is_forgotten() -> None:
    coordinator = Coordinator()
    who = coordinator.init("idle")
    coordinator.end(coordinator.begun(id="busy"), id="busy")
    coordinator.tick(7 * DAY_MS - 1)
    coordinator.complete(id="busy")
    assert coordinator.state("idle") is TxnState.EMPTY
    coordinator.tick(1)
    with pytest.raises(InvalidProducerIdMapping):
        coordinator.add(who, ORDERS, id="idle")
    coordinator.crash()
    assert [saved.transactional_id for saved in coordinator.shard.transactions()] == ["busy"]
    assert coordinator.shard.next_tick_ms() == coordinator.now_ms - 1 + 7 * DAY_MS
    assert coordinator.init("idle") == (3, 0)


def test_an_open_transaction_keeps_its_id() -> None:
    coordinator = Coordinator(TxnConfig(id_expiration_ms=10))
    coordinator.begun()
    coordinator.tick(1_000)
    assert coordinator.state() is TxnState.ONGOING


def test_many_deadlines_at_once_are_met_in_turns() -> None:
    coordinator = Coordinator()
    for at in range(TICK_COUNT_MAX + 20):
        coordinator.begun(id=f"app-{at}")
    coordinator.tick(60_000)
    assert len(coordinator.pending) == TICK_COUNT_MAX
    assert coordinator.shard.next_tick_ms() == coordinator.now_ms
    coordinator.tick()
    assert len(coordinator.pending) == TICK_COUNT_MAX + 20
    assert coordinator.shard.next_tick_ms() is None


def test_a_tick_fits_one_batch_of_the_log_however_large_the_transactions_are() -> None:
    coordinator = Coordinator()
    parts = [TopicPartition(f"{at}".rjust(249, "t"), 0) for at in range(700)]
    for at in range(100):
        coordinator.begun(*parts, id=f"app{at}")
    coordinator.now_ms += 60_000
    ticks = 0
    while coordinator.shard.next_tick_ms() == coordinator.now_ms:
        before = len(coordinator.log)
        coordinator.tick()
        assert 0 < sum(len(key) + len(value or b"") for key, value in coordinator.log[before:]) < 16 * 2**20
        ticks += 1
    assert len(coordinator.pending) == 100
    assert ticks > 1
