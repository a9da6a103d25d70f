"""The bodies of the routes about plans to move partitions."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from goqueue.api.http.cluster_bodies import NodeName
from goqueue.api.http.topic_bodies import NAME_PATTERN, Count
from goqueue.model.names import NAME_LENGTH_MAX
from goqueue.model.settings import INT_MAX, LONG_MAX

NodeNumber = Annotated[int, Meta(ge=0, le=INT_MAX, description="A node's number.")]
Rate = Annotated[int, Meta(ge=1, le=LONG_MAX)]
Topic = Annotated[str, Meta(pattern=NAME_PATTERN, min_length=1, max_length=NAME_LENGTH_MAX)]


class PlannedMove(Struct, frozen=True, forbid_unknown_fields=True):
    topic: Topic
    partition: Annotated[int, Meta(ge=0, le=INT_MAX)]
    replicas: Annotated[
        list[NodeName | NodeNumber],
        Meta(min_length=1, description="Nodes, by name or number; the first is the preferred leader."),
    ]


class NewReassignment(Struct, frozen=True, forbid_unknown_fields=True):
    """One of `plan`, `drain` and `balance`; `topics` alone means `balance`."""

    plan: Annotated[list[PlannedMove] | None, Meta(description="Each partition and where it goes.")] = None
    drain: Annotated[
        NodeName | NodeNumber | None, Meta(description="A node that shall have nothing any more.")
    ] = None
    balance: Annotated[bool, Meta(description="Every node has the same, as far as possible.")] = False
    topics: Annotated[list[Topic] | None, Meta(description="What is balanced; without it, everything.")] = (
        None
    )
    throttle_bytes_per_second: Annotated[
        Rate | None, Meta(description="What each node may copy. Without it, all it can.")
    ] = None
    parallel: Annotated[int, Meta(ge=1, le=1_000, description="How many partitions move at once.")] = 5
    dry_run: Annotated[bool, Meta(description="Only say what would be done.")] = False


class ReassignmentMove(Struct, frozen=True, forbid_unknown_fields=True):
    topic: str
    partition: Count
    state: Annotated[str, Meta(description="waiting, moving, done, cancelled or failed.")]
    before: list[str]
    after: list[str]
    adding: Annotated[list[str], Meta(description="Those that are copying.")]
    in_sync: list[str]
    records_left: Annotated[int | None, Meta(description="To be copied; null where it is not known.")]
    bytes_left: Annotated[int | None, Meta(description="About.")]
    percent: float | None
    reason: Annotated[str, Meta(description="Why it waits, was cancelled or failed, if there is a reason.")]


class Reassignment(Struct, frozen=True, forbid_unknown_fields=True):
    id: int
    state: Annotated[str, Meta(description="running, paused, done, cancelled or failed.")]
    parallel: int
    throttle_bytes_per_second: int | None
    created_ms: int
    ended_ms: int | None
    counts: Annotated[dict[str, int], Meta(description="Of the moves, by their state.")]
    moves: list[ReassignmentMove]


class Reassignments(Struct, frozen=True, forbid_unknown_fields=True):
    reassignments: Annotated[list[Reassignment], Meta(description="The latest first.")]


class NodeShare(Struct, frozen=True, forbid_unknown_fields=True):
    """What a node has, and what it will have. Its leaders are the partitions that it is the first replica of."""

    node: str
    replicas_before: Count
    replicas_after: Count
    leaders_before: Count
    leaders_after: Count
    copied_bytes: Annotated[int | None, Meta(description="What it has to copy; null where it is not known.")]


class ReassignmentPreview(Struct, frozen=True, forbid_unknown_fields=True):
    moves: list[ReassignmentMove]
    nodes: list[NodeShare]
    warnings: list[str]
