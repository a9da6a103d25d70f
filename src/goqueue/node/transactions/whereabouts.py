"""Where a node finds those who take part in a transaction."""

from __future__ import annotations

from goqueue.core.cluster.partitions import NO_LEADER
from goqueue.model.cluster_errors import NotLeader
from goqueue.model.errors import TopicNotFound
from goqueue.node.directory import Directory
from goqueue.node.topic_table import TopicTable


class Whereabouts:
    """Who leads what, as this node knows it."""

    def __init__(self, table: TopicTable, directory: Directory) -> None:
        self._table = table
        self._directory = directory

    def leader(self, topic: str, index: int) -> str | None:
        """The name of the node; None: this one. Raises NotLeader while nobody does."""
        found = self._table.any_topic(topic)
        if found is None:
            raise TopicNotFound(topic)
        found.check_partition(index)
        if self._directory.is_solo:
            return None
        number = found.states[index].leader
        if number == self._directory.number:
            return None
        name = "" if number == NO_LEADER else self._directory.name_of(number)
        if not name:
            raise NotLeader(topic, index)
        return name

    def epoch(self, topic: str, index: int) -> int:
        """Under which this node leads the partition, or will."""
        return self._table.any_partition(topic, index).leader_epoch
