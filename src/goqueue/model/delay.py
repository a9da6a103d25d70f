"""When a record is due: as a delay from now, as an instant, or in the header `gq-deliver-at` that any producer can set.

Inside the program a due time is whole milliseconds since 1970, rounded up: a record may be late, never early.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from goqueue.model.duration import parse_duration_ms, parse_instant_ms
from goqueue.model.errors import InvalidDelay
from goqueue.model.record import Header

DELIVER_AT_HEADER = "gq-deliver-at"
DELIVER_AT_MARK = DELIVER_AT_HEADER.encode()  # a batch without these bytes has no delayed record
_TEXT_LENGTH_MAX = 64
_BELOW_MS = re.compile(r"[.,]\d{3}\d*[1-9]")


def parse_delay_ms(delay: int | str) -> int:
    """From milliseconds, or a text such as 1500ms, 30s, 5m, 2h, 1d, PT5M."""
    try:
        delay_ms = delay if isinstance(delay, int) else parse_duration_ms(delay[:_TEXT_LENGTH_MAX])
    except ValueError as error:
        raise InvalidDelay(f"delay is wrong: {error}", delay=delay) from None
    if delay_ms < 0:
        raise InvalidDelay(f"delay is {delay}; it must be 0 or more", delay=delay)
    return delay_ms


def parse_deliver_at_ms(text: str) -> int:
    """From RFC 3339, or milliseconds since 1970."""
    text = text.strip()
    try:
        at_ms = parse_instant_ms(text[:_TEXT_LENGTH_MAX])
    except ValueError as error:
        raise InvalidDelay(f"the time of delivery is wrong: {error}", deliver_at=text) from None
    return at_ms + 1 if _BELOW_MS.search(text) else at_ms


def due_ms_of(*, delay: int | str | None, deliver_at: str | None, now_ms: int) -> int | None:
    """What a publisher asks for beside the record; None where it asks for nothing."""
    if delay is not None and deliver_at is not None:
        raise InvalidDelay(
            f"delay is {delay!r} and deliverAt is {deliver_at!r}; give one of them",
            delay=delay,
            deliver_at=deliver_at,
        )
    if delay is not None:
        return now_ms + parse_delay_ms(delay)
    return None if deliver_at is None else parse_deliver_at_ms(deliver_at)


def due_ms_in(headers: Sequence[Header]) -> int | None:
    """What the first header of the name says, if a record has one."""
    for name, value in headers:
        if name == DELIVER_AT_HEADER:
            return parse_deliver_at_ms((value or b"").decode("utf-8", "replace"))
    return None


def check_due(due_ms: int, *, now_ms: int, delay_ms_max: int) -> bool:
    """Whether the record has to wait; raises where it would have to wait for too long."""
    delay_ms = due_ms - now_ms
    if delay_ms <= 0:
        return False
    if delay_ms > delay_ms_max:
        raise InvalidDelay(
            f"a delay of {delay_ms} ms is too long; the topic's delay.max.ms is {delay_ms_max}",
            delay_ms=delay_ms,
            delay_ms_max=delay_ms_max,
        )
    return True
