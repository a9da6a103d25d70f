"""Reading from the closest replica (KIP-392): a client that says in which rack it is, is sent to a replica in sync there.

A follower serves what it knows to be committed, and hears of that a moment after its leader. A client that wants what a
follower does not have is told that it is out of range, which clients understand as: go back to the leader. So the leader sends
nobody to a replica that would have to say so. Topics whose keys keep their order when they grow (ADR 35) are read from
their leaders alone: those know up to where they may be shown.
"""

from __future__ import annotations

from typing import Final

from goqueue.model.settings import ScalingMode
from goqueue.node.directory import Directory
from goqueue.node.partition import Partition
from goqueue.node.topic_table import OpenTopic

NOBODY: Final = -1


class FollowerReads:
    def __init__(self, directory: Directory) -> None:
        self._directory = directory

    def closest(self, topic: OpenTopic, partition: Partition, offset: int, rack: str) -> int:
        """The number of a replica in that rack which has what comes at `offset`, as soon as anybody has; NOBODY where the
        leader itself is as good. Ask the leader."""
        if partition.leadership is None or rack == self._directory.rack or not self._allows(topic, rack):
            return NOBODY
        near = {one.number for one in self._directory.brokers() if one.rack == rack}
        able = partition.leadership.readable_at(partition, offset)
        return next((number for number in able if number in near), NOBODY)

    def check(self, topic: OpenTopic, partition: Partition, rack: str) -> None:
        """Raise NotLeader where the client has to ask another node."""
        if partition.leader is None or not self._allows(topic, rack):
            partition.check_leads()

    def _allows(self, topic: OpenTopic, rack: str) -> bool:
        return (
            self._directory.allows_follower_reads
            and bool(rack)
            and topic.settings.scaling is ScalingMode.NONE
        )
