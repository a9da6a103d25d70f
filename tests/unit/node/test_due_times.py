"""The due times of recurring schedules, on the days on which clocks are changed, too."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goqueue.core.schedule.recurring import DueTimes, EveryTimes
from goqueue.model.errors import InvalidSchedule
from goqueue.node.schedule import due_times as module
from goqueue.node.schedule.due_times import CronTimes

BERLIN = "Europe/Berlin"  # 2026: 29 March at 2:00 it is 3:00, 25 October at 3:00 it is 2:00
_ZONES = ("UTC", BERLIN, "America/New_York", "Australia/Lord_Howe", "America/Sao_Paulo", "Africa/Casablanca")
_MS = st.integers(946_684_800_000, 2_500_000_000_000)


def ms(text: str, zone: str = "UTC") -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()) * 1_000


def local(times: DueTimes, after: str, count: int, zone: str = BERLIN) -> list[str]:
    """The next due times as a clock on the wall shows them, with what that is in UTC."""
    found: list[str] = []
    at_ms = ms(after, zone)
    for _ in range(count):
        due_ms = times.next_after(at_ms)
        assert due_ms is not None
        assert due_ms > at_ms
        at_ms = due_ms
        there = datetime.fromtimestamp(at_ms / 1_000, ZoneInfo(zone))
        found.append(f"{there:%d %H:%M}={there.astimezone(UTC):%H:%M}")
    return found


def test_a_fixed_time_in_the_hour_that_is_skipped_is_due_when_it_has_been_skipped() -> None:
    times = CronTimes("30 2 * * *", BERLIN)
    assert local(times, "2026-03-28T00:00", 3) == ["28 02:30=01:30", "29 03:00=01:00", "30 02:30=00:30"]


def test_a_fixed_time_in_the_hour_that_comes_twice_is_due_the_first_time_only() -> None:
    times = CronTimes("30 2 * * *", BERLIN)
    assert local(times, "2026-10-24T00:00", 3) == ["24 02:30=00:30", "25 02:30=00:30", "26 02:30=01:30"]


def test_whoever_asks_between_the_two_is_not_sent_back_to_the_first() -> None:
    times = CronTimes("30,50 2 * * *", BERLIN)
    between_ms = ms("2026-10-25T01:40")  # the second 2:40
    assert times.next_after(between_ms) == ms("2026-10-26T02:30", BERLIN)
    assert times.count(between_ms, ms("2026-10-26T03:00", BERLIN)) == 2


def test_a_wildcard_follows_the_clock_on_the_wall_when_an_hour_is_skipped() -> None:
    times = CronTimes("*/30 * * * *", BERLIN)
    assert local(times, "2026-03-29T01:00", 3) == ["29 01:30=00:30", "29 03:00=01:00", "29 03:30=01:30"]
    at_two = CronTimes("* 2 * * *", BERLIN)
    assert local(at_two, "2026-03-28T02:59", 1) == ["30 02:00=00:00"]


def test_a_wildcard_follows_the_clock_on_the_wall_when_an_hour_comes_twice() -> None:
    times = CronTimes("*/30 * * * *", BERLIN)
    assert local(times, "2026-10-25T01:30", 5) == [
        "25 02:00=00:00",
        "25 02:30=00:30",
        "25 02:00=01:00",
        "25 02:30=01:30",
        "25 03:00=02:00",
    ]


def test_midnight_is_that_of_the_time_zone() -> None:
    assert CronTimes("0 0 1 1 *", "Asia/Tokyo").next_after(ms("2026-06-01T00:00")) == ms("2026-12-31T15:00")
    assert CronTimes("0 0 1 1 *", "UTC").next_after(ms("2026-06-01T00:00")) == ms("2027-01-01T00:00")


def test_a_due_time_comes_after_the_instant_and_not_at_it() -> None:
    times = CronTimes("*/5 * * * *", "UTC")
    noon = ms("2026-01-01T12:00")
    assert [times.next_after(at) for at in (noon - 1, noon, noon + 1)] == [
        noon,
        noon + 300_000,
        noon + 300_000,
    ]


def test_leap_days_and_days_of_the_week() -> None:
    assert CronTimes("0 0 29 2 *", "UTC").next_after(ms("2026-01-01T00:00")) == ms("2028-02-29T00:00")
    assert CronTimes("0 9 * * MON-FRI", "UTC").next_after(ms("2026-01-02T09:00")) == ms("2026-01-05T09:00")
    assert CronTimes("0 0 L * *", "UTC").next_after(ms("2026-02-01T00:00")) == ms("2026-02-28T00:00")


def test_only_so_many_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MISSED_COUNT_MAX", 10)
    times = CronTimes("* * * * *", "UTC")
    start = ms("2026-01-01T00:00")
    assert times.count(start, start + 9 * 60_000) == 9
    assert times.count(start, start + 900 * 60_000) == 10


_NUMBERS = st.sampled_from(["*", "0", "30", "*/7", "1-3", "0,59", "2", "5/9"])
_CRONS = st.tuples(
    _NUMBERS,
    st.sampled_from(["*", "0", "2", "*/5", "1-3", "23"]),
    st.sampled_from(["*", "1", "L", "28-31", "LW"]),
    st.sampled_from(["*", "2", "3,10", "*/4"]),
    st.sampled_from(["*", "0", "7", "MON-FRI", "1#2", "5L"]),
).map(" ".join)


@settings(deadline=None)
@given(_CRONS, st.sampled_from(_ZONES), _MS)
def test_each_due_time_is_later_than_the_one_before_and_asking_once_or_one_by_one_gives_the_same(
    cron: str, zone: str, start_ms: int
) -> None:
    times = CronTimes(cron, zone)
    at_once = list(islice(times._after(start_ms), 5))
    one_by_one: list[int] = []
    at_ms: int | None = start_ms
    while len(one_by_one) < len(at_once):
        assert at_ms is not None
        at_ms = times.next_after(at_ms)
        assert at_ms is not None
        one_by_one.append(at_ms)
    assert at_once == one_by_one == sorted(set(at_once))
    assert all(due_ms > start_ms and due_ms % 60_000 == 0 for due_ms in at_once)
    if at_once:
        assert times.count(start_ms, at_once[-1]) == len(at_once)
        assert times.count(start_ms, at_once[0] - 1) == 0


@settings(deadline=None)
@given(st.text("0123456789*/-,#LW JANMO\u0661", max_size=25), st.text(max_size=10))
def test_any_text_is_a_schedule_or_refused(cron: str, zone: str) -> None:
    for zone_name in (zone, "UTC"):
        try:
            times = CronTimes(" ".join(cron.split()), zone_name)
        except InvalidSchedule:
            continue
        times.next_after(1_700_000_000_000)


@given(st.integers(1_000, 10**10), _MS, _MS, _MS)
def test_a_grid_never_drifts(every_ms: int, grid_ms: int, first_ms: int, second_ms: int) -> None:
    times = EveryTimes(every_ms, grid_ms)
    first_ms, second_ms = sorted((first_ms, second_ms))
    next_ms = times.next_after(first_ms)
    assert next_ms is not None
    assert next_ms > first_ms
    assert next_ms >= grid_ms
    assert (next_ms - grid_ms) % every_ms == 0
    assert next_ms == grid_ms or next_ms - every_ms <= first_ms
    last_ms = times.next_after(second_ms)
    assert last_ms is not None
    assert times.count(first_ms, second_ms) == (last_ms - next_ms) // every_ms
