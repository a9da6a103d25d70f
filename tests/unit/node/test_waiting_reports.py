"""When a node that waits for a quorum says so: once in an interval, however often it tries meanwhile."""

from __future__ import annotations

from goqueue.node.cluster.membership import Waiting


def said(attempts_s: list[float], *, since_s: float = 100.0, interval_s: float = 4.0) -> list[float]:
    waiting = Waiting(since_s, interval_s)
    found = (waiting.to_report_s(since_s + attempt_s) for attempt_s in attempts_s)
    return [waited_s for waited_s in found if waited_s is not None]


def test_nothing_is_said_before_a_whole_interval_has_passed() -> None:
    assert said([0.0, 1.0, 3.9]) == []


def test_attempts_that_are_shorter_than_the_interval_are_said_once_in_it() -> None:
    assert said([at * 0.5 for at in range(20)]) == [4.0, 8.0]


def test_attempts_that_are_longer_than_the_interval_are_each_said() -> None:
    assert said([5.0, 10.0, 15.0]) == [5.0, 10.0, 15.0]


def test_the_next_interval_begins_when_it_was_said_and_not_when_it_was_due() -> None:
    assert said([7.0, 8.0, 10.9, 11.0]) == [7.0, 11.0]
