"""Members of share groups, as tests of the state machine and of a node make them."""

from __future__ import annotations

from typing import Any  # fields of commands, checked when the command is made

from msgspec import structs

from goqueue.core.group.shard import GroupShard
from goqueue.core.group.share_events import ShareGroupFacts, ShareHeartbeat


def beat(epoch: int = 0, member_id: str = "m", group: str = "g", **fields: Any) -> ShareHeartbeat:
    """A heartbeat; who joins subscribes to `orders` unless it says otherwise."""
    if epoch == 0:
        fields.setdefault("subscribed_topics", ("orders",))
    return ShareHeartbeat(
        group, member_id, epoch, **{"client_id": "client", "client_host": "/host", **fields}
    )


def durable_shares(shard: GroupShard) -> dict[str, ShareGroupFacts]:
    """All share groups without the times, which a restart begins anew."""
    found: dict[str, ShareGroupFacts] = {}
    for group_id in sorted(shard.shares.ids()):
        facts = shard.shares.describe(group_id)
        members = tuple(structs.replace(one, heard_ms=None) for one in facts.members)
        found[group_id] = structs.replace(facts, members=members)
    return found
