"""Deadlines: whose time is up, soonest first."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from goqueue.core.txn.deadlines import Deadlines


def test_nothing_is_due_where_nothing_was_set() -> None:
    deadlines = Deadlines()
    assert deadlines.next_ms() is None
    assert deadlines.due(10, 10) == []


def test_due_keys_stay_due_until_they_are_moved_or_removed() -> None:
    deadlines = Deadlines()
    for key, at_ms in (("late", 30), ("soon", 10), ("next", 20)):
        deadlines.set(key, at_ms)
    for _ in range(2):
        assert deadlines.due(20, 10) == ["soon", "next"]
        assert deadlines.due(20, 1) == ["soon"]
    deadlines.remove("soon")
    deadlines.set("next", 40)
    assert deadlines.due(35, 10) == ["late"]
    assert deadlines.next_ms() == 30


def test_a_deadline_that_moves_ever_later_takes_one_place() -> None:
    deadlines = Deadlines()
    for at_ms in range(10_000):
        deadlines.set("key", at_ms)
    assert len(deadlines._heap) == 1
    assert deadlines.next_ms() == 9_999


_STEPS = st.lists(st.tuples(st.sampled_from("abc"), st.none() | st.integers(0, 20)))


@given(_STEPS, st.integers(0, 20))
def test_deadlines_are_those_that_a_dict_would_hold(steps: list[tuple[str, int | None]], now_ms: int) -> None:
    deadlines, model = Deadlines(), dict[str, int]()
    for key, at_ms in steps:
        if at_ms is None:
            deadlines.remove(key)
            model.pop(key, None)
        else:
            deadlines.set(key, at_ms)
            model[key] = at_ms
        assert deadlines.next_ms() == min(model.values(), default=None)
        due = sorted((at_ms, key) for key, at_ms in model.items() if at_ms <= now_ms)
        assert deadlines.due(now_ms, 10) == [key for _, key in due]
