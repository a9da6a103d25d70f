"""Joints have an end in time and in number, and their names a form."""

from __future__ import annotations

import pytest
from tests.support.txns import ORDERS, PAYMENTS, Coordinator

from goqueue.core.txn import members
from goqueue.core.txn.config import TxnConfig
from goqueue.core.txn.events import TopicPartition, TxnState
from goqueue.core.txn.joint import AlreadyCommitted, Enrolled
from goqueue.core.txn.refusals import BATCH_ID_MAX
from goqueue.model.errors import GoQueueError, InvalidRequest, InvalidTransactionTimeout, LimitExceeded


def ids(coordinator: Coordinator) -> list[str]:
    return [saved.transactional_id for saved in coordinator.shard.transactions()]


# ---------------------------------------------------------------- names


@pytest.mark.parametrize("joint", ["", "a" * 201, "a{b", "a}b", "new\nline", "\0"])
def test_a_joint_id_has_a_form(joint: str) -> None:
    coordinator = Coordinator()
    for ask in (coordinator.enrol, coordinator.commit_joint, coordinator.abort_joint):
        with pytest.raises(InvalidRequest):
            ask(joint=joint)


@pytest.mark.parametrize("batch", [-1, 2**63])
def test_a_batch_id_is_a_whole_number_of_63_bits(batch: int) -> None:
    coordinator = Coordinator()
    for ask in (coordinator.enrol, coordinator.commit_joint, coordinator.abort_joint):
        with pytest.raises(InvalidRequest):
            ask(batch=batch)


@pytest.mark.parametrize("member", ["", "m" * 201, "a\tb"])
def test_a_members_name_has_a_form(member: str) -> None:
    with pytest.raises(InvalidRequest):
        Coordinator().enrol(member)


def test_the_longest_names_and_the_last_batch_work() -> None:
    coordinator = Coordinator()
    joint, batch = "j" * 200, 2**63 - 1
    winner = coordinator.enrolled("ü" * 200, ORDERS, joint=joint, batch=batch)
    assert coordinator.commit_joint(winner, joint=joint, batch=batch) is False
    assert coordinator.enrol(joint=joint, batch=batch) == AlreadyCommitted()


@pytest.mark.parametrize("timeout_ms", [0, 24 * 3_600_000 + 1])
def test_a_members_timeout_has_bounds_of_its_own(timeout_ms: int) -> None:
    """Above those of a plain producer: the first task of a batch waits for the last."""
    coordinator = Coordinator()
    with pytest.raises(InvalidTransactionTimeout):
        coordinator.enrol(timeout_ms=timeout_ms)
    assert coordinator.config.timeout_ms_max < 24 * 3_600_000
    assert isinstance(coordinator.enrol(timeout_ms=24 * 3_600_000), Enrolled)


# ---------------------------------------------------------------- time


def test_a_member_that_takes_too_long_is_aborted_and_forgotten() -> None:
    coordinator = Coordinator()
    coordinator.enrolled("m", ORDERS)
    assert coordinator.shard.next_tick_ms() == coordinator.now_ms + 60_000
    coordinator.tick(59_999)
    assert coordinator.state("{q}/0/m") is TxnState.ONGOING
    coordinator.tick(1)
    assert coordinator.complete(id="{q}/0/m").is_commit is False
    assert ids(coordinator) == []
    assert coordinator.shard.next_tick_ms() is None


def test_a_member_that_never_wrote_is_forgotten_after_its_timeout() -> None:
    coordinator = Coordinator()
    coordinator.enrol()
    coordinator.tick(59_999)
    assert ids(coordinator) == ["{q}/0/m"]
    coordinator.tick(1)
    assert (ids(coordinator), coordinator.pending) == ([], [])
    assert coordinator.shard.next_tick_ms() is None


def test_a_joint_is_forgotten_when_it_has_committed_nothing_for_long() -> None:
    coordinator = Coordinator(TxnConfig(joint_expiration_ms=1_000))
    coordinator.commit_joint(batch=4)
    coordinator.tick(600)
    coordinator.commit_joint(batch=5)
    coordinator.crash()
    coordinator.tick(999)
    assert coordinator.commit_joint(batch=5) is True
    coordinator.tick(1)
    assert isinstance(coordinator.enrol(batch=0), Enrolled)


def test_a_joint_that_has_committed_the_last_batch_there_can_be_is_forgotten_sooner() -> None:
    """Who writes once would leave a joint for months."""
    coordinator = Coordinator(TxnConfig(joint_expiration_ms=1_000, member_timeout_ms_max=500))
    coordinator.commit_joint(joint="once", batch=BATCH_ID_MAX)
    coordinator.commit_joint(joint="often", batch=BATCH_ID_MAX - 1)
    coordinator.crash()
    coordinator.tick(499)
    assert coordinator.enrol(joint="once", batch=BATCH_ID_MAX, timeout_ms=1) == AlreadyCommitted()
    assert coordinator.shard.joints.known_count == 2
    coordinator.tick(1)
    assert coordinator.shard.joints.known_count == 1
    assert coordinator.commit_joint(joint="often", batch=BATCH_ID_MAX - 1) is True


def test_a_tick_ends_many_and_says_when_there_are_more() -> None:
    coordinator = Coordinator(TxnConfig(joint_expiration_ms=60_000))
    for number in range(250):
        coordinator.enrol(f"{number}", joint=f"j{number}")
        coordinator.commit_joint(joint=f"k{number}")
    coordinator.tick(60_000)
    assert len(ids(coordinator)) == 150
    assert coordinator.shard.next_tick_ms() == coordinator.now_ms
    coordinator.tick()
    coordinator.tick()
    assert ids(coordinator) == []
    assert coordinator.shard.next_tick_ms() is None


# ---------------------------------------------------------------- number


def test_the_open_members_of_a_joint_are_limited() -> None:
    coordinator = Coordinator(TxnConfig(member_count_max=2))
    coordinator.enrolled("a", ORDERS)
    coordinator.enrolled("b")
    with pytest.raises(LimitExceeded):
        coordinator.enrol("c")
    coordinator.enrolled("b")  # the same again is not one more
    coordinator.enrolled("c", joint="other")
    coordinator.enrolled("c", batch=1)  # the ones of the batch before end with this
    coordinator.enrolled("d", batch=1)
    with pytest.raises(LimitExceeded):
        coordinator.enrol("e", batch=1)


def test_a_verdict_fits_one_batch_of_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    coordinator = Coordinator()
    monkeypatch.setattr(members, "VERDICT_BYTES_MAX", 1_500)
    winners = [coordinator.enrolled("a", ORDERS)]
    with pytest.raises(LimitExceeded):
        coordinator.enrolled("b", *(TopicPartition("orders", index) for index in range(300)))
    coordinator.add(winners[0].producer, PAYMENTS, id=winners[0].transactional_id)
    winners.append(coordinator.enrolled("c"))
    with pytest.raises(LimitExceeded):
        coordinator.enrolled("d")
    written = len(coordinator.log)
    coordinator.commit_joint(*winners)
    assert sum(len(key) + len(value or b"") for key, value in coordinator.log[written:]) < 1_500


def test_what_the_verdict_takes_is_counted_as_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a joint that lives long would be refused in the end."""
    coordinator = Coordinator()
    monkeypatch.setattr(members, "VERDICT_BYTES_MAX", 2_000)
    for batch in range(200):
        winner = coordinator.enrolled("a", ORDERS, batch=batch)
        coordinator.add(winner.producer, PAYMENTS, id=winner.transactional_id)
        coordinator.enrolled("b", batch=batch)
        coordinator.commit_joint(winner, batch=batch)
        coordinator.complete_all()


def test_joints_are_limited_but_one_that_has_members_can_be_committed() -> None:
    coordinator = Coordinator(TxnConfig(joint_count_max=2))
    coordinator.commit_joint(joint="a")
    winner = coordinator.enrolled("m", ORDERS, joint="b")
    for ask in (coordinator.enrol, coordinator.commit_joint):
        with pytest.raises(LimitExceeded):
            ask(joint="c")
    coordinator.abort_joint(joint="c")
    assert coordinator.commit_joint(winner, joint="b") is False
    coordinator.commit_joint(joint="a", batch=1)
    coordinator.commit_joint(joint="b", batch=1)


def test_members_count_as_transactional_ids() -> None:
    coordinator = Coordinator(TxnConfig(id_count_max=2))
    coordinator.init("app")
    coordinator.enrol("a")
    for ask in (lambda: coordinator.enrol("b"), lambda: coordinator.init("app2")):
        with pytest.raises(LimitExceeded):
            ask()
    coordinator.enrol("a")


def test_a_refused_enrolment_takes_no_spare_producer() -> None:
    coordinator = Coordinator(TxnConfig(member_count_max=1))
    coordinator.enrol("a")
    coordinator.abort_joint()
    first = coordinator.enrolled("a")
    with pytest.raises(GoQueueError):
        coordinator.enrol("b")
    coordinator.abort_joint()
    assert coordinator.enrolled("a").producer.producer_id == first.producer.producer_id
