"""Entries from a leader to its peers, and when they count, rule by rule."""

from __future__ import annotations

import pytest
from tests.support.raft_members import (
    LATE,
    accepted,
    active_leader,
    answers,
    append,
    appends,
    ask,
    command,
    committed,
    leader,
    member,
    refused,
    votes,
    work,
)

from goqueue.core.raft.config import RaftConfig
from goqueue.core.raft.messages import Appended, Entry, EntryKind, SendSnapshot, Snapshot
from goqueue.core.raft.progress import INFLIGHT_COUNT_MAX, SNAPSHOT_BEATS_MAX
from goqueue.core.raft.raft import HardState, Overloaded
from goqueue.model.errors import InvariantViolation


def test_leader_begins_with_an_entry_of_its_own() -> None:
    raft = leader(entries=[command(1, 1)])
    ready = raft.ready()
    assert ready is not None
    assert ready.entries == (Entry(2, 2, EntryKind.NOOP, b""),)
    (sent,) = appends(ready.messages, "n2")
    assert (sent.prev_index, sent.prev_term, sent.entries) == (1, 1, ready.entries)


def test_entry_is_committed_by_a_majority_that_has_it_durable() -> None:
    raft = leader()
    ready = raft.ready()
    assert ready is not None
    accepted(raft, "n2", 1)
    assert raft.commit_index == 0  # n2, but not n1's own disk
    raft.advance(ready)
    assert raft.commit_index == 1
    assert raft.is_active
    assert committed(raft) == [1]


def test_older_entries_are_committed_only_with_one_of_the_leaders_term() -> None:
    raft = leader(entries=[command(1, 1), command(2, 1)])
    work(raft)
    accepted(raft, "n2", 2)
    accepted(raft, "n3", 2)
    assert raft.commit_index == 0
    accepted(raft, "n2", 3)
    assert raft.commit_index == 3
    assert committed(raft) == [1, 2, 3]


def test_older_entry_on_a_majority_may_still_be_replaced() -> None:
    """Figure 8 of the paper: n1 wrote entry 2 in term 2, n5 another one in term 3, then n1 leads again in term 4."""
    five = ("n1", "n2", "n3", "n4", "n5")
    raft = leader(five, entries=[command(1, 1), command(2, 2)], state=HardState(3, None))
    assert raft.term == 4
    work(raft)
    for name in ("n2", "n3"):
        accepted(raft, name, 2)
    assert raft.commit_index == 0
    other = member("n3", five, entries=[command(1, 1), command(2, 2)], state=HardState(4, "n1"))
    other.step(ask("n5", "n3", 5, 2, 3), LATE)
    assert votes(work(other)) == [True]
    other.step(append("n5", "n3", 5, command(2, 3), prev=(1, 1)), LATE)
    assert answers(work(other)) == [(True, 2)]


def test_peers_hear_of_a_commit_at_once() -> None:
    raft = active_leader()
    raft.propose(b"a", 0)
    work(raft)
    accepted(raft, "n2", 2)
    (notice,) = appends(work(raft), "n2")
    assert (notice.commit_index, notice.prev_index, notice.entries) == (2, 2, ())


def test_proposals_between_two_readies_travel_together() -> None:
    raft = active_leader()
    assert [raft.propose(b"%d" % number, 0) for number in range(5)] == [2, 3, 4, 5, 6]
    (sent,) = appends(work(raft), "n2")
    assert [entry.index for entry in sent.entries] == [2, 3, 4, 5, 6]


def test_appends_are_bounded_in_entries_bytes_and_number() -> None:
    raft = active_leader(config=RaftConfig("n1", entries_per_append_max=3, bytes_per_append_max=20))
    for _ in range(4):
        raft.propose(b"", 0)
    raft.propose(b"x" * 100, 0)
    raft.propose(b"y" * 100, 0)
    assert [[one.index for one in sent.entries] for sent in appends(work(raft), "n2")] == [
        [2, 3, 4],
        [5],
        [6],
        [7],
    ]
    for _ in range(3 * INFLIGHT_COUNT_MAX):
        raft.propose(b"", 0)
    assert len(appends(work(raft), "n2")) == INFLIGHT_COUNT_MAX - 4
    accepted(raft, "n2", 7)
    assert len(appends(work(raft), "n2")) == 4


def test_too_much_that_is_uncommitted_is_refused() -> None:
    raft = active_leader(config=RaftConfig("n1", uncommitted_count_max=2))
    raft.propose(b"", 0)
    raft.propose(b"", 0)
    with pytest.raises(Overloaded, match="2 proposals"):
        raft.propose(b"", 0)
    work(raft)
    accepted(raft, "n2", 3)
    assert raft.propose(b"", 0) == 4


def test_what_brings_no_answer_is_sent_again_after_heartbeats() -> None:
    raft = active_leader()
    raft.propose(b"a", 0)
    assert len(appends(work(raft), "n2")[0].entries) == 1
    sent: list[int] = []
    for _ in range(2):
        raft.tick(raft.next_tick_ms())
        sent += [entry.index for one in appends(work(raft), "n2") for entry in one.entries]
    assert sent == [2]


def test_what_a_later_heartbeat_overtook_is_sent_again_at_once() -> None:
    raft = active_leader()
    raft.propose(b"a", 0)
    work(raft)
    raft.tick(raft.next_tick_ms())
    work(raft)
    accepted(raft, "n2", 1, 3_000, context=1)  # an answer to something older
    assert appends(work(raft), "n2") == []
    accepted(raft, "n2", 1, 3_000, context=2)
    assert [entry.index for one in appends(work(raft), "n2") for entry in one.entries] == [2]


def test_logs_that_part_are_found_in_steps_of_terms() -> None:
    entries = [command(index, 1) for index in range(1, 50)] + [command(index, 5) for index in range(50, 100)]
    raft = leader(entries=entries)
    follower = member("n2", entries=entries[:20] + [command(index, 3) for index in range(21, 200)])
    round_count = 0
    while messages := appends(work(raft), "n2"):
        round_count += 1
        for message in messages:
            follower.step(message, LATE)
        for answer in work(follower):
            raft.step(answer, 0)
    assert follower.last_index == 100
    assert round_count <= 4


def test_follower_refuses_what_does_not_fit_and_says_where_to_try() -> None:
    raft = member("n2", entries=[command(1, 1), command(2, 2), command(3, 2)])
    raft.step(append("n1", "n2", 5, prev=(9, 5)), 0)
    raft.step(append("n1", "n2", 5, prev=(3, 4)), 0)
    raft.step(append("n1", "n2", 5, prev=(3, 1)), 0)
    messages = [message for message in work(raft) if isinstance(message, Appended)]
    assert answers(messages) == [(False, 3), (False, 2), (False, 1)]
    assert [message.hint_term for message in messages] == [2, 2, 1]


def test_follower_replaces_what_differs_and_persists_it_with_the_answer() -> None:
    raft = member("n2", entries=[command(1, 1), command(2, 2), command(3, 2)])
    new = command(2, 4)
    raft.step(append("n1", "n2", 4, new, prev=(1, 1), commit=2), 0)
    ready = raft.ready()
    assert ready is not None
    assert ready.entries == (new,)
    assert ready.state == HardState(4, None)
    assert answers(ready.messages) == [(True, 2)]
    assert ready.committed == (command(1, 1),)  # the other is not yet durable here
    raft.advance(ready)
    assert committed(raft) == [2]


def test_old_append_does_not_cut_what_is_newer() -> None:
    raft = member("n2")
    raft.step(append("n1", "n2", 1, command(1, 1), command(2, 1)), 0)
    raft.step(append("n1", "n2", 1, command(1, 1)), 0)
    assert answers(work(raft)) == [(True, 2), (True, 1)]
    assert raft.last_index == 2


def test_entries_replaced_while_they_were_being_persisted_are_persisted_anew() -> None:
    raft = member("n2")
    raft.step(append("n1", "n2", 1, command(1, 1), command(2, 1)), 0)
    first = raft.ready()
    assert first is not None
    raft.step(append("n3", "n2", 2, command(2, 2), prev=(1, 1), commit=2), 0)
    assert raft.ready() is None  # one at a time
    raft.advance(first)
    second = raft.ready()
    assert second is not None
    assert second.entries == (command(2, 2),)
    assert [entry.index for entry in second.committed] == [1]
    raft.advance(second)
    assert committed(raft) == [2]


def test_only_what_is_out_can_be_done() -> None:
    raft = leader()
    ready = raft.ready()
    assert ready is not None
    raft.advance(ready)
    with pytest.raises(InvariantViolation):
        raft.advance(ready)


def test_commit_index_goes_no_further_than_what_matches() -> None:
    raft = member("n2", entries=[command(1, 1), command(2, 1)])
    raft.step(append("n1", "n2", 2, prev=(1, 1), commit=9), 0)
    assert raft.commit_index == 1


def test_nothing_that_is_committed_is_replaced_whoever_says_so() -> None:
    raft = member("n2")
    raft.step(append("n1", "n2", 1, command(1, 1), commit=1), 0)
    work(raft)
    raft.step(append("n3", "n2", 2, command(1, 2)), 0)
    raft.step(append("n3", "n2", 2, prev=(1, 2)), 0)
    assert answers(work(raft)) == []
    assert raft.commit_index == raft.last_index == 1


def test_snapshot_goes_to_who_is_behind_the_start_of_the_log() -> None:
    snapshot = Snapshot(10, 1, ("n1", "n2", "n3"), b"state")
    raft = leader(snapshot=snapshot)
    work(raft)
    refused(raft, "n2", 3, 1)
    (sent,) = [message for message in work(raft) if isinstance(message, SendSnapshot)]
    assert sent.snapshot == snapshot
    follower = member("n2", entries=[command(index, 1) for index in range(1, 4)])
    follower.step(sent, 0)
    ready = follower.ready()
    assert ready is not None
    assert ready.snapshot == ready.restored == snapshot
    assert answers(ready.messages) == [(True, 10)]
    follower.advance(ready)
    for message in ready.messages:
        raft.step(message, 0)
    (next_sent,) = appends(work(raft), "n2")
    assert (next_sent.prev_index, [entry.index for entry in next_sent.entries]) == (10, [11])


def test_snapshot_that_is_not_answered_is_sent_again() -> None:
    raft = leader(snapshot=Snapshot(10, 1, ("n1", "n2", "n3"), b"state"))
    work(raft)
    refused(raft, "n2", 3, 1)
    counts: list[int] = []
    for number in range(2 * SNAPSHOT_BEATS_MAX):
        counts.append(sum(isinstance(message, SendSnapshot) for message in work(raft)))
        raft.tick(raft.next_tick_ms())
        accepted(raft, "n3", 11, raft.next_tick_ms() - 3_000, context=number + 2)
    assert counts[0] == 1
    assert counts[1:].count(1) == 1


def test_snapshot_of_what_the_log_has_only_says_that_it_is_committed() -> None:
    follower = member("n2", entries=[command(1, 1), command(2, 1)])
    follower.step(SendSnapshot("n1", "n2", 1, Snapshot(1, 1, ("n1", "n2", "n3"), b"")), 0)
    ready = follower.ready()
    assert ready is not None
    assert ready.snapshot is None
    assert [entry.index for entry in ready.committed] == [1]
    assert follower.last_index == 2


def test_compaction_forgets_what_was_applied_and_keeps_the_voters() -> None:
    raft = active_leader()
    raft.propose(b"a", 0)
    work(raft)
    accepted(raft, "n2", 2)
    work(raft)
    assert raft.compact(2, b"state") == Snapshot(2, 1, ("n1", "n2", "n3"), b"state")
    with pytest.raises(InvariantViolation):
        raft.compact(1, b"state")
    with pytest.raises(InvariantViolation):
        raft.compact(3, b"state")
    raft.propose(b"b", 0)
    (sent,) = appends(work(raft), "n2")
    assert (sent.prev_index, sent.prev_term) == (2, 1)


def test_restart_begins_from_the_snapshot_and_gives_each_entry_once() -> None:
    snapshot = Snapshot(2, 1, ("n1",), b"state")
    left = [command(index, 1) for index in (1, 2, 3, 4)]  # the log was not cut before the crash
    raft = member("n1", ("n1",), snapshot=snapshot, entries=left)
    ready = raft.ready()
    assert ready is not None
    assert ready.restored == snapshot
    assert ready.snapshot is None
    assert [entry.index for entry in ready.committed] == [3, 4]
    raft.advance(ready)
    assert raft.ready() is None


def test_entries_that_contradict_the_snapshot_are_not_restored() -> None:
    snapshot = Snapshot(2, 2, ("n1", "n2"), b"")
    assert (
        member(snapshot=snapshot, entries=[command(2, 1), command(3, 1)], state=HardState(2, None)).last_index
        == 2
    )
    with pytest.raises(InvariantViolation, match="gap"):
        member(snapshot=snapshot, entries=[command(4, 2)])


def test_quorum_of_one_commits_what_is_durable() -> None:
    raft = member("n1", ("n1",), entries=[command(1, 1)])
    assert committed(raft) == [1]
    raft.campaign(0)
    assert raft.is_leader
    assert raft.propose(b"a", 0) == 3
    ready = raft.ready()
    assert ready is not None
    assert ready.state == HardState(2, "n1")
    assert ready.messages == ()
    assert ready.committed == ()
    assert raft.commit_index == 1
    raft.advance(ready)
    assert raft.is_active
    assert committed(raft) == [2, 3]
    raft.tick(raft.next_tick_ms())
    raft.tick(LATE)
    assert raft.is_leader
    assert raft.ready() is None


def test_observers_get_entries_and_do_not_count() -> None:
    raft = active_leader()
    raft.set_observers(["n5", "n4", "n1", "n2"])
    raft.propose(b"a", 0)
    messages = work(raft)
    assert appends(messages, "n4")
    assert appends(messages, "n5")
    assert sorted(raft.standings(7)) == ["n2", "n3", "n4", "n5"]
    accepted(raft, "n4", 2)
    accepted(raft, "n5", 2)
    assert raft.commit_index == 1
    accepted(raft, "n3", 2)
    assert raft.commit_index == 2
    refused(raft, "n4", 0)  # an observer may come back with nothing
    assert [one.prev_index for one in appends(work(raft), "n4")] == [0]
    raft.set_observers([])
    assert sorted(raft.standings(7)) == ["n2", "n3"]
