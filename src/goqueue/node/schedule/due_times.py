"""The due times of recurring schedules: a grid, or the calendar of a cron expression in a time zone.

Cron is cronsim's, which does as Debian's cron (Vixie's, patched) is documented to do when clocks are changed. A schedule of
fixed times, in which neither minute nor hour begins with `*`, fires once on such a day: what falls into the hour that is
skipped is due when it has been skipped, and in the hour that comes twice only the first counts. Others follow the clock
on the wall: the hour that is skipped has no firings, the hour that comes twice has them twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from goqueue.core.schedule.recurring import DueTimes, EveryTimes, grid_ms
from goqueue.model.errors import InvalidSchedule
from goqueue.model.recurrence import UTC_NAME, CronRule, EveryRule, Recurrence

MISSED_COUNT_MAX: Final = 10_000  # that are counted of a cron after one time of being down: a week of minutes
_FIELDS: Final = ("minute", "hour", "day of month", "month", "day of week")
_ANY: Final = ("0", "0", "*", "*", "*")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


def due_times(recurrence: Recurrence, created_ms: int) -> DueTimes:
    """InvalidSchedule where the cron expression or the time zone is not known."""
    match recurrence.rule:
        case EveryRule(every_ms):
            return EveryTimes(every_ms, grid_ms(recurrence, created_ms))
        case CronRule(expression, timezone):
            return CronTimes(expression, timezone)


class CronTimes:
    def __init__(self, expression: str, timezone: str) -> None:
        self._expression = expression
        self._zone = _zone(timezone)
        _check(expression)

    def next_after(self, at_ms: int) -> int | None:
        return next(self._after(at_ms), None)

    def count(self, after_ms: int, last_ms: int) -> int:
        """Not more than `MISSED_COUNT_MAX`."""
        found = 0
        for due_ms in self._after(after_ms):
            if due_ms > last_ms or found >= MISSED_COUNT_MAX:
                break
            found += 1
        return found

    def _after(self, at_ms: int) -> Iterator[int]:
        start = (_EPOCH + timedelta(milliseconds=at_ms)).astimezone(self._zone)
        newest_ms = at_ms
        for moment in CronSim(self._expression, start):
            due_ms = (moment - _EPOCH) // _MILLISECOND
            if due_ms > newest_ms:  # within an hour that comes twice it would go back to the first
                newest_ms = due_ms
                yield due_ms


def _zone(timezone: str) -> tzinfo:
    if timezone == UTC_NAME:
        return UTC  # which cronsim computes with at half the cost
    try:
        return ZoneInfo(timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidSchedule(
            f"timezone is {timezone!r}, which is not known here; write an IANA name such as Europe/Berlin or UTC",
            timezone=timezone,
        ) from None


def _check(expression: str) -> None:
    fields = expression.split()
    if len(fields) != len(_FIELDS):
        raise InvalidSchedule(
            f"cron is {expression!r}, which has {len(fields)} fields; it must have 5: {', '.join(_FIELDS)}",
            cron=expression,
        )
    for at, (name, field) in enumerate(zip(_FIELDS, fields, strict=True)):
        if not _is_right(" ".join([*_ANY[:at], field, *_ANY[at + 1 :]])):
            raise InvalidSchedule(
                f"cron is {expression!r}, of which {field!r} is not a {name}; write such as */5, 1-5, 0,30 or MON",
                cron=expression,
                field=name,
            )
    if not _is_right(expression):
        raise InvalidSchedule(f"cron is {expression!r}, a day that never comes", cron=expression)


def _is_right(expression: str) -> bool:
    try:
        CronSim(expression, _EPOCH)
    except CronSimError:
        return False
    return True
