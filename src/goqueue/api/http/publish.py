"""POST /topics/{topic}/messages: one of the two routes whose cost per request counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType, field

from goqueue.api.http.asgi import Event, Receive, Send, read_body, send_json
from goqueue.api.http.errors import ENCODER, Details, error_body
from goqueue.api.http.message_headers import priority_of
from goqueue.api.http.publish_body import read_publish
from goqueue.api.http.query import NoQuery, read_query
from goqueue.api.http.topic_bodies import Instant
from goqueue.model.codes import Code
from goqueue.model.duration import format_instant
from goqueue.model.errors import GoQueueError
from goqueue.model.priority import LANE_COUNT, NORMAL
from goqueue.node.node import Node
from goqueue.node.requests import NewMessage, Outcome

_MULTI_STATUS = 207


class Result(Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """Where a message is stored; or `error` and `code`, which say why it is not. A delayed message is not in its
    partition yet: its offset is its place in `/topics/{topic}/delayed`."""

    partition: Annotated[int, Meta(ge=0)] | None
    offset: Annotated[int, Meta(ge=0)] | None
    priority: Annotated[int, Meta(ge=0, lt=LANE_COUNT)] | UnsetType = UNSET
    delayed: bool | UnsetType = UNSET
    deliver_at: Instant | UnsetType = field(default=UNSET, name="deliverAt")
    error: str | UnsetType = UNSET
    code: Code | UnsetType = UNSET


class Published(Struct, frozen=True, forbid_unknown_fields=True):
    """One result for each message, in order."""

    results: list[Result]


class PublishError(Struct, frozen=True, forbid_unknown_fields=True):
    """The first message's error and, where the request as a whole was well-formed, what became of each message."""

    error: str
    code: Code
    status: int
    details: Details
    results: list[Result] | UnsetType = UNSET


async def publish(node: Node, path: Mapping[str, str], scope: Event, receive: Receive, send: Send) -> None:
    if scope["query_string"]:
        read_query(scope["query_string"], NoQuery)
    body = await read_body(scope, receive, node.config.limits.request_bytes_max)
    request = read_publish(body, node.clock.now_ms())
    stored: list[Outcome] = []
    if request.messages:
        stored = await node.publishing.publish(
            path["topic"], request.messages, acks=request.acks, producer=request.producer
        )
    errors = [outcome.error for outcome in stored if outcome.error is not None]
    results = [_result(message, outcome) for message, outcome in zip(request.messages, stored, strict=True)]
    if request.refused:
        errors = [*request.refused.values(), *errors]
        results = _with_refused(node, results, request.refused)
    if len(errors) < len(results):
        status = _MULTI_STATUS if errors else 200
        await send_json(send, status, ENCODER.encode(Published(results)))
        return
    first = error_body(errors[0])
    answer = PublishError(first.error, first.code, first.status, first.details, results)
    await send_json(send, first.status, ENCODER.encode(answer))


def _with_refused(node: Node, results: list[Result], refused: Mapping[int, GoQueueError]) -> list[Result]:
    """All results, in order: those of messages that never reached the publisher among the others."""
    others = iter(results)
    merged: list[Result] = []
    for at in range(len(results) + len(refused)):
        error = refused.get(at)
        if error is None:
            merged.append(next(others))
        else:
            node.metrics.refused_messages.labels(error.code.value).inc()
            merged.append(Result(None, None, error=error.sentence, code=error.code))
    return merged


def _result(message: NewMessage, outcome: Outcome) -> Result:
    if outcome.error is not None:
        return Result(outcome.partition, None, error=outcome.error.sentence, code=outcome.error.code)
    headers = message.record.headers
    priority = priority_of(headers) if headers else NORMAL
    if outcome.deliver_at_ms is None:
        return Result(outcome.partition, outcome.offset, priority, False)
    return Result(outcome.partition, outcome.offset, priority, True, format_instant(outcome.deliver_at_ms))
