"""The rate of what happens again and again."""

from __future__ import annotations

import pytest

from goqueue.core.rate import Rate


def test_a_steady_stream_shows_its_rate() -> None:
    rate = Rate()
    for now_ms in range(0, 600_000, 100):
        rate.add(5, now_ms)
    assert rate.per_second(600_000) == pytest.approx(50, rel=0.01)


def test_what_has_stopped_fades_away() -> None:
    rate = Rate()
    rate.add(1_000, 0)
    before = rate.per_second(0)
    assert rate.per_second(30_000) == pytest.approx(before / 2)
    assert rate.per_second(10**9) == pytest.approx(0)


def test_nothing_is_a_rate_of_zero() -> None:
    assert Rate().per_second(1_700_000_000_000) == 0


def test_a_clock_that_is_set_back_changes_nothing() -> None:
    rate = Rate()
    rate.add(10, 5_000)
    assert rate.per_second(1_000) == rate.per_second(5_000)
    rate.add(10, 1_000)
    assert rate.per_second(5_000) == pytest.approx(2 * 10 / 43.28, rel=0.01)
