"""Quorums in bad weather: crashes, partitions, loss, doubling, reordering. The checkers look after every event; afterwards
everything must go on. Each seed is another history."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.raft_weather import ROUGH, Storm

from goqueue.core.raft.raft import Role
from goqueue.sim.quorum.quorum import CALM, RaftQuorum

SEEDS = range(8)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("voter_count", [1, 2, 3, 5])
def test_quorum_agrees_through_crashes_and_partitions_and_goes_on(seed: int, voter_count: int) -> None:
    storm = Storm(seed, voter_count)
    storm.run()
    storm.check_it_goes_on()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("voter_count", [3, 5])
def test_rivals_that_keep_crashing_agree(seed: int, voter_count: int) -> None:
    storm = Storm(seed, voter_count, extra=ROUGH)
    storm.run()
    storm.check_it_goes_on()


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32))
def test_any_history_of_three_voters_is_sound(seed: int) -> None:
    storm = Storm(seed, 3)
    storm.run(40)
    storm.check_it_goes_on()


@pytest.mark.parametrize("seed", SEEDS)
def test_voters_change_one_by_one_under_faults(seed: int) -> None:
    storm = Storm(seed, 3, 3, extra=("change",) * 3)
    storm.run()
    storm.check_it_goes_on()


@pytest.mark.parametrize("seed", SEEDS)
def test_voters_that_lose_their_logs_lose_nothing_for_the_quorum(seed: int) -> None:
    storm = Storm(seed, 3, extra=("lose", "lose"))
    storm.run()
    storm.check_it_goes_on()


@pytest.mark.parametrize("seed", SEEDS)
def test_voters_that_lose_their_disks_without_knowing_lose_nothing_for_the_quorum(seed: int) -> None:
    storm = Storm(seed, 3, 1, extra=("wipe", "wipe", "change"))
    storm.run()
    storm.check_it_goes_on()


@pytest.mark.parametrize("seed", SEEDS)
def test_lost_logs_and_changing_voters_together_are_survived(seed: int) -> None:
    storm = Storm(seed, 4, 2, extra=("change", "change", "lose"))
    storm.run()
    storm.check_it_goes_on()


@pytest.mark.parametrize("seed", SEEDS)
def test_observers_get_everything_and_never_lead(seed: int) -> None:
    storm = Storm(seed, 3, 2)
    storm.run(40)
    storm.check_it_goes_on()
    for name in ("n4", "n5"):
        raft = storm.quorum.members[name].raft
        assert raft is not None
        assert raft.role is Role.FOLLOWER


def test_same_seed_gives_the_same_history() -> None:
    def history() -> tuple[object, ...]:
        storm = Storm(7, 3, 2, extra=("change", "lose"))
        storm.run()
        return (
            tuple(storm.quorum.checkers.history.entries.items()),
            storm.quorum.now_ms,
            storm.quorum.random.random(),
        )

    assert history() == history()


def test_minority_decides_nothing_and_gives_up_leading() -> None:
    quorum = RaftQuorum(1, 5)
    assert quorum.weather == CALM
    assert quorum.run(20_000, until=lambda: quorum.leader is not None and quorum.leader.is_active)
    old = quorum.leader
    assert old is not None
    other = next(name for name in quorum.names if name != old.name)
    quorum.part([old.name, other])
    old.propose(b"lost", quorum.now_ms)
    quorum.touch(old.name)
    quorum.run(20_000)
    assert not old.is_leader
    assert quorum.leader is not None
    assert quorum.leader.name not in (old.name, other)
    quorum.propose()
    quorum.heal()
    quorum.run(10_000)
    payloads = [entry.payload for entry in quorum.checkers.history.entries.values()]
    assert b"p1" in payloads
    assert b"lost" not in payloads


def test_node_that_was_away_comes_back_without_an_election() -> None:
    quorum = RaftQuorum(3, 3)
    assert quorum.run(20_000, until=lambda: quorum.leader is not None and quorum.leader.is_active)
    leader = quorum.leader
    assert leader is not None
    term = leader.term
    away = next(name for name in quorum.names if name != leader.name)
    quorum.part([away])
    quorum.run(30_000)
    raft = quorum.members[away].raft
    assert raft is not None
    assert raft.role is Role.PRE_CANDIDATE
    assert raft.term == term
    quorum.heal()
    quorum.run(10_000)
    assert leader.is_leader
    assert raft.leader == leader.name
    assert leader.term == term
