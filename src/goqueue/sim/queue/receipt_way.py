"""Members that poll and name what they were given by its receipt, as REST's do."""

from __future__ import annotations

from collections.abc import Sequence

from goqueue.model.errors import GoQueueError
from goqueue.node.node import Node
from goqueue.node.queue.ledgers import Place as Part
from goqueue.node.queue.polling import Poll
from goqueue.node.queue.requests import Delivered, Finished, Prolonged, Returned
from goqueue.sim.queue.history import Action, Delivery, Place, Told
from goqueue.sim.queue.world import World


class ReceiptWay:
    missed_s = float("inf")  # there are no sessions

    def __init__(self, world: World, group: str, parts: Sequence[Part]) -> None:
        self._world = world
        self._group = group
        self._parts = parts
        self._rng = world.child()

    async def poll(self, member: str, limit: int, wait_ms: int) -> list[Delivery]:
        visibility_ms = self._rng.choice((1_000, 3_000, 6_000))
        poll = Poll(self._group, member, self._parts, limit, wait_ms, visibility_ms)
        sent_s = self._world.loop.time()
        found = await self._world.call(lambda node: node.queue.poll(poll))
        return [self._delivery(one, member, visibility_ms, sent_s) for one in found]

    def _delivery(self, one: Delivered, member: str, visibility_ms: int, sent_s: float) -> Delivery:
        record = one.record
        return Delivery(
            self._group,
            era_of(one.receipt),
            member,
            Place(one.topic, one.partition, record.offset),
            (record.value or b"").decode(),
            None if record.key is None else record.key.decode(),
            one.lane,
            one.deliveries,
            one.deadline_ms - visibility_ms,
            one.deadline_ms,
            sent_s,
            self._world.loop.time(),
            one.receipt,
        )

    async def tell(
        self, member: str, action: Action, deliveries: list[Delivery]
    ) -> list[Told | GoQueueError]:
        receipts = [one.receipt for one in deliveries]
        delay_ms, timeout_ms = self._rng.choice((None, None, 0, 700)), self._rng.choice((0, 2_000, 8_000))

        async def say(node: Node) -> Sequence[Finished | Returned | Prolonged | GoQueueError]:
            match action:
                case Action.ACK:
                    return await node.queue.ack(receipts)
                case Action.NACK:
                    return await node.queue.nack(receipts, delay_ms=delay_ms, reason="no")
                case Action.REJECT:
                    return await node.queue.reject(receipts, reason="never")
                case Action.EXTEND:
                    return await node.queue.extend(receipts, timeout_ms=timeout_ms)

        return [_told(answer) for answer in await self._world.call(say)]

    async def leave(self, member: str) -> None:
        await self._world.call(lambda node: node.queue.let_go(self._group, member))


def _told(answer: Finished | Returned | Prolonged | GoQueueError) -> Told | GoQueueError:
    if isinstance(answer, GoQueueError):
        return answer
    if isinstance(answer, Prolonged):
        return Told(deadline_ms=answer.deadline_ms)
    return Told(answer.committed_offset, is_dead=isinstance(answer, Returned) and answer.is_dead)


def era_of(receipt: str) -> str:
    """The nonce without its proof: the window's number and incarnation."""
    return receipt.rsplit(":", 1)[1].rsplit(".", 1)[0]
