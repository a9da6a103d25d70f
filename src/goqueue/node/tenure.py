"""For how long what this node has loaded of a partition counts: until it leads it no longer, or leads it anew.

Between two tenures another node may have led and written. So whoever keeps a state beside a log asks its tenure before
every write, and again before it tells anybody what it knows.
"""

from __future__ import annotations

from goqueue.model.cluster_errors import NotLeader
from goqueue.node.partition import Leadership, Partition


class Tenure:
    def __init__(self, partition: Partition, *companions: Partition) -> None:
        """Raises NotLeader where this node does not lead all of them by the same right."""
        self._partition = partition
        self._all = (partition, *companions)
        self._leadership = partition.leadership
        self.check()

    @property
    def leadership(self) -> Leadership | None:
        """That it is about; None where this node is alone."""
        return self._leadership

    @property
    def is_over(self) -> bool:
        """Never where this node is alone."""
        for one in self._all:
            if not one.is_solo and (self._leadership is None or one.leadership is not self._leadership):
                return True
        return False

    def check(self) -> None:
        if self.is_over:
            raise NotLeader(self._partition.topic, self._partition.index, self._partition.leader)
