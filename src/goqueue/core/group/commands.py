"""What can be asked of the groups of one shard, and what is answered.

A refusal of the whole call is a `GoQueueError`; where a call names several members or partitions, each has an error of
its own in the reply. `fresh_id` is the chance that the core does not have: the caller makes it up, unique, per call.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from msgspec import Struct

from goqueue.core.group.consumer_events import ConsumerGroupFacts, ConsumerHeartbeat, ConsumerHeartbeatReply
from goqueue.core.group.share_events import ShareGroupFacts, ShareHeartbeat, ShareHeartbeatReply
from goqueue.model.errors import GoQueueError

NO_GENERATION = -1
NO_OFFSET = -1
NO_LEADER_EPOCH = -1
EVERY_ID: Final = range(1 << 62)  # of topics

Protocol = tuple[str, bytes]  # its name and what the member says under it


class GroupType(StrEnum):
    """Kafka's names."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"


class GroupState(StrEnum):
    """Kafka's names. The last three are classic's, Assigning and Reconciling are those of consumer groups."""

    EMPTY = "Empty"
    STABLE = "Stable"
    DEAD = "Dead"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"


class JoinGroup(Struct, frozen=True):
    """Answered with `Joined` when the rebalance has gathered its members. With `must_know_id` (Kafka v4 on) a dynamic
    member without an id is sent back with `MemberIdRequired`, whose details hold its `member_id`."""

    group_id: str
    member_id: str  # "" = new
    fresh_id: str
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[Protocol, ...]  # most wanted first
    instance_id: str | None = None
    must_know_id: bool = False
    may_skip_assignment: bool = False  # Kafka v9 on


class JoinedMember(Struct, frozen=True):
    member_id: str
    instance_id: str | None
    metadata: bytes


class Joined(Struct, frozen=True):
    member_id: str
    generation: int
    protocol_type: str
    protocol_name: str
    leader_id: str
    members: tuple[JoinedMember, ...]  # for the leader, who assigns; empty for the others
    skip_assignment: bool = False


class SyncGroup(Struct, frozen=True):
    """Answered with `Synced` when the leader's assignment is there."""

    group_id: str
    member_id: str
    generation: int
    instance_id: str | None = None
    protocol_type: str | None = None  # None = not said
    protocol_name: str | None = None
    assignments: tuple[tuple[str, bytes], ...] = ()  # member to assignment, from the leader


class Synced(Struct, frozen=True):
    protocol_type: str
    protocol_name: str
    assignment: bytes


class Heartbeat(Struct, frozen=True):
    """Answered with `Done`."""

    group_id: str
    member_id: str
    generation: int
    instance_id: str | None = None


class Leaver(Struct, frozen=True):
    member_id: str  # may be "" with an instance id
    instance_id: str | None = None


class LeaveGroup(Struct, frozen=True):
    """Answered with `Left`, in the order of the request."""

    group_id: str
    members: tuple[Leaver, ...]


class LeaverResult(Struct, frozen=True):
    member_id: str
    instance_id: str | None
    error: GoQueueError | None


class Left(Struct, frozen=True):
    members: tuple[LeaverResult, ...]


class NewOffset(Struct, frozen=True):
    topic: str
    partition: int
    offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""


class CommitOffsets(Struct, frozen=True):
    """Answered with `PartitionResults`. For a consumer group `generation` is the member's epoch."""

    group_id: str
    offsets: tuple[NewOffset, ...]
    member_id: str = ""
    generation: int = NO_GENERATION
    instance_id: str | None = None
    retention_ms: int | None = None  # of these offsets, from now; None = as the broker is configured


class CommitInTransaction(Struct, frozen=True):
    """Answered with `PartitionResults`: pending until the transaction is complete."""

    group_id: str
    producer_id: int
    producer_epoch: int
    offsets: tuple[NewOffset, ...]
    member_id: str = ""
    generation: int = NO_GENERATION
    instance_id: str | None = None


class CompleteTransaction(Struct, frozen=True):
    """Answered with `Done`. Ends what the producer has pending in any group of the shard; may be repeated, but not by a
    coordinator that was replaced since."""

    producer_id: int
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int = 0
    is_epoch_bumped: bool = (
        False  # it is above that of what it ends: what has the same is of the next transaction
    )


class PartitionResult(Struct, frozen=True):
    topic: str
    partition: int
    error: GoQueueError | None


class PartitionResults(Struct, frozen=True):
    partitions: tuple[PartitionResult, ...]  # in the order of the request


class FetchOffsets(Struct, frozen=True):
    """Answered with `FetchedOffsets`. A group that does not exist has no offsets."""

    group_id: str
    wanted: tuple[tuple[str, tuple[int, ...]], ...] | None = (
        None  # topic and partitions; None = all there are
    )
    require_stable: bool = False
    member_id: str | None = None  # of a consumer group, whose epoch is then checked
    member_epoch: int = NO_GENERATION


class FetchedOffset(Struct, frozen=True):
    topic: str
    partition: int
    offset: int  # NO_OFFSET = none is committed
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""
    error: GoQueueError | None = None
    is_beginning: bool = (
        False  # nothing is committed, and the partition is to be read from its first record on
    )


class FetchedOffsets(Struct, frozen=True):
    offsets: tuple[FetchedOffset, ...]  # in the order of the request; all: sorted


class DeleteOffsets(Struct, frozen=True):
    """Answered with `PartitionResults`."""

    group_id: str
    partitions: tuple[tuple[str, int], ...]


class DeleteGroup(Struct, frozen=True):
    """Answered with `Done`."""

    group_id: str


class ForgetTopic(Struct, frozen=True):
    """Every topic of the name that had one of these ids is deleted: what any group of the shard has committed for it goes. 0 is that of
    commits that do not say it. Answered with `Done`."""

    topic: str
    ids: range = EVERY_ID


class ForgetPartitions(Struct, frozen=True):
    """The topic has only so many partitions any more: what any group of the shard has committed for others goes. Answered
    with `Done`."""

    topic: str
    partition_count: int


class FollowGates(Struct, frozen=True):
    """What the group is not given may have changed: it rebalances if so. Answered with `Done`."""

    group_id: str


class ConfigureGroup(Struct, frozen=True):
    """The settings that the group has of its own, which need not exist yet. None takes one back; if these are the whole,
    so does leaving it out. Answered with `Done`."""

    group_id: str
    changes: dict[str, str | None]
    is_whole: bool = False


class Done(Struct, frozen=True):
    pass


class GroupSummary(Struct, frozen=True):
    group_id: str
    group_type: GroupType
    protocol_type: str  # "" where only offsets were ever committed
    state: GroupState


class MemberFacts(Struct, frozen=True):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes  # under the chosen protocol; empty while none is chosen
    assignment: bytes
    deadline_ms: int | None  # when its session ends unless it is heard of; None while a call of it is parked


class ClassicGroupFacts(Struct, frozen=True):
    group_id: str
    state: GroupState
    protocol_type: str
    protocol_name: str  # "" while none is chosen
    generation: int
    leader_id: str | None
    members: tuple[MemberFacts, ...]


GroupFacts = ClassicGroupFacts | ConsumerGroupFacts | ShareGroupFacts

Command = (
    JoinGroup
    | SyncGroup
    | Heartbeat
    | LeaveGroup
    | CommitOffsets
    | CommitInTransaction
    | CompleteTransaction
    | FetchOffsets
    | DeleteOffsets
    | DeleteGroup
    | ForgetTopic
    | ForgetPartitions
    | FollowGates
    | ConfigureGroup
    | ConsumerHeartbeat
    | ShareHeartbeat
)
Reply = (
    Joined
    | Synced
    | Done
    | Left
    | PartitionResults
    | FetchedOffsets
    | ConsumerHeartbeatReply
    | ShareHeartbeatReply
)
