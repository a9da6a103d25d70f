"""Joints: many producers write a batch, one verdict says which of them count."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.support.txns import ORDERS, PAYMENTS, Coordinator

from goqueue.core.txn.events import (
    ProducerEpoch,
    TopicPartition,
    TransactionForgotten,
    TransactionSaved,
    TxnState,
)
from goqueue.core.txn.joint import AlreadyCommitted, Enrolled, Winner
from goqueue.core.txn.outcome import Decision
from goqueue.core.txn.spares import SPARE_COUNT_MAX
from goqueue.core.txn.transitions import EPOCH_MAX
from goqueue.model.errors import (
    ConcurrentTransactions,
    GoQueueError,
    InvalidProducerIdMapping,
    InvalidTransactionState,
    TransactionAbortable,
    TransactionalProducerFenced,
)


def ids(coordinator: Coordinator) -> list[str]:
    return [saved.transactional_id for saved in coordinator.shard.transactions()]


def refused_as_writer(coordinator: Coordinator, member: Winner) -> GoQueueError:
    """What it is told when it goes on."""
    with pytest.raises(GoQueueError) as caught:
        coordinator.add(member.producer, PAYMENTS, id=member.transactional_id)
    return caught.value


# ---------------------------------------------------------------- enrolling


def test_a_member_is_a_transactional_producer_that_knows_its_joint_and_batch() -> None:
    coordinator = Coordinator()
    assert coordinator.enrol("task-3", joint="query", batch=7) == Enrolled(
        "{query}/7/task-3", ProducerEpoch(1, 0)
    )
    saved = coordinator.saved("{query}/7/task-3")
    assert saved.joint is not None
    assert (saved.joint.joint_id, saved.joint.batch_id, saved.state) == ("query", 7, TxnState.EMPTY)
    coordinator.add(saved.producer, ORDERS, PAYMENTS, id="{query}/7/task-3")
    assert coordinator.shard.verify("{query}/7/task-3", *saved.producer, [ORDERS, PAYMENTS]) == {}


def test_members_of_one_batch_have_producers_of_their_own() -> None:
    coordinator = Coordinator()
    producers = [coordinator.enrolled(name).producer for name in ("a", "b", "c")]
    assert len({producer.producer_id for producer in producers}) == 3


def test_a_member_that_enrols_again_before_it_wrote_fences_the_first() -> None:
    coordinator = Coordinator()
    first = coordinator.enrolled()
    second = coordinator.enrolled()
    assert second.producer == ProducerEpoch(first.producer.producer_id, first.producer.epoch + 1)
    assert isinstance(refused_as_writer(coordinator, first), TransactionalProducerFenced)
    with pytest.raises(TransactionAbortable):
        coordinator.commit_joint(first)
    assert coordinator.commit_joint(second) is False


def test_a_member_that_enrols_again_while_its_transaction_is_open_has_it_aborted_first() -> None:
    coordinator = Coordinator()
    first = coordinator.enrolled("m", ORDERS)
    for _ in range(2):  # asked, and while the markers are being written
        with pytest.raises(ConcurrentTransactions):
            coordinator.enrol()
    assert coordinator.complete(id=first.transactional_id).is_commit is False
    second = coordinator.enrolled("m", ORDERS)
    assert second.transactional_id == first.transactional_id
    assert second.producer > first.producer
    with pytest.raises(TransactionAbortable):
        coordinator.commit_joint(first)
    assert coordinator.commit_joint(second) is False


def test_enrolling_in_a_batch_aborts_what_is_open_of_the_batches_before_it() -> None:
    coordinator = Coordinator()
    written = coordinator.enrolled("w", ORDERS, batch=4)
    empty = coordinator.enrolled("e", batch=4)
    other = coordinator.enrolled("w", ORDERS, joint="other", batch=4)
    ahead = coordinator.enrolled("w", ORDERS, batch=6)
    assert coordinator.verdicts() == {written.transactional_id: False}
    assert set(ids(coordinator)) == {one.transactional_id for one in (written, other, ahead)}
    assert isinstance(refused_as_writer(coordinator, written), TransactionalProducerFenced)
    assert isinstance(refused_as_writer(coordinator, empty), InvalidProducerIdMapping)


def test_a_batch_before_one_that_is_open_may_be_enrolled_in_as_long_as_it_is_not_committed() -> None:
    coordinator = Coordinator()
    ahead = coordinator.enrolled("w", ORDERS, batch=6)
    behind = coordinator.enrolled("w", ORDERS, batch=5)
    assert coordinator.commit_joint(behind, batch=5) is False
    assert coordinator.verdicts() == {behind.transactional_id: True}
    assert coordinator.commit_joint(ahead, batch=6) is False


def test_after_a_commit_there_is_nothing_left_to_enrol_for() -> None:
    coordinator = Coordinator()
    coordinator.commit_joint(coordinator.enrolled("m", ORDERS, batch=3), batch=3)
    written = len(coordinator.log)
    for batch in (0, 2, 3):
        assert coordinator.enrol(batch=batch) == AlreadyCommitted()
    assert len(coordinator.log) == written
    assert isinstance(coordinator.enrol(batch=4), Enrolled)
    assert isinstance(coordinator.enrol(batch=0, joint="other"), Enrolled)


# ---------------------------------------------------------------- committing


def test_a_commit_is_one_decision_about_everybody() -> None:
    coordinator = Coordinator()
    winners = [coordinator.enrolled("a", ORDERS), coordinator.enrolled("b", ORDERS, PAYMENTS)]
    loser = coordinator.enrolled("a2", ORDERS)
    idle = coordinator.enrolled("idle")
    decision = coordinator.shard.joints.commit("q", 0, [*winners, idle], coordinator.now_ms)
    saved = {
        event.transactional_id: event for event in decision.events if isinstance(event, TransactionSaved)
    }
    assert {id: event.state for id, event in saved.items()} == {
        winners[0].transactional_id: TxnState.PREPARE_COMMIT,
        winners[1].transactional_id: TxnState.PREPARE_COMMIT,
        loser.transactional_id: TxnState.PREPARE_ABORT,
    }
    assert TransactionForgotten(idle.transactional_id) in decision.events
    assert {work.transactional_id: work.is_commit for work in decision.markers} == {
        winners[0].transactional_id: True,
        winners[1].transactional_id: True,
        loser.transactional_id: False,
    }


def test_members_are_forgotten_once_their_markers_are_written() -> None:
    coordinator = Coordinator()
    coordinator.commit_joint(coordinator.enrolled("a", ORDERS), coordinator.enrolled("b", PAYMENTS))
    assert len(ids(coordinator)) == 2
    coordinator.complete_all()
    assert ids(coordinator) == []


def test_a_commit_without_winners_is_remembered_too() -> None:
    coordinator = Coordinator()
    assert coordinator.commit_joint(batch=9) is False
    assert coordinator.commit_joint(batch=9) is True
    assert coordinator.enrol(batch=9) == AlreadyCommitted()


def test_a_batch_that_was_committed_is_not_committed_again_by_anybody() -> None:
    coordinator = Coordinator()
    first = coordinator.enrolled("a", ORDERS, batch=2)
    assert coordinator.commit_joint(first, batch=2) is False
    stranger = Winner("{q}/2/b", ProducerEpoch(77, 0))
    for batch in (0, 1, 2):
        assert coordinator.commit_joint(stranger, batch=batch) is True
        assert coordinator.commit_joint(first, batch=batch) is True
    assert coordinator.verdicts() == {first.transactional_id: True}


def test_a_driver_that_was_replaced_commits_nothing_after_its_successor_did() -> None:
    """Both wrote the whole batch. Whoever asks first wins; what the other wrote is aborted in the same decision."""
    coordinator = Coordinator()
    olds = [coordinator.enrolled(f"old-{n}", ORDERS) for n in range(2)]
    news = [coordinator.enrolled(f"new-{n}", ORDERS) for n in range(3)]
    assert coordinator.commit_joint(*news) is False
    assert coordinator.commit_joint(*olds) is True
    assert coordinator.verdicts() == {
        **{one.transactional_id: False for one in olds},
        **{one.transactional_id: True for one in news},
    }


def lost_by_timeout(coordinator: Coordinator) -> Winner:
    member = coordinator.enrolled("late", ORDERS)
    coordinator.tick(60_000)
    return member


def lost_and_forgotten(coordinator: Coordinator) -> Winner:
    member = lost_by_timeout(coordinator)
    coordinator.complete_all()
    return member


def idle_for_too_long(coordinator: Coordinator) -> Winner:
    member = coordinator.enrolled("idle")
    coordinator.tick(60_000)
    return member


def of_another_epoch(coordinator: Coordinator) -> Winner:
    member = coordinator.enrolled("late", ORDERS)
    return Winner(member.transactional_id, ProducerEpoch(member.producer.producer_id, 1))


def of_another_producer(coordinator: Coordinator) -> Winner:
    return Winner(coordinator.enrolled("late", ORDERS).transactional_id, ProducerEpoch(999, 0))


def of_another_batch(coordinator: Coordinator) -> Winner:
    return coordinator.enrolled("late", ORDERS, batch=1)


def of_another_joint(coordinator: Coordinator) -> Winner:
    return coordinator.enrolled("late", ORDERS, joint="other")


def of_no_joint(coordinator: Coordinator) -> Winner:
    return Winner("app", coordinator.begun())


def unknown_to_all(coordinator: Coordinator) -> Winner:
    return Winner("{q}/0/nobody", ProducerEpoch(1, 0))


def taken_by_a_plain_producer(coordinator: Coordinator) -> Winner:
    member = coordinator.enrolled("late")
    coordinator.init(member.transactional_id)
    return member


@pytest.mark.parametrize(
    "lose",
    [
        lost_by_timeout,
        lost_and_forgotten,
        idle_for_too_long,
        of_another_epoch,
        of_another_producer,
        of_another_batch,
        of_another_joint,
        of_no_joint,
        unknown_to_all,
        taken_by_a_plain_producer,
    ],
    ids=lambda lose: lose.__name__,
)
def test_a_winner_that_is_not_what_it_was_is_named_and_nothing_changes(
    lose: Callable[[Coordinator], Winner],
) -> None:
    coordinator = Coordinator()
    loser = lose(coordinator)
    sound = coordinator.enrolled("sound", ORDERS)
    before, written = coordinator.shard.transactions(), len(coordinator.log)
    with pytest.raises(TransactionAbortable) as caught:
        coordinator.commit_joint(sound, loser)
    assert caught.value.details["transactional_id"] == loser.transactional_id
    assert repr(loser.transactional_id) in caught.value.sentence
    assert (coordinator.shard.transactions(), len(coordinator.log)) == (before, written)
    assert coordinator.commit_joint(sound) is False  # it can still be committed without it


def test_a_winner_may_be_named_twice() -> None:
    coordinator = Coordinator()
    winner = coordinator.enrolled("a", ORDERS)
    assert coordinator.commit_joint(winner, winner) is False
    assert coordinator.verdicts() == {winner.transactional_id: True}


@pytest.mark.parametrize("is_winner", [True, False])
def test_whoever_writes_after_the_verdict_is_refused(is_winner: bool) -> None:
    coordinator = Coordinator()
    member = coordinator.enrolled("a", ORDERS)
    coordinator.commit_joint(*([member] if is_winner else []))
    assert isinstance(refused_as_writer(coordinator, member), TransactionalProducerFenced)
    with pytest.raises(TransactionalProducerFenced):
        coordinator.shard.verify(member.transactional_id, *member.producer, [ORDERS])
    coordinator.complete_all()
    assert isinstance(refused_as_writer(coordinator, member), InvalidProducerIdMapping)
    with pytest.raises(InvalidProducerIdMapping):
        coordinator.end(member.producer, id=member.transactional_id)


def test_every_marker_of_a_verdict_fences_the_producer_where_it_wrote() -> None:
    coordinator = Coordinator()
    winner, loser = coordinator.enrolled("a", ORDERS), coordinator.enrolled("b", ORDERS)
    coordinator.commit_joint(winner)
    for member in (winner, loser):
        (work,) = [one for one in coordinator.pending if one.transactional_id == member.transactional_id]
        assert work.is_epoch_bumped
        assert work.producer == ProducerEpoch(member.producer.producer_id, member.producer.epoch + 1)


# ---------------------------------------------------------------- aborting


def test_an_abort_ends_every_open_member_of_that_batch_and_no_other() -> None:
    coordinator = Coordinator()
    ahead = coordinator.enrolled("w", ORDERS, batch=6)
    written, empty = coordinator.enrolled("w", ORDERS, batch=5), coordinator.enrolled("e", batch=5)
    other = coordinator.enrolled("w", ORDERS, joint="other", batch=5)
    assert coordinator.abort_joint(batch=5) is False
    assert coordinator.verdicts() == {written.transactional_id: False}
    assert isinstance(refused_as_writer(coordinator, empty), InvalidProducerIdMapping)
    coordinator.complete_all()
    assert set(ids(coordinator)) == {ahead.transactional_id, other.transactional_id}


def test_a_batch_that_was_aborted_may_be_written_again() -> None:
    coordinator = Coordinator()
    first = coordinator.enrolled("m", ORDERS)
    coordinator.abort_joint()
    assert coordinator.abort_joint() is False
    coordinator.complete_all()
    second = coordinator.enrolled("m", ORDERS)
    with pytest.raises(TransactionAbortable):
        coordinator.commit_joint(first)
    assert coordinator.commit_joint(second) is False


def test_an_abort_after_the_commit_changes_nothing() -> None:
    coordinator = Coordinator()
    winner = coordinator.enrolled("m", ORDERS, batch=3)
    coordinator.commit_joint(winner, batch=3)
    written = len(coordinator.log)
    for batch in (1, 3):
        assert coordinator.abort_joint(batch=batch) is True
    assert len(coordinator.log) == written
    assert coordinator.verdicts() == {winner.transactional_id: True}


@pytest.mark.parametrize("bumps_epoch", [True, False])
@pytest.mark.parametrize("parts", [(), (ORDERS,)])
def test_a_member_may_give_up_its_own_part(parts: tuple[TopicPartition, ...], bumps_epoch: bool) -> None:
    coordinator = Coordinator()
    member, other = coordinator.enrolled("m", *parts), coordinator.enrolled("other", ORDERS)
    id = member.transactional_id
    assert (
        coordinator.end(member.producer, is_commit=False, bumps_epoch=bumps_epoch, id=id) == member.producer
    )
    coordinator.complete_all()
    assert ids(coordinator) == [other.transactional_id]
    assert coordinator.enrolled("m").producer > member.producer


@pytest.mark.parametrize("bumps_epoch", [True, False])
@pytest.mark.parametrize("parts", [(), (ORDERS,)])
def test_a_member_cannot_commit_its_part_alone(parts: tuple[TopicPartition, ...], bumps_epoch: bool) -> None:
    coordinator = Coordinator()
    member = coordinator.enrolled("m", *parts)
    with pytest.raises(InvalidTransactionState):
        coordinator.end(member.producer, bumps_epoch=bumps_epoch, id=member.transactional_id)
    assert coordinator.commit_joint(member) is False


# ---------------------------------------------------------------- producers that are used again


def test_the_producers_of_a_batch_serve_the_next_one() -> None:
    coordinator = Coordinator()
    for batch in range(20):
        winners = [coordinator.enrolled(f"{n}", ORDERS, batch=batch) for n in range(3)]
        assert coordinator.commit_joint(*winners, batch=batch) is False
        coordinator.complete_all()
    assert coordinator.ids_given == 3


@pytest.mark.parametrize("is_crashing", [False, True])
def test_nobody_gets_a_producer_and_epoch_that_another_has_had(is_crashing: bool) -> None:
    """Else the two could write into one transaction: a partition tells producers apart by just that."""
    coordinator = Coordinator()
    seen: set[ProducerEpoch] = set()

    def enrolled(*parts: TopicPartition) -> Winner:
        member = coordinator.enrolled("m", *parts)
        assert member.producer not in seen
        seen.add(member.producer)
        return member

    def over() -> None:
        coordinator.complete_all()
        if is_crashing:
            coordinator.crash()

    for _ in range(4):
        enrolled()
        coordinator.abort_joint()
        over()
        enrolled(ORDERS)
        coordinator.abort_joint()
        over()
        enrolled()
        coordinator.tick(60_000)
        over()
        enrolled(ORDERS)
        coordinator.tick(60_000)
        over()
        for parts in [(ORDERS,), ()]:
            member = enrolled(*parts)
            coordinator.end(member.producer, is_commit=False, bumps_epoch=False, id=member.transactional_id)
            over()
    assert len(seen) == 24
    assert coordinator.ids_given == 1


def test_at_the_last_epoch_a_producer_is_let_go() -> None:
    coordinator = Coordinator()
    member = coordinator.enrolled("m", ORDERS)
    saved = coordinator.saved(member.transactional_id)
    last = TransactionSaved(
        saved.transactional_id,
        saved.producer_id,
        EPOCH_MAX,
        saved.timeout_ms,
        saved.state,
        saved.updated_ms,
        serial=saved.serial,
        partitions=saved.partitions,
        started_ms=saved.started_ms,
        joint=saved.joint,
    )
    coordinator.decide(lambda _: Decision(None, [last]))
    coordinator.commit_joint(Winner(member.transactional_id, last.producer))
    assert coordinator.complete(id=member.transactional_id).producer.epoch == EPOCH_MAX + 1
    assert coordinator.enrolled("m", batch=1).producer == ProducerEpoch(2, 0)


def test_only_so_many_producers_are_kept_for_others() -> None:
    coordinator = Coordinator()
    count = SPARE_COUNT_MAX + 5
    for number in range(count):
        coordinator.enrol(f"{number}")
    coordinator.abort_joint()
    for number in range(count):
        coordinator.enrol(f"{number}", batch=1)
    assert coordinator.ids_given == count + 5


# ---------------------------------------------------------------- plain producers with a member's name


def test_a_plain_producer_that_takes_a_members_name_is_no_member() -> None:
    coordinator = Coordinator()
    member = coordinator.enrolled("m")
    who = coordinator.init(member.transactional_id)
    assert coordinator.saved(member.transactional_id).joint is None
    coordinator.add(who, ORDERS, id=member.transactional_id)
    coordinator.commit_joint()
    assert coordinator.state(member.transactional_id) is TxnState.ONGOING
    coordinator.end(who, id=member.transactional_id)
    coordinator.complete(id=member.transactional_id)
    assert coordinator.state(member.transactional_id) is TxnState.COMPLETE_COMMIT


def test_an_operator_can_end_a_members_transaction_by_fencing_its_id() -> None:
    coordinator = Coordinator()
    member = coordinator.enrolled("m", ORDERS)
    with pytest.raises(ConcurrentTransactions):
        coordinator.init(member.transactional_id)
    assert coordinator.complete(id=member.transactional_id).is_commit is False
    assert coordinator.init(member.transactional_id) != member.producer


@pytest.mark.parametrize("is_open", [False, True])
def test_a_member_takes_its_name_from_a_plain_producer(is_open: bool) -> None:
    coordinator = Coordinator()
    plain = coordinator.init("{q}/0/m")
    if is_open:
        coordinator.add(plain, ORDERS, id="{q}/0/m")
        with pytest.raises(ConcurrentTransactions):
            coordinator.enrol()
        coordinator.complete_all()
    member = coordinator.enrolled("m", ORDERS)
    assert coordinator.saved("{q}/0/m").joint is not None
    assert isinstance(refused_as_writer(coordinator, Winner("{q}/0/m", plain)), TransactionalProducerFenced)
    assert coordinator.commit_joint(member) is False
