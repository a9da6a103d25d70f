"""Producer ids: each is reserved in the metadata log before it is handed out, so none is given twice."""

from __future__ import annotations

from goqueue.core.catalog import ProducerIdReserved, ReserveProducerId
from goqueue.model.errors import InvariantViolation
from goqueue.node.changes import Changes
from goqueue.node.guard import Guard
from goqueue.node.metadata import Metadata


class Producers:
    def __init__(self, metadata: Metadata, guard: Guard, changes: Changes) -> None:
        self._metadata = metadata
        self._guard = guard
        self._changes = changes

    async def init(self) -> tuple[int, int]:
        """A new producer id and its first epoch."""
        self._guard.admit_change()
        events = await self._changes.run("producer ids", lambda: self._metadata.execute(ReserveProducerId()))
        match events:
            case [ProducerIdReserved(id=id)]:
                return id, 0
            case _:
                raise InvariantViolation(f"a producer id was asked for and {events} came")
