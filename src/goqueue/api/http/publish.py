"""POST /topics/{topic}/messages: one of the two routes whose cost per request counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from goqueue.api.http.asgi import Event, Receive, Send, read_body, send_json
from goqueue.api.http.errors import ENCODER, Details, error_body
from goqueue.api.http.publish_body import read_publish
from goqueue.api.http.query import NoQuery, read_query
from goqueue.model.codes import Code
from goqueue.model.errors import GoQueueError
from goqueue.node.node import Node
from goqueue.node.requests import Outcome

_MULTI_STATUS = 207


class Result(Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """Where a message is stored; or `error` and `code`, which say why it is not."""

    partition: Annotated[int, Meta(ge=0)] | None
    offset: Annotated[int, Meta(ge=0)] | None
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
    messages, acks, producer = read_publish(body)
    outcomes = await node.publisher.publish(path["topic"], messages, acks=acks, producer=producer)
    errors = [outcome.error for outcome in outcomes if outcome.error is not None]
    if errors:
        await _send_errors(send, outcomes, errors)
    else:
        results = [Result(outcome.partition, outcome.offset) for outcome in outcomes]
        await send_json(send, 200, ENCODER.encode(Published(results)))


async def _send_errors(send: Send, outcomes: list[Outcome], errors: list[GoQueueError]) -> None:
    results = [_result(outcome) for outcome in outcomes]
    if len(errors) < len(outcomes):
        await send_json(send, _MULTI_STATUS, ENCODER.encode(Published(results)))
        return
    first = error_body(errors[0])
    body = PublishError(first.error, first.code, first.status, first.details, results)
    await send_json(send, first.status, ENCODER.encode(body))


def _result(outcome: Outcome) -> Result:
    if outcome.error is None:
        return Result(outcome.partition, outcome.offset)
    return Result(outcome.partition, None, outcome.error.sentence, outcome.error.code)
