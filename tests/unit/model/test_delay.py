"""When a record is due, as people and producers write it."""

from __future__ import annotations

import pytest

from goqueue.model.delay import (
    DELIVER_AT_HEADER,
    check_due,
    due_ms_in,
    due_ms_of,
    parse_delay_ms,
    parse_deliver_at_ms,
)
from goqueue.model.errors import InvalidDelay


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("30s", 30_000),
        ("5m", 300_000),
        ("2h", 7_200_000),
        ("1d", 86_400_000),
        ("1500ms", 1_500),
        ("PT5M", 300_000),
        ("P1DT1.5S", 86_401_500),
        ("1500", 1_500),
        (1_500, 1_500),
        (0, 0),
        ("0s", 0),
    ],
)
def test_a_delay_is_a_duration_or_milliseconds(text: int | str, milliseconds: int) -> None:
    assert parse_delay_ms(text) == milliseconds


@pytest.mark.parametrize("text", ["", "soon", "-5s", "5 s", "PT", "1e3", -1, "9" * 500])
def test_a_delay_that_is_none_is_refused_by_its_text(text: int | str) -> None:
    with pytest.raises(InvalidDelay, match="delay is"):
        parse_delay_ms(text)


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("1970-01-01T00:00:01Z", 1_000),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1970-01-01T00:00:00.123Z", 123),
        ("1970-01-01T00:00:00.1231Z", 124),
        ("1970-01-01T00:00:00.123000Z", 123),
        (" 1700000000000 ", 1_700_000_000_000),
        ("1969-12-31T23:59:59Z", -1_000),
    ],
)
def test_an_instant_is_rounded_up_so_that_nothing_is_early(text: str, milliseconds: int) -> None:
    assert parse_deliver_at_ms(text) == milliseconds


@pytest.mark.parametrize("text", ["", "tomorrow", "2026-01-01", "2026-01-01T00:00:00", "-5", "1" * 16])
def test_an_instant_that_is_none_is_refused_with_what_would_be_right(text: str) -> None:
    with pytest.raises(InvalidDelay, match="RFC 3339"):
        parse_deliver_at_ms(text)


def test_a_publisher_asks_for_a_delay_or_an_instant_but_not_both() -> None:
    assert due_ms_of(delay=None, deliver_at=None, now_ms=7) is None
    assert due_ms_of(delay="1s", deliver_at=None, now_ms=7) == 1_007
    assert due_ms_of(delay=None, deliver_at="1970-01-01T00:00:01Z", now_ms=7) == 1_000
    with pytest.raises(InvalidDelay, match="one of them"):
        due_ms_of(delay="1s", deliver_at="1970-01-01T00:00:01Z", now_ms=7)


def test_the_first_header_of_the_name_counts() -> None:
    assert due_ms_in(()) is None
    assert due_ms_in((("other", b"5"),)) is None
    assert due_ms_in(((DELIVER_AT_HEADER, b"5"), (DELIVER_AT_HEADER, b"6"))) == 5
    for wrong in (None, b"", b"\xff\xfe"):
        with pytest.raises(InvalidDelay):
            due_ms_in(((DELIVER_AT_HEADER, wrong),))


def test_what_is_due_now_or_was_before_need_not_wait_and_the_limit_is_named() -> None:
    assert not check_due(5, now_ms=5, delay_ms_max=0)
    assert not check_due(-5, now_ms=5, delay_ms_max=0)
    assert check_due(6, now_ms=5, delay_ms_max=1)
    with pytest.raises(InvalidDelay, match=r"a delay of 2 ms is too long; the topic's delay\.max\.ms is 1"):
        check_due(7, now_ms=5, delay_ms_max=1)
