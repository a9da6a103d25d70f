"""Durations and instants as people write them: "250ms", "30s", "5m", "PT1H30M", 1500 (milliseconds);
RFC 3339 for instants. Everything inside the program is whole milliseconds."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal

_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SIMPLE = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)(ms|s|m|h|d)?")
_ISO = re.compile(
    r"P(?:(?P<d>\d{1,9})D)?(?:T(?=\d)(?:(?P<h>\d{1,9})H)?(?:(?P<m>\d{1,9})M)?(?:(?P<s>\d{1,9}(?:\.\d{1,9})?)S)?)?"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def parse_duration_ms(text: str) -> int:
    """Milliseconds of a duration; ValueError names the text and the forms that are right."""
    simple = _SIMPLE.fullmatch(text)
    if simple:
        return int(Decimal(simple[1]) * _UNITS_MS[simple[2] or "ms"])
    iso = _ISO.fullmatch(text)
    if iso and any(iso.groups()):
        return int(
            sum(Decimal(amount) * _UNITS_MS[unit] for unit, amount in iso.groupdict().items() if amount)
        )
    raise ValueError(f"{text!r} is not a duration; write 250ms, 30s, 5m, 2h, 7d, PT1M30S or milliseconds")


def parse_instant_ms(text: str) -> int:
    """Milliseconds since 1970 of an RFC 3339 instant, or of a plain number of milliseconds."""
    if text.isascii() and text.isdigit() and len(text) <= 15:
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise ValueError(
            f"{text!r} is not an instant; write RFC 3339 such as 2026-01-31T12:00:00Z, or milliseconds since 1970"
        )
    return (moment - _EPOCH) // _MILLISECOND


def format_instant(milliseconds: int) -> str:
    """RFC 3339 in UTC with milliseconds."""
    seconds, rest = divmod(milliseconds, 1_000)
    try:
        moment = datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):  # a client wrote a timestamp beyond the calendar
        return str(milliseconds)
    return f"{moment.isoformat()[:19]}.{rest:03d}Z"  # strftime would not pad the year to four digits
