"""Deadlines that move: what is due is what a plain dict would say."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from goqueue.core.group.deadlines import Deadlines, Key, Kind

KEYS = [Key(Kind.SESSION, "g", name) for name in "abc"]
steps = st.lists(
    st.tuples(
        st.sampled_from(["set", "earlier", "cancel", "pass"]), st.sampled_from(KEYS), st.integers(0, 20)
    ),
    max_size=40,
)


@given(steps)
def test_first_due_and_next_are_those_of_a_plain_dict(done: list[tuple[str, Key, int]]) -> None:
    deadlines, model = Deadlines(), dict[Key, int]()
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
            case _:
                while (due := deadlines.first_due(at_ms)) is not None:
                    assert model[due] == min(model.values()) <= at_ms
                    del model[due]
                    deadlines.cancel(due)
                assert all(one > at_ms for one in model.values())
        assert deadlines.next_ms() == min(model.values(), default=None)
        assert [deadlines.get(one) for one in KEYS] == [model.get(one) for one in KEYS]


def test_moving_a_deadline_later_does_not_make_the_heap_grow() -> None:
    deadlines = Deadlines()
    for at_ms in range(10_000):
        deadlines.set(KEYS[0], at_ms)
    assert len(deadlines._heap) == 1
    assert deadlines.next_ms() == 9_999


def test_due_key_stays_until_somebody_deals_with_it() -> None:
    deadlines = Deadlines()
    deadlines.set(KEYS[0], 5)
    assert deadlines.first_due(4) is None
    assert deadlines.first_due(5) == deadlines.first_due(6) == KEYS[0]
    deadlines.set(KEYS[0], 7)
    assert deadlines.first_due(6) is None


def test_deadlines_of_a_kind_move_together() -> None:
    deadlines = Deadlines()
    expiry = Key(Kind.EXPIRY, "g")
    deadlines.set(KEYS[0], 5)
    deadlines.set(KEYS[1], 9)
    deadlines.set(KEYS[1], 12)
    deadlines.set(expiry, 20)
    deadlines.shift([Kind.SESSION], 100)
    assert [deadlines.get(key) for key in (*KEYS, expiry)] == [105, 112, None, 20]
    assert deadlines.next_ms() == 20
    deadlines.shift([Kind.SESSION], -103)
    assert deadlines.first_due(3) == KEYS[0]
