"""Deadlines that move: what is due is what a plain dict would say."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from goqueue.core.deadlines import Deadlines

KEYS = "abc"
steps = st.lists(
    st.tuples(
        st.sampled_from(["set", "earlier", "cancel", "look", "pass"]),
        st.sampled_from(KEYS),
        st.integers(0, 20),
    ),
    max_size=40,
)


@given(steps)
def test_what_is_due_is_what_a_plain_dict_says(done: list[tuple[str, str, int]]) -> None:
    deadlines, model = Deadlines[str](), dict[str, int]()
    for action, key, at_ms in done:
        match action:
            case "set":
                deadlines.set(key, at_ms)
                model[key] = at_ms
            case "earlier":
                deadlines.set_if_earlier(key, at_ms)
                model[key] = min(at_ms, model.get(key, at_ms))
            case "cancel":
                deadlines.cancel(key)
                model.pop(key, None)
            case "look":
                due = sorted((at, key) for key, at in model.items() if at <= at_ms)
                assert deadlines.due(at_ms, 10) == [key for _, key in due]
            case _:
                while (first := deadlines.first_due(at_ms)) is not None:
                    assert model[first] == min(model.values()) <= at_ms
                    del model[first]
                    deadlines.cancel(first)
                assert all(one > at_ms for one in model.values())
        assert deadlines.next_ms() == min(model.values(), default=None)
        assert [deadlines.get(one) for one in KEYS] == [model.get(one) for one in KEYS]
        assert len(deadlines) == len(model)


def test_nothing_is_due_where_nothing_was_set() -> None:
    deadlines = Deadlines[str]()
    assert deadlines.next_ms() is None
    assert deadlines.due(10, 10) == []
    deadlines.set("a", 5)
    deadlines.clear()
    assert deadlines.next_ms() is None


def test_moving_a_deadline_later_does_not_make_the_heap_grow() -> None:
    deadlines = Deadlines[str]()
    for at_ms in range(10_000):
        deadlines.set("a", at_ms)
    assert len(deadlines._heap) == 1
    assert deadlines.next_ms() == 9_999


def test_cancelled_deadlines_leave_nothing_behind() -> None:
    deadlines = Deadlines[int]()
    deadlines.set(0, 1)
    for key in range(1, 10_000):
        deadlines.set(key, 100 + key)
        deadlines.cancel(key)
    assert len(deadlines._heap) == len(deadlines._queued_ms) < 100
    assert deadlines.due(20_000, 10) == [0]


def test_a_deadline_that_moves_earlier_and_earlier_does_not_make_the_heap_grow() -> None:
    deadlines = Deadlines[str]()
    for at_ms in range(10_000, 0, -1):
        deadlines.set("a", at_ms)
    assert len(deadlines._heap) < 100
    assert deadlines.next_ms() == 1


def test_due_keys_stay_until_somebody_deals_with_them() -> None:
    deadlines = Deadlines[str]()
    for key, at_ms in (("late", 30), ("soon", 10), ("next", 20)):
        deadlines.set(key, at_ms)
    for _ in range(2):
        assert deadlines.first_due(9) is None
        assert deadlines.first_due(10) == "soon"
        assert deadlines.due(20, 10) == ["soon", "next"]
        assert deadlines.due(20, 1) == ["soon"]
    deadlines.cancel("soon")
    deadlines.set("next", 40)
    assert deadlines.due(35, 10) == ["late"]


def test_chosen_deadlines_move_together() -> None:
    deadlines = Deadlines[str]()
    deadlines.set("a", 5)
    deadlines.set("b", 9)
    deadlines.set("b", 12)
    deadlines.set("stays", 20)
    deadlines.shift(lambda key: key != "stays", 100)
    assert [deadlines.get(key) for key in ("a", "b", "c", "stays")] == [105, 112, None, 20]
    assert deadlines.next_ms() == 20
    deadlines.shift(lambda key: key != "stays", -103)
    assert deadlines.first_due(3) == "a"
