"""POST /messages/ack, /nack, /reject, /visibility and their batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from msgspec import UNSET, UnsetType, structs

from goqueue.api.http.ack_bodies import (
    VISIBILITY_MS_MAX,
    Ack,
    AckBatch,
    Action,
    ExtendedLease,
    FinishedMessage,
    Nack,
    NackBatch,
    NackedMessage,
    ReceiptResult,
    ReceiptResults,
    ReceiptsError,
    Reject,
    RejectBatch,
    Visibility,
    VisibilityBatch,
)
from goqueue.api.http.call import Call, Reply
from goqueue.api.http.durations import duration_ms
from goqueue.api.http.errors import error_body
from goqueue.api.http.query import NoQuery
from goqueue.model.duration import format_instant
from goqueue.model.errors import GoQueueError, InvalidRequest, InvalidVisibility
from goqueue.node.node import Node
from goqueue.node.queue.requests import Finished, Prolonged, Returned

A = TypeVar("A")

_MULTI_STATUS = 207


async def ack(call: Call[NoQuery, Ack]) -> FinishedMessage:
    return _finished(_only(await call.node.receipts.ack([call.body.receipt_handle])))


async def ack_batch(call: Call[NoQuery, AckBatch]) -> Reply:
    handles = call.body.receipt_handles
    return _batch(handles, await call.node.receipts.ack(handles))


async def nack(call: Call[NoQuery, Nack]) -> NackedMessage:
    answer = _only(await _nack(call.node, [call.body.receipt_handle], call.body))
    return NackedMessage(
        answer.topic,
        answer.partition,
        answer.offset,
        answer.committed_offset,
        answer.in_flight_count,
        _action(answer),
        answer.deliveries,
        _visible_at(answer),
    )


async def nack_batch(call: Call[NoQuery, NackBatch]) -> Reply:
    handles = call.body.receipt_handles
    return _batch(handles, await _nack(call.node, handles, call.body))


async def reject(call: Call[NoQuery, Reject]) -> FinishedMessage:
    answers = await call.node.receipts.reject([call.body.receipt_handle], reason=call.body.reason)
    return _finished(_only(answers))


async def reject_batch(call: Call[NoQuery, RejectBatch]) -> Reply:
    handles = call.body.receipt_handles
    answers = await call.node.receipts.reject(handles, reason=call.body.reason)
    return _batch(handles, answers)


async def extend(call: Call[NoQuery, Visibility]) -> ExtendedLease:
    answer = _only(await _extend(call.node, [call.body.receipt_handle], call.body))
    return ExtendedLease(
        answer.topic,
        answer.partition,
        answer.offset,
        answer.committed_offset,
        answer.in_flight_count,
        format_instant(answer.deadline_ms),
    )


async def extend_batch(call: Call[NoQuery, VisibilityBatch]) -> Reply:
    handles = call.body.receipt_handles
    return _batch(handles, await _extend(call.node, handles, call.body))


# -------------------------------------------------------------------- asking


async def _nack(node: Node, handles: Sequence[str], body: Nack | NackBatch) -> list[Returned | GoQueueError]:
    delay_ms = None if isinstance(body.delay, UnsetType) else duration_ms("delay", body.delay)
    return await node.receipts.nack(handles, delay_ms=delay_ms, reason=body.reason)


async def _extend(
    node: Node, handles: Sequence[str], body: Visibility | VisibilityBatch
) -> list[Prolonged | GoQueueError]:
    timeout, extension_s = body.timeout, body.extension_seconds
    match timeout, extension_s:
        case UnsetType(), int() | float():
            return await node.receipts.extend(handles, timeout_ms=round(extension_s * 1_000), is_added=True)
        case int() | str(), UnsetType():
            timeout_ms = duration_ms("timeout", timeout)
            if not 0 <= timeout_ms <= VISIBILITY_MS_MAX:
                raise InvalidVisibility(timeout_ms, VISIBILITY_MS_MAX)
            return await node.receipts.extend(handles, timeout_ms=timeout_ms)
    found = "neither" if timeout is UNSET else "both"
    raise InvalidRequest(f"the request has {found} of timeout and extension_seconds; give one of them")


# -------------------------------------------------------------------- answering


def _only(answers: list[A | GoQueueError]) -> A:
    (answer,) = answers
    if isinstance(answer, GoQueueError):
        raise answer
    return answer


def _batch(
    handles: Sequence[str], answers: Sequence[Finished | Returned | Prolonged | GoQueueError]
) -> Reply:
    """200 where all is well, 207 where something is, and else the status of the first error."""
    results: list[ReceiptResult] = []
    errors: list[GoQueueError] = []
    for handle, answer in zip(handles, answers, strict=True):
        if isinstance(answer, GoQueueError):
            errors.append(answer)
            results.append(ReceiptResult(handle, error=answer.sentence, code=answer.code))
        else:
            results.append(_result(handle, answer))
    if len(errors) < len(results):
        return Reply(ReceiptResults(results), status=_MULTI_STATUS if errors else 200)
    first = error_body(errors[0])
    return Reply(ReceiptsError(first.error, first.code, first.status, first.details, results), first.status)


def _finished(answer: Finished) -> FinishedMessage:
    return FinishedMessage(
        answer.topic, answer.partition, answer.offset, answer.committed_offset, answer.in_flight_count
    )


def _result(handle: str, answer: Finished | Returned | Prolonged) -> ReceiptResult:
    result = ReceiptResult(
        handle,
        answer.topic,
        answer.partition,
        answer.offset,
        answer.committed_offset,
        answer.in_flight_count,
    )
    if isinstance(answer, Returned):
        return structs.replace(
            result,
            action=_action(answer),
            delivery_count=answer.deliveries,
            next_visible_at=_visible_at(answer),
        )
    if isinstance(answer, Prolonged):
        return structs.replace(result, next_visible_at=format_instant(answer.deadline_ms))
    return result


def _action(answer: Returned) -> Action:
    return Action.DEAD_LETTER if answer.is_dead else Action.RETRY


def _visible_at(answer: Returned) -> str | None:
    return None if answer.is_dead else format_instant(answer.visible_ms)
