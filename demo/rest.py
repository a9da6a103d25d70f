"""The part of the REST API that the shop uses, typed: publish, join, poll, ack, nack, reject, read."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from typing import Final, TypeVar

import msgspec
from msgspec import Struct

from demo.failure import DemoFailed
from demo.orders import Order
from goqueue.client.connection import Connection, Reply, error_of

T = TypeVar("T")
TIMEOUT_S: Final = 30.0
ARRIVAL_S_MAX: Final = 60.0
_FAILED_FROM: Final = 300
_NOT_FOUND: Final = 404
_LOOK_S: Final = 0.1
_POLL_WAIT_S: Final = 0.5


class PublishResult(Struct, frozen=True):
    partition: int | None = None
    offset: int | None = None
    delayed: bool = False
    error: str | None = None


class Polled(Struct, frozen=True):
    """A message in a worker's hands."""

    partition: int
    offset: int
    timestamp: str
    value: str
    headers: dict[str, str]
    delivery_count: int
    receipt_handle: str


class ReceiptResult(Struct, frozen=True):
    receipt_handle: str
    action: str | None = None
    error: str | None = None


class _PublishResults(Struct):
    results: list[PublishResult]


class _PolledMessages(Struct):
    messages: list[Polled]


class _ReceiptResults(Struct):
    results: list[ReceiptResult]


class _TopicSize(Struct):
    total_messages: int


class ShopClient:
    """One connection; not for two threads at once."""

    def __init__(self, url: str) -> None:
        self._connection = Connection(url, timeout_s=TIMEOUT_S)

    def close(self) -> None:
        self._connection.close()

    def create_topic(self, name: str, partitions: int, config: dict[str, int]) -> None:
        settings = {key: str(value) for key, value in config.items()}
        body = {"name": name, "num_partitions": partitions, "config": settings}
        _succeeded(self._connection.request("POST", "/topics", body=body))

    def await_records(self, topic: str, count: int, stop: threading.Event) -> None:
        """Until the topic has so many, or is asked to stop; what is delayed or dead comes to its topic by and by."""
        deadline = time.monotonic() + ARRIVAL_S_MAX
        while not stop.is_set() and (there := self._record_count(topic)) < count:
            if time.monotonic() > deadline:
                raise DemoFailed(
                    f"topic {topic} has {there} records after {ARRIVAL_S_MAX:.0f} s, not {count}"
                )
            stop.wait(_LOOK_S)

    def _record_count(self, topic: str) -> int:
        reply = self._connection.request("GET", f"/topics/{topic}")
        return 0 if reply.status == _NOT_FOUND else _decoded(reply, _TopicSize).total_messages

    def publish(self, topic: str, orders: Iterable[Order]) -> list[PublishResult]:
        body = {"messages": [_message(order) for order in orders]}
        reply = self._connection.request("POST", f"/topics/{topic}/messages", body=body)
        results = _decoded(reply, _PublishResults).results
        for result in results:
            if result.error is not None:
                raise DemoFailed(f"an order was refused: {result.error}")
        return results

    def join(self, group: str, member: str, topic: str) -> None:
        body = {"client_id": member, "member_id": member, "topics": [topic], "mode": "queue"}
        _succeeded(self._connection.request("POST", f"/groups/{group}/join", body=body))

    def poll(self, group: str, member: str, *, limit: int, visibility: str) -> list[Polled]:
        """Waits a moment for messages; there may be none."""
        query: dict[str, str | int | None] = {
            "member_id": member,
            "limit": limit,
            "visibility": visibility,
            "timeout": f"{_POLL_WAIT_S * 1_000:.0f}ms",
        }
        reply = self._connection.request("GET", f"/groups/{group}/poll", query=query, wait_s=_POLL_WAIT_S)
        return _decoded(reply, _PolledMessages).messages

    def ack(self, handles: Sequence[str]) -> list[ReceiptResult]:
        return self._finish("ack", {"receipt_handles": handles})

    def nack(self, handles: Sequence[str], reason: str) -> list[ReceiptResult]:
        return self._finish("nack", {"receipt_handles": handles, "reason": reason})

    def reject(self, handles: Sequence[str], reason: str) -> list[ReceiptResult]:
        return self._finish("reject", {"receipt_handles": handles, "reason": reason})

    def _finish(self, verb: str, body: dict[str, object]) -> list[ReceiptResult]:
        results = _decoded(
            self._connection.request("POST", f"/messages/{verb}/batch", body=body), _ReceiptResults
        ).results
        for result in results:
            if result.error is not None:
                raise DemoFailed(f"{verb} of {result.receipt_handle} was refused: {result.error}")
        return results


def _message(order: Order) -> dict[str, object]:
    message: dict[str, object] = {
        "key": order.customer,
        "value": order.value,
        "priority": order.priority,
        "traceparent": order.traceparent,
    }
    return message if order.delay_ms is None else message | {"delay": f"{order.delay_ms}ms"}


def _decoded(reply: Reply, kind: type[T]) -> T:
    _succeeded(reply)
    return msgspec.json.decode(reply.body, type=kind)


def _succeeded(reply: Reply) -> None:
    if reply.status >= _FAILED_FROM:
        raise error_of(reply)
