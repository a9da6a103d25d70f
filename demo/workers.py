"""Workers that take orders from the queue: what works is acknowledged, what fails is given back, what cannot be read is rejected.

An order that was given back comes again a little later, to whichever worker is free, and after its last retry it is a dead letter.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

import msgspec
from msgspec import Struct

from demo.diary import TOPIC, Diary, Event
from demo.orders import Shop
from demo.rest import Polled, ReceiptResult, ShopClient

GROUP: Final = "shipping"
BATCH_MAX: Final = 100
# Much longer than any batch takes: an order that is given twice because the machine was slow would be no lie, but no exact count either.
VISIBILITY: Final = "10m"
DEAD: Final = "dead_letter"
_MS_NS: Final = 1_000_000


class _OrderBody(Struct, frozen=True, forbid_unknown_fields=True):
    id: int
    customer: str
    product: str
    quantity: int
    at: datetime


class Tally:
    """How many orders are done with, of how many; the workers end when that is all of them."""

    def __init__(self, total: int) -> None:
        self.deliveries = self.acked = self.nacks = self.dead = 0
        self.is_done = threading.Event()
        self._total = total
        self._lock = threading.Lock()

    @property
    def finished(self) -> int:
        return self.acked + self.dead

    def add(self, *, deliveries: int = 0, acked: int = 0, nacks: int = 0, dead: int = 0) -> None:
        with self._lock:
            self.deliveries += deliveries
            self.acked += acked
            self.nacks += nacks
            self.dead += dead
            if self.finished >= self._total:
                self.is_done.set()


class Worker:
    def __init__(self, name: str, shop: Shop, client: ShopClient, diary: Diary, tally: Tally) -> None:
        self._name = name
        self._client = client
        self._diary = diary
        self._tally = tally
        self._sold = {product.product for product in shop.products}
        self._time_outs = {order.number: order.failures for order in shop.orders if order.failures}

    def run(self, stop: threading.Event) -> None:
        self._client.join(GROUP, self._name, TOPIC)
        while not stop.is_set() and not self._tally.is_done.is_set():
            messages = self._client.poll(GROUP, self._name, limit=BATCH_MAX, visibility=VISIBILITY)
            if messages:
                self._handle(messages)

    def _handle(self, messages: list[Polled]) -> None:
        now_ns = time.time_ns()
        self._diary.note(event for message in messages for event in self._received(message, now_ns))
        self._tally.add(deliveries=len(messages))
        works: list[Polled] = []
        fails: dict[str, list[Polled]] = {}
        unreadable: dict[str, list[Polled]] = {}
        for message in messages:
            try:
                order = msgspec.json.decode(message.value, type=_OrderBody)
            except msgspec.DecodeError as error:
                reason = "JSON, but no order" if isinstance(error, msgspec.ValidationError) else "no JSON"
                unreadable.setdefault(reason, []).append(message)
                continue
            failure = self._failure(order, message.delivery_count)
            if failure is None:
                works.append(message)
            else:
                fails.setdefault(failure, []).append(message)
        if works:
            self._settle("consume.acked", works, self._client.ack(_handles(works)))
        for reason, given_back in fails.items():
            self._settle("consume.nacked", given_back, self._client.nack(_handles(given_back), reason))
        for reason, given_up in unreadable.items():
            self._settle("consume.rejected", given_up, self._client.reject(_handles(given_up), reason))

    def _failure(self, order: _OrderBody, delivery_count: int) -> str | None:
        """What goes wrong this time, if anything does."""
        if order.product not in self._sold:
            return "product no longer sold"
        if delivery_count <= self._time_outs.get(order.id, 0):
            return "payment timed out"
        return None

    def _settle(self, name: str, messages: list[Polled], results: list[ReceiptResult]) -> None:
        now_ns = time.time_ns()
        dead = [
            message
            for message, result in zip(messages, results, strict=True)
            if name == "consume.rejected" or result.action == DEAD
        ]
        events = [self._event(name, message, now_ns) for message in messages]
        self._diary.note([*events, *(self._event("dlq.routed", message, now_ns) for message in dead)])
        self._tally.add(
            acked=len(messages) if name == "consume.acked" else 0,
            nacks=len(messages) if name == "consume.nacked" else 0,
            dead=len(dead),
        )

    def _received(self, message: Polled, now_ns: int) -> Iterable[Event]:
        """With what a delayed order says of its way into the topic, the first time."""
        due = message.headers.get("gq-deliver-at")
        if due is not None and message.delivery_count == 1:
            trace_id, span_id = _trace(message.headers)
            yield Event(trace_id, span_id, "delay.ready", _instant_ns(due), self._name)
            yield self._event("publish.persisted", message, _instant_ns(message.timestamp))
        yield self._event("consume.fetched", message, now_ns)

    def _event(self, name: str, message: Polled, now_ns: int) -> Event:
        group = None if name.startswith("publish.") else GROUP
        place = (message.partition, message.offset)
        return Event(*_trace(message.headers), name, now_ns, self._name, *place, group)


def _handles(messages: list[Polled]) -> list[str]:
    return [message.receipt_handle for message in messages]


def _trace(headers: Mapping[str, str]) -> tuple[str, str]:
    _, trace_id, span_id, _ = headers["traceparent"].split("-")
    return trace_id, span_id


def _instant_ns(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1_000) * _MS_NS
