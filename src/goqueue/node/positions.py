"""The use case of finding one's place: where a partition begins and ends, and where it was at a moment."""

from __future__ import annotations

from typing import NamedTuple

from goqueue.model.errors import InvalidRequest
from goqueue.node.fetch import NO_EPOCH, check_leader_epoch
from goqueue.node.guard import Guard
from goqueue.node.partition import Partition
from goqueue.node.requests import Isolation
from goqueue.node.topic_table import TopicTable

# Instants that are none: Kafka's, which every protocol here shares.
LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
NOWHERE = -1


class Position(NamedTuple):
    offset: int
    timestamp_ms: int
    leader_epoch: int


_NONE = Position(NOWHERE, NOWHERE, NOWHERE)


class Positions:
    def __init__(self, topics: TopicTable, guard: Guard) -> None:
        self._topics = topics
        self._guard = guard

    async def find(
        self, topic: str, index: int, instant: int, *, isolation: Isolation, leader_epoch: int = NO_EPOCH
    ) -> Position:
        """The first record at or after an instant in milliseconds, or one of the named places."""
        partition = self._partition(topic, index, leader_epoch)
        log = partition.log
        if instant in (EARLIEST, EARLIEST_LOCAL):
            return Position(log.log_start, NOWHERE, self._epoch_at(partition, log.log_start))
        partition.check_knows_end()
        is_committed = isolation is Isolation.READ_COMMITTED
        end = partition.last_stable_offset if is_committed else partition.visible_end
        if instant == LATEST:
            return Position(end, NOWHERE, partition.leader_epoch)
        if instant == LATEST_TIERED:  # nothing is anywhere but here
            return _NONE
        if instant == MAX_TIMESTAMP:
            newest = await partition.newest()
            return _NONE if newest is None or newest[0] >= end else self._found(partition, newest)
        if instant < 0:
            raise InvalidRequest(
                f"timestamp {instant} is neither an instant nor one of -1 to -5", instant=instant
            )
        found = await partition.seek(instant)
        return self._found(partition, found) if found is not None and found[0] < end else _NONE

    def epoch_end(
        self, topic: str, index: int, epoch: int, *, leader_epoch: int = NO_EPOCH
    ) -> tuple[int, int]:
        """The newest leader epoch up to `epoch`, and where it ends: what a client that read further must forget. A leader that has just
        begun does not know that yet, and what it believes may be less than clients have read: they would go back."""
        partition = self._partition(topic, index, leader_epoch)
        partition.check_knows_end()
        if epoch == partition.leader_epoch:
            return epoch, partition.visible_end
        return partition.log.epochs.end_of(epoch, partition.visible_end)

    def _partition(self, topic: str, index: int, leader_epoch: int) -> Partition:
        self._guard.admit_read()
        partition = self._topics.get(topic).partition(index)
        if leader_epoch != NO_EPOCH:
            check_leader_epoch(partition, leader_epoch)
        partition.check_leads()
        return partition

    def _found(self, partition: Partition, found: tuple[int, int]) -> Position:
        offset, timestamp_ms = found
        return Position(offset, timestamp_ms, self._epoch_at(partition, offset))

    def _epoch_at(self, partition: Partition, offset: int) -> int:
        epoch = partition.log.epochs.at(offset)
        return partition.leader_epoch if epoch is None else epoch
