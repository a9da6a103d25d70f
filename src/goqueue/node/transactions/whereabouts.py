"""Where a node finds those who take part in a transaction."""

from __future__ import annotations

from collections.abc import Callable

from goqueue.core.cluster.partitions import NO_LEADER, PartitionState
from goqueue.core.producer import NO_COORDINATOR
from goqueue.model.cluster_errors import NotLeader
from goqueue.model.errors import TopicNotFound
from goqueue.node.directory import Directory
from goqueue.node.internal_topics import OFFSETS_TOPIC
from goqueue.node.topic_table import TopicTable

EpochOfGroups = Callable[[int, int], int]  # as `marker_epoch`, of the internal topic of groups


class Whereabouts:
    """Who leads what, as this node knows it."""

    def __init__(self, table: TopicTable, directory: Directory, epoch_of_groups: EpochOfGroups) -> None:
        self._table = table
        self._directory = directory
        self._epoch_of_groups = epoch_of_groups

    def leader(self, topic: str, index: int) -> str | None:
        """The name of the node; None: this one. Raises NotLeader while nobody does."""
        found = self._state(topic, index)
        if self._directory.is_solo:
            return None
        number = found.leader
        if number == self._directory.number:
            return None
        name = "" if number == NO_LEADER else self._directory.name_of(number)
        if not name:
            raise NotLeader(topic, index)
        return name

    def leader_epoch(self, topic: str, index: int) -> int:
        """Of whoever leads it, likewise."""
        return self._state(topic, index).leader_epoch

    def _state(self, topic: str, index: int) -> PartitionState:
        found = self._table.any_topic(topic)
        if found is None:
            raise TopicNotFound(topic)
        found.check_partition(index)
        return found.states[index]

    def marker_epoch(self, topic: str, index: int, producer_id: int) -> int:
        """Of the coordinator that wrote the producer's newest marker in a partition that is here; below all others where none is known.
        Groups write what they hear of an end into their own state, and no marker."""
        if topic == OFFSETS_TOPIC:
            return self._epoch_of_groups(index, producer_id)
        entry = self._table.any_partition(topic, index).owner.table.entry(producer_id)
        return NO_COORDINATOR if entry is None else entry.coordinator_epoch

    def epoch(self, topic: str, index: int) -> int:
        """Under which this node leads the partition, or will."""
        return self._table.any_partition(topic, index).leader_epoch
