"""The vocabulary of consumer groups: what a member asks, what it is told, what happened and how that is stored.

An event is a record of a compacted log. Its key names a slot of the group's state (`["consumer", g]`,
`["member", g, m]`, `["target", g, m]`, `["current", g, m]`) and its value is all that the slot holds, so the newest
record of each key, in any order between keys, is the whole state. A tombstone empties the slot.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import TypeVar, assert_never

import msgspec
from msgspec import Struct

from goqueue.model.errors import StorageError

E = TypeVar("E")

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
LEAVE_STATIC_EPOCH = -2  # the instance goes but keeps its place until its session ends

Partition = tuple[str, int]
Assignment = tuple[tuple[str, tuple[int, ...]], ...]  # sorted, without topics that have no partition


def pack(partitions: Iterable[Partition]) -> Assignment:
    grouped: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        grouped.setdefault(topic, []).append(index)
    return tuple((topic, tuple(indexes)) for topic, indexes in grouped.items())


def unpack(assignment: Assignment) -> list[Partition]:
    return [(topic, index) for topic, indexes in assignment for index in indexes]


class ConsumerHeartbeat(Struct, frozen=True):
    """The command. None (and a rebalance time of -1) means: as the heartbeat before."""

    group_id: str
    member_id: str  # chosen by the client; if empty on joining, `fresh_id` is taken
    member_epoch: int
    fresh_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    subscribed_topics: tuple[str, ...] | None = None
    subscribed_regex: str | None = None  # an empty one ends the subscription by pattern
    assignor: str | None = None
    owned: Assignment | None = None
    session_timeout_ms: int | None = None  # None = as the broker is configured; Kafka's members cannot say it


class ConsumerHeartbeatReply(Struct, frozen=True):
    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int
    assignment: Assignment | None  # None: unchanged


class MemberState(StrEnum):
    NONE = "none"  # takes no part: not reconciled yet, or a static member that is away
    PENDING_REVOKE = "pending_revoke"  # must give up partitions before it gets any
    PENDING_ASSIGN = "pending_assign"  # waits for partitions that others still hold
    COMPLETE = "complete"


class ConsumerGroupState(StrEnum):
    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class ConsumerGroupAdvanced(Struct, frozen=True):
    group_id: str
    epoch: int
    assignment_epoch: int  # the epoch that the targets were made for
    topics_digest: str  # of the subscribed topics and their partition counts at `epoch`


class ConsumerGroupForgotten(Struct, frozen=True):
    group_id: str


class MemberSubscribed(Struct, frozen=True):
    group_id: str
    member_id: str
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    topics: tuple[str, ...]  # sorted
    regex: str | None
    assignor: str | None  # its vote
    session_timeout_ms: int | None = None  # None = as the broker is configured


class MemberRemoved(Struct, frozen=True):
    group_id: str
    member_id: str


class TargetAssigned(Struct, frozen=True):
    """What the member shall have once everybody has given up what is not theirs any more."""

    group_id: str
    member_id: str
    partitions: Assignment


class TargetRemoved(Struct, frozen=True):
    group_id: str
    member_id: str


class MemberReconciled(Struct, frozen=True):
    """What the member has: it may read `assigned` and may still be reading `revoking`."""

    group_id: str
    member_id: str
    epoch: int
    previous_epoch: int
    state: MemberState
    assigned: Assignment
    revoking: Assignment


class CurrentRemoved(Struct, frozen=True):
    group_id: str
    member_id: str


ConsumerEvent = (
    ConsumerGroupAdvanced
    | ConsumerGroupForgotten
    | MemberSubscribed
    | MemberRemoved
    | TargetAssigned
    | TargetRemoved
    | MemberReconciled
    | CurrentRemoved
)


class ConsumerMemberFacts(Struct, frozen=True):
    member_id: str
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    subscribed_topics: tuple[str, ...]
    subscribed_regex: str | None
    epoch: int
    previous_epoch: int
    state: MemberState
    assigned: Assignment
    revoking: Assignment
    target: Assignment
    session_timeout_ms: int | None = None
    heard_ms: int | None = None  # when it was last heard of
    revocation_ms: int | None = None  # until when it must have given up what it is to give up


class ConsumerGroupFacts(Struct, frozen=True):
    group_id: str
    state: ConsumerGroupState
    epoch: int
    assignment_epoch: int
    assignor: str
    members: tuple[ConsumerMemberFacts, ...]  # sorted by id


def encode_consumer_event(event: ConsumerEvent) -> tuple[bytes, bytes | None]:
    """Key and value; the value of a tombstone is None."""
    match event:
        case ConsumerGroupAdvanced():
            return _key("consumer", event.group_id), msgspec.json.encode(event)
        case ConsumerGroupForgotten():
            return _key("consumer", event.group_id), None
        case MemberSubscribed():
            return _key("member", event.group_id, event.member_id), msgspec.json.encode(event)
        case MemberRemoved():
            return _key("member", event.group_id, event.member_id), None
        case TargetAssigned():
            return _key("target", event.group_id, event.member_id), msgspec.json.encode(event)
        case TargetRemoved():
            return _key("target", event.group_id, event.member_id), None
        case MemberReconciled():
            return _key("current", event.group_id, event.member_id), msgspec.json.encode(event)
        case CurrentRemoved():
            return _key("current", event.group_id, event.member_id), None
        case _:
            assert_never(event)


def _key(*parts: str) -> bytes:
    return msgspec.json.encode(parts)


def decode_consumer_event(key: list[object], value: bytes | None) -> ConsumerEvent:
    """The key comes as the JSON array it is: whoever shares the log has looked at its first word."""
    match key:
        case ["consumer", str(group_id)]:
            return (
                ConsumerGroupForgotten(group_id) if value is None else _decode(value, ConsumerGroupAdvanced)
            )
        case ["member", str(group_id), str(member_id)]:
            return MemberRemoved(group_id, member_id) if value is None else _decode(value, MemberSubscribed)
        case ["target", str(group_id), str(member_id)]:
            return TargetRemoved(group_id, member_id) if value is None else _decode(value, TargetAssigned)
        case ["current", str(group_id), str(member_id)]:
            return CurrentRemoved(group_id, member_id) if value is None else _decode(value, MemberReconciled)
        case _:
            raise StorageError(f"{key!r} is not the key of a consumer group's event")


def _decode(value: bytes, kind: type[E]) -> E:
    try:
        return msgspec.json.decode(value, type=kind)
    except msgspec.DecodeError as error:
        raise StorageError(f"a stored {kind.__name__} cannot be read: {error}") from error
