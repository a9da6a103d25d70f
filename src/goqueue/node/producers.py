"""Producer ids: each is reserved in the metadata log before it is handed out, so none is given twice.

A node alone reserves them one by one. A node of a cluster has to ask the controller, so it reserves many at a time and hands
out its own; those that are left when it stops are lost.
"""

from __future__ import annotations

from typing import Final

from goqueue.core.catalog import (
    ProducerIdReserved,
    ProducerIdsReserved,
    ReserveProducerId,
    ReserveProducerIds,
)
from goqueue.model.errors import InvariantViolation
from goqueue.node.changes import Changes
from goqueue.node.guard import Guard
from goqueue.node.metadata import Metadata

BLOCK_COUNT: Final = 1_000  # Kafka's


class Producers:
    def __init__(self, metadata: Metadata, guard: Guard, changes: Changes, *, is_solo: bool = True) -> None:
        self._metadata = metadata
        self._guard = guard
        self._changes = changes
        self._is_solo = is_solo
        self._next = self._end = 0  # of what is left of the block

    async def init(self) -> tuple[int, int]:
        """A new producer id and its first epoch."""
        self._guard.admit_change()
        if self._is_solo:
            return await self._changes.run("producer ids", self._reserve), 0
        while self._next == self._end:
            await self._changes.run("producer ids", self._reserve_block)
        self._next += 1
        return self._next - 1, 0

    async def _reserve(self) -> int:
        events = await self._metadata.execute(ReserveProducerId())
        match events:
            case [ProducerIdReserved(id=id)]:
                return id
            case _:
                raise InvariantViolation(f"a producer id was asked for and {events} came")

    async def _reserve_block(self) -> None:
        """Nothing, if whoever had its turn before has just done so."""
        if self._next < self._end:
            return
        events = await self._metadata.execute(ReserveProducerIds(BLOCK_COUNT))
        match events:
            case [ProducerIdsReserved() as block]:
                self._next, self._end = block.start, block.start + block.count
            case _:
                raise InvariantViolation(f"producer ids were asked for and {events} came")
