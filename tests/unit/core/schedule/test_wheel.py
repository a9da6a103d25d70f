"""The timing wheel: everything comes out when it is due, in order, whatever the clock does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.core.schedule import wheel as module
from goqueue.core.schedule.wheel import (
    BUCKET_MS,
    SLOT_COUNTS,
    SLOT_TICKS,
    TICK_MS,
    Due,
    Source,
    Wheel,
    bucket_of,
    soonest,
    tick_of,
)

START_MS = 1_700_000_000_003
DAY_MS = 86_400_000
_DELAYS = st.one_of(
    st.integers(0, 3_000), st.integers(0, 200_000), st.integers(0, 8 * DAY_MS), st.integers(0, 400 * DAY_MS)
)


def turn(wheel: Wheel, now_ms: int, count_max: int = 10_000) -> list[Due]:
    while wheel.advance(now_ms):
        pass
    return wheel.take(now_ms, count_max)


def run_dry(wheel: Wheel, now_ms: int) -> list[tuple[int, Due]]:
    """What comes out and when, if somebody looks exactly when the wheel asks for it."""
    found: list[tuple[int, Due]] = []
    while (next_ms := wheel.next_ms()) is not None:
        now_ms = max(now_ms, next_ms)
        found += [(now_ms, one) for one in turn(wheel, now_ms)]
    return found


def test_geometry_is_that_of_the_specification() -> None:
    assert SLOT_COUNTS == (256, 64, 64, 64)
    widths_ms = [ticks * TICK_MS for ticks in SLOT_TICKS]
    assert widths_ms == [10, 2_560, 163_840, 10_485_760, BUCKET_MS]
    assert round(BUCKET_MS / DAY_MS, 2) == 7.77


@given(st.lists(_DELAYS, max_size=60))
def test_each_comes_out_within_a_tick_of_its_time_and_never_before(delays: list[int]) -> None:
    wheel = Wheel()
    for id, delay_ms in enumerate(delays):
        wheel.add(START_MS + delay_ms, id, START_MS)
    found = run_dry(wheel, START_MS)
    assert sorted(one.id for _, one in found) == list(range(len(delays)))
    for at_ms, one in found:
        assert one.due_ms == START_MS + delays[one.id]
        assert one.due_ms <= at_ms < one.due_ms + TICK_MS
    ticks = [tick_of(one.due_ms) for _, one in found]
    assert ticks == sorted(ticks)


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 2_000_000)), min_size=1, max_size=80))
def test_those_of_one_tick_come_out_as_they_went_in(steps: list[tuple[int, int]]) -> None:
    """Although some went in when it was far away and others when it was near."""
    wheel = Wheel()
    now_ms = START_MS
    found: list[Due] = []
    for id, (tick, pause_ms) in enumerate(steps):
        wheel.add(max(now_ms, START_MS + 10 * DAY_MS + tick * TICK_MS), id, now_ms)
        now_ms += pause_ms
        found += turn(wheel, now_ms)
    found += [one for _, one in run_dry(wheel, now_ms)]
    by_tick: dict[int, list[int]] = {}
    for one in found:
        by_tick.setdefault(tick_of(one.due_ms), []).append(one.id)
    assert all(ids == sorted(ids) for ids in by_tick.values())
    assert len(found) == len(steps)


@given(st.lists(_DELAYS, max_size=40), st.lists(st.integers(-(9 * DAY_MS), 9 * DAY_MS), max_size=20))
def test_a_clock_that_jumps_makes_nothing_early_and_loses_nothing(
    delays: list[int], jumps: list[int]
) -> None:
    wheel = Wheel()
    now_ms = START_MS
    for id, delay_ms in enumerate(delays):
        wheel.add(now_ms + delay_ms, id, now_ms)
    found: list[Due] = []
    for jump_ms in jumps:
        now_ms += jump_ms
        taken = turn(wheel, now_ms)
        assert all(one.due_ms <= now_ms for one in taken)
        found += taken
    found += [one for _, one in run_dry(wheel, now_ms)]
    assert sorted(one.id for one in found) == list(range(len(delays)))


def test_a_slot_of_many_is_moved_and_taken_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK_NUMBERS", 8)
    wheel = Wheel()
    for id in range(100):
        wheel.add(START_MS + 10_000, id, START_MS)
    now_ms = START_MS + 20_000
    steps = 0
    while wheel.advance(now_ms):
        steps += 1
    assert steps == 25
    taken = [one.id for _ in range(34) for one in wheel.take(now_ms, 3)]
    assert taken == list(range(100))
    assert wheel.next_ms() is None


def test_a_parked_bucket_is_asked_for_in_time_and_keeps_its_place() -> None:
    wheel = Wheel()
    due_ms = START_MS + 30 * DAY_MS
    bucket = bucket_of(due_ms)
    wheel.add(due_ms, 1, START_MS)
    assert wheel.far_buckets(START_MS) == [bucket]
    part = wheel.park(bucket)
    wheel.add(due_ms, 2, START_MS)
    wheel.take_back(part)  # it could not be written
    wheel.add(due_ms, 3, START_MS)
    part = wheel.park(bucket)
    assert wheel.parked == {bucket: 3}
    wheel.add(due_ms, 4, START_MS + 29 * DAY_MS)
    asked_ms = wheel.next_ms()
    assert asked_ms == (bucket - 1) * BUCKET_MS
    assert wheel.wanted(asked_ms - 1) is None
    assert wheel.wanted(asked_ms) == bucket
    wheel.unpark(bucket, part.blocks)
    assert [one.id for _, one in run_dry(wheel, asked_ms)] == [1, 2, 3, 4]


def test_what_was_saved_slot_by_slot_is_the_same_wheel() -> None:
    wheel, again = Wheel(), Wheel()
    for id, delay_ms in enumerate((5, 5, 70, 3_000, 500_000, 90_000_000, 20 * DAY_MS)):
        wheel.add(START_MS + delay_ms, id, START_MS)
    for part in wheel.parts():
        again.restore(part)
    assert again.parts() == wheel.parts()
    assert run_dry(again, START_MS) == run_dry(wheel, START_MS)


def test_parts_stay_as_they_were_while_the_wheel_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK_NUMBERS", 4)
    wheel = Wheel()
    for id in range(7):
        wheel.add(START_MS + 5_000, id, START_MS)
    parts = wheel.parts()
    wheel.add(START_MS + 5_000, 7, START_MS)
    assert [one.id for _, one in run_dry(wheel, START_MS)] == list(range(8))
    assert [one.id for part in parts for one in part.pairs()] == list(range(7))


def test_soonest_reads_no_more_than_it_must() -> None:
    def never() -> list[Due]:
        raise AssertionError

    sources = [
        Source(50, lambda: [Due(55, 1), Due(51, 2)]),
        Source(0, lambda: [Due(60, 3), Due(1, 4), Due(2, 9)]),
        Source(1_000, never),
    ]
    assert [one.id for one in soonest(sources, 3, lambda id: id != 9)] == [4, 2, 1]
