"""Priorities: five lanes, each with its share of what is served when all of them are full."""

from __future__ import annotations

from enum import IntEnum

from goqueue.model.errors import InvalidPriority

PRIORITY_HEADER = "gq-priority"


class Priority(IntEnum):
    CRITICAL = 0
    HIGH = 1
    NORMAL = 2
    LOW = 3
    BACKGROUND = 4


LANE_COUNT = len(Priority)
NORMAL = int(Priority.NORMAL)
WEIGHTS = (50, 25, 15, 7, 3)
STARVATION_MS_MAX = 30_000

_NAMES = {priority.name.lower(): priority for priority in Priority}
_BY_TEXT = {**_NAMES, **{str(int(priority)): priority for priority in Priority}}


def parse_priority(value: int | str) -> Priority:
    """From a number, its digits, or a name."""
    found = _BY_TEXT.get(str(value).strip().lower())
    if found is None:
        raise InvalidPriority(
            f"priority is {value!r}; it must be 0 to {LANE_COUNT - 1} or one of {', '.join(_NAMES)}",
            priority=value,
        )
    return found


def lane_of(header: bytes | None) -> int:
    """The lane that a record's header says; one that says nothing sensible is normal: it is in the log already."""
    if header is None:
        return NORMAL
    found = _BY_TEXT.get(header.decode("ascii", "replace").strip().lower())
    return NORMAL if found is None else int(found)
