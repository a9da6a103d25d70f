"""What the cluster is: topics and their settings, nodes, who has and who leads each partition, and the ids handed out. It is the
state of `__cluster_metadata`.

`decide` turns a command into events, reading only. `apply` alone changes the state and is also how it is rebuilt from
the log: replayed state equals live state. The events of one decision belong together: all of them are applied or none.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from msgspec import structs

from goqueue.core.cluster import (
    membership,
    partition_decisions,
    plan_decisions,
    planning,
    scaling,
    scaling_decisions,
    topic_placement,
)
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
    ElectLeaders,
    FenceNode,
    FencePartition,
    FinishShrinking,
    GrowTopic,
    InSyncProposal,
    MakeCompanion,
    MakePlan,
    MakeReceiptKey,
    NameCluster,
    PausePlan,
    RaiseLevel,
    ReassignPartitions,
    RegisterNode,
    ReleaseHolds,
    RelieveNodes,
    RemoveNode,
    ReportDrained,
    ReserveProducerId,
    ReserveProducerIds,
    ResumePlan,
    ShrinkTopic,
    UndrainNode,
    UnfenceNode,
    decode_command,
    encode_command,
)
from goqueue.core.cluster.draft import Cluster
from goqueue.core.cluster.elections import ElectionRules
from goqueue.core.cluster.events import (
    ClusterNamed,
    CompanionMade,
    Event,
    LevelRaised,
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
    ScalingChanged,
    TopicAltered,
    TopicCreated,
    TopicDeleted,
    TopicGrown,
    TopicShrunk,
    decode_event,
    decode_events,
    encode_event,
    encode_events,
)
from goqueue.core.cluster.levels import EPOCHS_LEVEL, LEVEL_NEWEST, LEVEL_OLDEST, check_level, level_of
from goqueue.core.cluster.node_table import NodeTable
from goqueue.core.cluster.nodes import NodeEntry
from goqueue.core.cluster.partition_table import PartitionTable
from goqueue.core.cluster.partitions import STANDALONE, PartitionState, new_partition
from goqueue.core.cluster.plan_table import PlanTable
from goqueue.core.cluster.plans import Move
from goqueue.core.cluster.scaling import Scaling
from goqueue.core.cluster.snapshot import VERSION, Snapshot, decode_snapshot, encode_snapshot
from goqueue.core.cluster.topic_register import TopicRegister, is_keyed
from goqueue.model.cluster_errors import WrongCluster
from goqueue.model.errors import InvalidRequest, TopicNotFound
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
        self._scalings: dict[str, Scaling] = {}
        self._next_producer_id = 1
        self._level = LEVEL_OLDEST
        self._epoch_free = 0  # above the leader epochs of all topics that were deleted
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

    def gone_before(self, name: str) -> int:
        """Of the topics that have had the name, those with a lower id than this are deleted."""
        return self._topics.gone_before(name)

    def companions(self, topic: str) -> frozenset[str]:
        """The kinds of companions that the topic has."""
        return self._companions.get(topic, frozenset())

    def scaling(self, topic: str) -> Scaling | None:
        """Where a topic with `scaling=keyed` stands; None for all others."""
        return self._scalings.get(topic)

    def scalings(self) -> dict[str, Scaling]:
        return dict(self._scalings)

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

    @property
    def level(self) -> int:
        """Of features, in force: see `levels.py`. A node alone has nobody to wait for."""
        return self._level if self.is_clustered else LEVEL_NEWEST

    def require_level(self, level: int, what: str) -> None:
        check_level(level, self.level, what)

    def decide(self, command: Command, now_ms: int) -> list[Event]:
        """What is to happen; nothing, if everything is as it should be."""
        events = self._decide(command, now_ms)
        if not isinstance(command, RaiseLevel):  # which is how it gets there
            self.require_level(max(map(level_of, events), default=LEVEL_OLDEST), "this")
        return events

    def _decide(self, command: Command, now_ms: int) -> list[Event]:
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
            case RelieveNodes():
                return [*partition_decisions.relieve(self._cluster, command)]
            case ReassignPartitions():
                return [*partition_decisions.reassign(self._cluster, command)]
            case BumpLeaderEpoch():
                return [*partition_decisions.bump(self._cluster, command)]
            case ShrinkTopic():
                topic = self.topic(command.name)
                return [*scaling_decisions.shrink(topic, self.scaling(topic.name), command)]
            case FencePartition() | ReleaseHolds() | ReportDrained() | FinishShrinking():
                topic_or_none = self.find(command.topic)
                return [*scaling_decisions.advance(self._cluster, topic_or_none, self._scalings, command)]
            case MakePlan() | PausePlan() | ResumePlan() | CancelPlan() | AdvancePlan():
                return plan_decisions.decide(self._cluster, self._plans, command, now_ms)
            case _:
                own = bool(self.topics())
                return membership.decide(self._cluster, command, level=self._level, has_own_topics=own)

    def _create(self, command: CreateTopic, now_ms: int) -> list[Event]:
        created = self._topics.create(command, now_ms)
        count, factor = created.partition_count, command.replication_factor
        wanted = command.assignments
        if wanted is not None:
            assignments = topic_placement.checked(self._cluster, wanted, count, factor)
        else:
            assignments = topic_placement.placed(self._cluster, created.id, (), count, factor)
        # A node that has yet to hear that a topic of this name was deleted must not take the new one for it, nor be taken for its follower.
        epoch = self._epoch_free if self.was_deleted(created.name) else 0
        leaders = topic_placement.first_leaders(self._cluster, created.name, 0, assignments, epoch_min=epoch)
        return [structs.replace(created, assignments=assignments), *leaders]

    def _grow(self, command: GrowTopic) -> list[Event]:
        grown = self._topics.grow(command)
        topic = self.topic(command.name)
        count, now = grown.partition_count, self.scaling(topic.name)
        changed = [] if now is None else [ScalingChanged(topic.name, scaling.grow(topic.name, now, count))]
        added = count - topic.partition_count
        if command.assignments is not None:
            assignments = topic_placement.checked(self._cluster, command.assignments, added, None)
        else:
            own = self.partitions_of(topic.name)
            assignments = topic_placement.placed(self._cluster, topic.id, own, added, len(own[0].target))
        epoch = self._first_epoch(topic.name)
        leaders = topic_placement.first_leaders(
            self._cluster,
            topic.name,
            topic.partition_count,
            assignments,
            epoch_made=epoch,
            epoch_min=max(epoch, self._epoch_free),
        )
        return [structs.replace(grown, assignments=assignments), *leaders, *changed]

    def _first_epoch(self, topic: str) -> int:
        """Of new partitions."""
        now = self.scaling(topic)
        return 0 if now is None else now.next_epoch

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
        self._level = max(self._level, level_of(event))
        match event:
            case LevelRaised():
                self._level = event.level
            case TopicCreated():
                self._topics.add(event)
                self._add_partitions(event.name, event.partition_count, event.assignments)
                if is_keyed(event.overrides):
                    self._scalings[event.name] = scaling.begin(event.partition_count)
            case TopicAltered():
                self._topics.change_overrides(event.name, event.overrides)
            case TopicGrown():
                added = event.partition_count - len(self._cluster.partitions.of(event.name))
                self._topics.change_partition_count(event.name, event.partition_count)
                self._add_partitions(event.name, added, event.assignments)
            case TopicDeleted():
                if self._level >= EPOCHS_LEVEL:
                    epochs = [1 + state.leader_epoch for state in self.partitions_of(event.name)]
                    self._epoch_free = max(self._epoch_free, self._first_epoch(event.name), *epochs)
                self._topics.remove(event.name)
                self._cluster.partitions.remove(event.name)
                self._plans.topic_deleted(event.name)
                self._companions.pop(event.name, None)
                self._scalings.pop(event.name, None)
            case TopicShrunk():
                self._topics.change_partition_count(event.name, event.partition_count)
                self._cluster.partitions.cut(event.name, event.partition_count)
                self._plans.topic_shrunk(event.name, event.partition_count)
            case ScalingChanged():
                self._scalings[event.topic] = event.scaling
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
        epoch = self._first_epoch(topic)
        states = [new_partition(replicas, epoch) for replicas in assignments] or [STANDALONE] * count
        self._cluster.partitions.add(topic, states)

    # ---------------------------------------------------------------- snapshots

    def snapshot(self) -> bytes:
        """Everything; the same state gives the same bytes."""
        topics, nodes = self._topics, self._cluster.nodes
        return encode_snapshot(
            Snapshot(
                version=VERSION,
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
                scalings={name: self._scalings[name] for name in sorted(self._scalings)},
                level=self._level,
                epoch_free=self._epoch_free,
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
        self._scalings = dict(snapshot.scalings)
        self._level, self._epoch_free = snapshot.level, snapshot.epoch_free
        self._next_producer_id = snapshot.next_producer_id
        self.cluster_id = snapshot.cluster_id
        self.receipt_key = snapshot.receipt_key
