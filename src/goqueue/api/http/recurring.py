"""POST and GET /topics/{topic}/recurring; GET and DELETE /topics/{topic}/recurring/{schedule}."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final, TypeVar

from msgspec import UNSET, Meta, Struct, UnsetType

from goqueue.api.http.call import Call, NoBody
from goqueue.api.http.durations import DAY_MS, Duration
from goqueue.api.http.message_headers import InstantField, priority_headers
from goqueue.api.http.publish_body import Content, headers_in, key_in, value_in
from goqueue.api.http.query import NoQuery
from goqueue.api.http.topic_bodies import NAME_PATTERN, Count, Instant
from goqueue.model.duration import format_instant
from goqueue.model.names import NAME_LENGTH_MAX
from goqueue.model.record import NewRecord
from goqueue.model.recurrence import FIRES_MAX, CronRule, EveryRule, parse_recurrence
from goqueue.node.requests import NewMessage
from goqueue.node.schedule.recurring import RECURRING_COUNT_MAX
from goqueue.node.schedule.requests import RecurringFacts
from goqueue.node.schedule.scheduler import LIST_COUNT_MAX

T = TypeVar("T")

OneCall = Call[NoQuery, NoBody]

_UNITS_MS: Final = (("d", DAY_MS), ("h", 3_600_000), ("m", 60_000), ("s", 1_000))

# Documented here and enforced by the node, whose code is INVALID_NAME.
ScheduleName = Annotated[
    str, Meta(extra_json_schema={"pattern": NAME_PATTERN, "minLength": 1, "maxLength": NAME_LENGTH_MAX})
]


class RecurringMessage(Content, frozen=True, forbid_unknown_fields=True, gc=False):
    """Exactly one of `value` and `value_base64`, and at most one of `key` and `key_base64`. Each that is sent also has the
    headers `gq-schedule` and `gq-scheduled-at`: the name, and when it was due. Where it goes is decided once: to
    `partition`, or by the key, or without one by the schedule's name."""


class NewRecurring(Struct, frozen=True, forbid_unknown_fields=True):
    """Exactly one of `every` and `cron`."""

    name: ScheduleName
    message: RecurringMessage
    every: Annotated[Duration, Meta(description="At least a second.")] | UnsetType = UNSET
    cron: (
        Annotated[
            str,
            Meta(
                description="Minute, hour, day of month, month, day of week; with lists, ranges, steps, names, L and #. "
                "Where clocks are changed it does as Debian's cron."
            ),
        ]
        | UnsetType
    ) = UNSET
    timezone: Annotated[str, Meta(description="For cron: an IANA name; UTC if left out.")] | UnsetType = UNSET
    start_at: Annotated[InstantField, Meta(description="No due time is earlier.")] | UnsetType = UNSET
    end_at: Annotated[InstantField, Meta(description="All due times are earlier.")] | UnsetType = UNSET
    max_fires: Annotated[int, Meta(ge=1, le=FIRES_MAX)] | UnsetType = UNSET


class RecurringState(StrEnum):
    ACTIVE = "active"
    FINISHED = "finished"


class RecurringSchedule(Struct, frozen=True, forbid_unknown_fields=True):
    """`fired` is how many messages were sent; `missed`, how many due times had none of their own, because the broker was
    down. A schedule that is finished stays until it is deleted."""

    name: str
    topic: str
    partition: Count
    state: RecurringState
    every: str | None
    cron: str | None
    timezone: str | None
    start_at: Instant | None
    end_at: Instant | None
    max_fires: Count | None
    created_at: Instant
    next_fire_at: Instant | None
    last_fire_at: Instant | None
    fired: Count
    missed: Count


class RecurringQuery(Struct, frozen=True):
    limit: Annotated[int, Meta(ge=1, le=LIST_COUNT_MAX)] = 100
    skip: Annotated[int, Meta(ge=0, le=RECURRING_COUNT_MAX, description="How many to leave out.")] = 0


class RecurringList(Struct, frozen=True, forbid_unknown_fields=True):
    """By name; `count` is of the whole topic."""

    schedules: list[RecurringSchedule]
    count: Count


class RecurringDeleted(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    deleted: bool


async def create_recurring(call: Call[NoQuery, NewRecurring]) -> RecurringSchedule:
    body = call.body
    recurrence = parse_recurrence(
        every=None if isinstance(body.every, UnsetType) else body.every,
        cron=_given(body.cron),
        timezone=_given(body.timezone),
        start_at=_given(body.start_at),
        end_at=_given(body.end_at),
        max_fires=_given(body.max_fires),
    )
    facts = await call.node.recurring.create(call.path["topic"], body.name, recurrence, message_of(body))
    return _schedule(facts)


async def list_recurring(call: Call[RecurringQuery, NoBody]) -> RecurringList:
    page = await call.node.recurring.list(call.path["topic"], limit=call.query.limit, skip=call.query.skip)
    return RecurringList([_schedule(one) for one in page.schedules], page.count)


async def get_recurring(call: OneCall) -> RecurringSchedule:
    return _schedule(await call.node.recurring.get(call.path["topic"], call.path["schedule"]))


async def delete_recurring(call: OneCall) -> RecurringDeleted:
    name = call.path["schedule"]
    await call.node.recurring.delete(call.path["topic"], name)
    return RecurringDeleted(name, True)


def message_of(new: NewRecurring) -> NewMessage:
    path, message = "$.message", new.message
    headers = headers_in(message)
    headers += priority_headers(message.priority, headers)
    record = NewRecord(key_in(message, path), value_in(message, path), tuple(headers))
    return NewMessage(record, message.partition)


def _schedule(facts: RecurringFacts) -> RecurringSchedule:
    one = facts.recurring
    recurrence, rule = one.recurrence, one.recurrence.rule
    return RecurringSchedule(
        name=one.name,
        topic=facts.topic,
        partition=facts.partition,
        state=RecurringState.FINISHED if one.next_ms is None else RecurringState.ACTIVE,
        every=_duration(rule.every_ms) if isinstance(rule, EveryRule) else None,
        cron=rule.expression if isinstance(rule, CronRule) else None,
        timezone=rule.timezone if isinstance(rule, CronRule) else None,
        start_at=_instant(recurrence.start_ms),
        end_at=_instant(recurrence.end_ms),
        max_fires=recurrence.fires_max,
        created_at=format_instant(one.created_ms),
        next_fire_at=_instant(one.next_ms),
        last_fire_at=_instant(one.last_fired_ms),
        fired=one.fired_count,
        missed=one.missed_count,
    )


def _duration(duration_ms: int) -> str:
    for unit, unit_ms in _UNITS_MS:
        if duration_ms % unit_ms == 0:
            return f"{duration_ms // unit_ms}{unit}"
    return f"{duration_ms}ms"


def _instant(at_ms: int | None) -> str | None:
    return None if at_ms is None else format_instant(at_ms)


def _given(value: T | UnsetType) -> T | None:
    return None if isinstance(value, UnsetType) else value
