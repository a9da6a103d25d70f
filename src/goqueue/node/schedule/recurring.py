"""Recurring schedules: made, shown, deleted. Each lives in the schedule of the partition that its messages go to, which is
chosen once, when it is made. Its name is its own in the whole topic."""

from __future__ import annotations

from hashlib import sha256
from typing import Final, NamedTuple

import msgspec
from msgspec import structs

from goqueue.core.schedule.events import Change, Message, Removed
from goqueue.core.schedule.recurring import Recurring, RecurringRemoved, first_ms
from goqueue.core.schedule.states import State
from goqueue.model.delay import DELIVER_AT_HEADER
from goqueue.model.errors import (
    InvalidRequest,
    InvalidSchedule,
    LimitExceeded,
    ScheduleExists,
    ScheduleNotFound,
)
from goqueue.model.names import check_schedule_name
from goqueue.model.partitioner import partition_for_key
from goqueue.model.record import NewRecord
from goqueue.model.recurrence import SCHEDULE_HEADER, SCHEDULED_AT_HEADER, Recurrence
from goqueue.node.clock import Clock
from goqueue.node.guard import Guard
from goqueue.node.message_sizes import check_record
from goqueue.node.requests import NewMessage
from goqueue.node.schedule.due_times import due_times
from goqueue.node.schedule.intake import lane_in
from goqueue.node.schedule.requests import RecurringFacts, RecurringPage
from goqueue.node.schedule.scheduler import LIST_COUNT_MAX, Scheduler
from goqueue.node.schedule.shard import OwnedSchedule
from goqueue.node.schedule.succession import named_record
from goqueue.node.threads import Threads
from goqueue.node.topic_table import OpenTopic, TopicTable

RECURRING_COUNT_MAX: Final = 1_000  # of a topic
_OWN_HEADERS: Final = (SCHEDULE_HEADER, SCHEDULED_AT_HEADER, DELIVER_AT_HEADER)


class _Found(NamedTuple):
    schedule: OwnedSchedule
    recurring: Recurring


class RecurringSchedules:
    def __init__(
        self, scheduler: Scheduler, table: TopicTable, guard: Guard, threads: Threads, clock: Clock
    ) -> None:
        self._scheduler = scheduler
        self._table = table
        self._guard = guard
        self._threads = threads
        self._clock = clock

    async def create(
        self, topic: str, name: str, recurrence: Recurrence, message: NewMessage
    ) -> RecurringFacts:
        """Durable when this returns. The same again changes nothing and gives what there is."""
        self._guard.admit_write(1)
        target = self._table.get(topic)
        check_schedule_name(name)
        _check_headers(message.record)
        check_record(named_record(message.record, name, 0), target.settings, self._guard.limits)
        index = self._scheduler.home_of(topic, _partition(target, name, message))
        now_ms = self._clock.now_ms()
        due_ms = await self._threads.run(lambda: first_ms(recurrence, due_times(recurrence, now_ms), now_ms))
        content_hash = _hash(message)
        await self._scheduler.loaded(topic)
        found = _find(await self._scheduler.of_topic(topic), name)
        if found is None:
            schedule = await self._scheduler.open(topic, index)
            await schedule.log.lead()
            others = await self._scheduler.of_topic(topic)  # as things are by now
            found = _find(others, name)
            if found is None:
                _admit(others)
                self._scheduler.check_takes(schedule.source)
                if due_ms is None:
                    raise _never_due(recurrence)
                recurring = Recurring(name, recurrence, now_ms, content_hash, due_ms)
                found = _Found(schedule, _add(schedule, recurring, message.record))
                self._scheduler.note(schedule, 1)
        if (found.recurring.recurrence, found.recurring.content_hash) != (recurrence, content_hash):
            raise ScheduleExists(
                f"topic {topic!r} has another recurring schedule {name!r}; delete it first, or choose another name",
                name=name,
            )
        await found.schedule.log.settled()
        return _facts(found)

    def partition_of(self, topic: str, name: str, message: NewMessage) -> int:
        """Where a new schedule of this name would be."""
        return self._scheduler.home_of(topic, _partition(self._table.get(topic), name, message))

    async def delete(self, topic: str, name: str) -> None:
        """Once this returns nothing is fired any more but what is being fired."""
        self._guard.admit_relief()
        await self._scheduler.loaded(topic)
        found = self._get(topic, name)
        await found.schedule.log.lead()
        schedule, recurring = self._get(topic, name)  # as things are by now
        events: list[Change] = [RecurringRemoved(name)]
        if schedule.state.states.get(recurring.next_id) is State.PENDING:
            events.append(Removed(recurring.next_id))
        schedule.carry_out(events)
        await schedule.log.settled()

    async def get(self, topic: str, name: str) -> RecurringFacts:
        self._guard.admit_read()
        await self._scheduler.loaded(topic)
        return _facts(self._get(topic, name))

    async def list(self, topic: str, *, limit: int = 100, skip: int = 0) -> RecurringPage:
        """By name."""
        self._guard.admit_read()
        self._table.get(topic)
        if not 1 <= limit <= LIST_COUNT_MAX or not 0 <= skip <= RECURRING_COUNT_MAX:
            raise InvalidRequest(
                f"limit is {limit} and skip is {skip}; they may be 1 to {LIST_COUNT_MAX} and 0 to {RECURRING_COUNT_MAX}",
                limit=limit,
                skip=skip,
            )
        schedules = await self._scheduler.loaded(topic)
        found = [_Found(schedule, one) for schedule in schedules for one in schedule.state.recurring.all()]
        found.sort(key=lambda one: one.recurring.name)
        return RecurringPage([_facts(one) for one in found[skip : skip + limit]], len(found))

    def _get(self, topic: str, name: str) -> _Found:
        self._table.get(topic)
        check_schedule_name(name)
        found = _find(self._scheduler.known_of(topic), name)
        if found is None:
            raise ScheduleNotFound(f"topic {topic!r} has no recurring schedule {name!r}", name=name)
        return found


def _find(schedules: list[OwnedSchedule], name: str) -> _Found | None:
    for schedule in schedules:
        recurring = schedule.state.recurring.get(name)
        if recurring is not None:
            return _Found(schedule, recurring)
    return None


def _admit(schedules: list[OwnedSchedule]) -> None:
    count = sum(len(schedule.state.recurring) for schedule in schedules)
    if count >= RECURRING_COUNT_MAX:
        raise LimitExceeded(
            f"the topic has {count} recurring schedules, which is the limit; delete one that is finished or not needed",
            count=count,
        )


def _add(schedule: OwnedSchedule, recurring: Recurring, record: NewRecord) -> Recurring:
    schedule.state.admit(1)
    placed = structs.replace(recurring, next_id=schedule.log.end)
    due_ms = recurring.next_ms or 0
    first = Message(due_ms, lane_in(record.headers), named_record(record, recurring.name, due_ms))
    schedule.add_together([first], [placed])
    return placed


def _partition(target: OpenTopic, name: str, message: NewMessage) -> int:
    """As asked for, or that of the key, or without a key that of the name."""
    if message.partition is not None:
        target.check_partition(message.partition)
        return message.partition
    key = name.encode() if message.record.key is None else message.record.key
    return partition_for_key(target.settings.partitioner, key, target.partition_count)


def _check_headers(record: NewRecord) -> None:
    for name, _ in record.headers:
        if name in _OWN_HEADERS:
            raise InvalidSchedule(
                f"the message has a header {name}, which is not for a recurring one; leave it out",
                header=name,
            )


def _hash(message: NewMessage) -> bytes:
    record = message.record
    content = (record.key, record.value, record.headers, message.partition)
    return sha256(msgspec.msgpack.encode(content)).digest()


def _never_due(recurrence: Recurrence) -> InvalidSchedule:
    return InvalidSchedule(
        f"the schedule {msgspec.to_builtins(recurrence.rule)} would never fire: it has no due time between now or "
        "start_at and end_at"
    )


def _facts(found: _Found) -> RecurringFacts:
    return RecurringFacts(found.schedule.source.topic, found.schedule.source.index, found.recurring)
