"""Publishes the day's orders in as many seconds as are given: the day's ups and downs are the load's."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from itertools import takewhile
from typing import Final

from demo.diary import TOPIC, Diary, Event
from demo.orders import OPEN_MS, OPENING, Order, Shop
from demo.rest import PublishResult, ShopClient

BATCH_MAX: Final = 500
_TICK_S: Final = 0.1
_NAME: Final = "producer"


def publish_day(shop: Shop, client: ShopClient, diary: Diary, seconds: float, stop: threading.Event) -> None:
    """All orders of the day, then, when the delayed ones are there as well, the next morning's."""
    day, morning = shop.orders[:-1], shop.orders[-1]
    begun = time.monotonic()
    sent = 0
    while sent < len(day) and not stop.is_set():
        shop_ms = int(OPENING.timestamp() * 1_000 + (time.monotonic() - begun) / seconds * OPEN_MS)
        batch = _due(day[sent : sent + BATCH_MAX], shop_ms)
        if batch:
            _publish(client, batch, diary)
            sent += len(batch)
        else:
            stop.wait(_TICK_S)
    client.await_records(TOPIC, len(day), stop)
    if not stop.is_set():
        _publish(client, [morning], diary)


def _due(orders: Sequence[Order], shop_ms: int) -> list[Order]:
    return list(takewhile(lambda order: order.at_ms <= shop_ms, orders))


def _publish(client: ShopClient, orders: Sequence[Order], diary: Diary) -> None:
    begun_ns = time.time_ns()
    results = client.publish(TOPIC, orders)
    ended_ns = time.time_ns()
    diary.note(
        event
        for order, result in zip(orders, results, strict=True)
        for event in _events(order, result, begun_ns, ended_ns)
    )


def _events(order: Order, result: PublishResult, begun_ns: int, ended_ns: int) -> tuple[Event, Event]:
    """A delayed order has no place in the topic yet: the worker who gets it notes when it came there."""
    received = Event(order.trace_id, order.span_id, "publish.received", begun_ns, _NAME)
    if result.delayed:
        return received, Event(order.trace_id, order.span_id, "delay.scheduled", ended_ns, _NAME)
    place = (result.partition, result.offset)
    return received, Event(order.trace_id, order.span_id, "publish.persisted", ended_ns, _NAME, *place)
