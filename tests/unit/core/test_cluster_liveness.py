"""Who is alive, as far as a controller has heard."""

from __future__ import annotations

import pytest
from tests.support.catalogs import CatalogRun

from goqueue.core.cluster.liveness import Liveness, Status
from goqueue.model.errors import InvariantViolation


@pytest.fixture
def liveness() -> Liveness:
    return Liveness(heartbeat_ms=3, suspect_ms=6, dead_ms=9)


def test_silence_makes_a_node_suspect_and_then_dead(liveness: Liveness) -> None:
    assert liveness.status("a", 100) is Status.UNKNOWN
    liveness.heard("a", "a/1", 100)
    expected = {
        100: Status.ALIVE,
        105: Status.ALIVE,
        106: Status.SUSPECT,
        108: Status.SUSPECT,
        109: Status.DEAD,
    }
    assert {now_ms: liveness.status("a", now_ms) for now_ms in expected} == expected
    liveness.heard("a", "a/1", 110)
    assert liveness.status("a", 110) is Status.ALIVE
    assert liveness.heard_ms("a") == 110


def test_the_dead_are_named_with_their_incarnation_until_they_are_heard_of(liveness: Liveness) -> None:
    liveness.heard("b", "b/1", 100)
    liveness.heard("a", "a/1", 101)
    assert liveness.dead(108) == []
    assert liveness.dead(109) == [("b", "b/1")]
    assert liveness.dead(110) == [("a", "a/1"), ("b", "b/1")]
    liveness.heard("a", "a/2", 111)
    assert liveness.dead(111) == [("b", "b/1")]
    liveness.forget("b")
    assert liveness.dead(111) == []
    assert liveness.status("b", 111) is Status.UNKNOWN


def test_the_next_look_is_when_somebody_may_have_died(liveness: Liveness) -> None:
    assert liveness.next_ms() is None
    liveness.heard("a", "a/1", 100)
    liveness.heard("b", "b/1", 102)
    assert liveness.next_ms() == 109
    liveness.dead(109)
    assert liveness.next_ms() == 111
    liveness.heard("a", "a/1", 110)
    liveness.dead(111)
    assert liveness.next_ms() == 119


def test_time_in_which_the_controller_itself_stood_still_is_nobodys_silence(liveness: Liveness) -> None:
    liveness.heard("a", "a/1", 100)
    liveness.heard("b", "b/1", 107)
    liveness.excuse(5, 108)
    assert liveness.dead(113) == []
    assert liveness.dead(114) == [("a", "a/1")]
    assert liveness.heard_ms("b") == 108


def test_a_node_that_says_so_is_leaving(liveness: Liveness) -> None:
    liveness.heard("a", "a/1", 100, is_leaving=True)
    assert liveness.status("a", 101) is Status.LEAVING
    assert liveness.status("a", 109) is Status.DEAD
    liveness.heard("a", "a/1", 110)
    assert liveness.status("a", 110) is Status.ALIVE


def test_a_new_controller_gives_everybody_the_full_time(liveness: Liveness) -> None:
    liveness.heard("gone", "gone/1", 0)
    nodes = CatalogRun(2).catalog.nodes()
    liveness.begin(nodes, 100)
    assert [liveness.status(node.name, 107) for node in nodes] == [Status.UNKNOWN] * 2
    assert liveness.heard_ms("n1") is None
    assert liveness.next_ms() == 109
    liveness.heard("n1", nodes[0].incarnation, 108)
    assert liveness.dead(109) == [("n2", nodes[1].incarnation)]
    assert liveness.status("n2", 109) is Status.DEAD


def test_a_clock_that_goes_back_kills_nobody(liveness: Liveness) -> None:
    liveness.heard("a", "a/1", 100)
    assert liveness.dead(50) == []
    assert liveness.status("a", 50) is Status.ALIVE


def test_a_node_must_have_time_to_beat() -> None:
    with pytest.raises(InvariantViolation):
        Liveness(heartbeat_ms=10, suspect_ms=6, dead_ms=9)
