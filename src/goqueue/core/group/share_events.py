"""The vocabulary of share groups (KIP-932), whose members compete for the records of all partitions they name.

As those of the other groups, an event holds the whole of what its key names: `["share", g]` is the group itself,
`["share-member", g, m]` one member.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, assert_never

import msgspec
from msgspec import Struct

from goqueue.core.group.consumer_events import Assignment
from goqueue.model.errors import StorageError

SHARE_KEYS: Final = ("share", "share-member")

PartitionCounts = tuple[tuple[str, int], ...]  # topics with their partition counts, sorted by name


class ShareHeartbeat(Struct, frozen=True):
    """The command. None means: as the heartbeat before."""

    group_id: str
    member_id: str  # chosen by the client; if empty on joining, `fresh_id` is taken
    member_epoch: int  # 0 joins, -1 leaves
    fresh_id: str = ""
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed_topics: tuple[str, ...] | None = None
    session_timeout_ms: int | None = None  # None = as the group is configured; Kafka's members cannot say it


class ShareHeartbeatReply(Struct, frozen=True):
    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int
    assignment: Assignment | None  # None: unchanged


class ShareGroupAdvanced(Struct, frozen=True):
    """Members came, went or read something else."""

    group_id: str
    epoch: int


class ShareGroupForgotten(Struct, frozen=True):
    group_id: str


class ShareMemberSaved(Struct, frozen=True):
    """A member as it is from now on. `assigned` is what it was told: every partition of the topics that there were."""

    group_id: str
    member_id: str
    rack_id: str | None
    client_id: str
    client_host: str
    topics: tuple[str, ...]  # sorted
    epoch: int
    previous_epoch: int
    assigned: PartitionCounts
    session_timeout_ms: int | None = None  # None = as the group is configured


class ShareMemberRemoved(Struct, frozen=True):
    group_id: str
    member_id: str


ShareEvent = ShareGroupAdvanced | ShareGroupForgotten | ShareMemberSaved | ShareMemberRemoved


class ShareGroupState(StrEnum):
    """Kafka's names."""

    EMPTY = "Empty"
    STABLE = "Stable"


class ShareMemberFacts(Struct, frozen=True):
    member_id: str
    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_topics: tuple[str, ...]
    epoch: int
    assigned: Assignment
    session_timeout_ms: int
    heard_ms: int | None  # when it was last heard of


class ShareGroupFacts(Struct, frozen=True):
    group_id: str
    state: ShareGroupState
    epoch: int
    members: tuple[ShareMemberFacts, ...]  # sorted by id


def partitions_of(counts: PartitionCounts) -> Assignment:
    return tuple((topic, tuple(range(count))) for topic, count in counts)


def encode_share_event(event: ShareEvent) -> tuple[bytes, bytes | None]:
    """Key and value; the value of a tombstone is None."""
    match event:
        case ShareGroupAdvanced():
            return _key("share", event.group_id), msgspec.json.encode(event)
        case ShareGroupForgotten():
            return _key("share", event.group_id), None
        case ShareMemberSaved():
            return _key("share-member", event.group_id, event.member_id), msgspec.json.encode(event)
        case ShareMemberRemoved():
            return _key("share-member", event.group_id, event.member_id), None
        case _:
            assert_never(event)


def decode_share_event(key: list[object], value: bytes | None) -> ShareEvent:
    match key:
        case ["share", str(group_id)]:
            if value is None:
                return ShareGroupForgotten(group_id)
            return msgspec.json.decode(value, type=ShareGroupAdvanced)
        case ["share-member", str(group_id), str(member_id)]:
            if value is None:
                return ShareMemberRemoved(group_id, member_id)
            return msgspec.json.decode(value, type=ShareMemberSaved)
        case _:
            raise StorageError(f"{key!r} is not the key of a share group's event")


def _key(*parts: str) -> bytes:
    return msgspec.json.encode(parts)
