"""The fields of a message that travel as record headers: its priority, when it is due, its trace.

Producers of other protocols write the headers themselves. What is given by its field may not be given as a header, too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta, UnsetType

from goqueue.api.http.durations import Duration
from goqueue.api.http.topic_bodies import LONG_MAX
from goqueue.model.delay import DELIVER_AT_HEADER, due_ms_of
from goqueue.model.duration import format_instant
from goqueue.model.errors import InvalidDelay, InvalidPriority, InvalidRequest
from goqueue.model.priority import NORMAL, PRIORITY_HEADER, lane_of, parse_priority
from goqueue.model.record import Header

TRACE_HEADER = "traceparent"
TRACE_PATTERN = r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
_YEAR_9999_MS = 253_402_300_799_999  # its end
_trace = re.compile(TRACE_PATTERN)

_Text = Annotated[str, Meta(max_length=100)]
PriorityField = Annotated[int, Meta(ge=-LONG_MAX, le=LONG_MAX)] | _Text
DelayField = Duration
InstantField = _Text
TraceField = _Text


def priority_of(headers: Sequence[Header]) -> int:
    for name, content in headers:
        if name == PRIORITY_HEADER:
            return lane_of(content)
    return NORMAL


def priority_headers(priority: int | str | UnsetType, headers: Sequence[Header]) -> list[Header]:
    """What a priority adds to the headers of its message."""
    own = [content for name, content in headers if name == PRIORITY_HEADER]
    if isinstance(priority, UnsetType):
        for content in own:
            parse_priority((content or b"").decode(errors="replace"))
        return []
    if own:
        raise InvalidPriority(f"the message has priority and a header {PRIORITY_HEADER}; give one of them")
    lane = parse_priority(priority)
    return [] if lane == NORMAL else [(PRIORITY_HEADER, str(int(lane)).encode())]


def trace_headers(traceparent: str | UnsetType, headers: Sequence[Header]) -> list[Header]:
    if isinstance(traceparent, UnsetType):
        return []
    if any(name == TRACE_HEADER for name, _ in headers):
        raise InvalidRequest(f"the message has traceparent and a header {TRACE_HEADER}; give one of them")
    if not _trace.fullmatch(traceparent):
        raise InvalidRequest(
            f"traceparent is {traceparent!r}; write it as W3C has it, such as "
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            traceparent=traceparent,
        )
    return [(TRACE_HEADER, traceparent.encode())]


def due_headers(
    delay: int | str | UnsetType, deliver_at: str | UnsetType, headers: Sequence[Header], now_ms: int
) -> list[Header]:
    due_ms = due_ms_of(
        delay=None if isinstance(delay, UnsetType) else delay,
        deliver_at=None if isinstance(deliver_at, UnsetType) else deliver_at,
        now_ms=now_ms,
    )
    if due_ms is None:
        return []
    if any(name == DELIVER_AT_HEADER for name, _ in headers):
        raise InvalidDelay(
            f"the message has delay or deliverAt and a header {DELIVER_AT_HEADER}; give one of them"
        )
    if due_ms > _YEAR_9999_MS:
        raise InvalidDelay(f"delay is {delay!r}; a message must be due before the year 10000")
    return [(DELIVER_AT_HEADER, format_instant(due_ms).encode())]
