"""What can be asked of the catalogue. Commands travel to the controller as JSON, each with its name under `command`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec
from msgspec import Struct

from goqueue.core.cluster.events import CompanionKind
from goqueue.core.cluster.nodes import Endpoints

ElectionKind = Literal["preferred", "unclean"]


class CreateTopic(Struct, frozen=True, tag=True, tag_field="command"):
    name: str
    partition_count: int
    overrides: Mapping[str, str]
    is_internal: bool = False
    replication_factor: int | None = None  # None: as many as usual
    assignments: list[list[int]] | None = None  # the replicas of each partition; None: wherever is room

    @property
    def is_placed_as_usual(self) -> bool:
        """Nobody has said how many replicas there are to be."""
        return self.replication_factor is None and self.assignments is None


class AlterTopic(Struct, frozen=True, tag=True, tag_field="command"):
    name: str
    changes: Mapping[str, str | None]  # None takes an override back


class GrowTopic(Struct, frozen=True, tag=True, tag_field="command"):
    name: str
    partition_count: int  # all of them, not only what is added
    assignments: list[list[int]] | None = None  # only of what is added


class ShrinkTopic(Struct, frozen=True, tag=True, tag_field="command"):
    """Of a topic with `scaling=keyed`: begin to."""

    name: str
    partition_count: int  # that are left
    discards_read: bool = False  # what every group has read goes, whatever retention says


class FencePartition(Struct, frozen=True, tag=True, tag_field="command"):
    """The leader says where the part of its log ends that was written before a change of the partitions."""

    topic: str
    topic_id: int
    partition: int
    leader_epoch: int
    offset: int


class ReleaseHolds(Struct, frozen=True, tag=True, tag_field="command"):
    """Every group knows the gates of the topic's shrinking."""

    topic: str
    topic_id: int


class ReportDrained(Struct, frozen=True, tag=True, tag_field="command"):
    """In a partition that is to go there is nothing left that anybody may want."""

    topic: str
    topic_id: int
    partition: int
    leader_epoch: int


class FinishShrinking(Struct, frozen=True, tag=True, tag_field="command"):
    """Every group has read what the partitions that are to go have left."""

    topic: str
    topic_id: int


class DeleteTopic(Struct, frozen=True, tag=True, tag_field="command"):
    name: str


class ReserveProducerId(Struct, frozen=True, tag=True, tag_field="command"):
    pass


class ReserveProducerIds(Struct, frozen=True, tag=True, tag_field="command"):
    count: int


class MakeReceiptKey(Struct, frozen=True, tag=True, tag_field="command"):
    """If there is none yet."""

    key: str


class NameCluster(Struct, frozen=True, tag=True, tag_field="command"):
    """If it has no name yet."""

    id: str


class RegisterNode(Struct, frozen=True, tag=True, tag_field="command"):
    name: str
    incarnation: str
    endpoints: Endpoints
    rack: str = ""
    version: str = ""
    lost: list[tuple[str, int]] = []  # partitions that are not there, or damaged
    level: int = 1  # of features, that it understands; who says nothing is from before there were levels
    previous: list[str] = []  # incarnations that its folder knows of; none where that is not known
    is_again: bool = False  # its process was registered before, as one of these


class UnfenceNode(Struct, frozen=True, tag=True, tag_field="command"):
    name: str
    incarnation: str


class FenceNode(Struct, frozen=True, tag=True, tag_field="command"):
    name: str
    incarnation: str


class DrainNode(Struct, frozen=True, tag=True, tag_field="command"):
    name: str


class UndrainNode(Struct, frozen=True, tag=True, tag_field="command"):
    name: str


class AddVoter(Struct, frozen=True, tag=True, tag_field="command"):
    """The node of this name takes part in every decision from now on."""

    name: str


class RemoveVoter(Struct, frozen=True, tag=True, tag_field="command"):
    name: str


class RaiseLevel(Struct, frozen=True, tag=True, tag_field="command"):
    """To what these nodes understand, each in this incarnation; nothing happens unless they are all that there are."""

    level: int
    nodes: dict[str, str]


class RemoveNode(Struct, frozen=True, tag=True, tag_field="command"):
    name: str


class InSyncProposal(Struct, frozen=True, array_like=True):
    """What a leader saw, and whom it counts as in sync."""

    topic: str
    partition: int
    leader_epoch: int
    epoch: int
    in_sync: list[int]
    is_damaged: bool = False  # what the leader has itself: it is not to be elected for that


class AlterPartitions(Struct, frozen=True, tag=True, tag_field="command"):
    node: int
    incarnation: str
    proposals: list[InSyncProposal]


class ElectLeaders(Struct, frozen=True, tag=True, tag_field="command"):
    partitions: list[tuple[str, int]] | None = None  # None: all
    kind: ElectionKind = "preferred"


class RelieveNodes(Struct, frozen=True, tag=True, tag_field="command"):
    """Their disks take no writes: others lead what these lead, wherever one of them is in sync."""

    nodes: list[int]


class ReassignPartitions(Struct, frozen=True, tag=True, tag_field="command"):
    targets: list[tuple[str, int, list[int] | None]]  # None cancels


class BumpLeaderEpoch(Struct, frozen=True, tag=True, tag_field="command"):
    """The log has records of epochs that the catalogue did not give, up to `above`."""

    topic: str
    partition: int
    above: int


class MakeCompanion(Struct, frozen=True, tag=True, tag_field="command"):
    topic: str
    kind: CompanionKind


class MakePlan(Struct, frozen=True, tag=True, tag_field="command"):
    """To move partitions: as given, or away from a node, or so that every node has the same."""

    targets: list[tuple[str, int, list[int]]] | None = None
    drain: str | None = None  # the node's name
    is_balance: bool = False
    topics: list[str] | None = None  # that are balanced; None: all
    throttle: int | None = None  # bytes per second that each node may copy
    parallel: int = 5


class PausePlan(Struct, frozen=True, tag=True, tag_field="command"):
    id: int


class ResumePlan(Struct, frozen=True, tag=True, tag_field="command"):
    id: int


class CancelPlan(Struct, frozen=True, tag=True, tag_field="command"):
    id: int


class AdvancePlan(Struct, frozen=True, tag=True, tag_field="command"):
    """Begin what can begin, if it is still the one that is carried out."""

    id: int


Command = (
    CreateTopic
    | AlterTopic
    | GrowTopic
    | DeleteTopic
    | ReserveProducerId
    | ReserveProducerIds
    | MakeReceiptKey
    | NameCluster
    | RegisterNode
    | UnfenceNode
    | FenceNode
    | DrainNode
    | UndrainNode
    | RemoveNode
    | AlterPartitions
    | ElectLeaders
    | RelieveNodes
    | ReassignPartitions
    | BumpLeaderEpoch
    | MakeCompanion
    | MakePlan
    | PausePlan
    | ResumePlan
    | CancelPlan
    | AdvancePlan
    | ShrinkTopic
    | FencePartition
    | ReleaseHolds
    | ReportDrained
    | FinishShrinking
    | RaiseLevel
)
VoterCommand = AddVoter | RemoveVoter  # the quorum's own matter: the catalogue does not decide it
Order = Command | VoterCommand  # what travels to the controller

_decoder: msgspec.json.Decoder[Command] = msgspec.json.Decoder(Command)


def encode_command(command: Command) -> bytes:
    return msgspec.json.encode(command)


def decode_command(data: bytes) -> Command:
    return _decoder.decode(data)
