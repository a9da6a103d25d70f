"""Partitions of a node that are led as in a cluster, where the test plays the other replicas."""

from __future__ import annotations

from goqueue.node.node import Node
from goqueue.node.partition import Partition


class PlayedLeadership:
    """What is appended is committed at once, unless the followers `are_away`."""

    def __init__(self, epoch: int, *, are_away: bool = False) -> None:
        self.epoch = epoch
        self.has_enough = True
        self.is_cut_off = False
        self.are_away = are_away
        self.damaged_partitions: list[Partition] = []  # once each time that damage was found

    def began(self, partition: Partition) -> None:
        self.appended(partition)

    def failed(self, partition: Partition) -> None:
        pass

    def damaged(self, partition: Partition) -> bool:
        self.damaged_partitions.append(partition)
        return False

    def synced(self, partition: Partition) -> None:
        pass

    def deleted(self, partition: Partition, start: int) -> None:
        pass

    def readable_at(self, partition: Partition, offset: int) -> list[int]:
        return []

    def appended(self, partition: Partition) -> None:
        if not self.are_away:
            partition.raise_watermark(partition.log.end)


async def led(node: Node, epoch: int, topic: str = "orders", index: int = 0) -> Partition:
    """Of a topic that exists: this node begins to lead the partition."""
    partition = node._table.any_partition(topic, index)
    partition.is_solo = False
    partition.take_over(PlayedLeadership(epoch))
    await partition.lead()
    return partition


def followers_of(partition: Partition) -> PlayedLeadership:
    assert isinstance(partition.leadership, PlayedLeadership)
    return partition.leadership
