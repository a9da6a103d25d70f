"""What follows a firing of a recurring schedule: the next one, which waits as a delayed record of its own.

It is written in one batch with the end of the one before it. Calendars are computed in a thread; what was decided meanwhile
(somebody has deleted the schedule) wins.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from msgspec import structs

from goqueue.core.schedule.events import Change, Firing, Message
from goqueue.core.schedule.recurring import (
    DueTimes,
    Recurring,
    RecurringRemoved,
    after_firing,
    after_skipping,
)
from goqueue.model.duration import format_instant
from goqueue.model.errors import InvalidSchedule
from goqueue.model.record import Header, NewRecord
from goqueue.model.recurrence import SCHEDULE_HEADER, SCHEDULED_AT_HEADER
from goqueue.node.schedule.due_times import due_times
from goqueue.node.schedule.shard import OwnedSchedule
from goqueue.node.threads import Threads

logger = logging.getLogger(__name__)

Plan = Callable[[Recurring, DueTimes], Recurring]


class Following(NamedTuple):
    """To be written together, before anything else is."""

    messages: list[Message]
    events: list[Change]


class Succession:
    def __init__(self, threads: Threads) -> None:
        self._threads = threads

    async def after(
        self, schedule: OwnedSchedule, firing: Firing, messages: Mapping[int, Message]
    ) -> Following:
        """What comes after the records of a firing, of which some may be recurring."""
        return await self._planned(
            schedule, firing.ids, messages, lambda one, times: after_firing(one, times, firing.now_ms)
        )

    async def skip(self, schedule: OwnedSchedule, id: int) -> None:
        """Cancel a firing that waits: the next one takes its place."""
        schedule.state.cancel(id)
        messages = await schedule.read([id])
        following = await self._planned(schedule, [id], messages, after_skipping)
        removed = schedule.state.cancel(id)  # as things are by now
        schedule.add_together(following.messages, [removed, *following.events])

    async def _planned(
        self, schedule: OwnedSchedule, ids: Sequence[int], messages: Mapping[int, Message], plan: Plan
    ) -> Following:
        table = schedule.state.recurring
        before = {id: one for id in ids if (one := table.of(id)) is not None}
        following = Following([], [])
        if not before:
            return following
        planned = await self._threads.run(lambda: {id: _plan(one, plan) for id, one in before.items()})
        for id, one in planned.items():
            if table.of(id) is before[id]:
                _add(following, schedule, one, messages.get(id))
        return following


def _plan(one: Recurring, plan: Plan) -> Recurring:
    try:
        return plan(one, due_times(one.recurrence, one.created_ms))
    except InvalidSchedule as error:  # another machine, with other time zones
        logger.error("a recurring schedule ends name=%s error=%r", one.name, error.sentence)
        return structs.replace(plan(one, _Never()), next_ms=None)


class _Never:
    def next_after(self, at_ms: int) -> int | None:
        return None

    def count(self, after_ms: int, last_ms: int) -> int:
        return 0


def _add(following: Following, schedule: OwnedSchedule, one: Recurring, message: Message | None) -> None:
    if one.next_ms is None:
        following.events.append(one)
    elif message is None:
        logger.error("a recurring schedule cannot be read and is given up name=%s", one.name)
        following.events.append(RecurringRemoved(one.name))
    else:
        id = schedule.log.end + len(following.messages)
        record = named_record(message.record, one.name, one.next_ms)
        following.messages.append(Message(one.next_ms, message.lane, record))
        following.events.append(structs.replace(one, next_id=id))


def named_record(record: NewRecord, name: str, due_ms: int) -> NewRecord:
    """The record with the headers that say which schedule it is from and when it was due."""
    own = (SCHEDULE_HEADER, SCHEDULED_AT_HEADER)
    headers: list[Header] = [one for one in record.headers if one[0] not in own]
    headers += [(SCHEDULE_HEADER, name.encode()), (SCHEDULED_AT_HEADER, format_instant(due_ms).encode())]
    return NewRecord(record.key, record.value, tuple(headers))
