"""Durations and instants as people write them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goqueue.model.duration import format_instant, parse_duration_ms, parse_instant_ms

UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
CALENDAR_START = -62_135_596_800_000  # 0001-01-01
CALENDAR_END = 253_402_300_800_000  # 10000-01-01


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("0", 0),
        ("1500", 1_500),
        ("250ms", 250),
        ("30s", 30_000),
        ("5m", 300_000),
        ("2h", 7_200_000),
        ("7d", 604_800_000),
        ("1.5s", 1_500),
        ("1.001s", 1_001),  # 1000.9999999999999 in floating point
        ("0.0009s", 0),
        ("PT1H30M", 5_400_000),
        ("PT1M30S", 90_000),
        ("PT0.25S", 250),
        ("PT1.001S", 1_001),
        ("P1D", 86_400_000),
        ("P1DT1S", 86_401_000),
        ("PT0S", 0),
        ("999999999999999", 999_999_999_999_999),
    ],
)
def test_duration_is_read_in_each_form(text: str, milliseconds: int) -> None:
    assert parse_duration_ms(text) == milliseconds


@given(st.integers(0, 10**9), st.integers(0, 999), st.sampled_from(sorted(UNITS)))
@settings(max_examples=200, deadline=None)
def test_duration_with_three_decimals_is_exact(whole: int, thousandths: int, unit: str) -> None:
    expected = (whole * 1_000 + thousandths) * UNITS[unit] // 1_000
    assert parse_duration_ms(f"{whole}.{thousandths:03d}{unit}") == expected


@given(st.integers(0, 999), st.integers(0, 99), st.integers(0, 99), st.integers(0, 59_999))
@settings(max_examples=100, deadline=None)
def test_iso_duration_is_the_sum_of_its_parts(days: int, hours: int, minutes: int, ms: int) -> None:
    text = f"P{days}DT{hours}H{minutes}M{ms // 1_000}.{ms % 1_000:03d}S"
    assert parse_duration_ms(text) == days * UNITS["d"] + hours * UNITS["h"] + minutes * UNITS["m"] + ms


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "5 s",
        "-5s",
        "5x",
        "s",
        "1e3",
        "P",
        "PT",
        "P1",
        "PT5",
        "1H",
        "pt1s",
        "P1M",
        "5s\n",
        "9" * 16,
        "1.s",
        "nan",
    ],
)
def test_what_is_no_duration_is_refused_with_the_forms_that_are_right(text: str) -> None:
    with pytest.raises(
        ValueError, match="is not a duration; write 250ms, 30s, 5m, 2h, 7d, PT1M30S or"
    ) as caught:
        parse_duration_ms(text)
    assert repr(text) in str(caught.value)


@given(st.integers(CALENDAR_START, CALENDAR_END - 1))
@settings(max_examples=300, deadline=None)
def test_formatted_instant_is_read_back_exactly(milliseconds: int) -> None:
    text = format_instant(milliseconds)
    assert len(text) == len("2026-01-31T12:00:00.000Z")
    assert text.endswith("Z")
    assert parse_instant_ms(text) == milliseconds


@given(st.datetimes(timezones=st.integers(-14 * 60, 14 * 60).map(lambda m: timezone(timedelta(minutes=m)))))
@settings(max_examples=150, deadline=None)
def test_instant_in_any_zone_is_rounded_down_to_its_millisecond(moment: datetime) -> None:
    assert parse_instant_ms(moment.isoformat()) == (moment - EPOCH) // timedelta(milliseconds=1)


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("0", 0),
        ("1700000000000", 1_700_000_000_000),
        ("1970-01-01T00:00:00Z", 0),
        ("2026-01-31T12:00:00Z", 1_769_860_800_000),
        ("2026-01-31T12:00:00.001Z", 1_769_860_800_001),
        ("2026-01-31T12:00:00+05:30", 1_769_841_000_000),
        ("1969-12-31T23:59:59.999Z", -1),
        ("1969-12-31T23:59:59.9995Z", -1),
    ],
)
def test_instant_is_read_in_each_form(text: str, milliseconds: int) -> None:
    assert parse_instant_ms(text) == milliseconds


@pytest.mark.parametrize(
    "text",
    ["", "now", "2026-01-31", "2026-01-31T12:00:00", "-1", "1.5", "٣", "9" * 16, "2026-13-01T00:00:00Z"],
)
def test_what_is_no_instant_is_refused_with_the_forms_that_are_right(text: str) -> None:
    with pytest.raises(ValueError, match="is not an instant; write RFC 3339") as caught:
        parse_instant_ms(text)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (1_769_860_800_001, "2026-01-31T12:00:00.001Z"),
        (CALENDAR_START, "0001-01-01T00:00:00.000Z"),
        (CALENDAR_END - 1, "9999-12-31T23:59:59.999Z"),
        (CALENDAR_END, "253402300800000"),  # beyond the calendar: as it is
        (2**63 - 1, "9223372036854775807"),
        (-(2**63), "-9223372036854775808"),
    ],
)
def test_instant_is_written_as_rfc_3339_where_the_calendar_has_it(milliseconds: int, text: str) -> None:
    assert format_instant(milliseconds) == text
