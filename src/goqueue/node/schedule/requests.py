"""What the use cases of delayed messages and recurring schedules give."""

from __future__ import annotations

from msgspec import Struct

from goqueue.core.schedule.recurring import Recurring
from goqueue.core.schedule.states import State


class Delayed(Struct, frozen=True):
    """A delayed message; `offset` is its id, by which it is found and cancelled."""

    topic: str
    partition: int
    offset: int
    deliver_at_ms: int
    state: State
    lane: int


class DelayedPage(Struct, frozen=True):
    """The soonest come first; `pending_count` is of the whole topic."""

    messages: list[Delayed]
    pending_count: int


class DelayStats(Struct, frozen=True):
    """Of one partition; fired and cancelled since the node started."""

    topic: str
    partition: int
    pending_count: int  # with those that are on their way into the topic: a message is never nowhere
    parked_count: int  # of those: on disk only, because they are due in more than a week
    fired_count: int
    cancelled_count: int


class RecurringFacts(Struct, frozen=True):
    """A recurring schedule, and the partition that its messages go to."""

    topic: str
    partition: int
    recurring: Recurring


class RecurringPage(Struct, frozen=True):
    """`count` is of the whole topic."""

    schedules: list[RecurringFacts]
    count: int
