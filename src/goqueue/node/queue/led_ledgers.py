"""What others want of ledgers, a group's coordinator say: of those that this node leads, and of all wherever they are led."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from typing import Final, Protocol

from goqueue.core.lease.events import Target
from goqueue.core.lease.window import Window
from goqueue.model.cluster_errors import NotLeader, PeerUnreachable
from goqueue.model.errors import (
    CoordinatorNotAvailable,
    GoQueueError,
    InvalidRequest,
    NotReady,
    OffsetOutOfRange,
)
from goqueue.node.companions import Companion
from goqueue.node.directory import Directory
from goqueue.node.partition import Partition
from goqueue.node.queue.ledgers import Ledgers
from goqueue.node.queue.ports import LedgerAction, LedgerAnswer, LedgerWant, RemoteLedgers
from goqueue.node.queue.queue import Queue
from goqueue.node.topic_table import TopicTable

logger = logging.getLogger(__name__)
_PAUSE_S: Final = 0.2  # before the next leader is asked
_ROUND_COUNT_MAX: Final = 25
_TELL_S: Final = 2.0
_ELSEWHERE: Final = (NotLeader, PeerUnreachable, NotReady)


class LedgersAsked(Protocol):
    async def ask(
        self, group_id: str, action: LedgerAction, wants: Sequence[LedgerWant]
    ) -> list[LedgerAnswer]:
        """An answer for each, in order."""


class MovesOpen(Protocol):
    async def are_open(self, topic: str, index: int, target: Target) -> bool:
        """Whether something of the partition is on its way to `target`, which goes."""


class LedLedgers:
    """Those that this node leads; of others it says NotLeader."""

    def __init__(self, queue: Queue, ledgers: Ledgers, table: TopicTable, moves: MovesOpen) -> None:
        self._queue = queue
        self._ledgers = ledgers
        self._table = table
        self._moves = moves

    async def ask(
        self, group_id: str, action: LedgerAction, wants: Sequence[LedgerWant]
    ) -> list[LedgerAnswer]:
        if action is LedgerAction.MOVES:
            return await asyncio.gather(*(self._moves_open(want) for want in wants))
        return [await self._answer(group_id, action, want) for want in wants]

    async def _moves_open(self, want: LedgerWant) -> LedgerAnswer:
        topic, index = want.topic, want.partition
        try:
            if want.target is None:
                raise InvalidRequest(
                    "whether something is on its way is asked of a partition that is not named"
                )
            return LedgerAnswer(topic, index, is_moving=await self._moves.are_open(topic, index, want.target))
        except GoQueueError as error:
            return LedgerAnswer(topic, index, error)

    async def _answer(self, group_id: str, action: LedgerAction, want: LedgerWant) -> LedgerAnswer:
        topic, index = want.topic, want.partition
        try:
            partition = self._table.get(topic).partition(index)
            ledger = await self._ledgers.find(topic, index)
            window = None if ledger is None else ledger.state.find(group_id)
            match action:
                case LedgerAction.CHECK:
                    if ledger is not None and window is not None:
                        await ledger.ready()
                case LedgerAction.FORGET:
                    await self._queue.forget(group_id, topic, index)
                case LedgerAction.SEEK:
                    await self._seek(group_id, partition, want.offset)
                case LedgerAction.DESCRIBE:
                    return _described(partition, window)
        except GoQueueError as error:
            return LedgerAnswer(topic, index, error)
        return LedgerAnswer(topic, index)

    async def _seek(self, group_id: str, partition: Partition, start: int) -> None:
        log = partition.log
        if not 0 <= start <= partition.visible_end:
            raise OffsetOutOfRange(start, earliest=log.log_start, latest=partition.visible_end)
        await self._queue.seek(group_id, partition.topic, partition.index, max(start, log.log_start))


class AllLedgers:
    """Those of the whole cluster. Leadership may move while they are asked: then the next leader is."""

    def __init__(
        self,
        here: LedLedgers,
        table: TopicTable,
        directory: Directory,
        companions_of: Callable[[str], Collection[str]],
        remote: RemoteLedgers,
    ) -> None:
        self._here = here
        self._table = table
        self._directory = directory
        self._companions_of = companions_of
        self._remote = remote

    def wants(self, topic: str | None = None) -> list[LedgerWant]:
        """Of every partition that may have been read as a queue."""
        return [
            LedgerWant(one.facts.name, index)
            for one in self._table.all()
            if topic in (None, one.facts.name)
            and Companion.LEDGER.kind in self._companions_of(one.facts.name)
            for index in range(one.partition_count)
        ]

    async def check_forget(self, group_id: str) -> None:
        """Raises where `forget` would, as far as that can be known."""
        _raise_first(await self.ask(group_id, LedgerAction.CHECK, self.wants()))

    async def forget(self, group_id: str) -> None:
        """The group is deleted."""
        _raise_first(await self.ask(group_id, LedgerAction.FORGET, self.wants()))

    async def member_left(self, group_id: str, member_id: str) -> None:
        """Tell the other nodes. One that does not hear of it lets go when the time of each lease is up."""
        own = self._directory.number
        others = [broker.name for broker in self._directory.brokers() if broker.number != own]
        await asyncio.gather(*(self._tell_left(node, group_id, member_id) for node in others))

    async def _tell_left(self, node: str, group_id: str, member_id: str) -> None:
        try:
            async with asyncio.timeout(_TELL_S):
                await self._remote.member_left(node, group_id, member_id)
        except (GoQueueError, TimeoutError) as error:
            logger.info("records of a member that left stay leased node=%s error=%r", node, str(error))

    async def ask(
        self, group_id: str, action: LedgerAction, wants: Sequence[LedgerWant]
    ) -> list[LedgerAnswer]:
        answers: dict[int, LedgerAnswer] = {}
        for _ in range(_ROUND_COUNT_MAX):
            left = [at for at in range(len(wants)) if at not in answers or _is_elsewhere(answers[at])]
            if not left:
                break
            if answers:
                await asyncio.sleep(_PAUSE_S)
            parts: dict[str, list[int]] = {}
            for at in left:
                parts.setdefault(self._leader_of(wants[at]), []).append(at)
            found = await asyncio.gather(
                *(
                    self._ask_one(node, group_id, action, [wants[at] for at in part])
                    for node, part in parts.items()
                )
            )
            for part, some in zip(parts.values(), found, strict=True):
                answers.update(zip(part, some, strict=True))
        return [answers[at] for at in range(len(wants))]

    async def _ask_one(
        self, node: str, group_id: str, action: LedgerAction, wants: Sequence[LedgerWant]
    ) -> list[LedgerAnswer]:
        if node == self._directory.name_of(self._directory.number):
            return await self._here.ask(group_id, action, wants)
        try:
            if not node:
                raise PeerUnreachable("nobody leads it for now")
            return await self._remote.ask(node, group_id, action, wants)
        except GoQueueError as error:
            return [LedgerAnswer(want.topic, want.partition, error) for want in wants]

    def _leader_of(self, want: LedgerWant) -> str:
        """This node's own name where the topic is gone or never had the partition: it says so."""
        directory = self._directory
        try:
            topic = self._table.get(want.topic)
            topic.check_partition(want.partition)
        except GoQueueError:
            return directory.name_of(directory.number)
        return directory.name_of(topic.states[want.partition].leader)


def _is_elsewhere(answer: LedgerAnswer) -> bool:
    return isinstance(answer.error, _ELSEWHERE)


def _raise_first(answers: Sequence[LedgerAnswer]) -> None:
    for answer in answers:
        if _is_elsewhere(answer):
            raise CoordinatorNotAvailable(
                f"the leader of {answer.topic}-{answer.partition} cannot be reached; try again",
                topic=answer.topic,
                partition=answer.partition,
            )
        if answer.error is not None:
            raise answer.error


def _described(partition: Partition, window: Window | None) -> LedgerAnswer:
    topic, index, epoch = partition.topic, partition.index, partition.leader_epoch
    if window is None:
        return LedgerAnswer(topic, index, leader_epoch=epoch)
    return LedgerAnswer(
        topic, index, None, window.committed_offset, epoch, lag_of(window, partition.last_stable_offset)
    )


def lag_of(window: Window, end: int) -> int:
    """Whatever is not finished is in a lane that has not come to it, or known as such."""
    first = min(window.cursors)
    ahead = max(0, end - first)
    return ahead + sum(offset < first for offset in window.entries)
