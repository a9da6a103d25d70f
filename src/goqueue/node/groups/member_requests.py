"""What members of groups that the broker reads for ask, and what they are told: the same for every protocol that has
no consumer of its own on the other side."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct

from goqueue.core.group.consumer_events import MemberState
from goqueue.node.queue.ledgers import Place
from goqueue.node.queue.requests import Message

__all__ = ["GroupMode", "Join", "MemberState", "Membership", "Place", "PollRequest", "Polled", "Who"]


class GroupMode(StrEnum):
    """Each partition has one reader, or members compete for every message."""

    STREAM = "stream"
    QUEUE = "queue"


class Who(Struct, frozen=True):
    """A member, as it names itself. The generation is its epoch; one that is not given is not checked."""

    group_id: str
    member_id: str
    generation: int | None = None


class Join(Struct, frozen=True):
    group_id: str
    client_id: str
    topics: tuple[str, ...]
    member_id: str = ""  # "" = the broker makes one up
    strategy: str | None = None
    session_timeout_ms: int | None = None
    rebalance_timeout_ms: int | None = None
    auto_commit: bool = False
    is_cooperative: bool = False  # it says itself when it has given up a partition


class Membership(Struct, frozen=True):
    """How a member stands after its call."""

    member_id: str
    generation: int
    mode: GroupMode
    state: MemberState
    assigned: list[Place]
    added: list[Place]  # by this call
    to_revoke: list[Place]  # to be given up; or given up by this call, if it did that for the member
    pending: list[Place]  # will be its own when others have given them up
    revocation_ms: int | None  # when it is taken for gone if it has not given them up
    heartbeat_interval_ms: int


class PollRequest(Struct, frozen=True):
    who: Who
    limit: int
    wait_ms: int
    visibility_ms: int | None = None


class Polled(Struct, frozen=True):
    membership: Membership
    messages: Sequence[Message]  # of a queue they are `Delivered`
