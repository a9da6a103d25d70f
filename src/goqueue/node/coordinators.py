"""Which node coordinates a group or a transaction: the leader of the partition of the internal topic that its name belongs
to. The topic is made when somebody asks for the first time."""

from __future__ import annotations

from enum import StrEnum

from goqueue.core.cluster.partitions import NO_LEADER
from goqueue.model.errors import CoordinatorNotAvailable, InvalidRequest
from goqueue.node.directory import SOLO_NUMBER, Directory
from goqueue.node.guard import Guard
from goqueue.node.internal_topics import (
    OFFSETS_TOPIC,
    PARTITION_COUNT,
    TRANSACTIONS_TOPIC,
    InternalTopics,
    coordinator_partition,
    transaction_partition,
)


class CoordinatorKind(StrEnum):
    GROUP = "group"
    TRANSACTION = "transaction"


class Coordinators:
    def __init__(self, internal_topics: InternalTopics, directory: Directory, guard: Guard) -> None:
        self._internal_topics = internal_topics
        self._directory = directory
        self._guard = guard

    def leaders(self, topic: str) -> list[int]:
        """The numbers of the nodes by partition of the internal topic; none where it is not there yet."""
        internal = self._internal_topics
        return [internal.leader_of(topic, index) for index in range(internal.count(topic))]

    async def find(self, kind: CoordinatorKind | None, key: str) -> int:
        """The number of the node."""
        if kind is None:
            raise InvalidRequest("there are coordinators of kind 0 (group) and 1 (transaction) and no others")
        if self._directory.is_solo:
            return SOLO_NUMBER
        self._guard.admit_read()
        if kind is CoordinatorKind.GROUP:
            topic, index = OFFSETS_TOPIC, coordinator_partition(key, PARTITION_COUNT)
        else:
            topic, index = TRANSACTIONS_TOPIC, transaction_partition(key, PARTITION_COUNT)
        await self._internal_topics.ensure(topic)
        leader = self._internal_topics.leader_of(topic, index)
        if leader == NO_LEADER:
            raise CoordinatorNotAvailable(f"the coordinator of {key!r} has no leader for now; try again")
        return leader
