"""The catalogue over its log, `__cluster_metadata`: a command is decided, its events are written and synced,
then applied, then answered. Commands take turns, so each decides on a state that is durable."""

from __future__ import annotations

import asyncio
import logging

from goqueue.core.catalog import Catalog, Command, Event, decode_event, encode_event
from goqueue.log.batch import decode_batch, encode_batch
from goqueue.log.disk import Disk
from goqueue.model.errors import InvariantViolation, StorageError, TimedOut
from goqueue.model.limits import Limits
from goqueue.model.names import METADATA_TOPIC
from goqueue.model.record import NewRecord
from goqueue.model.settings import UNLIMITED, TopicSettings
from goqueue.node.clock import Clock
from goqueue.node.folder import LOGS, partition_folder
from goqueue.node.opening import PartitionOpener
from goqueue.node.partition import Partition

logger = logging.getLogger(__name__)
_SETTINGS = TopicSettings(retention_ms=UNLIMITED)
_FETCH_BYTES = 1024 * 1024


class Metadata:
    def __init__(self, limits: Limits, clock: Clock) -> None:
        self.catalog = Catalog(limits)
        self._clock = clock
        self._turn = asyncio.Lock()
        self._partition: Partition | None = None

    @property
    def partition(self) -> Partition:
        if self._partition is None:
            raise InvariantViolation("the metadata log is used before it was opened")
        return self._partition

    @property
    def is_open(self) -> bool:
        return self._partition is not None

    async def start(self, disk: Disk, opener: PartitionOpener) -> None:
        disk.make_dir(partition_folder(METADATA_TOPIC, 0))
        disk.sync_dir(f"{LOGS}/{METADATA_TOPIC}")
        disk.sync_dir(LOGS)
        disk.sync_dir("")
        (self._partition,) = await opener.open(METADATA_TOPIC, 1, _SETTINGS)
        await self._replay()

    async def _replay(self) -> None:
        log = self.partition.log
        offset = log.log_start
        while offset < log.end:
            part = await self.partition.read(offset, end=log.end, bytes_max=_FETCH_BYTES)
            for batch in part.batches:
                for record in decode_batch(batch.data, batch.header):
                    if record.value is None:
                        raise StorageError(f"the metadata log has no event at offset {record.offset}")
                    self.catalog.apply(decode_event(record.value))
            offset = part.next_offset

    async def execute(self, command: Command) -> list[Event]:
        """The events that came of it, durable and applied. Call it from `Changes`: once its events are in the log it must
        not be cancelled, or the catalogue would no longer be what a restart makes of the log."""
        async with self._turn:
            now_ms = self._clock.now_ms()
            events = self.catalog.decide(command, now_ms)
            await self.partition.lead()  # not at the start: a node must come up on a full disk, to be read
            header, batch = encode_batch([NewRecord(None, encode_event(event)) for event in events], now_ms)
            stored = self.partition.append(batch, header, now_ms=now_ms)
            await self._until_settled(stored.end)
            for event in events:
                self.catalog.apply(event)
            return events

    async def _until_settled(self, end: int) -> None:
        """However long it takes: nothing may be decided before it is known whether the last events are on disk."""
        while True:
            try:
                return await self.partition.commit.wait(end)
            except TimedOut as error:
                logger.warning("the metadata log is slow error=%r", error.sentence)
