"""Delayed messages in tests: published with the header that every protocol uses."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tests.support.nodes import offsets

from goqueue.log.batch import ATTRIBUTE_TRANSACTIONAL, build_batch
from goqueue.log.compression import Codec
from goqueue.model.acks import Acks
from goqueue.model.delay import DELIVER_AT_HEADER
from goqueue.model.record import NewRecord, Producer
from goqueue.node.node import Node
from goqueue.node.publish import Placed, Transaction
from goqueue.node.requests import NewMessage
from goqueue.sim.broker import EPOCH_MS


def now_ms() -> int:
    return EPOCH_MS + int(asyncio.get_running_loop().time() * 1_000)


def delayed(value: bytes, delay_s: float, *, key: bytes | None = None) -> NewRecord:
    due_ms = now_ms() + int(delay_s * 1_000)
    return NewRecord(key, value, ((DELIVER_AT_HEADER, b"%d" % due_ms),))


def plain(value: bytes) -> NewRecord:
    return NewRecord(None, value)


async def later(
    node: Node, value: bytes, delay_s: float, *, topic: str = "orders", partition: int = 0
) -> int:
    """The id of a delayed message."""
    message = NewMessage(delayed(value, delay_s), partition)
    (id,) = offsets(await node.publisher.publish(topic, [message], acks=Acks.ALL))
    return id


async def send_batch(
    node: Node,
    records: Sequence[NewRecord],
    *,
    producer: Producer | None = None,
    codec: Codec = Codec.NONE,
    transaction: Transaction | None = None,
) -> Placed:
    """As a Kafka producer does, with acks=all."""
    attributes = 0 if transaction is None else ATTRIBUTE_TRANSACTIONAL
    batch = build_batch(records, now_ms(), producer=producer, codec=codec, attributes=attributes)
    placed = await node.publisher.append_batch("orders", 0, batch, acks=Acks.ALL, transaction=transaction)
    await node.publisher.until_stored(placed)
    return placed
