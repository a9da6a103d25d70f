"""Recurring schedules: each has one firing that waits, as a delayed record like any other.

When that is fired, the one after it is written in the same batch as the news that it was, so nothing is fired twice or
forgotten. What the due times are is given from outside: a calendar with time zones is not for a state machine to know, and
a replay must not depend on it. So events carry instants, and nobody computes them again.

A firing stands for every due time up to its own instant that has not been fired: after a time of being down there is one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from msgspec import Struct, structs

from goqueue.model.recurrence import Recurrence

NO_ID = -1


class Recurring(Struct, frozen=True, array_like=True, tag="recurring"):
    """A schedule, and how far it is. `next_id` is the record that waits; none waits where `next_ms` is None."""

    name: str
    recurrence: Recurrence
    created_ms: int
    content_hash: bytes  # of the message that was asked for, and where it was to go
    next_ms: int | None
    next_id: int = NO_ID
    fired_count: int = 0
    missed_count: int = 0
    last_fired_ms: int | None = None


class RecurringRemoved(NamedTuple):
    name: str


class DueTimes(Protocol):
    def next_after(self, at_ms: int) -> int | None:
        """The first that is later; None where there is none."""

    def count(self, after_ms: int, last_ms: int) -> int:
        """How many are later than the one and not later than the other."""


class EveryTimes:
    """A grid, which has a first point and no last one."""

    def __init__(self, every_ms: int, grid_ms: int) -> None:
        self._every_ms = every_ms
        self._grid_ms = grid_ms

    def next_after(self, at_ms: int) -> int | None:
        return self._grid_ms + (self._index(at_ms) + 1) * self._every_ms

    def count(self, after_ms: int, last_ms: int) -> int:
        return max(0, self._index(last_ms) - self._index(after_ms))

    def _index(self, at_ms: int) -> int:
        """Of the last point that is not later."""
        return max(-1, (at_ms - self._grid_ms) // self._every_ms)


def grid_ms(recurrence: Recurrence, created_ms: int) -> int:
    return created_ms if recurrence.start_ms is None else recurrence.start_ms


def first_ms(recurrence: Recurrence, times: DueTimes, now_ms: int) -> int | None:
    """From the start on, and not in the past."""
    start_ms = recurrence.start_ms
    return _within(recurrence, times.next_after(now_ms if start_ms is None else max(now_ms, start_ms - 1)))


def after_firing(one: Recurring, times: DueTimes, fired_ms: int) -> Recurring:
    """What is true once the record that waited is fired; the next one has no id yet."""
    due_ms = fired_ms if one.next_ms is None else one.next_ms
    end_ms = one.recurrence.end_ms
    last_ms = fired_ms if end_ms is None else min(fired_ms, end_ms - 1)
    fired_count, fires_max = one.fired_count + 1, one.recurrence.fires_max
    is_last = fires_max is not None and fired_count >= fires_max
    next_ms = None if is_last else _within(one.recurrence, times.next_after(max(due_ms, fired_ms)))
    return structs.replace(
        one,
        next_ms=next_ms,
        next_id=NO_ID,
        fired_count=fired_count,
        missed_count=one.missed_count + times.count(due_ms, last_ms),
        last_fired_ms=fired_ms,
    )


def after_skipping(one: Recurring, times: DueTimes) -> Recurring:
    """What is true once the record that waited is cancelled."""
    next_ms = None if one.next_ms is None else _within(one.recurrence, times.next_after(one.next_ms))
    return structs.replace(one, next_ms=next_ms, next_id=NO_ID)


def _within(recurrence: Recurrence, due_ms: int | None) -> int | None:
    is_over = due_ms is None or (recurrence.end_ms is not None and due_ms >= recurrence.end_ms)
    return None if is_over else due_ms


class RecurringTable:
    """Those of one partition, by name and by the record that waits."""

    def __init__(self, entries: Iterable[Recurring] = ()) -> None:
        self._by_name: dict[str, Recurring] = {}
        self._names: dict[int, str] = {}
        for one in entries:
            self.apply(one)

    def __len__(self) -> int:
        return len(self._by_name)

    def all(self) -> list[Recurring]:
        return list(self._by_name.values())

    def get(self, name: str) -> Recurring | None:
        return self._by_name.get(name)

    def of(self, id: int) -> Recurring | None:
        """Whose firing a delayed record is, if it is one."""
        name = self._names.get(id)
        return None if name is None else self._by_name[name]

    def apply(self, event: Recurring | RecurringRemoved) -> None:
        before = self._by_name.pop(event.name, None)
        if before is not None:
            self._names.pop(before.next_id, None)
        if isinstance(event, Recurring):
            self._by_name[event.name] = event
            if event.next_ms is not None:
                self._names[event.next_id] = event.name
