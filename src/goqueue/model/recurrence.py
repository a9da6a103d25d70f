"""When a recurring schedule fires: every so often, or as a cron expression says; from when, until when, how often.

`[start, end)` is half-open as every range is. Firings are at least a second apart.
"""

from __future__ import annotations

from msgspec import Struct

from goqueue.model.delay import parse_deliver_at_ms
from goqueue.model.duration import format_instant, parse_duration_ms
from goqueue.model.errors import InvalidDelay, InvalidSchedule

SCHEDULE_HEADER = "gq-schedule"
SCHEDULED_AT_HEADER = "gq-scheduled-at"
EVERY_MS_MIN = 1_000
EVERY_MS_MAX = 10 * 366 * 86_400_000
START_MS_MAX = 253_370_764_800_000  # the year 9999
FIRES_MAX = 2**53 - 1  # whole numbers that every reader of JSON keeps
UTC_NAME = "UTC"
_CRON_LENGTH_MAX = 200
_ZONE_LENGTH_MAX = 100
_TEXT_LENGTH_MAX = 64


class EveryRule(Struct, frozen=True, array_like=True, tag="every"):
    every_ms: int


class CronRule(Struct, frozen=True, array_like=True, tag="cron"):
    expression: str
    timezone: str


class Recurrence(Struct, frozen=True, array_like=True):
    rule: EveryRule | CronRule
    start_ms: int | None = None
    end_ms: int | None = None
    fires_max: int | None = None


def parse_recurrence(
    *,
    every: int | str | None = None,
    cron: str | None = None,
    timezone: str | None = None,
    start_at: str | None = None,
    end_at: str | None = None,
    max_fires: int | None = None,
) -> Recurrence:
    """From what a client writes. Whether the expression and the time zone are known ones, who reads them says."""
    start_ms = None if start_at is None else _instant_ms("start_at", start_at)
    end_ms = None if end_at is None else _instant_ms("end_at", end_at)
    if start_ms is not None and end_ms is not None and end_ms <= start_ms:
        raise InvalidSchedule(
            f"end_at is {format_instant(end_ms)}, which is not after start_at, {format_instant(start_ms)}",
            start_at=start_at,
            end_at=end_at,
        )
    if max_fires is not None and not 1 <= max_fires <= FIRES_MAX:
        raise InvalidSchedule(
            f"max_fires is {max_fires}; it must be from 1 to {FIRES_MAX}", max_fires=max_fires
        )
    return Recurrence(_rule(every, cron, timezone), start_ms, end_ms, max_fires)


def _rule(every: int | str | None, cron: str | None, timezone: str | None) -> EveryRule | CronRule:
    if every is not None and cron is not None:
        raise InvalidSchedule(
            f"every is {every!r} and cron is {cron!r}; give one of them", every=every, cron=cron
        )
    if cron is not None:
        if len(cron) > _CRON_LENGTH_MAX:
            raise InvalidSchedule(
                f"cron has {len(cron)} characters; it may have {_CRON_LENGTH_MAX}", length=len(cron)
            )
        zone = UTC_NAME if timezone is None else timezone
        if len(zone) > _ZONE_LENGTH_MAX:
            raise InvalidSchedule(
                f"timezone has {len(zone)} characters; it may have {_ZONE_LENGTH_MAX}", length=len(zone)
            )
        return CronRule(" ".join(cron.split()), zone)
    if every is None:
        raise InvalidSchedule("there is neither every nor cron; give one of them")
    if timezone is not None:
        raise InvalidSchedule(
            f"timezone is {timezone!r}, but it is for cron; every is the same in all time zones",
            timezone=timezone,
        )
    return EveryRule(_every_ms(every))


def _every_ms(every: int | str) -> int:
    try:
        every_ms = every if isinstance(every, int) else parse_duration_ms(every[:_TEXT_LENGTH_MAX])
    except ValueError as error:
        raise InvalidSchedule(f"every is wrong: {error}", every=every) from None
    if not EVERY_MS_MIN <= every_ms <= EVERY_MS_MAX:
        raise InvalidSchedule(
            f"every is {every!r}; it must be from {EVERY_MS_MIN} ms to {EVERY_MS_MAX // 86_400_000} days",
            every=every,
        )
    return every_ms


def _instant_ms(field: str, text: str) -> int:
    try:
        at_ms = parse_deliver_at_ms(text)
    except InvalidDelay:
        at_ms = -1
    if not 0 <= at_ms <= START_MS_MAX:
        raise InvalidSchedule(
            f"{field} is {text!r}; write RFC 3339 such as 2026-01-31T12:00:00Z, or milliseconds since 1970, "
            "before the year 9999",
            field=field,
            value=text,
        )
    return at_ms
