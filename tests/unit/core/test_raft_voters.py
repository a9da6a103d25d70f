"""Who counts: changes of the voters, and voters that have lost their logs."""

from __future__ import annotations

import pytest
from tests.support.raft_members import (
    LATE,
    accepted,
    active_leader,
    append,
    appends,
    ask,
    command,
    leader,
    member,
    refused,
    voters_entry,
    votes,
    work,
)

from goqueue.core.raft.config import RaftConfig
from goqueue.core.raft.messages import AskVote
from goqueue.core.raft.raft import HardState, InvalidVoters, Role

LOST = HardState(0, None, is_recovering=True)


@pytest.mark.parametrize(
    "voters",
    [
        [],
        ["n1"],
        ["n1", "n2", "n4"],
        ["n1", "n2", "n3", "n3"],
        ["n1", "n2", "n3", ""],
        [f"n{one}" for one in range(1, 7)],
    ],
)
def test_change_of_other_than_one_voter_is_refused(voters: list[str]) -> None:
    raft = active_leader()
    with pytest.raises(InvalidVoters):
        raft.change_voters(voters, 0)
    assert raft.last_index == 1


def test_configured_voters_are_written_down_as_they_are_but_once() -> None:
    raft = active_leader()
    before = raft.are_voters_written
    assert raft.change_voters(["n1", "n2", "n3"], 0) == 2
    assert (before, raft.are_voters_written) == (False, True)
    work(raft)
    accepted(raft, "n2", 2)
    with pytest.raises(InvalidVoters, match="one voter may be added or removed"):
        raft.change_voters(["n1", "n2", "n3"], 0)


def test_voters_that_are_written_down_count_whatever_is_configured_later() -> None:
    raft = member("n1", ("n1", "n8", "n9"), entries=[command(1, 1), voters_entry(2, 1, "n1", "n2", "n3")])
    assert raft.voters == ("n1", "n2", "n3")


def test_leader_knows_how_its_peers_stand() -> None:
    raft = active_leader()
    raft.set_observers(["n4"])
    raft.propose(b"", 5)
    accepted(raft, "n2", 1, 5)
    standings = raft.standings(7)
    assert sorted(standings) == ["n2", "n3", "n4"]
    assert (standings["n2"].silent_ms, standings["n2"].lacking_count) == (2, 1)
    assert standings["n4"].lacking_count == 2


def test_sixth_voter_is_refused() -> None:
    raft = active_leader(("n1", "n2", "n3", "n4", "n5"))
    with pytest.raises(InvalidVoters, match="1 to 5"):
        raft.change_voters([*raft.voters, "n6"], 0)


def test_voters_count_as_soon_as_they_are_in_the_log() -> None:
    raft = active_leader()
    assert raft.change_voters(["n1", "n2", "n3", "n4"], 0) == 2
    assert raft.voters == ("n1", "n2", "n3", "n4")
    work(raft)
    accepted(raft, "n2", 2)
    assert raft.commit_index == 1  # two of four
    with pytest.raises(InvalidVoters, match="not committed yet"):
        raft.change_voters(["n1", "n2", "n3"], 0)
    accepted(raft, "n4", 2)
    assert raft.commit_index == 2
    assert raft.change_voters(["n1", "n2", "n4"], 0) == 3


def test_new_leader_changes_no_voters_before_it_has_committed() -> None:
    with pytest.raises(InvalidVoters, match="not committed anything yet"):
        leader().change_voters(["n1", "n2"], 0)


def test_voters_are_rolled_back_with_the_entry_that_named_them() -> None:
    raft = member("n2")
    raft.step(append("n1", "n2", 1, command(1, 1), voters_entry(2, 1, "n1", "n2")), 0)
    assert list(raft.voters) == ["n1", "n2"]
    raft.step(append("n3", "n2", 2, command(2, 2), prev=(1, 1)), 0)
    assert list(raft.voters) == ["n1", "n2", "n3"]


def test_voters_of_the_log_and_of_the_snapshot_outlive_a_restart() -> None:
    raft = member("n1", ("n1",), entries=[command(1, 1), voters_entry(2, 1, "n1", "n2"), command(3, 1)])
    assert raft.voters == ("n1", "n2")
    assert raft.commit_index == 0  # it is no quorum of one any more
    one = member("n1", ("n1",), entries=[command(1, 1)])
    work(one)
    again = member("n1", ("n7",), snapshot=one.compact(1, b""))
    assert again.voters == ("n1",)


def test_removed_leader_leads_until_that_is_committed() -> None:
    raft = active_leader()
    raft.change_voters(["n2", "n3"], 0)
    work(raft)
    accepted(raft, "n2", 2)
    assert raft.commit_index == 1  # its own copy does not count
    assert raft.is_leader
    accepted(raft, "n3", 2)
    assert raft.commit_index == 2
    assert raft.role is Role.FOLLOWER
    assert [one.commit_index for one in appends(work(raft), "n3")] == [2]
    raft.tick(LATE)
    assert raft.role is Role.FOLLOWER


def test_who_is_being_removed_may_have_to_lead_once_more() -> None:
    raft = member("n1", ("n1", "n2"), entries=[command(1, 1), voters_entry(2, 1, "n2")])
    raft.campaign(0)
    assert [message.target for message in work(raft) if isinstance(message, AskVote)] == ["n2"]


def test_voter_that_does_not_know_that_it_is_one_votes() -> None:
    raft = member("n4", entries=[command(1, 1)])
    raft.step(ask("n1", "n4", 3, 5, 2), LATE)
    assert votes(work(raft)) == [True]


def test_observer_with_nothing_may_have_been_made_a_voter_before_it_lost_its_disk() -> None:
    raft = member("n4")
    raft.step(ask("n1", "n4", 3, 5, 2), LATE)
    assert votes(work(raft)) == [False]
    raft.step(append("n1", "n4", 4, prev=(7, 3), commit=7), LATE)
    assert raft.is_recovering


def test_voter_with_nothing_votes_only_for_one_with_nothing() -> None:
    """It may have had something, on a disk that is gone: more than this candidate has."""
    for is_pre in (True, False):
        raft = member("n2")
        raft.step(ask("n1", "n2", 3, 5, 2, is_pre=is_pre), LATE)
        assert votes(work(raft)) == [False]
        assert not raft.is_recovering  # where all are new, one of them has to lead
        raft.step(ask("n3", "n2", 4, 0, 0, is_pre=is_pre), LATE)
        assert votes(work(raft)) == [True]


def test_voter_with_nothing_that_is_shown_what_there_was_has_lost_its_log() -> None:
    raft = member("n2")
    raft.step(append("n1", "n2", 4, prev=(7, 3), commit=7), LATE)
    ready = raft.ready()
    assert ready is not None
    assert ready.state == HardState(4, None, is_recovering=True)
    assert [getattr(message, "is_recovering", None) for message in ready.messages] == [True]


def test_voter_with_nothing_that_gets_the_first_entry_is_new() -> None:
    raft = member("n2")
    raft.step(append("n1", "n2", 1, command(1, 1)), LATE)
    assert not raft.is_recovering


def test_recovering_voter_neither_votes_nor_stands() -> None:
    raft = member("n2", state=LOST)
    for is_pre in (True, False):
        raft.step(ask("n1", "n2", 3, 5, 2, is_pre=is_pre), LATE)
    assert votes(work(raft)) == [False, False]
    raft.campaign(LATE)
    raft.tick(2 * LATE)
    assert raft.role is Role.FOLLOWER
    alone = member("n1", ("n1",), state=LOST, entries=[command(1, 1)])
    alone.campaign(0)
    assert not alone.is_leader
    assert alone.commit_index == 0


def test_recovering_voter_counts_again_with_what_the_leader_says_and_after_an_election_timeout() -> None:
    raft = member("n2", state=LOST)
    waited_ms = RaftConfig("n2").election_ms_max
    raft.step(append("n1", "n2", 4, command(1, 4), commit=1), waited_ms)
    work(raft)
    assert raft.is_recovering  # it has all, but nobody has said so
    raft.step(append("n1", "n2", 4, prev=(1, 4), commit=1, recovered=2), waited_ms)
    assert raft.is_recovering
    raft.step(append("n1", "n2", 4, command(2, 4), prev=(1, 4), commit=1, recovered=2), waited_ms - 1)
    assert raft.is_recovering
    work(raft)
    raft.step(append("n1", "n2", 4, prev=(2, 4), commit=2, recovered=2), waited_ms)
    ready = raft.ready()
    assert ready is not None
    assert ready.state == HardState(4, None, is_recovering=False)
    assert [getattr(message, "is_recovering", None) for message in ready.messages] == [False]


def test_leader_takes_back_what_a_recovering_voter_had() -> None:
    raft = active_leader()
    raft.propose(b"a", 0)
    work(raft)
    accepted(raft, "n2", 1)
    refused(raft, "n2", 0, is_recovering=True)
    (sent,) = appends(work(raft), "n2")
    assert (sent.prev_index, len(sent.entries), sent.recovered_index) == (0, 2, 0)
    accepted(raft, "n2", 2, is_recovering=True)
    assert raft.commit_index == 1  # it has the entry, and does not count
    with pytest.raises(InvalidVoters, match="n2"):
        raft.transfer("n2", 0)
    accepted(raft, "n3", 2)
    assert raft.commit_index == 2


def test_leader_readmits_only_after_a_majority_has_followed_since() -> None:
    raft = active_leader()
    refused(raft, "n2", 0, is_recovering=True)
    accepted(raft, "n2", 1, is_recovering=True)
    accepted(raft, "n3", 1)  # of a round that began before
    work(raft)
    raft.tick(raft.next_tick_ms())
    assert [one.recovered_index for one in appends(work(raft), "n2")] == [0]
    accepted(raft, "n3", 1, 3_000, context=2)
    raft.tick(raft.next_tick_ms())
    assert [one.recovered_index for one in appends(work(raft), "n2")] == [1]
    accepted(raft, "n2", 1, 6_000, context=3)
    raft.propose(b"a", 6_000)
    work(raft)
    accepted(raft, "n2", 2, 6_000, context=3)
    assert raft.commit_index == 2


def test_recovering_voters_do_not_keep_a_leader() -> None:
    raft = active_leader()
    while raft.is_leader and raft.next_tick_ms() < LATE:
        now_ms = raft.next_tick_ms()
        raft.tick(now_ms)
        for message in appends(work(raft), "n2"):
            accepted(raft, "n2", 1, now_ms, context=message.context, is_recovering=True)
    assert not raft.is_leader
