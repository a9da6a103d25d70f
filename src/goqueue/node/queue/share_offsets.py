"""How far share groups have come: told, and changed while nobody is in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from goqueue.core.group.share_events import ShareGroupFacts
from goqueue.core.lease.window import Window
from goqueue.model.errors import GoQueueError, GroupNotEmpty, OffsetOutOfRange
from goqueue.node.guard import Guard
from goqueue.node.partition import Partition
from goqueue.node.queue.ledgers import Ledgers, Place
from goqueue.node.queue.queue import Queue
from goqueue.node.queue.share_requests import ShareOffset
from goqueue.node.topic_table import TopicTable


class Groups(Protocol):
    async def describe_share(self, group_id: str) -> ShareGroupFacts: ...


class ShareOffsets:
    def __init__(
        self, queue: Queue, ledgers: Ledgers, table: TopicTable, guard: Guard, groups: Groups
    ) -> None:
        self._queue = queue
        self._ledgers = ledgers
        self._table = table
        self._guard = guard
        self._groups = groups

    async def describe(self, group_id: str, places: Sequence[Place] | None) -> list[ShareOffset]:
        """Of these partitions, or of all that the group has read."""
        self._guard.admit_read()
        await self._groups.describe_share(group_id)
        found: list[ShareOffset] = []
        for topic, index in self._queue.places(group_id) if places is None else places:
            try:
                partition = self._table.get(topic).partition(index)
                ledger = self._ledgers.known(topic, index)
            except GoQueueError as error:
                found.append(ShareOffset(topic, index, None, error=error))
                continue
            window = None if ledger is None else ledger.state.find(group_id)
            found.append(_offset(partition, window))
        return found

    async def alter(self, group_id: str, starts: Sequence[tuple[Place, int]]) -> list[GoQueueError | None]:
        """The group goes on from there in each partition; nothing that it held counts any more."""
        await self._require_empty(group_id)
        answers: list[GoQueueError | None] = []
        for (topic, index), start in starts:
            try:
                partition = self._table.get(topic).partition(index)
                end = partition.log.high_watermark
                if not 0 <= start <= end:
                    raise OffsetOutOfRange(start, earliest=partition.log.log_start, latest=end)
                await self._queue.seek(group_id, topic, index, max(start, partition.log.log_start))
            except GoQueueError as error:
                answers.append(error)
            else:
                answers.append(None)
        return answers

    async def delete(self, group_id: str, topics: Sequence[str]) -> list[GoQueueError | None]:
        """As if the group had never read them."""
        await self._require_empty(group_id)
        answers: list[GoQueueError | None] = []
        for topic in topics:
            try:
                self._table.get(topic)
                await self._queue.forget(group_id, topic)
            except GoQueueError as error:
                answers.append(error)
            else:
                answers.append(None)
        return answers

    async def _require_empty(self, group_id: str) -> None:
        self._guard.admit_change()
        facts = await self._groups.describe_share(group_id)
        if facts.members:
            raise GroupNotEmpty(
                f"share group {group_id!r} has {len(facts.members)} members; its offsets can be changed when all have "
                "left",
                group=group_id,
                member_count=len(facts.members),
            )


def _offset(partition: Partition, window: Window | None) -> ShareOffset:
    topic, index, epoch = partition.topic, partition.index, partition.leader_epoch
    if window is None:
        return ShareOffset(topic, index, None, epoch)
    # Whatever is not finished is in a lane that has not come to it, or known as such.
    first = min(window.cursors)
    ahead = max(0, partition.last_stable_offset - first)
    behind = sum(offset < first for offset in window.entries)
    return ShareOffset(topic, index, window.committed_offset, epoch, ahead + behind)
