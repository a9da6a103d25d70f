"""The catalogue over its log, `__cluster_metadata`: a command is decided, its events are written and synced,
then applied, then answered. Commands take turns, so each decides on a state that is durable."""

from __future__ import annotations

import asyncio

from goqueue.core.catalog import Catalog, Command, Event, decode_event, encode_event
from goqueue.log.batch import build_batch, decode_batch, read_header
from goqueue.log.disk import Disk
from goqueue.model.errors import InvariantViolation, StorageError
from goqueue.model.limits import Limits
from goqueue.model.names import METADATA_TOPIC
from goqueue.model.record import NewRecord
from goqueue.model.settings import UNLIMITED, TopicSettings
from goqueue.node.clock import Clock
from goqueue.node.folder import LOGS, partition_folder
from goqueue.node.opening import PartitionOpener
from goqueue.node.partition import Partition

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
        """The events that came of it, durable and applied."""
        async with self._turn:
            await self.partition.lead()  # not at the start: a node must come up on a full disk, to be read
            now_ms = self._clock.now_ms()
            events = self.catalog.decide(command, now_ms)
            batch = build_batch([NewRecord(None, encode_event(event)) for event in events], now_ms)
            stored = self.partition.append(batch, read_header(batch), now_ms=now_ms)
            await self.partition.commit.wait(stored.end)
            for event in events:
                self.catalog.apply(event)
            return events
