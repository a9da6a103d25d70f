"""Nodes whose messages die, and what became of those."""

from __future__ import annotations

from tests.support.nodes import read_all

from goqueue.model.record import StoredRecord
from goqueue.node.dead_letters.redrive import RedriveRequest, RedriveResult
from goqueue.node.node import Node
from goqueue.node.queue.polling import Poll
from goqueue.node.queue.requests import Delivered, Returned

DLQ = "orders.dlq"


async def redrive(node: Node, topic: str = DLQ, **request: object) -> RedriveResult:
    return await node.redrive.redrive(RedriveRequest(topic, **request))  # type: ignore[arg-type]  # by name


async def poll(
    node: Node,
    topic: str = "orders",
    *,
    group: str = "workers",
    member: str = "ann",
    limit: int = 1_000,
    wait_ms: int = 0,
) -> list[Delivered]:
    places = [(topic, one.partition) for one in node.topics.partitions(topic)]
    return await node.queue.poll(Poll(group, member, places, limit, wait_ms))


async def reject(node: Node, *delivered: Delivered, reason: str = "bad address") -> None:
    for answer in await node.queue.reject([one.receipt for one in delivered], reason=reason):
        if isinstance(answer, Exception):
            raise answer


async def nack(node: Node, *delivered: Delivered, reason: str = "") -> list[Returned]:
    answers = await node.queue.nack([one.receipt for one in delivered], delay_ms=0, reason=reason)
    returned = [one for one in answers if isinstance(one, Returned)]
    assert len(returned) == len(answers), answers
    return returned


async def dead_letters(node: Node, topic: str = DLQ) -> list[StoredRecord]:
    """Of all partitions, in order."""
    if topic not in [one.name for one in node.topics.list()]:
        return []
    return [
        record
        for one in node.topics.partitions(topic)
        for record in await read_all(node, topic, one.partition)
    ]


def told(record: StoredRecord) -> dict[str, str]:
    """The headers of a record; of several with one name, the last."""
    return {name: (value or b"").decode() for name, value in record.headers}
