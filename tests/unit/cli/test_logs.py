"""One event, one line."""

from __future__ import annotations

import logging
import sys

from goqueue.cli.logs import LineFormatter


def test_an_event_is_one_line_with_time_level_logger_and_text() -> None:
    record = logging.LogRecord(
        "goqueue.node", logging.WARNING, "", 0, "disk fills used_percent=%d", (86,), None
    )
    record.created = 1_769_860_800.5
    assert (
        LineFormatter().format(record)
        == "2026-01-31T12:00:00.500Z warning goqueue.node disk fills used_percent=86"
    )


def test_nothing_from_outside_can_start_a_second_line() -> None:
    record = logging.LogRecord("x", logging.INFO, "", 0, "path=%s", ("a\nb\rc",), None)
    assert LineFormatter().format(record).endswith("path=a\\nb\\rc")


def test_a_traceback_stays_on_the_line_of_its_event() -> None:
    try:
        raise ValueError("boom")
    except ValueError:
        record = logging.LogRecord("x", logging.ERROR, "", 0, "failed", (), sys.exc_info())
    line = LineFormatter().format(record)
    assert "\n" not in line
    assert "boom" in line
