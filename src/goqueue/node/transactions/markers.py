"""Tells everybody who takes part in a transaction how it ended, until each of them has it on disk.

A decided transaction must come to its end: until then readers of committed records wait. So nothing stops the attempts but
the end of the node, or of its being the coordinator. A marker that is written twice does no harm, and who is gone needs none.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol
from weakref import WeakKeyDictionary

from goqueue.core.group.commands import CompleteTransaction
from goqueue.core.txn.events import TopicPartition
from goqueue.core.txn.outcome import MarkerWork
from goqueue.model.cluster_errors import (
    CoordinationUnknown,
    CoordinatorFenced,
    CoordinatorLoading,
    NotCoordinator,
    NotLeader,
    PeerUnreachable,
    ReplicationUnknown,
)
from goqueue.model.errors import (
    GoQueueError,
    GroupNotFound,
    InvariantViolation,
    NotEnoughReplicas,
    PartitionNotFound,
    ProducerFenced,
    TimedOut,
    TopicNotFound,
)
from goqueue.node.clock import Clock
from goqueue.node.internal_topics import OFFSETS_TOPIC, PARTITION_COUNT, coordinator_partition
from goqueue.node.partition import Leadership, Partition
from goqueue.node.topic_table import TopicTable
from goqueue.node.transactions.metrics import TxnMetrics
from goqueue.node.transactions.pledges import Pledges
from goqueue.node.transactions.remote import Marker, RemoteTransactions
from goqueue.node.transactions.whereabouts import Whereabouts

logger = logging.getLogger(__name__)
_RETRY_S_MIN = 0.1
_RETRY_S_MAX = 10.0
_PASSING_S_MAX = 1.0  # of what ends when another node has taken over, or is back, and of what took long
_ACCEPT_S_MAX = 10.0  # less than who asks waits for one answer to the markers of many partitions
_FINAL = (TopicNotFound, PartitionNotFound, ProducerFenced, GroupNotFound, CoordinatorFenced)

_PASSING = (
    NotLeader,
    NotCoordinator,
    CoordinationUnknown,
    CoordinatorLoading,
    NotEnoughReplicas,
    PeerUnreachable,
    ReplicationUnknown,
    TimedOut,
)


class GroupMarkers(Protocol):
    async def complete_transaction(
        self, group_id: str, producer_id: int, epoch: int, *, is_commit: bool
    ) -> None:
        """The offsets that the producer committed for the group count from now on, or never will."""

    async def complete_in(self, index: int, completed: CompleteTransaction) -> None:
        """As above, for all groups of a partition of their internal topic."""

    def coordinator_epoch(self, index: int, producer_id: int) -> int:
        """Of the coordinator that the newest completion of the producer there came from; below all others where none is known."""


_Place = tuple[TopicPartition, int]  # and the producer


class _Uncommitted(NamedTuple):
    marker: Marker
    end: int


class Markers:
    def __init__(
        self,
        table: TopicTable,
        groups: GroupMarkers,
        clock: Clock,
        metrics: TxnMetrics,
        whereabouts: Whereabouts,
        remote: RemoteTransactions | None,
        was_deleted: Callable[[str], bool] | None = None,
        exists: Callable[[str, int], bool] = lambda topic, index: False,
    ) -> None:
        """`was_deleted` says it of a topic that other nodes may know of before this one does; None: there are none. `exists`: the
        catalogue has the partition, whether this node has come to it or not."""
        self._table = table
        self._groups = groups
        self._clock = clock
        self._metrics = metrics
        self._whereabouts = whereabouts
        self._remote = remote
        self._was_deleted = was_deleted
        self._exists = exists
        self.pledges = Pledges(whereabouts)
        # The newest ones that were written in a leadership and that nobody has seen committed.
        self._uncommitted: WeakKeyDictionary[Leadership, dict[_Place, _Uncommitted]] = WeakKeyDictionary()

    async def write(self, work: MarkerWork, coordinator_epoch: int) -> None:
        """Back when every participant has it on disk. One that is slow does not keep the others waiting. Raises
        CoordinatorFenced if another coordinator has come since."""
        marker = Marker(work.producer, work.is_commit, work.is_epoch_bumped, coordinator_epoch)
        try:
            async with asyncio.TaskGroup() as tasks:
                for part in work.partitions:
                    tasks.create_task(self._tell_partition(marker, part))
                for group_id in work.groups:
                    tasks.create_task(self._tell_group(marker, group_id))
        except ExceptionGroup as group:
            raise group.exceptions[0] from None

    async def accept_from_elsewhere(self, marker: Marker, part: TopicPartition) -> None:
        """As `accept`, within a time: the coordinator, which tries again, has asked for others as well, and hears of none before."""
        try:
            async with asyncio.timeout(_ACCEPT_S_MAX):
                await self.accept(marker, part)
        except TimeoutError:
            raise TimedOut(
                f"{part.topic}-{part.partition} did not commit a marker within {_ACCEPT_S_MAX:g} s; whether it does is not known"
            ) from None

    async def accept(self, marker: Marker, part: TopicPartition) -> None:
        """What a coordinator has decided, for a partition that this node leads. Back when it is on disk; harmless where the
        producer has nothing open. What comes again waits for what is there: another one would only be committed later."""
        id, epoch = marker.producer
        if part.topic == OFFSETS_TOPIC:
            self.pledges.marked(part, id)
            completed = CompleteTransaction(
                id, epoch, marker.is_commit, marker.coordinator_epoch, marker.is_epoch_bumped
            )
            await self._groups.complete_in(part.partition, completed)
            return
        partition = self._table.get(part.topic).partition(part.partition)
        if not partition.is_led:
            await partition.lead()
        _check_replicas(partition)
        leadership, place = partition.leadership, (part, id)
        uncommitted = {} if leadership is None else self._uncommitted.setdefault(leadership, {})
        found = uncommitted.get(place)
        if found is None or found.marker != marker or partition.has_open_transaction(id, epoch):
            stored = partition.append_marker(
                id,
                epoch,
                is_commit=marker.is_commit,
                coordinator_epoch=marker.coordinator_epoch,
                now_ms=self._clock.now_ms(),
                is_epoch_bumped=marker.is_epoch_bumped,
            )
            found = uncommitted[place] = _Uncommitted(marker, stored.end)
        self.pledges.marked(part, id)
        await partition.settled(found.end, under=leadership, gives_up=True)
        if uncommitted.get(place) is found:
            del uncommitted[place]

    async def _tell_partition(self, marker: Marker, part: TopicPartition) -> None:
        try:
            await self.until_done(
                f"marker for {part.topic}/{part.partition}", lambda: self._send(marker, part)
            )
        except (TopicNotFound, PartitionNotFound):
            pass  # deleted: nobody reads it any more
        except ProducerFenced:
            pass  # the producer has a newer epoch there, so this transaction has nothing open

    async def _tell_group(self, marker: Marker, group_id: str) -> None:
        part = TopicPartition(OFFSETS_TOPIC, coordinator_partition(group_id, PARTITION_COUNT))

        async def tell() -> None:
            if self._remote is None:
                await self._groups.complete_transaction(
                    group_id, *marker.producer, is_commit=marker.is_commit
                )
            else:
                await self._send(marker, part)

        try:
            await self.until_done(f"marker for group {group_id!r}", tell)
        except GroupNotFound:
            pass  # deleted, and its offsets with it

    async def _send(self, marker: Marker, part: TopicPartition) -> None:
        """To whoever leads the partition now."""
        try:
            target = self._whereabouts.leader(*part)
        except (TopicNotFound, PartitionNotFound) as error:
            if self._exists(
                *part
            ):  # this node has not opened it yet: it starts, and there is much to recover
                raise NotLeader(*part) from error
            raise
        if target is None:
            return await self.accept(marker, part)
        if self._remote is None:
            raise InvariantViolation(
                f"{part.topic}-{part.partition} is led elsewhere, and there is nobody else"
            )
        try:
            await self._remote.write_marker(target, marker, part)
        except (TopicNotFound, PartitionNotFound) as error:  # the other one may not have heard of it yet
            raise NotLeader(*part) from error

    async def until_done(self, what: str, attempt: Callable[[], Awaitable[None]]) -> None:
        """Again and again, ever more slowly; an error goes through only where the participant itself is gone, or another
        coordinator has come."""
        delay_s = _RETRY_S_MIN
        while True:
            try:
                return await attempt()
            except GoQueueError as error:
                if isinstance(error, _FINAL) and not self._may_be_unknown(error, delay_s):
                    raise
                self._note(what, delay_s, error)
                delay_s_max = _PASSING_S_MAX if isinstance(error, _PASSING) else _RETRY_S_MAX
            await asyncio.sleep(delay_s)
            delay_s = min(2 * delay_s, delay_s_max)

    def _may_be_unknown(self, error: GoQueueError, delay_s: float) -> bool:
        """In a cluster a new coordinator may know less of the topics than the one before did, for a moment."""
        if self._was_deleted is None or not isinstance(error, TopicNotFound | PartitionNotFound):
            return False
        return not self._was_deleted(str(error.details["topic"])) and delay_s < _RETRY_S_MAX

    def _note(self, what: str, delay_s: float, error: GoQueueError) -> None:
        self._metrics.retries.inc()
        logger.warning(
            "a transaction waits to be completed what=%r retry_s=%g error=%r", what, delay_s, error.sentence
        )


def _check_replicas(partition: Partition) -> None:
    """Before anything is written: a marker that nobody may read yet would only be written again by the next attempt."""
    leadership = partition.leadership
    if leadership is not None and not leadership.has_enough:
        raise NotEnoughReplicas(
            f"{partition.topic}-{partition.index} has too few replicas in sync for a marker",
            topic=partition.topic,
            partition=partition.index,
        )
