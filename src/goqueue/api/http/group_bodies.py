"""The bodies and queries of the group routes."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from goqueue.api.http.durations import Duration
from goqueue.api.http.read import PARTITION_MAX
from goqueue.api.http.read_body import StoredMessage
from goqueue.api.http.topic_bodies import LONG_MAX, Count, Instant, SettingValue
from goqueue.model.priority import LANE_COUNT, NORMAL
from goqueue.node.groups.member_requests import GroupMode, MemberState
from goqueue.node.groups.members import ID_LENGTH_MAX, POLL_COUNT_MAX, TOPIC_COUNT_MAX
from goqueue.node.groups.offsets import ResetTo
from goqueue.node.queue.requests import Delivered, Message

INT_MAX = 2**31 - 1

_Partition = Annotated[int, Meta(ge=0, le=PARTITION_MAX)]
_Offset = Annotated[int, Meta(ge=0, le=LONG_MAX)]
_MemberId = Annotated[str, Meta(min_length=1, max_length=ID_LENGTH_MAX, description="As `join` answered it.")]
_Generation = Annotated[
    int,
    Meta(
        ge=0,
        le=INT_MAX,
        description="As the last answer said it. A member with another is a zombie: 409. Left out: not checked.",
    ),
]


class TopicPartition(Struct, frozen=True, forbid_unknown_fields=True, order=True):
    topic: str
    partition: _Partition


# -------------------------------------------------------------------- members


_ClientId = Annotated[str, Meta(max_length=ID_LENGTH_MAX, description="Shown to whoever looks at the group.")]
_Topics = Annotated[list[str], Meta(min_length=1, max_length=TOPIC_COUNT_MAX)]
_OwnId = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=ID_LENGTH_MAX,
        description="Of a member that joins again; its reading goes on from the committed offsets. Left out: a new one.",
    ),
]
_Session = Annotated[
    Duration, Meta(description="How long the member may be silent. Mode stream: 30s if left out.")
]
_RebalanceTime = Annotated[
    Duration, Meta(description="How long the member may take to give up a partition; 60s if left out.")
]
_Strategy = Annotated[
    str,
    Meta(
        description="How partitions are divided, if most members want it so.",
        extra_json_schema={"enum": ["sticky", "range", "roundrobin", "uniform"]},
    ),
]
_AutoCommit = Annotated[
    bool, Meta(description="Commit what was polled every 5 seconds, once the member polls again or leaves.")
]


class Join(Struct, frozen=True, forbid_unknown_fields=True):
    client_id: _ClientId
    topics: _Topics
    member_id: _OwnId | UnsetType = UNSET
    session_timeout: _Session | UnsetType = UNSET
    rebalance_timeout: _RebalanceTime | UnsetType = UNSET
    strategy: _Strategy | UnsetType = UNSET
    mode: Annotated[
        GroupMode,
        Meta(
            description="stream: each partition has one reader, who commits offsets. queue: members compete for every "
            "message, and acknowledge each."
        ),
    ] = GroupMode.STREAM
    auto_commit: _AutoCommit = False


class JoinCooperative(Struct, frozen=True, forbid_unknown_fields=True):
    """Mode stream. The member itself says with `revoke` when it has given up partitions."""

    client_id: _ClientId
    topics: _Topics
    member_id: _OwnId | UnsetType = UNSET
    session_timeout: _Session | UnsetType = UNSET
    rebalance_timeout: _RebalanceTime | UnsetType = UNSET
    strategy: _Strategy | UnsetType = UNSET
    auto_commit: _AutoCommit = False


class Heartbeat(Struct, frozen=True, forbid_unknown_fields=True):
    member_id: _MemberId
    generation: _Generation | UnsetType = UNSET


class Revoke(Struct, frozen=True, forbid_unknown_fields=True):
    member_id: _MemberId
    revoked_partitions: list[TopicPartition]
    generation: _Generation | UnsetType = UNSET


class Joined(Struct, frozen=True, forbid_unknown_fields=True):
    """`leader` is the node that assigns. With `rebalance_required`, more partitions follow: poll or heartbeat."""

    member_id: str
    generation: Count
    leader: str
    mode: GroupMode
    assigned_partitions: list[TopicPartition]
    rebalance_required: bool
    heartbeat_interval_ms: Count


class Beaten(Struct, frozen=True, forbid_unknown_fields=True):
    """`partitions_to_revoke` have been given up by this call: do not work on their messages any more."""

    member_id: str
    generation: Count
    state: MemberState
    rebalance_required: bool
    assigned_partitions: list[TopicPartition]
    partitions_assigned: Annotated[list[TopicPartition], Meta(description="By this call.")]
    partitions_to_revoke: list[TopicPartition]
    revocation_deadline: Instant | None


class Cooperation(Struct, frozen=True, forbid_unknown_fields=True):
    """Where a member stands in the two phases: none, pending_revoke (finish with `partitions_to_revoke`, then say so with
    `revoke`, before `revocation_deadline`), pending_assign (`partitions_pending` are still another's), complete."""

    member_id: str
    generation: Count
    state: MemberState
    rebalance_required: bool
    assigned_partitions: list[TopicPartition]
    partitions_assigned: Annotated[list[TopicPartition], Meta(description="By this call.")]
    partitions_to_revoke: list[TopicPartition]
    partitions_pending: list[TopicPartition]
    revocation_deadline: Instant | None
    heartbeat_interval_ms: Count


class Left(Struct, frozen=True, forbid_unknown_fields=True):
    member_id: str
    left: bool
    released_partitions: list[TopicPartition]


# -------------------------------------------------------------------- poll


class PollParameters(Struct, frozen=True):
    member_id: _MemberId
    generation: _Generation | UnsetType = UNSET
    timeout: (
        Annotated[
            str,
            Meta(
                description="How long to wait for messages: 250ms, 30s, 1m or milliseconds; 30s if left out. When the time is "
                "up the answer is an empty 200."
            ),
        ]
        | UnsetType
    ) = UNSET
    limit: Annotated[int, Meta(ge=1, le=POLL_COUNT_MAX)] = 100
    visibility: (
        Annotated[
            str,
            Meta(
                description="Mode queue: how long the messages are yours alone. Left out: as the topic has it."
            ),
        ]
        | UnsetType
    ) = UNSET


class PolledMessage(Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """As a message is read, with where it is from. Mode queue: `receipt_handle` is how to acknowledge it."""

    topic: str
    partition: Count
    offset: Count
    timestamp: Annotated[
        str, Meta(description="RFC 3339; milliseconds since 1970 where that is beyond the year 9999.")
    ]
    key: str | UnsetType | None
    value: str | UnsetType | None
    headers: dict[str, str | list[str | None] | None]
    priority: Annotated[int, Meta(ge=0, lt=LANE_COUNT)] = NORMAL
    delivery_count: Annotated[int, Meta(ge=1)] | UnsetType = UNSET
    receipt_handle: str | UnsetType = UNSET
    key_base64: bytes | UnsetType = UNSET
    value_base64: bytes | UnsetType = UNSET
    headers_base64: dict[str, bytes | list[bytes | None] | None] | UnsetType = UNSET


class Polled(Struct, frozen=True, forbid_unknown_fields=True):
    """`generation` is the one to give from now on: a poll is a heartbeat, too."""

    messages: list[PolledMessage]
    generation: Count
    rebalance_required: bool
    assigned_partitions: list[TopicPartition]


def polled_message(message: Message, stored: StoredMessage) -> PolledMessage:
    deliveries: int | UnsetType = UNSET
    receipt: str | UnsetType = UNSET
    if isinstance(message, Delivered):
        deliveries, receipt = message.deliveries, message.receipt
    return PolledMessage(
        message.topic,
        message.partition,
        stored.offset,
        stored.timestamp,
        stored.key,
        stored.value,
        stored.headers,
        stored.priority,
        deliveries,
        receipt,
        stored.key_base64,
        stored.value_base64,
        stored.headers_base64,
    )


# -------------------------------------------------------------------- groups


class GroupChanges(Struct, frozen=True, forbid_unknown_fields=True):
    config: dict[str, SettingValue | None]


class GroupLine(Struct, frozen=True, forbid_unknown_fields=True):
    id: str
    mode: GroupMode
    type: Annotated[str, Meta(description="Kafka's name of the kind of group: classic, consumer or share.")]
    state: str


class GroupList(Struct, frozen=True, forbid_unknown_fields=True):
    groups: list[GroupLine]


class MemberDescription(Struct, frozen=True, forbid_unknown_fields=True):
    member_id: str
    client_id: str
    host: str
    generation: int
    topics: list[str]
    assigned_partitions: list[TopicPartition]
    last_heartbeat: Annotated[
        str | None,
        Meta(description="null where the group's protocol does not tell, and for one that is away."),
    ]


class GroupDescription(Struct, frozen=True, forbid_unknown_fields=True):
    id: str
    mode: GroupMode
    type: str
    state: str
    generation: Count
    protocol: Annotated[str, Meta(description="How partitions are divided.")]
    topics: list[str]
    members: list[MemberDescription]
    config: Annotated[dict[str, str], Meta(description="The settings that the group has of its own.")]


class GroupConfig(Struct, frozen=True, forbid_unknown_fields=True):
    id: str
    config: dict[str, str]


class GroupDeleted(Struct, frozen=True, forbid_unknown_fields=True):
    id: str
    deleted: bool


class MemberAssignment(Struct, frozen=True, forbid_unknown_fields=True):
    member_id: str
    generation: int
    state: MemberState
    assigned_partitions: list[TopicPartition]
    target_partitions: Annotated[list[TopicPartition], Meta(description="What it will have in the end.")]


class GroupAssignment(Struct, frozen=True, forbid_unknown_fields=True):
    id: str
    generation: Count
    strategy: str
    members: list[MemberAssignment]


class MemberCooperation(Struct, frozen=True, forbid_unknown_fields=True):
    member_id: str
    generation: int
    state: MemberState
    partitions_to_revoke: list[TopicPartition]
    partitions_pending: list[TopicPartition]
    revocation_deadline: Instant | None


class GroupCooperation(Struct, frozen=True, forbid_unknown_fields=True):
    """`generation` is that of the group, `assignment_generation` the one that the targets were made for; members are on
    their way to it."""

    id: str
    state: str
    generation: Count
    assignment_generation: Count
    rebalance_in_progress: bool
    members: list[MemberCooperation]


class RebalanceStats(Struct, frozen=True, forbid_unknown_fields=True):
    """Since the broker started."""

    rebalances: Count
    in_progress: bool
    partitions_moved: Count
    revocation_timeouts: Count
    by_reason: dict[str, Count]
    last_duration_ms: Count | None
    longest_duration_ms: Count | None
    average_duration_ms: float | None


# -------------------------------------------------------------------- offsets


class CommitOffsets(Struct, frozen=True, forbid_unknown_fields=True):
    """The next offset to read, by topic and partition."""

    offsets: dict[str, dict[str, _Offset]]
    member_id: _MemberId | UnsetType = UNSET
    generation: _Generation | UnsetType = UNSET


class OffsetAndLag(Struct, frozen=True, forbid_unknown_fields=True):
    offset: Count
    lag: Annotated[int, Meta(ge=0, description="From there to the end.")]


class Offsets(Struct, frozen=True, forbid_unknown_fields=True):
    offsets: dict[str, dict[str, OffsetAndLag]]


class ResetOffsets(Struct, frozen=True, forbid_unknown_fields=True):
    to: ResetTo
    topic: Annotated[str, Meta(description="Left out: all that the group has read.")] | UnsetType = UNSET
    partitions: Annotated[list[_Partition], Meta(description="None: all.", max_length=10_000)] = []
    offset: Annotated[_Offset, Meta(description="With `to` = offset.")] | UnsetType = UNSET
    timestamp: (
        Annotated[
            str,
            Meta(description="With `to` = timestamp: RFC 3339 or milliseconds since 1970."),
        ]
        | UnsetType
    ) = UNSET
    dry_run: Annotated[bool, Meta(description="Only show what would be done.")] = False


class MovedOffset(Struct, frozen=True, forbid_unknown_fields=True):
    topic: str
    partition: Count
    old_offset: Annotated[int, Meta(ge=0)] | None
    new_offset: Count


class ResetDone(Struct, frozen=True, forbid_unknown_fields=True):
    dry_run: bool
    offsets: list[MovedOffset]
