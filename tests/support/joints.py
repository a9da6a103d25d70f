"""Members of joints against a node, and what a driver says about them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from tests.support.transactional import Sender

from goqueue.core.txn.joint import Enrolled, Winner
from goqueue.model.errors import ConcurrentTransactions
from goqueue.node.node import Node

JOINT = "query"


async def enrolled(
    node: Node, member: str = "m", *, batch: int = 0, joint: str = JOINT, timeout_ms: int = 60_000
) -> Sender:
    """As a sender of transactional batches. The batch must not be committed."""
    while True:
        try:
            reply = await node.transactions.joints.enrol(joint, batch, member, timeout_ms)
        except ConcurrentTransactions:
            await asyncio.sleep(0.02)
            continue
        assert isinstance(reply, Enrolled)
        return Sender(reply.transactional_id, timeout_ms=timeout_ms, who=reply.producer)


def winners(senders: Iterable[Sender]) -> list[Winner]:
    return [Winner(sender.id, sender.who) for sender in senders]


async def commit(node: Node, *senders: Sender, batch: int = 0, joint: str = JOINT) -> bool:
    return await node.transactions.joints.commit(joint, batch, winners(senders))


async def abort(node: Node, *, batch: int = 0, joint: str = JOINT) -> bool:
    return await node.transactions.joints.abort(joint, batch)


async def known_ids(node: Node) -> list[str]:
    return [saved.transactional_id for saved in await node.transactions.list()]
