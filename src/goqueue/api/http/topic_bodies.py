"""The bodies of the topic routes."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from goqueue.model.names import INTERNAL_PREFIX, NAME_LENGTH_MAX
from goqueue.model.settings import HOUR_MS, UNLIMITED

LONG_MAX = 2**63 - 1
NAME_PATTERN = r"^(?!\.{1,2}$)[A-Za-z0-9._-]+$"
NEW_NAME_PATTERN = rf"^(?!\.{{1,2}}$)(?!{INTERNAL_PREFIX})[A-Za-z0-9._-]+$"

# Patterns and lengths of names are documented here and enforced by the node, whose code is INVALID_NAME.
NewName = Annotated[
    str, Meta(extra_json_schema={"pattern": NEW_NAME_PATTERN, "minLength": 1, "maxLength": NAME_LENGTH_MAX})
]
SettingValue = str | int | float | bool
Instant = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
Count = Annotated[int, Meta(ge=0)]


Replicas = Annotated[list[str | int], Meta(min_length=1, max_length=100)]
ReplicaAssignments = Annotated[dict[str, Replicas], Meta(min_length=1)]


class NewTopic(Struct, frozen=True, forbid_unknown_fields=True):
    name: NewName
    num_partitions: (
        Annotated[int, Meta(ge=1, description="The node's default where it is left out.")] | UnsetType
    ) = UNSET
    replication_factor: (
        Annotated[
            int,
            Meta(
                description="Each replica is on a node of its own. Left out: 3, or as many as there are nodes.",
                extra_json_schema={"minimum": 1},
            ),
        ]
        | UnsetType
    ) = UNSET
    replica_assignments: (
        Annotated[
            ReplicaAssignments,
            Meta(description="By partition, from 0 on: nodes by name or number, the preferred leader first."),
        ]
        | UnsetType
    ) = UNSET
    retention_hours: (
        Annotated[
            int,
            Meta(ge=UNLIMITED, le=LONG_MAX // HOUR_MS, description="-1: for ever."),
        ]
        | UnsetType
    ) = UNSET
    retention_bytes: (
        Annotated[
            int,
            Meta(ge=UNLIMITED, le=LONG_MAX, description="Of each partition; -1: no limit."),
        ]
        | UnsetType
    ) = UNSET
    config: dict[str, SettingValue] = {}


class TopicChanges(Struct, frozen=True, forbid_unknown_fields=True):
    config: dict[str, SettingValue | None]


class TopicSummary(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    partitions: Count
    created: Instant


class TopicList(Struct, frozen=True, forbid_unknown_fields=True):
    topics: list[TopicSummary]


class OffsetRange(Struct, frozen=True, forbid_unknown_fields=True):
    """`latest` is exclusive: the offset that the next message gets."""

    earliest: Count
    latest: Count


class TopicDescription(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    partitions: Count
    created: Instant
    total_messages: Annotated[
        int,
        Meta(ge=0, description="Offsets in the log; compaction and markers leave fewer messages than that."),
    ]
    total_size_bytes: Count
    partition_offsets: dict[str, OffsetRange]
    config: Annotated[dict[str, str], Meta(description="Every setting in force.")]
    overrides: Annotated[dict[str, str], Meta(description="The settings that were set on this topic.")]


class TopicDeleted(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    deleted: bool


class NewPartitionCount(Struct, frozen=True, forbid_unknown_fields=True):
    count: Annotated[
        int,
        Meta(
            ge=1,
            description="Of all partitions, those that are there included: more than the topic has now. With scaling=keyed, a "
            "multiple of what it has, or a divisor.",
        ),
    ]
    replica_assignments: (
        Annotated[
            ReplicaAssignments,
            Meta(description="By new partition: nodes by name or number, the preferred leader first."),
        ]
        | UnsetType
    ) = UNSET
    discard_read: Annotated[
        bool,
        Meta(
            description="Of a topic that gets fewer: partitions go with their messages as soon as every group that there is has read "
            "them. Without it they go when retention has emptied them, too. May be said later, with the same count."
        ),
    ] = False


class TopicGrown(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    old_count: Count
    new_count: Count
    partitions_added: Annotated[
        int, Meta(description="Negative where some go; they are there until that is over (scaling-status).")
    ]


_WhileLed = "null while nobody leads the partition and this node has no replica of it."


class PartitionDescription(Struct, frozen=True, forbid_unknown_fields=True):
    partition: Count
    leader: Annotated[str, Meta(description="Empty while nobody leads it.")]
    replicas: list[str]
    isr: list[str]
    epoch: Count
    earliest: Annotated[Count | None, Meta(description=_WhileLed)]
    high_watermark: Annotated[Count | None, Meta(description=_WhileLed)]
    size_bytes: Count
    failure: Annotated[str | None, Meta(description="Why it takes no writes, if it does not.")]
    damage: Annotated[
        list[str], Meta(description="What recovery found damaged; those offsets answer DATA_CORRUPT.")
    ]


class PartitionList(Struct, frozen=True, forbid_unknown_fields=True):
    partitions: list[PartitionDescription]
