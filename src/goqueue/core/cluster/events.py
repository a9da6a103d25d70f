"""What happens to the catalogue, as it lies in `__cluster_metadata`: JSON, each event with its name under `event`.

Fields that came later have a default and are left out where they have it, so that logs from before are read, and a
standalone node writes the same bytes as ever. What is not known here was written by a newer version: it is an error, never skipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec
from msgspec import Struct

from goqueue.core.cluster.nodes import Endpoints, NodeState
from goqueue.core.cluster.partitions import NEVER, PartitionState
from goqueue.core.cluster.plans import Move, MoveChange, PlanState
from goqueue.core.cluster.scaling import Scaling

CompanionKind = Literal["ledger", "schedule"]


class TopicCreated(
    Struct, frozen=True, tag=True, tag_field="event", forbid_unknown_fields=True, omit_defaults=True
):
    name: str
    id: int
    partition_count: int
    overrides: dict[str, str]
    created_ms: int
    assignments: list[list[int]] = []  # the replicas of each partition; none on a standalone node


class TopicAltered(Struct, frozen=True, tag=True, tag_field="event", forbid_unknown_fields=True):
    name: str
    overrides: dict[str, str]  # all of them, not only what changed


class TopicGrown(
    Struct, frozen=True, tag=True, tag_field="event", forbid_unknown_fields=True, omit_defaults=True
):
    name: str
    partition_count: int  # all of them, not only what was added
    assignments: list[list[int]] = []  # only of what was added


class TopicShrunk(Struct, frozen=True, tag=True, tag_field="event", forbid_unknown_fields=True):
    """The partitions from this one on are no more."""

    name: str
    partition_count: int


class ScalingChanged(Struct, frozen=True, tag=True, tag_field="event", forbid_unknown_fields=True):
    """All of it after the change."""

    topic: str
    scaling: Scaling


class TopicDeleted(Struct, frozen=True, tag=True, tag_field="event", forbid_unknown_fields=True):
    name: str


class ProducerIdReserved(Struct, frozen=True, tag=True, tag_field="event", forbid_unknown_fields=True):
    id: int


class ProducerIdsReserved(Struct, frozen=True, tag=True, tag_field="event", forbid_unknown_fields=True):
    """The ids `[start, start + count)`."""

    start: int
    count: int


class ReceiptKeyMade(Struct, frozen=True, tag=True, tag_field="event", forbid_unknown_fields=True):
    """What receipts are signed with, for as long as the data lives."""

    key: str


class ClusterNamed(Struct, frozen=True, tag=True, tag_field="event", forbid_unknown_fields=True):
    id: str


class NodeRegistered(Struct, frozen=True, tag=True, tag_field="event", forbid_unknown_fields=True):
    """A process has started on a node. It is fenced until it is ready."""

    name: str
    number: int
    incarnation: str
    endpoints: Endpoints
    rack: str
    version: str


class LevelRaised(Struct, frozen=True, tag=True, tag_field="event", forbid_unknown_fields=True):
    """All nodes understand this feature level: see `levels.py`."""

    level: int


class NodeStateChanged(Struct, frozen=True, tag=True, tag_field="event", forbid_unknown_fields=True):
    name: str
    state: NodeState


class NodeRemoved(Struct, frozen=True, tag=True, tag_field="event", forbid_unknown_fields=True):
    name: str
    number: int


class PartitionChange(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """All of a partition's state after the change."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    leader: int
    leader_epoch: int
    epoch: int
    eligible: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    unclean_epoch: int = NEVER

    @classmethod
    def of(cls, topic: str, partition: int, state: PartitionState) -> PartitionChange:
        return cls(
            topic,
            partition,
            state.replicas,
            state.in_sync,
            state.leader,
            state.leader_epoch,
            state.epoch,
            state.eligible,
            state.adding,
            state.removing,
            state.unclean_epoch,
        )

    @property
    def state(self) -> PartitionState:
        return PartitionState(
            self.replicas,
            self.in_sync,
            self.leader,
            self.leader_epoch,
            self.epoch,
            self.eligible,
            self.adding,
            self.removing,
            self.unclean_epoch,
        )


class PartitionsChanged(Struct, frozen=True, tag=True, tag_field="event", forbid_unknown_fields=True):
    changes: list[PartitionChange]


class CompanionMade(Struct, frozen=True, tag=True, tag_field="event", forbid_unknown_fields=True):
    """A topic's partitions have a ledger, or a schedule, beside them."""

    topic: str
    kind: CompanionKind


class PlanMade(Struct, frozen=True, tag=True, tag_field="event", forbid_unknown_fields=True):
    """Partitions are to be moved: see `plans.py`. It runs."""

    id: int
    moves: list[Move]
    throttle: int | None
    parallel: int
    created_ms: int


class PlanChanged(Struct, frozen=True, tag=True, tag_field="event", forbid_unknown_fields=True):
    id: int
    state: PlanState
    at_ms: int


class MovesChanged(Struct, frozen=True, tag=True, tag_field="event", forbid_unknown_fields=True):
    id: int  # of the plan
    changes: list[MoveChange]


Event = (
    TopicCreated
    | TopicAltered
    | TopicGrown
    | TopicDeleted
    | ProducerIdReserved
    | ProducerIdsReserved
    | ReceiptKeyMade
    | ClusterNamed
    | NodeRegistered
    | NodeStateChanged
    | NodeRemoved
    | PartitionsChanged
    | CompanionMade
    | PlanMade
    | PlanChanged
    | MovesChanged
    | TopicShrunk
    | ScalingChanged
    | LevelRaised
)

_one: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)
_one_or_more: msgspec.json.Decoder[Event | list[Event]] = msgspec.json.Decoder(Event | list[Event])


def encode_event(event: Event) -> bytes:
    return msgspec.json.encode(event)


def decode_event(data: bytes) -> Event:
    return _one.decode(data)


def encode_events(events: Sequence[Event]) -> bytes:
    """Those of one decision, which are applied together."""
    return msgspec.json.encode(events)


def decode_events(data: bytes) -> list[Event]:
    """Of one decision; logs from before there were clusters hold single events."""
    found = _one_or_more.decode(data)
    return found if isinstance(found, list) else [found]
