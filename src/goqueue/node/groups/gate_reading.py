"""What the leaders of partitions know about gates: whether there is anything left to read before one, and where a partition
begins."""

from __future__ import annotations

import asyncio
import logging
from typing import Final, Protocol

from goqueue.core.cluster.scaling import Gate
from goqueue.core.group.gates import GateNotes
from goqueue.model.errors import GoQueueError, OffsetOutOfRange
from goqueue.node.positions import EARLIEST
from goqueue.node.requests import Isolation, ReadQuery
from goqueue.node.spread.reading import Reading

logger = logging.getLogger(__name__)
_ANSWER_S_MAX: Final = 1.0
_SILENT_S: Final = 1.0  # before one is asked again that did not answer
_AGAIN_S: Final = 5.0  # before a leader is asked again about what it has shown to be there
_ROUND_COUNT_MAX: Final = 16  # parts of a log that are looked through at once for a record that can be read
_BEGINNING_S_MAX: Final = 2.0


class Finding(Protocol):
    async def find(self, place: tuple[str, int], instant: int) -> int:
        """The offset of one of the places that `goqueue.node.positions` names."""


class GateReading:
    def __init__(self, reading: Reading, finding: Finding, notes: GateNotes) -> None:
        self._reading = reading
        self._finding = finding
        self._notes = notes
        self._readable: dict[
            tuple[str, Gate, int], float
        ] = {}  # where something is, and until when that is believed
        self._silent: dict[
            tuple[str, int], float
        ] = {}  # partitions whose leaders do not answer, and until when

    async def look(self, topic: str, gate: Gate, start: int) -> bool | None:
        """Whether something is left from the offset on up to the gate; noted if not. None: the leader cannot say."""
        if start >= gate.until or self._notes.is_read_out(topic, gate, start):
            return False
        now = asyncio.get_running_loop().time()
        self._readable = {key: until for key, until in self._readable.items() if until > now}
        if (topic, gate, start) in self._readable:
            return True
        if self._silent.get((topic, gate.behind), now) > now:
            return None
        try:
            async with asyncio.timeout(_ANSWER_S_MAX):
                is_left = await self._is_left(topic, gate, start)
        except (GoQueueError, TimeoutError) as error:
            self._silent[topic, gate.behind] = now + _ANSWER_S_MAX + _SILENT_S
            logger.info(
                "what is left before a gate is not known topic=%s partition=%d error=%r",
                *(topic, gate.behind, str(error)),
            )
            return None
        if is_left:
            self._readable[topic, gate, start] = now + _AGAIN_S
        elif is_left is not None:
            self._notes.note_read_out(topic, gate, start)
        return is_left

    async def _is_left(self, topic: str, gate: Gate, start: int) -> bool | None:
        """None: that is not decided, as long as a transaction is open."""
        offset: int | None = start
        for _ in range(_ROUND_COUNT_MAX):
            query = ReadQuery(
                offset=offset, to_offset=gate.until, limit=1, isolation=Isolation.READ_COMMITTED
            )
            try:
                found = await self._reading.read(topic, gate.behind, query)
            except OffsetOutOfRange:
                if offset is None:
                    raise
                offset = None  # retention was there: from the first record that is left
                continue
            if found.records:
                return True
            if found.next_offset >= gate.until:
                return False
            if found.next_offset == offset:
                return None
            offset = found.next_offset
        return None

    async def beginning(self, topic: str, partition: int) -> int:
        """Of the partition; 0, which is before it, where its leader does not say."""
        try:
            async with asyncio.timeout(_BEGINNING_S_MAX):
                return await self._finding.find((topic, partition), EARLIEST)
        except (GoQueueError, TimeoutError) as error:
            logger.info(
                "where a partition begins is not known topic=%s partition=%d error=%r",
                *(topic, partition, str(error)),
            )
            return 0
