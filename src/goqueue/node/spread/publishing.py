"""Publishing to partitions that several nodes lead.

Each message gets its partition once, on the node that the client talks to. Those that others lead go there, all at once; what a
node refuses because it does not lead the partition any more is sent to the one that does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from msgspec import structs

from goqueue.model.acks import Acks
from goqueue.model.errors import GoQueueError, InvariantViolation, TimedOut
from goqueue.model.record import Producer
from goqueue.node.forwarding import PATIENCE_S, Forwarding, may_try_again, together
from goqueue.node.other_nodes import OtherNodes, PublishCall
from goqueue.node.publish import Publisher
from goqueue.node.requests import NewMessage, Outcome


class Publishing(Protocol):
    async def publish(
        self, topic: str, messages: Sequence[NewMessage], *, acks: Acks, producer: Producer | None = None
    ) -> list[Outcome]: ...


class SpreadPublisher:
    def __init__(self, publisher: Publisher, forwarding: Forwarding, nodes: OtherNodes) -> None:
        self._publisher = publisher
        self._forwarding = forwarding
        self._nodes = nodes

    async def publish(
        self, topic: str, messages: Sequence[NewMessage], *, acks: Acks, producer: Producer | None = None
    ) -> list[Outcome]:
        """As `Publisher.publish`, wherever the partitions are."""
        if self._forwarding.leads_all(topic):
            return await self._publisher.publish(topic, messages, acks=acks, producer=producer)
        placed = self._publisher.placed(topic, messages, is_idempotent=producer is not None)
        if producer is not None and len({one.partition for one in placed}) != 1:
            # It goes nowhere: this node can say why as well as any.
            return await self._publisher.publish(topic, placed, acks=acks, producer=producer)
        return await self._publish(PublishCall(topic, placed, acks, producer))

    async def _publish(self, call: PublishCall) -> list[Outcome]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE_S
        outcomes: list[Outcome | None] = [None] * len(call.messages)
        pending = list(range(len(call.messages)))
        while True:
            await self._publish_once(call, pending, outcomes)
            pending = [at for at in pending if _is_to_be_sent_again(outcomes[at], call.producer)]
            if not pending or loop.time() >= deadline:
                break
            await self._forwarding.pause()
        return [_known(one) for one in outcomes]

    async def _publish_once(
        self, call: PublishCall, pending: Sequence[int], outcomes: list[Outcome | None]
    ) -> None:
        parts: dict[str | None, list[int]] = {}
        for at in pending:
            index = call.messages[at].partition
            try:
                leader = None if index is None else self._forwarding.leader_of(call.topic, index)
            except GoQueueError as error:
                outcomes[at] = Outcome(index, None, error)
            else:
                parts.setdefault(leader, []).append(at)
        is_whole = len(parts) == 1 and len(pending) == len(outcomes)
        works = [self._publish_at(leader, call, positions) for leader, positions in parts.items()]
        for positions, found in zip(parts.values(), await together(works), strict=True):
            if isinstance(found, GoQueueError):
                if is_whole and not _may_send_again(found, call.producer):
                    raise found  # the request as a whole is refused
                found = [Outcome(call.messages[at].partition, None, found) for at in positions]
            for at, outcome in zip(positions, found, strict=True):
                outcomes[at] = outcome

    async def _publish_at(
        self, leader: str | None, call: PublishCall, positions: Sequence[int]
    ) -> list[Outcome] | GoQueueError:
        messages = [call.messages[at] for at in positions]
        try:
            if leader is None:
                return await self._publisher.publish(
                    call.topic, messages, acks=call.acks, producer=call.producer
                )
            return await self._nodes.publish(leader, structs.replace(call, messages=messages))
        except GoQueueError as error:
            return error


def _is_to_be_sent_again(outcome: Outcome | None, producer: Producer | None) -> bool:
    return outcome is not None and outcome.error is not None and _may_send_again(outcome.error, producer)


def _may_send_again(error: GoQueueError, producer: Producer | None) -> bool:
    """What may be stored already is sent again only if it would be known again."""
    return may_try_again(error) or (producer is not None and isinstance(error, TimedOut))


def _known(outcome: Outcome | None) -> Outcome:
    if outcome is None:
        raise InvariantViolation("a message was neither stored nor refused")
    return outcome
