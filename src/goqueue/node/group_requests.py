"""What can be asked of groups and what is answered, for the protocols: they know the node, not its state machines."""

from goqueue.core.group.commands import (
    ClassicGroupFacts,
    CommitInTransaction,
    CommitOffsets,
    DeleteOffsets,
    FetchedOffset,
    FetchOffsets,
    GroupState,
    GroupSummary,
    GroupType,
    Heartbeat,
    Joined,
    JoinGroup,
    LeaveGroup,
    Leaver,
    NewOffset,
    PartitionResult,
    SyncGroup,
)
from goqueue.core.group.consumer_events import ConsumerGroupFacts, ConsumerHeartbeat

__all__ = [
    "ClassicGroupFacts",
    "CommitInTransaction",
    "CommitOffsets",
    "ConsumerGroupFacts",
    "ConsumerHeartbeat",
    "DeleteOffsets",
    "FetchOffsets",
    "FetchedOffset",
    "GroupState",
    "GroupSummary",
    "GroupType",
    "Heartbeat",
    "JoinGroup",
    "Joined",
    "LeaveGroup",
    "Leaver",
    "NewOffset",
    "PartitionResult",
    "SyncGroup",
]
