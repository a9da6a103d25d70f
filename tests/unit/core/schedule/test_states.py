"""What became of each id, in pages."""

from __future__ import annotations

import pytest

from goqueue.core.schedule import states as module
from goqueue.core.schedule.states import PAGE_IDS, State, States


def test_pages_on_which_nothing_waits_are_forgotten_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FINISHED_PAGES_MAX", 2)
    states = States()
    for number in range(5):
        states.add(number * PAGE_IDS, 4)
    assert states.pending_count == 5
    states.set(0, State.FIRING)
    for number in (1, 2, 3, 4):
        states.set(number * PAGE_IDS, State.CANCELLED)
    assert [states.get(number * PAGE_IDS) for number in range(5)] == [
        State.FIRING,
        State.UNKNOWN,
        State.UNKNOWN,
        State.CANCELLED,
        State.CANCELLED,
    ]
    assert (states.lane(0), states.pending_count) == (4, 0)


def test_pages_there_and_back() -> None:
    states, again = States(), States()
    for id in range(0, 5 * PAGE_IDS, 100):
        states.add(id, id % 5)
    for id in range(0, 2 * PAGE_IDS, 100):
        states.set(id, State.FIRED)
    states.set(3_000, State.FIRING)
    again.restore(states.pages())
    assert list(again.pages()) == list(states.pages())
    assert again.pending_count == states.pending_count
    again.set(3_000, State.PENDING)
    assert again.is_pending(3_000)
