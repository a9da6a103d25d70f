"""What other nodes ask of the coordinator of a transaction, for those who write to them.

Answers to a node come in order, so one that waits for replicas holds up those of all other transactions. So a node is told at once where
nobody can say when they will have it, and in any case before it would ask no further: it tries again, as its client does.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final, Protocol

from goqueue.core.txn.events import TopicPartition
from goqueue.core.txn.shard import Refusals
from goqueue.model.errors import CoordinatorNotAvailable
from goqueue.node.transactions.coordinator import TxnCoordinator

_ANSWER_S_MAX: Final = 3.0  # less than another node has patience for (`verification`)


class Joining(Protocol):
    """What becomes part of a producer's open transaction."""

    async def add_partitions(
        self, transactional_id: str, producer_id: int, epoch: int, partitions: Sequence[TopicPartition]
    ) -> Refusals: ...

    async def verify(
        self, transactional_id: str, producer_id: int, epoch: int, partitions: Sequence[TopicPartition]
    ) -> Refusals: ...

    async def add_offsets(
        self, transactional_id: str, producer_id: int, epoch: int, group_id: str
    ) -> None: ...


class ForNodes:
    def __init__(self, joining: Joining, coordinator: TxnCoordinator) -> None:
        self._joining = joining
        self._coordinator = coordinator

    async def add_partitions(
        self, transactional_id: str, producer_id: int, epoch: int, partitions: Sequence[TopicPartition]
    ) -> Refusals:
        async with self._in_time(transactional_id, writes=True):
            return await self._joining.add_partitions(transactional_id, producer_id, epoch, partitions)

    async def verify(
        self, transactional_id: str, producer_id: int, epoch: int, partitions: Sequence[TopicPartition]
    ) -> Refusals:
        async with self._in_time(transactional_id, writes=False):
            return await self._joining.verify(transactional_id, producer_id, epoch, partitions)

    async def add_offsets(self, transactional_id: str, producer_id: int, epoch: int, group_id: str) -> None:
        async with self._in_time(transactional_id, writes=True):
            await self._joining.add_offsets(transactional_id, producer_id, epoch, group_id)

    @asynccontextmanager
    async def _in_time(self, transactional_id: str, *, writes: bool) -> AsyncIterator[None]:
        self._coordinator.shard(transactional_id).check_settles(writes=writes)
        try:
            async with asyncio.timeout(_ANSWER_S_MAX):
                yield
        except TimeoutError:
            raise CoordinatorNotAvailable(
                f"what is decided about transaction {transactional_id!r} is not on enough replicas within {_ANSWER_S_MAX:g} s; try again"
            ) from None
