"""A decision about partitions while it is being made. Epochs are counted here, so that no rule can forget to."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct, structs

from goqueue.core.cluster import elections, reassignment
from goqueue.core.cluster.elections import ElectionRules, States
from goqueue.core.cluster.events import PartitionChange, PartitionsChanged
from goqueue.core.cluster.node_table import NodeTable
from goqueue.core.cluster.partition_table import Key, PartitionTable
from goqueue.core.cluster.partitions import NO_LEADER, PartitionState


class Cluster(Struct, frozen=True):
    """What decisions are made on."""

    nodes: NodeTable
    partitions: PartitionTable
    rules_of: Callable[[str], ElectionRules]  # of a topic


class Draft:
    def __init__(self, cluster: Cluster, states: States | None = None) -> None:
        """`states` are those of the nodes after the decision; without them, the present ones."""
        self._cluster = cluster
        self.states = cluster.nodes.states() if states is None else states
        self._changes: dict[Key, PartitionChange] = {}

    def has(self, topic: str, index: int) -> bool:
        return (topic, index) in self._changes

    def state(self, topic: str, index: int) -> PartitionState:
        """As it will be."""
        change = self._changes.get((topic, index))
        return self._cluster.partitions.get(topic, index) if change is None else change.state

    def settle(self, topic: str, index: int, state: PartitionState) -> None:
        """The partition becomes this, with whatever follows from it: a move that is complete now, another leader. A partition
        changes once in a decision."""
        rules = self._cluster.rules_of(topic)
        settled = self._settled(state, rules)
        if settled.is_moving:  # whoever was elected may be all that the move waits for
            settled = self._settled(settled, rules)
        self.put(topic, index, settled)

    def _settled(self, state: PartitionState, rules: ElectionRules) -> PartitionState:
        return elections.settle(reassignment.complete(state, self.states, rules), self.states, rules)

    def put(self, topic: str, index: int, state: PartitionState) -> None:
        """The partition becomes this and nothing else."""
        self.change(topic, index, self._cluster.partitions.get(topic, index), state)

    def count_up(self, topic: str, index: int) -> None:
        """The partition changes, if only in its epoch: what its leader has proposed of it and is under way is refused as stale. Where
        nobody leads it, that is so already: another leader has another leader epoch."""
        old = self._cluster.partitions.get(topic, index)
        if old.leader != NO_LEADER and not self.has(topic, index):
            counted = structs.replace(old, epoch=old.epoch + 1)
            self._changes[topic, index] = PartitionChange.of(topic, index, counted)

    def change(self, topic: str, index: int, old: PartitionState, new: PartitionState) -> None:
        if new == old:
            return
        leader_epoch = max(new.leader_epoch, old.leader_epoch + (new.leader != old.leader))
        counted = structs.replace(new, leader_epoch=leader_epoch, epoch=old.epoch + 1)
        self._changes[topic, index] = PartitionChange.of(topic, index, counted)

    def events(self) -> list[PartitionsChanged]:
        return [PartitionsChanged(list(self._changes.values()))] if self._changes else []
