"""GET /topics/{topic}/delayed; GET and DELETE /topics/{topic}/delayed/{partition}/{offset}."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct

from goqueue.api.http.call import Call, NoBody
from goqueue.api.http.query import NoQuery
from goqueue.api.http.read import path_number
from goqueue.api.http.topic_bodies import LONG_MAX, Count, Instant
from goqueue.model.duration import format_instant
from goqueue.model.priority import LANE_COUNT
from goqueue.node.schedule.requests import Delayed
from goqueue.node.schedule.scheduler import LIST_COUNT_MAX, SKIP_COUNT_MAX

OneCall = Call[NoQuery, NoBody]


class DelayedQuery(Struct, frozen=True):
    limit: Annotated[int, Meta(ge=1, le=LIST_COUNT_MAX)] = 100
    skip: Annotated[
        int, Meta(ge=0, le=SKIP_COUNT_MAX, description="How many of the soonest to leave out.")
    ] = 0


class DelayState(StrEnum):
    """firing: it is due, and on its way into its partition."""

    PENDING = "pending"
    FIRING = "firing"
    CANCELLED = "cancelled"


class DelayedMessage(Struct, frozen=True, forbid_unknown_fields=True):
    """`offset` is its place among the delayed messages of the partition, by which it is found and cancelled; where it will
    be in the partition is known when it is due."""

    topic: str
    partition: Count
    offset: Count
    deliver_at: Instant
    time_remaining: Annotated[float, Meta(ge=0, description="Seconds until it is due.")]
    state: DelayState
    priority: Annotated[int, Meta(ge=0, lt=LANE_COUNT)]


class CancelledMessage(Struct, frozen=True, forbid_unknown_fields=True):
    topic: str
    partition: Count
    offset: Count
    state: DelayState


class DelayedMessages(Struct, frozen=True, forbid_unknown_fields=True):
    """The soonest come first; `count` is of the whole topic."""

    messages: list[DelayedMessage]
    count: Count


async def list_delayed(call: Call[DelayedQuery, NoBody]) -> DelayedMessages:
    page = await call.node.scheduler.list(call.path["topic"], limit=call.query.limit, skip=call.query.skip)
    now_ms = call.clock.now_ms()
    return DelayedMessages([_message(one, now_ms) for one in page.messages], page.pending_count)


async def get_delayed(call: OneCall) -> DelayedMessage:
    topic, partition, offset = _place(call)
    return _message(await call.node.scheduler.get(topic, partition, offset), call.clock.now_ms())


async def cancel_delayed(call: OneCall) -> CancelledMessage:
    topic, partition, offset = _place(call)
    await call.node.scheduler.cancel(topic, partition, offset)
    return CancelledMessage(topic, partition, offset, DelayState.CANCELLED)


def _place(call: OneCall) -> tuple[str, int, int]:
    path = call.path
    partition = path_number("partition", path["partition"])
    return path["topic"], partition, path_number("offset", path["offset"], LONG_MAX)


def _message(delayed: Delayed, now_ms: int) -> DelayedMessage:
    return DelayedMessage(
        delayed.topic,
        delayed.partition,
        delayed.offset,
        format_instant(delayed.deliver_at_ms),
        max(0, delayed.deliver_at_ms - now_ms) / 1_000,
        DelayState(delayed.state.name.lower()),
        delayed.lane,
    )
