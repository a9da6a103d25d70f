"""What the cluster is: topics and their settings, nodes, who has and who leads each partition, and the ids handed out. It is the
state of `__cluster_metadata`.

`decide` turns a command into events, reading only. `apply` alone changes the state and is also how it is rebuilt from
the log: replayed state equals live state. The events of one decision belong together: all of them are applied or none.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from msgspec import structs

from goqueue.core.cluster import membership, partition_decisions, placement, plan_decisions, planning
from goqueue.core.cluster.commands import (
    AdvancePlan,
    AlterPartitions,
    AlterTopic,
    BumpLeaderEpoch,
    CancelPlan,
    Command,
    CreateTopic,
    DeleteTopic,
    DrainNode,
    ElectionKind,
    ElectLeaders,
    FenceNode,
    GrowTopic,
    InSyncProposal,
    MakeCompanion,
    MakePlan,
    MakeReceiptKey,
    NameCluster,
    PausePlan,
    ReassignPartitions,
    RegisterNode,
    RemoveNode,
    ReserveProducerId,
    ReserveProducerIds,
    ResumePlan,
    UndrainNode,
    UnfenceNode,
    decode_command,
    encode_command,
)
from goqueue.core.cluster.draft import Cluster, Draft
from goqueue.core.cluster.elections import ElectionRules, can_serve, settle
from goqueue.core.cluster.events import (
    ClusterNamed,
    CompanionMade,
    Event,
    MovesChanged,
    NodeRegistered,
    NodeRemoved,
    NodeStateChanged,
    PartitionChange,
    PartitionsChanged,
    PlanChanged,
    PlanMade,
    ProducerIdReserved,
    ProducerIdsReserved,
    ReceiptKeyMade,
    TopicAltered,
    TopicCreated,
    TopicDeleted,
    TopicGrown,
    decode_event,
    decode_events,
    encode_event,
    encode_events,
)
from goqueue.core.cluster.node_table import NodeTable
from goqueue.core.cluster.nodes import NodeEntry
from goqueue.core.cluster.partition_table import PartitionTable
from goqueue.core.cluster.partitions import STANDALONE, PartitionState, new_partition, ordered
from goqueue.core.cluster.plan_table import PlanTable
from goqueue.core.cluster.plans import Move
from goqueue.core.cluster.snapshot import Snapshot, decode_snapshot, encode_snapshot
from goqueue.core.cluster.topic_register import TopicRegister
from goqueue.model.cluster_errors import WrongCluster
from goqueue.model.errors import (
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    TopicNotFound,
)
from goqueue.model.limits import Limits
from goqueue.model.settings import TopicSettings

__all__ = [
    "AlterPartitions",
    "AlterTopic",
    "BumpLeaderEpoch",
    "Catalog",
    "ClusterNamed",
    "Command",
    "CompanionMade",
    "CreateTopic",
    "DeleteTopic",
    "DrainNode",
    "ElectLeaders",
    "ElectionKind",
    "Event",
    "FenceNode",
    "GrowTopic",
    "InSyncProposal",
    "MakeCompanion",
    "MakeReceiptKey",
    "NameCluster",
    "NodeRegistered",
    "NodeRemoved",
    "NodeStateChanged",
    "PartitionChange",
    "PartitionsChanged",
    "ProducerIdReserved",
    "ProducerIdsReserved",
    "ReassignPartitions",
    "ReceiptKeyMade",
    "RegisterNode",
    "RemoveNode",
    "ReserveProducerId",
    "ReserveProducerIds",
    "TopicAltered",
    "TopicCreated",
    "TopicDeleted",
    "TopicGrown",
    "UndrainNode",
    "UnfenceNode",
    "decode_command",
    "decode_event",
    "decode_events",
    "encode_command",
    "encode_event",
    "encode_events",
]

PRODUCER_IDS_MAX = 1_000_000  # in one block


class Catalog:
    def __init__(self, limits: Limits, defaults: TopicSettings | None = None) -> None:
        """`defaults` are the settings of topics that do not have their own; every node of a cluster must have the same."""
        self._limits = limits
        self._defaults = defaults or TopicSettings()
        self._clear()

    def _clear(self) -> None:
        self._topics = TopicRegister(self._limits)
        self._cluster = Cluster(NodeTable(), PartitionTable(), self.rules_of)
        self._plans = PlanTable()
        self._companions: dict[str, frozenset[str]] = {}
        self._next_producer_id = 1
        self.cluster_id: str | None = None
        self.receipt_key: str | None = None

    # ---------------------------------------------------------------- topics

    def topics(self) -> list[TopicCreated]:
        """Sorted by name."""
        return self._topics.all()

    def topic(self, name: str) -> TopicCreated:
        return self._topics.get(name)

    def find(self, name: str) -> TopicCreated | None:
        """The broker's own topics, too."""
        return self._topics.find(name)

    def was_deleted(self, name: str) -> bool:
        return self._topics.was_deleted(name)

    def companions(self, topic: str) -> frozenset[str]:
        """The kinds of companions that the topic has."""
        return self._companions.get(topic, frozenset())

    # ---------------------------------------------------------------- nodes and partitions

    def nodes(self) -> list[NodeEntry]:
        """By number."""
        return self._cluster.nodes.entries()

    def node(self, name: str) -> NodeEntry | None:
        return self._cluster.nodes.find(name)

    def node_by_number(self, number: int) -> NodeEntry | None:
        return self._cluster.nodes.by_number(number)

    @property
    def is_clustered(self) -> bool:
        return not self._cluster.nodes.is_empty

    def partition(self, topic: str, index: int) -> PartitionState:
        """The broker's own topics, too."""
        return self._cluster.partitions.get(topic, index)

    def partitions_of(self, topic: str) -> tuple[PartitionState, ...]:
        return tuple(self._cluster.partitions.of(topic))

    @property
    def partitions(self) -> PartitionTable:
        """For whoever counts and lists; only `apply` changes it."""
        return self._cluster.partitions

    def led_by(self, number: int) -> list[tuple[str, int]]:
        """Sorted; of `NO_LEADER` those that nobody leads."""
        return self._cluster.partitions.led_by(number)

    def held_by(self, number: int) -> list[tuple[str, int]]:
        """Of which the node is a replica; sorted."""
        return self._cluster.partitions.held_by(number)

    def astray(self) -> Iterator[tuple[str, int, PartitionState]]:
        """Partitions that their preferred replica does not lead."""
        for topic, index in self._cluster.partitions.astray():
            yield topic, index, self._cluster.partitions.get(topic, index)

    def rules_of(self, topic: str) -> ElectionRules:
        """What the topic's settings say about its replicas."""
        found = self._topics.find(topic)
        if found is None:
            raise TopicNotFound(topic)
        return self._rules(found.overrides)

    def _rules(self, overrides: dict[str, str]) -> ElectionRules:
        least = overrides.get("min.insync.replicas")
        unclean = overrides.get("unclean.leader.election.enable")
        return ElectionRules(
            self._defaults.min_insync_replicas if least is None else int(least),
            self._defaults.unclean_leader_election_enable if unclean is None else unclean == "true",
        )

    @property
    def plans(self) -> PlanTable:
        """To move partitions; only `apply` changes it."""
        return self._plans

    def foresee(self, command: MakePlan) -> tuple[list[Move], list[str]]:
        """What a plan would do, and what to think of before."""
        moves = plan_decisions.moves_of(self._cluster, command)
        return moves, planning.warnings(self._cluster, moves)

    # ---------------------------------------------------------------- decisions

    def decide(self, command: Command, now_ms: int) -> list[Event]:
        """What is to happen; nothing, if everything is as it should be."""
        match command:
            case CreateTopic():
                return self._create(command, now_ms)
            case AlterTopic():
                return self._alter(command)
            case GrowTopic():
                return self._grow(command)
            case DeleteTopic():
                return [TopicDeleted(self.topic(command.name).name)]
            case ReserveProducerId():
                return [ProducerIdReserved(self._next_producer_id)]
            case ReserveProducerIds():
                return [self._reserve(command.count)]
            case MakeReceiptKey():
                return [ReceiptKeyMade(self.receipt_key or command.key)]
            case MakeCompanion():
                name = self.topic(command.topic).name
                is_made = command.kind in self.companions(name)
                return [] if is_made else [CompanionMade(name, command.kind)]
            case NameCluster():
                return self._name(command.id)
            case AlterPartitions():
                return [*partition_decisions.alter(self._cluster, command)]
            case ElectLeaders():
                return [*partition_decisions.elect(self._cluster, command)]
            case ReassignPartitions():
                return [*partition_decisions.reassign(self._cluster, command)]
            case BumpLeaderEpoch():
                return [*partition_decisions.bump(self._cluster, command)]
            case MakePlan() | PausePlan() | ResumePlan() | CancelPlan() | AdvancePlan():
                return plan_decisions.decide(self._cluster, self._plans, command, now_ms)
            case _:
                return self._decide_membership(command)

    def _decide_membership(
        self, command: RegisterNode | UnfenceNode | FenceNode | DrainNode | UndrainNode | RemoveNode
    ) -> list[Event]:
        match command:
            case RegisterNode():
                return membership.register(self._cluster, command, has_own_topics=bool(self.topics()))
            case UnfenceNode():
                return membership.unfence(self._cluster, command.name, command.incarnation)
            case FenceNode():
                return membership.fence(self._cluster, command.name, command.incarnation)
            case DrainNode():
                return membership.drain(self._cluster, command.name)
            case UndrainNode():
                return membership.undrain(self._cluster, command.name)
            case RemoveNode():
                return membership.remove(self._cluster, command.name)
            case _:
                assert_never(command)

    def _create(self, command: CreateTopic, now_ms: int) -> list[Event]:
        created = self._topics.create(command, now_ms)
        count = created.partition_count
        if command.assignments is not None:
            assignments = self._checked(command.assignments, count, command.replication_factor)
        else:
            assignments = self._placed(created.id, (), count, command.replication_factor)
        return [
            structs.replace(created, assignments=assignments),
            *self._first_leaders(created.name, 0, assignments),
        ]

    def _grow(self, command: GrowTopic) -> list[Event]:
        grown = self._topics.grow(command)
        topic = self.topic(command.name)
        added = grown.partition_count - topic.partition_count
        if command.assignments is not None:
            assignments = self._checked(command.assignments, added, None)
        else:
            own = self.partitions_of(topic.name)
            assignments = self._placed(topic.id, own, added, len(own[0].target))
        return [
            structs.replace(grown, assignments=assignments),
            *self._first_leaders(topic.name, topic.partition_count, assignments),
        ]

    def _checked(self, assignments: list[list[int]], count: int, factor: int | None) -> list[list[int]]:
        checked = placement.check_assignments(assignments, count, self._cluster.nodes.states())
        if factor is not None and checked and factor != len(checked[0]):
            raise InvalidReplicaAssignment(
                f"a replication factor of {factor} is wanted, but the assignments have {len(checked[0])} replicas each"
            )
        return checked if self.is_clustered else []

    def _placed(
        self, topic_id: int, own: tuple[PartitionState, ...], count: int, factor: int | None
    ) -> list[list[int]]:
        if not self.is_clustered:
            if factor not in (None, 1):
                raise InvalidReplicationFactor(
                    f"a replication factor of {factor} is not possible with 1 node; it must be 1",
                    replication_factor=factor,
                    node_count=1,
                )
            return []
        nodes = self.nodes()
        return placement.place(
            nodes,
            self._cluster.partitions,
            own,
            topic_id=topic_id,
            count=count,
            factor=placement.replication_factor(factor, nodes),
        )

    def _first_leaders(self, topic: str, first: int, assignments: list[list[int]]) -> list[PartitionsChanged]:
        """Where not all of the replicas are alive, or the first of them drains."""
        draft = Draft(self._cluster)
        for index, replicas in enumerate(assignments, first):
            new = new_partition(replicas)
            alive = ordered(replicas, [each for each in replicas if can_serve(draft.states, each)])
            led = settle(structs.replace(new, in_sync=alive), draft.states, ElectionRules())
            draft.change(topic, index, new, led)
        return draft.events()

    def _alter(self, command: AlterTopic) -> list[Event]:
        altered = self._topics.alter(command)
        if not self.is_clustered:
            return [altered]
        rules = self._rules(altered.overrides)
        if rules == self.rules_of(altered.name):
            return [altered]
        cluster = structs.replace(self._cluster, rules_of=lambda _: rules)
        return [altered, *partition_decisions.reconsider(cluster, altered.name)]

    def _reserve(self, count: int) -> ProducerIdsReserved:
        if not 1 <= count <= PRODUCER_IDS_MAX:
            raise InvalidRequest(
                f"a block has 1 to {PRODUCER_IDS_MAX} producer ids, not {count}", count=count
            )
        return ProducerIdsReserved(self._next_producer_id, count)

    def _name(self, cluster_id: str) -> list[Event]:
        if self.cluster_id is None:
            return [ClusterNamed(cluster_id)]
        if self.cluster_id != cluster_id:
            raise WrongCluster(self.cluster_id, cluster_id)
        return []

    # ---------------------------------------------------------------- changes

    def apply(self, event: Event) -> None:
        match event:
            case TopicCreated():
                self._topics.add(event)
                self._add_partitions(event.name, event.partition_count, event.assignments)
            case TopicAltered():
                self._topics.change_overrides(event.name, event.overrides)
            case TopicGrown():
                added = event.partition_count - len(self._cluster.partitions.of(event.name))
                self._topics.change_partition_count(event.name, event.partition_count)
                self._add_partitions(event.name, added, event.assignments)
            case TopicDeleted():
                self._topics.remove(event.name)
                self._cluster.partitions.remove(event.name)
                self._plans.topic_deleted(event.name)
                self._companions.pop(event.name, None)
            case ProducerIdReserved():
                self._next_producer_id = event.id + 1
            case ProducerIdsReserved():
                self._next_producer_id = event.start + event.count
            case ReceiptKeyMade():
                self.receipt_key = event.key
            case CompanionMade():
                self._companions[event.topic] = self.companions(event.topic) | {event.kind}
            case PartitionsChanged():
                for change in event.changes:
                    self._cluster.partitions.put(change.topic, change.partition, change.state)
            case ClusterNamed():
                self.cluster_id = event.id
            case NodeRegistered():
                self._cluster.nodes.register(event)
            case NodeStateChanged():
                self._cluster.nodes.change_state(event)
            case NodeRemoved():
                self._cluster.nodes.remove(event)
            case PlanMade() | PlanChanged() | MovesChanged():
                self._plans.apply(event)
            case _:
                assert_never(event)

    def _add_partitions(self, topic: str, count: int, assignments: list[list[int]]) -> None:
        states = [new_partition(replicas) for replicas in assignments] or [STANDALONE] * count
        self._cluster.partitions.add(topic, states)

    # ---------------------------------------------------------------- snapshots

    def snapshot(self) -> bytes:
        """Everything; the same state gives the same bytes."""
        topics, nodes = self._topics, self._cluster.nodes
        return encode_snapshot(
            Snapshot(
                cluster_id=self.cluster_id,
                receipt_key=self.receipt_key,
                next_producer_id=self._next_producer_id,
                next_topic_id=topics.next_id,
                topics=topics.all(),
                deleted=topics.deleted(),
                companions={name: sorted(self._companions[name]) for name in sorted(self._companions)},
                nodes=nodes.entries(),
                removed_nodes=nodes.removed(),
                fenced_while_draining=nodes.fenced_while_draining(),
                plans=self._plans.all(),
                next_plan_id=self._plans.next_id,
            ),
            self._cluster.partitions,
        )

    def restore(self, data: bytes) -> None:
        """Become what the snapshot was taken of, whatever this was before."""
        snapshot, states = decode_snapshot(data)
        self._clear()
        self._topics.load(snapshot.topics, snapshot.deleted, snapshot.next_topic_id)
        for topic in snapshot.topics:
            self._cluster.partitions.add(topic.name, states[topic.name])
        for name, index, replicas in snapshot.before:
            self._cluster.partitions.load_before(name, index, replicas)
        self._cluster.nodes.load(snapshot.nodes, snapshot.removed_nodes, snapshot.fenced_while_draining)
        self._plans.load(snapshot.plans, snapshot.next_plan_id)
        self._companions = {name: frozenset(kinds) for name, kinds in snapshot.companions.items()}
        self._next_producer_id = snapshot.next_producer_id
        self.cluster_id = snapshot.cluster_id
        self.receipt_key = snapshot.receipt_key
