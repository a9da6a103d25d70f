"""How far share groups have come: told, and changed while nobody is in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from goqueue.core.group.share_events import ShareGroupFacts
from goqueue.model.errors import GoQueueError, GroupNotEmpty
from goqueue.node.guard import Guard
from goqueue.node.queue.led_ledgers import AllLedgers, LedgersAsked
from goqueue.node.queue.ledgers import Place
from goqueue.node.queue.ports import LedgerAction, LedgerAnswer, LedgerWant
from goqueue.node.queue.queue import Queue
from goqueue.node.queue.share_requests import ShareOffset
from goqueue.node.topic_table import TopicTable


class Groups(Protocol):
    async def describe_share(self, group_id: str) -> ShareGroupFacts: ...


class ShareOffsets:
    def __init__(
        self, queue: Queue, ledgers: LedgersAsked, table: TopicTable, guard: Guard, groups: Groups
    ) -> None:
        """`ledgers` are those of this node, or of the whole cluster."""
        self._queue = queue
        self._ledgers = ledgers
        self._table = table
        self._guard = guard
        self._groups = groups

    async def describe(self, group_id: str, places: Sequence[Place] | None) -> list[ShareOffset]:
        """Of these partitions, or of all that the group has read."""
        self._guard.admit_read()
        await self._groups.describe_share(group_id)
        wants = self._read_wants(group_id) if places is None else [LedgerWant(*place) for place in places]
        answers = await self._ledgers.ask(group_id, LedgerAction.DESCRIBE, wants)
        return [
            _offset(answer)
            for answer in answers
            if places is not None or answer.start is not None or answer.error is not None
        ]

    def _read_wants(self, group_id: str) -> list[LedgerWant]:
        if isinstance(self._ledgers, AllLedgers):
            return self._ledgers.wants()
        return [LedgerWant(*place) for place in self._queue.places(group_id)]

    async def alter(self, group_id: str, starts: Sequence[tuple[Place, int]]) -> list[GoQueueError | None]:
        """The group goes on from there in each partition; nothing that it held counts any more."""
        await self._require_empty(group_id)
        wants = [LedgerWant(*place, start) for place, start in starts]
        answers = await self._ledgers.ask(group_id, LedgerAction.SEEK, wants)
        return [answer.error for answer in answers]

    async def delete(self, group_id: str, topics: Sequence[str]) -> list[GoQueueError | None]:
        """As if the group had never read them."""
        await self._require_empty(group_id)
        return [await self._delete(group_id, topic) for topic in topics]

    async def _delete(self, group_id: str, topic: str) -> GoQueueError | None:
        try:
            count = self._table.get(topic).partition_count
        except GoQueueError as error:
            return error
        wants = [LedgerWant(topic, index) for index in range(count)]
        answers = await self._ledgers.ask(group_id, LedgerAction.FORGET, wants)
        return next((answer.error for answer in answers if answer.error is not None), None)

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


def _offset(answer: LedgerAnswer) -> ShareOffset:
    if answer.error is not None:
        return ShareOffset(answer.topic, answer.partition, None, error=answer.error)
    return ShareOffset(answer.topic, answer.partition, answer.start, answer.leader_epoch, answer.lag)
