"""A leader asks between two heartbeats whether a majority still follows it: so it knows that nobody else has decided anything."""

from __future__ import annotations

import pytest
from tests.support.raft_members import accepted, active_leader, appends, member, work

from goqueue.core.raft.config import RaftConfig
from goqueue.core.raft.raft import NotLeading

FIVE = ("n1", "n2", "n3", "n4", "n5")


def test_a_round_is_followed_when_a_majority_has_answered_it() -> None:
    raft = active_leader(FIVE)
    round = raft.inquire(10)
    assert raft.followed_round < round
    accepted(raft, "n2", 1, 11, context=round)
    assert raft.followed_round < round  # n1 and n2
    accepted(raft, "n3", 1, 12, context=round)
    assert raft.followed_round == round


def test_what_was_sent_before_the_round_began_does_not_count_for_it() -> None:
    raft = active_leader()
    before = raft.inquire(10)
    round = raft.inquire(10)  # in the same millisecond
    accepted(raft, "n2", 1, 11, context=before)
    assert raft.followed_round == before < round
    accepted(raft, "n2", 1, 11, context=round)
    assert raft.followed_round == round


def test_every_voter_is_asked_at_once_and_nobody_else() -> None:
    raft = active_leader()
    raft.set_observers(["o1"])
    work(raft)
    round = raft.inquire(10)
    messages = work(raft)
    assert sorted((one.target, one.context) for one in appends(messages, "n2") + appends(messages, "n3")) == [
        ("n2", round),
        ("n3", round),
    ]
    assert appends(messages, "o1") == []


def test_a_voter_that_has_lost_its_log_does_not_count() -> None:
    raft = active_leader()
    round = raft.inquire(10)
    accepted(raft, "n2", 1, 11, context=round, is_recovering=True)
    assert raft.followed_round < round


def test_a_heartbeat_answers_for_the_rounds_before_it() -> None:
    """The question may be lost."""
    config = RaftConfig("n1", heartbeat_ms=100, election_ms_min=1_000, election_ms_max=2_000, lease_ms=2_000)
    raft = active_leader(config=config)
    round = raft.inquire(10)
    work(raft)
    raft.tick(200)
    (beat,) = appends(work(raft), "n2")
    accepted(raft, "n2", 1, 201, context=beat.context)
    assert raft.followed_round == beat.context > round


def test_who_does_not_lead_cannot_ask() -> None:
    raft = member("n1")
    with pytest.raises(NotLeading):
        raft.inquire(0)
    assert raft.followed_round == 0
