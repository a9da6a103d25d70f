"""Votes, terms, leases and hand-over, rule by rule."""

from __future__ import annotations

import pytest
from tests.support.raft_members import (
    LATE,
    accepted,
    active_leader,
    answers,
    append,
    ask,
    command,
    leader,
    member,
    votes,
    work,
)

from goqueue.core.raft.config import RaftConfig
from goqueue.core.raft.messages import AnswerVote, Appended, AskVote, TimeoutNow
from goqueue.core.raft.raft import HardState, InvalidVoters, NotLeading, Role


def test_silence_makes_a_pre_candidate_that_changes_nothing() -> None:
    raft = member()
    assert raft.next_tick_ms() == RaftConfig("n1").election_ms_min
    raft.tick(raft.next_tick_ms() - 1)
    assert raft.ready() is None
    raft.tick(raft.next_tick_ms())
    ready = raft.ready()
    assert ready is not None
    assert ready.state is None
    assert raft.role is Role.PRE_CANDIDATE
    assert ready.messages == (ask("n1", "n2", 1, is_pre=True), ask("n1", "n3", 1, is_pre=True))


def test_majority_of_pre_votes_makes_a_candidate_and_of_votes_a_leader() -> None:
    raft = member()
    raft.campaign(0)
    work(raft)
    raft.step(AnswerVote("n2", "n1", 1, True, True), 0)
    ready = raft.ready()
    assert ready is not None
    assert raft.role is Role.CANDIDATE
    assert ready.state == HardState(1, "n1")  # with the questions, so before them
    assert [message for message in ready.messages if isinstance(message, AskVote)] == list(ready.messages)
    raft.advance(ready)
    raft.step(AnswerVote("n3", "n1", 1, True, False), 0)
    assert raft.is_leader
    assert raft.leader == "n1"
    assert not raft.is_active
    assert raft.last_index == 1


def test_late_vote_does_not_count() -> None:
    raft = member()
    raft.campaign(0)
    raft.step(AnswerVote("n2", "n1", 1, True, True), 0)
    work(raft)
    raft.step(AnswerVote("n3", "n1", 1, True, False), LATE)
    assert not raft.is_leader


def test_votes_of_strangers_do_not_count() -> None:
    raft = member()
    raft.campaign(0)
    raft.step(AnswerVote("n8", "n1", 1, True, True), 0)
    raft.step(AnswerVote("n9", "n1", 1, True, True), 0)
    assert raft.role is Role.PRE_CANDIDATE


def test_lost_election_ends_at_once() -> None:
    raft = member()
    raft.campaign(0)
    raft.step(AnswerVote("n2", "n1", 1, True, True), 0)
    work(raft)
    raft.step(AnswerVote("n2", "n1", 1, False, False), 0)
    raft.step(AnswerVote("n3", "n1", 1, False, False), 0)
    assert raft.role is Role.FOLLOWER


def test_vote_is_given_once_per_term_and_is_durable_with_the_answer() -> None:
    raft = member()
    raft.step(ask("n2", "n1", 1), LATE)
    raft.step(ask("n3", "n1", 1), LATE)
    raft.step(ask("n2", "n1", 1), LATE)
    ready = raft.ready()
    assert ready is not None
    assert ready.state == HardState(1, "n2")
    assert votes(ready.messages) == [True, False, True]


def test_vote_survives_a_restart() -> None:
    raft = member(state=HardState(1, "n2"))
    raft.step(ask("n3", "n1", 1), LATE)
    raft.step(ask("n2", "n1", 1), LATE)
    assert votes(work(raft)) == [False, True]


@pytest.mark.parametrize(
    ("last_term", "last_index", "is_granted"),
    [(2, 2, True), (3, 1, True), (2, 1, False), (1, 9, False), (2, 3, True)],
)
@pytest.mark.parametrize("is_pre", [True, False])
def test_vote_needs_a_log_that_is_as_new(
    last_term: int, last_index: int, is_granted: bool, is_pre: bool
) -> None:
    raft = member(entries=[command(1, 1), command(2, 2)])
    raft.step(ask("n2", "n1", 5, last_index, last_term, is_pre=is_pre), LATE)
    assert votes(work(raft)) == [is_granted]


@pytest.mark.parametrize("is_pre", [True, False])
def test_who_hears_a_leader_does_not_vote_nor_change_its_term(is_pre: bool) -> None:
    raft = member()
    raft.step(append("n2", "n1", 1), 0)
    work(raft)
    raft.step(ask("n3", "n1", 5, is_pre=is_pre), RaftConfig("n1").election_ms_min - 1)
    assert work(raft) == ()
    assert raft.term == 1
    raft.step(ask("n3", "n1", 5, is_pre=is_pre), RaftConfig("n1").election_ms_min)
    assert votes(work(raft)) == [True]


def test_transfer_is_voted_for_although_a_leader_is_heard() -> None:
    raft = member()
    raft.step(append("n2", "n1", 1), 0)
    raft.step(ask("n3", "n1", 2, is_transfer=True), 1)
    assert votes(work(raft)) == [True]


def test_pre_vote_for_an_old_term_is_refused_with_the_newer_one() -> None:
    raft = member(state=HardState(4, None))
    raft.step(ask("n2", "n1", 4, is_pre=True), LATE)
    raft.step(ask("n2", "n1", 3), LATE)
    messages = work(raft)
    assert votes(messages) == [False, False]
    assert [message.term for message in messages] == [4, 4]


def test_old_leader_is_told_of_the_newer_term_and_follows() -> None:
    raft = member(state=HardState(4, None))
    raft.step(append("n2", "n1", 3, command(1, 3)), 0)
    (answer,) = work(raft)
    assert answers([answer]) == [(False, 0)]
    assert answer.term == 4
    assert raft.last_index == 0
    old = leader()
    old.step(Appended("n2", "n1", 4, False, 0, 0, 1, False), 0)
    assert old.role is Role.FOLLOWER
    assert old.term == 4


def test_leader_that_hears_no_majority_for_its_lease_gives_up() -> None:
    raft = active_leader()
    config = RaftConfig("n1")
    now_ms = 0
    while raft.is_leader:
        now_ms = raft.next_tick_ms()
        raft.tick(now_ms)
        work(raft)
    assert now_ms == config.lease_ms
    assert raft.leader is None


def test_answers_to_later_rounds_keep_a_leader() -> None:
    raft = active_leader()
    context = 1
    for _ in range(20):
        now_ms = raft.next_tick_ms()
        raft.tick(now_ms)
        work(raft)
        context += 1
        accepted(raft, "n3", 1, now_ms, context=context)
    assert raft.is_leader
    standings = raft.standings(now_ms + 5)
    assert {name: one.silent_ms for name, one in standings.items()} == {"n2": now_ms + 5, "n3": 5}


def test_leader_has_heard_of_nobody_before_they_answer() -> None:
    raft = leader()
    assert {one.silent_ms for one in raft.standings(7).values()} == {None}
    accepted(raft, "n3", 1, 9)
    assert {name: one.silent_ms for name, one in raft.standings(10).items()} == {"n2": None, "n3": 1}


def test_answers_to_an_old_round_do_not_prolong_the_lease() -> None:
    raft = active_leader()
    while raft.is_leader:
        now_ms = raft.next_tick_ms()
        raft.tick(now_ms)
        work(raft)
        if raft.is_leader:
            accepted(raft, "n3", 1, now_ms, context=1)
    assert now_ms == RaftConfig("n1").lease_ms


def test_leader_knows_since_when_a_majority_follows_for_sure() -> None:
    raft = active_leader()
    raft.tick(3_000)
    work(raft)
    accepted(raft, "n2", 1, 3_500, context=1)
    assert raft.followed_ms(3_500) == 0
    accepted(raft, "n2", 1, 3_600, context=2)
    assert raft.followed_ms(3_600) == 3_000  # when the question went out, not when the answer came
    assert member().followed_ms(0) is None


def test_transfer_waits_until_the_target_has_everything() -> None:
    raft = active_leader()
    raft.propose(b"a", 0)
    work(raft)
    raft.transfer("n2", 0)
    assert not any(isinstance(message, TimeoutNow) for message in work(raft))
    with pytest.raises(NotLeading) as refusal:
        raft.propose(b"b", 0)
    assert refusal.value.leader == "n2"
    accepted(raft, "n2", 2)
    assert TimeoutNow("n1", "n2", 1) in work(raft)


def test_transfer_is_given_up_after_an_election_timeout() -> None:
    raft = active_leader()
    raft.propose(b"a", 0)
    raft.transfer("n2", 0)
    now_ms = 0
    context = 1
    while now_ms < RaftConfig("n1").election_ms_max:
        now_ms = raft.next_tick_ms()
        raft.tick(now_ms)
        work(raft)
        context += now_ms % 3_000 == 0
        accepted(raft, "n3", 2, now_ms, context=context)
    assert raft.propose(b"b", now_ms) == 3


@pytest.mark.parametrize("target", ["n9", "n4"])
def test_transfer_to_who_is_no_voter_is_refused(target: str) -> None:
    raft = active_leader()
    raft.set_observers(["n4"])
    with pytest.raises(InvalidVoters, match=target):
        raft.transfer(target, 0)
    raft.transfer("n1", 0)
    assert raft.propose(b"", 0) == 2


def test_target_of_a_transfer_stands_at_once() -> None:
    raft = member("n2")
    raft.step(TimeoutNow("n1", "n2", 1), 0)
    assert raft.role is Role.FOLLOWER  # n1 is not its leader
    raft.step(append("n1", "n2", 1), 0)
    raft.step(TimeoutNow("n1", "n2", 1), 0)
    asked = [message for message in work(raft) if isinstance(message, AskVote)]
    assert asked == [ask("n2", "n1", 2, is_transfer=True), ask("n2", "n3", 2, is_transfer=True)]


def test_followers_say_who_leads() -> None:
    raft = member()
    for use in (
        lambda: raft.propose(b"", 0),
        lambda: raft.change_voters(["n1"], 0),
        lambda: raft.transfer("n2", 0),
    ):
        with pytest.raises(NotLeading) as refusal:
            use()
        assert refusal.value.leader is None
    raft.step(append("n3", "n1", 1), 0)
    with pytest.raises(NotLeading) as refusal:
        raft.propose(b"", 0)
    assert refusal.value.leader == "n3"
    assert raft.standings(0) == {}


def test_observer_never_stands_and_forgets_a_silent_leader() -> None:
    raft = member("n4")
    raft.step(append("n1", "n4", 1), 0)
    leaders = [raft.leader]
    raft.campaign(0)
    raft.tick(raft.next_tick_ms())
    assert raft.role is Role.FOLLOWER
    assert [*leaders, raft.leader] == ["n1", None]
    assert not any(isinstance(message, AskVote) for message in work(raft))
    assert raft.next_tick_ms() > RaftConfig("n4").election_ms_min


def test_entries_of_a_term_that_is_not_durable_yet_count_as_its_vote() -> None:
    raft = member(entries=[command(1, 3)], state=HardState(2, "n2"))
    assert raft.term == 3
    raft.step(ask("n2", "n1", 3, 5, 3), LATE)
    assert votes(work(raft)) == [False]


def test_node_without_known_voters_waits_for_a_leader() -> None:
    raft = member("n1", ())
    raft.campaign(0)
    raft.tick(LATE)
    assert raft.role is Role.FOLLOWER
    raft.step(append("n2", "n1", 1, command(1, 1), commit=1), LATE)
    assert raft.leader == "n2"
    assert raft.commit_index == 1
