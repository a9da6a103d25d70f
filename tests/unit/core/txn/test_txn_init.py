"""Taking over a transactional id: whoever had it before is fenced."""

from __future__ import annotations

import pytest
from tests.support.txns import ORDERS, Coordinator

from goqueue.core.txn.config import TxnConfig
from goqueue.core.txn.events import ProducerEpoch, TxnState
from goqueue.core.txn.transitions import EPOCH_MAX
from goqueue.model.errors import (
    ConcurrentTransactions,
    InvalidProducerIdMapping,
    InvalidRequest,
    InvalidTransactionTimeout,
    LimitExceeded,
    TransactionalIdNotFound,
    TransactionalProducerFenced,
)


def test_a_new_transactional_id_gets_a_fresh_producer_id_at_epoch_0() -> None:
    coordinator = Coordinator()
    assert coordinator.init("a") == (1, 0)
    assert coordinator.init("b") == (2, 0)
    assert coordinator.state("a") is TxnState.EMPTY


def test_a_producer_that_lost_its_coordinator_s_memory_starts_anew() -> None:
    assert Coordinator().init(given=ProducerEpoch(99, 7)) == (1, 0)


@pytest.mark.parametrize("timeout_ms", [-1, 0, 15 * 60_000 + 1])
def test_a_timeout_out_of_bounds_is_refused(timeout_ms: int) -> None:
    coordinator = Coordinator()
    with pytest.raises(InvalidTransactionTimeout):
        coordinator.init(timeout_ms=timeout_ms)
    assert coordinator.ids_given == 0


@pytest.mark.parametrize("id", ["", "x" * 1_025, "a\nb", "a\x00b", "\ud800"])
def test_an_id_that_is_none_is_refused(id: str) -> None:
    with pytest.raises(InvalidRequest):
        Coordinator().init(id)


def test_the_number_of_ids_is_limited_and_known_ones_go_on() -> None:
    coordinator = Coordinator(TxnConfig(id_count_max=2))
    coordinator.init("a")
    coordinator.init("b")
    with pytest.raises(LimitExceeded):
        coordinator.init("c")
    assert coordinator.init("a") == (1, 1)


def test_who_takes_over_gets_the_next_epoch_and_the_timeout_that_it_asks_for() -> None:
    coordinator = Coordinator()
    old = coordinator.init(timeout_ms=5_000)
    new = coordinator.init(timeout_ms=7_000)
    assert (old, new) == ((1, 0), (1, 1))
    assert coordinator.saved().timeout_ms == 7_000
    for call in (
        lambda: coordinator.add(old, ORDERS),
        lambda: coordinator.add_group(old, "g"),
        lambda: coordinator.end(old),
        lambda: coordinator.end(old, is_commit=False, bumps_epoch=False),
        lambda: coordinator.shard.verify("app", *old, [ORDERS]),
        lambda: coordinator.init(given=old),
    ):
        with pytest.raises(TransactionalProducerFenced):
            call()


def test_an_epoch_from_the_future_is_refused_too() -> None:
    coordinator = Coordinator()
    who = coordinator.init()
    with pytest.raises(TransactionalProducerFenced):
        coordinator.add(ProducerEpoch(who.producer_id, 5), ORDERS)


def test_a_foreign_or_unknown_producer_id_is_no_producer_of_this_id() -> None:
    coordinator = Coordinator()
    coordinator.init()
    for id, who in (("app", ProducerEpoch(9, 0)), ("other", ProducerEpoch(1, 0))):
        with pytest.raises(InvalidProducerIdMapping):
            coordinator.add(who, ORDERS, id=id)
        with pytest.raises(InvalidProducerIdMapping):
            coordinator.end(who, id=id)
    with pytest.raises(TransactionalIdNotFound):
        coordinator.shard.describe("other")


def test_what_the_old_producer_left_open_is_aborted_before_the_new_one_may_begin() -> None:
    coordinator = Coordinator()
    old = coordinator.begun()
    with pytest.raises(ConcurrentTransactions):
        coordinator.init()
    assert coordinator.state() is TxnState.PREPARE_ABORT
    with pytest.raises(ConcurrentTransactions):  # not aborted twice
        coordinator.init()
    for bumps_epoch in (True, False):
        with pytest.raises(TransactionalProducerFenced):
            coordinator.end(old, bumps_epoch=bumps_epoch)
        with pytest.raises(TransactionalProducerFenced):
            coordinator.end(old, is_commit=False, bumps_epoch=bumps_epoch)
    work = coordinator.complete()
    assert (work.producer, work.is_commit, work.is_epoch_bumped) == ((1, 1), False, True)
    with pytest.raises(TransactionalProducerFenced):  # the old one does not learn the epoch in between
        coordinator.end(old, is_commit=False)
    assert coordinator.init() == (1, 2)


@pytest.mark.parametrize("is_commit", [True, False])
def test_who_takes_over_while_markers_are_written_must_try_again(is_commit: bool) -> None:
    coordinator = Coordinator()
    coordinator.end(coordinator.begun(), is_commit=is_commit)
    with pytest.raises(ConcurrentTransactions):
        coordinator.init()
    coordinator.complete()
    assert coordinator.init() == (1, 2)


def test_a_producer_gets_its_next_epoch_when_it_says_who_it_is() -> None:
    """KIP-360: and again the same one, if it asks again because the answer was lost."""
    coordinator = Coordinator()
    who = coordinator.init()
    for _ in range(3):
        assert coordinator.init(given=who) == (1, 1)
    assert coordinator.init(given=ProducerEpoch(1, 1)) == (1, 2)
    with pytest.raises(TransactionalProducerFenced):
        coordinator.init(given=who)


def test_a_lost_answer_is_not_repeated_to_one_who_has_been_fenced_since() -> None:
    coordinator = Coordinator()
    who = coordinator.init()
    coordinator.init(given=who)
    coordinator.init()
    for epoch in (0, 1):
        with pytest.raises(TransactionalProducerFenced):
            coordinator.init(given=ProducerEpoch(1, epoch))


def test_a_producer_that_asks_for_its_next_epoch_aborts_what_it_left_open_and_goes_on() -> None:
    coordinator = Coordinator()
    who = coordinator.begun()
    with pytest.raises(ConcurrentTransactions):
        coordinator.init(given=who)
    coordinator.complete()
    assert coordinator.init(given=who) == (1, 1)


def test_a_zombie_that_says_who_it_was_does_not_abort_what_is_open() -> None:
    coordinator = Coordinator()
    who = coordinator.init()
    new = coordinator.begun()
    with pytest.raises(TransactionalProducerFenced):
        coordinator.init(given=who)
    assert coordinator.state() is TxnState.ONGOING
    coordinator.end(new)


@pytest.mark.parametrize("is_given", [True, False])
def test_after_the_last_epoch_comes_a_fresh_producer_id(is_given: bool) -> None:
    coordinator = Coordinator()
    coordinator.init()
    last = coordinator.at_epoch(EPOCH_MAX)
    assert coordinator.init(given=last if is_given else None) == (2, 0)
    with pytest.raises(InvalidProducerIdMapping):
        coordinator.add(last, ORDERS)
    if is_given:  # the answer may be lost
        assert coordinator.init(given=last) == (2, 0)
        coordinator.crash()
        assert coordinator.init(given=last) == (2, 0)
        with pytest.raises(TransactionalProducerFenced):  # the fresh id never had that epoch
            coordinator.init(given=ProducerEpoch(2, EPOCH_MAX))
    else:
        with pytest.raises(TransactionalProducerFenced):
            coordinator.init(given=last)


def test_the_last_producer_of_an_id_can_still_be_fenced() -> None:
    coordinator = Coordinator()
    coordinator.begun()
    last = coordinator.at_epoch(EPOCH_MAX)
    with pytest.raises(ConcurrentTransactions):
        coordinator.init()
    assert coordinator.complete().producer == (1, EPOCH_MAX + 1)
    with pytest.raises(TransactionalProducerFenced):
        coordinator.end(last, is_commit=False)
    with pytest.raises(TransactionalProducerFenced):  # that epoch is nobody's
        coordinator.add(ProducerEpoch(1, EPOCH_MAX + 1), ORDERS)
    assert coordinator.init() == (2, 0)
