"""Tells everybody who takes part in a transaction how it ended, until each of them has it on disk.

A decided transaction must come to its end: until then readers of committed records wait. So nothing but the end of the
node stops the attempts. A marker that is written twice does no harm, and who is gone needs none.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

from goqueue.core.txn.events import TopicPartition
from goqueue.core.txn.outcome import MarkerWork
from goqueue.model.errors import (
    GoQueueError,
    GroupNotFound,
    PartitionNotFound,
    ProducerFenced,
    TopicNotFound,
)
from goqueue.node.clock import Clock
from goqueue.node.topic_table import TopicTable
from goqueue.node.transactions.metrics import TxnMetrics

logger = logging.getLogger(__name__)
_COORDINATOR_EPOCH = 0  # on one node nobody else ever was coordinator
_RETRY_S_MIN = 0.1
_RETRY_S_MAX = 10.0


class GroupMarkers(Protocol):
    async def complete_transaction(
        self, group_id: str, producer_id: int, epoch: int, *, is_commit: bool
    ) -> None:
        """The offsets that the producer committed for the group count from now on, or never will."""


class Markers:
    def __init__(self, table: TopicTable, groups: GroupMarkers, clock: Clock, metrics: TxnMetrics) -> None:
        self._table = table
        self._groups = groups
        self._clock = clock
        self._metrics = metrics

    async def write(self, work: MarkerWork) -> None:
        """Back when every participant has it on disk. One that is slow does not keep the others waiting."""
        async with asyncio.TaskGroup() as tasks:
            for part in work.partitions:
                tasks.create_task(self._tell_partition(work, part))
            for group_id in work.groups:
                tasks.create_task(self._tell_group(work, group_id))

    async def _tell_partition(self, work: MarkerWork, part: TopicPartition) -> None:
        try:
            await self.until_done(
                f"marker for {part.topic}/{part.partition}", lambda: self._append(work, part)
            )
        except (TopicNotFound, PartitionNotFound):
            pass  # deleted: nobody reads it any more
        except ProducerFenced:
            pass  # the producer has a newer epoch there, so this transaction has nothing open

    async def _append(self, work: MarkerWork, part: TopicPartition) -> None:
        partition = self._table.get(part.topic).partition(part.partition)
        if not partition.is_led:
            await partition.lead()
        stored = partition.append_marker(
            work.producer.producer_id,
            work.producer.epoch,
            is_commit=work.is_commit,
            coordinator_epoch=_COORDINATOR_EPOCH,
            now_ms=self._clock.now_ms(),
            is_epoch_bumped=work.is_epoch_bumped,
        )
        await partition.commit.wait(stored.end)

    async def _tell_group(self, work: MarkerWork, group_id: str) -> None:
        id, epoch = work.producer
        try:
            await self.until_done(
                f"marker for group {group_id!r}",
                lambda: self._groups.complete_transaction(group_id, id, epoch, is_commit=work.is_commit),
            )
        except GroupNotFound:
            pass  # deleted, and its offsets with it

    async def until_done(self, what: str, attempt: Callable[[], Awaitable[None]]) -> None:
        """Again and again, ever more slowly; an error goes through only where the participant itself is gone."""
        delay_s = _RETRY_S_MIN
        while True:
            try:
                return await attempt()
            except (TopicNotFound, PartitionNotFound, ProducerFenced, GroupNotFound):
                raise
            except GoQueueError as error:
                self._metrics.retries.inc()
                logger.warning(
                    "a transaction waits to be completed what=%r retry_s=%g error=%r",
                    what,
                    delay_s,
                    error.sentence,
                )
            await asyncio.sleep(delay_s)
            delay_s = min(2 * delay_s, _RETRY_S_MAX)
