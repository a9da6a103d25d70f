"""Receipts of partitions that several nodes lead: each is settled by the leader of the partition that it names."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from msgspec import structs

from goqueue.model.errors import GoQueueError, InvariantViolation
from goqueue.node.forwarding import Forwarding, OfPartition, together
from goqueue.node.other_nodes import FinishCall, Finishing, OtherNodes, Settled
from goqueue.node.queue.queue import Queue
from goqueue.node.queue.receipts import read_issue, read_receipt
from goqueue.node.queue.requests import Finished, Prolonged, Returned

A = TypeVar("A", Finished, Returned, Prolonged)


class Receiving(Protocol):
    """As `Queue` does it for the partitions that this node leads."""

    async def ack(self, receipts: Sequence[str]) -> list[Finished | GoQueueError]: ...

    async def nack(
        self, receipts: Sequence[str], *, delay_ms: int | None = None, reason: str = ""
    ) -> list[Returned | GoQueueError]: ...

    async def reject(self, receipts: Sequence[str], *, reason: str) -> list[Finished | GoQueueError]: ...

    async def extend(
        self, receipts: Sequence[str], *, timeout_ms: int, is_added: bool = False
    ) -> list[Prolonged | GoQueueError]: ...


class SpreadReceipts:
    def __init__(self, queue: Queue, forwarding: Forwarding, nodes: OtherNodes, *, count_max: int) -> None:
        self._queue = queue
        self._forwarding = forwarding
        self._nodes = nodes
        self._count_max = count_max

    async def ack(self, receipts: Sequence[str]) -> list[Finished | GoQueueError]:
        return _each(Finished, await self._finish(FinishCall(Finishing.ACK, receipts)))

    async def nack(
        self, receipts: Sequence[str], *, delay_ms: int | None = None, reason: str = ""
    ) -> list[Returned | GoQueueError]:
        call = FinishCall(Finishing.NACK, receipts, delay_ms=delay_ms, reason=reason)
        return _each(Returned, await self._finish(call))

    async def reject(self, receipts: Sequence[str], *, reason: str) -> list[Finished | GoQueueError]:
        return _each(Finished, await self._finish(FinishCall(Finishing.REJECT, receipts, reason=reason)))

    async def extend(
        self, receipts: Sequence[str], *, timeout_ms: int, is_added: bool = False
    ) -> list[Prolonged | GoQueueError]:
        call = FinishCall(Finishing.EXTEND, receipts, timeout_ms=timeout_ms, is_added=is_added)
        return _each(Prolonged, await self._finish(call))

    async def _finish(self, call: FinishCall) -> list[Settled]:
        if not 1 <= len(call.receipts) <= self._count_max:
            return await finish_here(self._queue, call)  # which refuses it
        parts: dict[OfPartition | None, list[int]] = {}
        for at, text in enumerate(call.receipts):
            parts.setdefault(place_of(text), []).append(at)
        works = [self._finish_part(place, call, positions) for place, positions in parts.items()]
        answers: list[Settled | None] = [None] * len(call.receipts)
        for positions, found in zip(parts.values(), await together(works), strict=True):
            if isinstance(found, GoQueueError):
                if len(parts) == 1:
                    raise found
                found = [found] * len(positions)
            for at, one in zip(positions, found, strict=True):
                answers[at] = one
        return [one for one in answers if one is not None]

    async def _finish_part(
        self, place: OfPartition | None, call: FinishCall, positions: Sequence[int]
    ) -> Sequence[Settled] | GoQueueError:
        part = structs.replace(call, receipts=[call.receipts[at] for at in positions])
        try:
            if place is None:
                return await finish_here(self._queue, part)
            return await self._forwarding.carry(
                place,
                lambda: self._finish_led(place, part),
                lambda target: self._nodes.finish(target, part),
                may_repeat=False,
            )
        except GoQueueError as error:
            return error

    async def _finish_led(self, place: OfPartition, call: FinishCall) -> list[Settled]:
        self._forwarding.check_leads(*place)
        return await finish_here(self._queue, call)


def place_of(receipt: str) -> OfPartition | None:
    """What it names; None if it makes no sense, which any node can say."""
    try:
        issue = read_issue(read_receipt(receipt).issue)
    except GoQueueError:
        return None
    return None if issue is None else OfPartition(issue.topic, issue.partition)


async def finish_here(queue: Receiving, call: FinishCall) -> list[Settled]:
    do: dict[Finishing, Callable[[], Awaitable[Sequence[Settled]]]] = {
        Finishing.ACK: lambda: queue.ack(call.receipts),
        Finishing.NACK: lambda: queue.nack(call.receipts, delay_ms=call.delay_ms, reason=call.reason),
        Finishing.REJECT: lambda: queue.reject(call.receipts, reason=call.reason),
        Finishing.EXTEND: lambda: queue.extend(
            call.receipts, timeout_ms=call.timeout_ms, is_added=call.is_added
        ),
    }
    return list(await do[call.how]())


def _each(kind: type[A], answers: Sequence[Settled]) -> list[A | GoQueueError]:
    found: list[A | GoQueueError] = []
    for one in answers:
        if not isinstance(one, kind | GoQueueError):
            raise InvariantViolation(f"an answer is a {type(one).__name__}, not a {kind.__name__}")
        found.append(one)
    return found
