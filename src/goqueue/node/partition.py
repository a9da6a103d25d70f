"""One partition as the node runs it: its log, its producers, its group commit, and the readers that wait."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from goqueue.core.producer import (
    Appended,
    Completed,
    Duplicate,
    ProducerEntry,
    ProducerTable,
    last_sequence,
)
from goqueue.log.aborted import Aborted, AbortedSpans
from goqueue.log.batch import NO_PRODUCER, BatchHeader
from goqueue.log.control import encode_marker, read_marker
from goqueue.log.disk import NotCached
from goqueue.log.partition_log import PartitionLog, Slice
from goqueue.model.errors import (
    DataCorrupt,
    InvalidBatch,
    PartitionOffline,
    StorageError,
    TopicNotFound,
)
from goqueue.model.record import Producer
from goqueue.node.commit import GroupCommit
from goqueue.node.metrics import Metrics
from goqueue.node.threads import Threads

logger = logging.getLogger(__name__)
_DAMAGE_REPORTS_MAX = 1_000


class ProducerState:
    """The producer table as the log's owner: rebuilt from its batches and markers, kept in its checkpoint."""

    def __init__(self) -> None:
        self.table = ProducerTable()

    def restore(self, state: msgspec.Raw | None) -> None:
        self.table = ProducerTable()
        if state is None:
            return
        found = msgspec.json.decode(state, type=_Snapshot | list[Appended])
        if isinstance(found, _Snapshot):
            self.table = ProducerTable(found.producers)
            return
        for event in found:  # as version 1 of the checkpoint had it
            self.table.apply(event)

    def observe(self, header: BatchHeader, data: bytes | memoryview) -> Aborted | None:
        if header.producer_id == NO_PRODUCER:
            return None
        if header.is_control:
            return self._complete(header, data)
        self.table.apply(_appended(header))
        return None

    def _complete(self, header: BatchHeader, data: bytes | memoryview) -> Aborted | None:
        try:
            marker = read_marker(data, header)
        except InvalidBatch:
            # Sound bytes that make no sense: the transaction stays open, so that nobody reads what may be aborted.
            return None
        if marker is None:
            return None
        entry = self.table.entry(header.producer_id)
        start = entry.transaction_start if entry is not None else None
        self.table.apply(
            Completed(
                header.producer_id,
                header.producer_epoch,
                header.base_offset,
                marker.is_commit,
                marker.coordinator_epoch,
                header.max_timestamp,
            )
        )
        if start is None or marker.is_commit:
            return None
        first_open = self.table.first_open_offset()
        stable = header.end_offset if first_open is None else first_open
        return Aborted(header.producer_id, start, header.last_offset, stable)

    def snapshot(self) -> msgspec.Raw:
        return msgspec.Raw(msgspec.json.encode(_Snapshot(self.table.entries())))


class _Snapshot(msgspec.Struct):
    producers: list[ProducerEntry]


class Stored(NamedTuple):
    """Where a batch is: it may be read, and is acknowledged once `end` is durable."""

    base_offset: int
    end: int
    is_duplicate: bool


class ProducerFacts(NamedTuple):
    """A producer that this partition knows; -1 for what it has not done yet."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp_ms: int
    transaction_start: int
    coordinator_epoch: int


class Parked(NamedTuple):
    future: asyncio.Future[None]
    offset: int
    committed: bool


class Partition:
    def __init__(
        self,
        topic: str,
        index: int,
        log: PartitionLog,
        producers: ProducerState,
        *,
        damage: list[str],
        commit: GroupCommit,
        threads: Threads,
        metrics: Metrics,
        on_write: Callable[[Partition], None],
    ) -> None:
        self.topic = topic
        self.index = index
        self.log = log
        self.commit = commit
        self._producers = producers
        self._threads = threads
        self._metrics = metrics
        self._on_write = on_write
        self._parked: list[Parked] = []
        self._leading: asyncio.Future[None] | None = None
        self._damage_seen: set[int] = set()
        self.rewriting = (
            asyncio.Lock()
        )  # held while a thread rewrites files, which must stay until it is done
        self.indexing = asyncio.Lock()  # the same, for the lists of the lanes
        self.damage = damage
        self.is_led = False
        self.is_deleted = False
        log.advance_high_watermark(log.end)  # alone, whatever is in the log is replicated everywhere

    async def lead(self) -> None:
        """Begin a new leader epoch, once per start, before the first write."""
        while not self.is_led:
            if self._leading is not None:
                await asyncio.shield(self._leading)
                continue
            self._refuse_if_deleted()
            self._leading = asyncio.get_running_loop().create_future()
            try:
                self.log.begin_epoch(self.log.epochs.latest + 1)
                await self.commit.checkpoint()
                self.is_led = True
            finally:
                self._leading.set_result(None)
                self._leading = None

    def append(self, batch: bytes, header: BatchHeader, *, now_ms: int) -> Stored:
        """Put a validated batch into the log, once. Call `lead` first."""
        known = self.find(header)
        if known is not None:
            self._metrics.duplicate_batches.inc()
            return known
        return self._write(batch, header, now_ms)

    def find(self, header: BatchHeader) -> Stored | None:
        """Where a batch is that its producer sent before; raises where the producer may not send it now."""
        self._refuse_if_deleted()
        if header.producer_id == NO_PRODUCER:
            return None
        producer = Producer(header.producer_id, header.producer_epoch, header.base_sequence)
        # A batch of which records were taken has fewer than it has offsets, and its sequences are those of all.
        offset_count = header.last_offset_delta + 1
        verdict = self._producers.table.decide(
            producer, offset_count, is_transactional=header.is_transactional
        )
        if not isinstance(verdict, Duplicate):
            return None
        end = verdict.base_offset + offset_count
        if self.log.failure is not None and end > self.log.durable_end:
            raise PartitionOffline(
                f"{self.log.folder} takes no writes: {self.log.failure}", folder=self.log.folder
            )
        return Stored(verdict.base_offset, end, is_duplicate=True)

    def append_marker(
        self,
        producer_id: int,
        epoch: int,
        *,
        is_commit: bool,
        coordinator_epoch: int,
        now_ms: int,
        is_epoch_bumped: bool = False,
    ) -> Stored:
        """End a producer's transaction here; harmless where it has none open. Call `lead` first. With transaction
        version 2 (`is_epoch_bumped`) the epoch is one above that of the transaction."""
        self._refuse_if_deleted()
        self._producers.table.decide_marker(producer_id, epoch, is_epoch_bumped=is_epoch_bumped)
        header, batch = encode_marker(
            producer_id,
            epoch,
            is_commit=is_commit,
            coordinator_epoch=coordinator_epoch,
            timestamp_ms=now_ms,
        )
        return self._write(batch, header, now_ms)

    def _write(self, batch: bytes, header: BatchHeader, now_ms: int) -> Stored:
        base = self.log.append(batch, header, now_ms=now_ms)
        if header.producer_id != NO_PRODUCER:
            aborted = self._producers.observe(header._replace(base_offset=base), batch)
            if aborted is not None:
                self.log.aborted.add(aborted)
        self.log.advance_high_watermark(self.log.end)
        self._on_write(self)
        if self._parked:
            self._wake_reached()
        return Stored(base, base + header.last_offset_delta + 1, is_duplicate=False)

    # ---------------------------------------------------------------- transactions

    @property
    def last_stable_offset(self) -> int:
        """As far as readers of committed records may go: to the oldest open transaction, or to the high watermark."""
        first_open = self._producers.table.first_open_offset()
        watermark = self.log.high_watermark
        return watermark if first_open is None else max(self.log.log_start, min(first_open, watermark))

    def aborted(self, start: int, end: int) -> list[tuple[int, int]]:
        """(producer id, first offset) of the aborted transactions in offsets [start, end), as Kafka's clients want it."""
        entries = self.log.aborted.overlapping(start, end)
        return [(entry.producer_id, entry.first_offset) for entry in entries]

    def aborted_spans(self, start: int, end: int) -> AbortedSpans:
        """Which of the batches in offsets [start, end) are aborted."""
        return AbortedSpans(self.log.aborted.overlapping(start, end))

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        entry = self._producers.table.entry(producer_id)
        return entry is not None and entry.epoch == epoch and entry.transaction_start is not None

    def producers(self) -> list[ProducerFacts]:
        return [_facts(entry) for entry in self._producers.table.entries()]

    def newest_sequence(self, producer_id: int, epoch: int) -> int | None:
        """Of what the producer has written here; None where nothing is known of it."""
        entry = self._producers.table.entry(producer_id)
        return None if entry is None or entry.epoch != epoch else entry.last_sequence

    def open_transactions(self) -> list[ProducerFacts]:
        """The producers with an open transaction, the oldest first."""
        return [_facts(entry) for entry in self._producers.table.open_entries()]

    # ---------------------------------------------------------------- reading

    async def read(self, offset: int, *, end: int, bytes_max: int) -> Slice:
        """Batches from `offset`, never past the high watermark: from memory at once, else from a thread."""
        self._refuse_if_deleted()
        end = min(end, self.log.high_watermark)
        try:
            try:
                return self.log.read(offset, end=end, bytes_max=bytes_max, cached_only=True)
            except (NotCached, FileNotFoundError):
                return await self._threads.run(lambda: self._read_blocking(offset, end, bytes_max))
        except DataCorrupt as error:
            self._report_damage(error)
            raise
        except OSError as error:
            raise StorageError(f"reading {self.log.folder} failed: {error}") from error

    def _read_blocking(self, offset: int, end: int, bytes_max: int) -> Slice:
        try:
            return self.log.read(offset, end=end, bytes_max=bytes_max)
        except FileNotFoundError:  # retention took the segment away; a second look says so
            return self.log.read(offset, end=end, bytes_max=bytes_max)

    async def offset_at(self, timestamp_ms: int) -> int:
        """The offset of the first record at or after an instant; the high watermark if there is none."""
        found = await self.seek(timestamp_ms)
        return min(found[0], self.log.high_watermark) if found else self.log.high_watermark

    async def seek(self, timestamp_ms: int) -> tuple[int, int] | None:
        """Offset and timestamp of the first record at or after an instant, if there is one."""
        self._refuse_if_deleted()
        try:
            return await self._threads.run(lambda: self._seek_blocking(timestamp_ms))
        except DataCorrupt as error:
            self._report_damage(error)
            raise
        except OSError as error:
            raise StorageError(f"reading {self.log.folder} failed: {error}") from error

    async def newest(self) -> tuple[int, int] | None:
        """Offset and timestamp of the record with the largest timestamp, if there is a record."""
        segments = self.log.segments
        largest = await self._threads.run(lambda: max((one.max_timestamp for one in segments), default=-1))
        return await self.seek(largest) if largest >= 0 else None

    def _seek_blocking(self, timestamp_ms: int) -> tuple[int, int] | None:
        try:
            return self.log.first_at_or_after(timestamp_ms)
        except FileNotFoundError:  # as above
            return self.log.first_at_or_after(timestamp_ms)

    async def wait_beyond(self, offset: int, timeout_s: float, *, committed: bool = False) -> None:
        """Until the high watermark (or, of committed records, the last stable offset) is past `offset`, the time is up,
        or the partition is woken for another reason."""
        if (self.last_stable_offset if committed else self.log.high_watermark) > offset:
            return
        parked = Parked(asyncio.get_running_loop().create_future(), offset, committed)
        self._parked.append(parked)
        self._metrics.parked_reads.inc()
        try:
            async with asyncio.timeout(timeout_s):
                await parked.future
        except TimeoutError:
            return
        finally:
            self._metrics.parked_reads.dec()
            if parked in self._parked:
                self._parked.remove(parked)

    def _wake_reached(self) -> None:
        """Let those go on whose offset may be read now; an open transaction keeps the others waiting."""
        watermark, stable = self.log.high_watermark, self.last_stable_offset
        reached = [one for one in self._parked if (stable if one.committed else watermark) > one.offset]
        if reached:
            self._parked = [
                one for one in self._parked if (stable if one.committed else watermark) <= one.offset
            ]
            _release(reached)

    @property
    def leader_epoch(self) -> int:
        """The one in force, or the one that the first write of this start will begin."""
        latest = self.log.epochs.latest
        return latest if self.is_led or self._leading is not None else latest + 1

    def park(self, future: asyncio.Future[None], offset: int, *, committed: bool) -> Parked:
        """Wake `future` when `offset` may be read: for those who wait for several partitions at once."""
        parked = Parked(future, offset, committed)
        self._parked.append(parked)
        return parked

    def unpark(self, parked: Parked) -> None:
        if parked in self._parked:
            self._parked.remove(parked)

    def wake(self) -> None:
        """Let every parked reader look again."""
        parked, self._parked = self._parked, []
        _release(parked)

    def forget_idle_producers(self, now_ms: int) -> None:
        self._producers.table.expire(now_ms)

    def retire(self) -> None:
        """The topic is deleted: nobody may write or read any more."""
        self.is_deleted = True
        self.wake()

    async def close(self) -> None:
        """Wait until no thread works on the files, then let go of them: the disk gets no space back from a deleted file
        that is still open. Call `retire` first."""
        async with self.rewriting, self.indexing:
            await self.commit.idle()
        for segment in self.log.segments:
            segment.release()

    def _refuse_if_deleted(self) -> None:
        if self.is_deleted:
            raise TopicNotFound(self.topic)

    def _report_damage(self, error: DataCorrupt) -> None:
        """Once per range: a reader that retries must not fill the operator's log."""
        if error.start not in self._damage_seen and len(self._damage_seen) < _DAMAGE_REPORTS_MAX:
            self._damage_seen.add(error.start)
            self._metrics.damage.inc()
            logger.error(
                "damaged records found topic=%s partition=%d detail=%r",
                self.topic,
                self.index,
                error.sentence,
            )


def _release(parked: list[Parked]) -> None:
    for one in parked:
        if not one.future.done():
            one.future.set_result(None)


def _facts(entry: ProducerEntry) -> ProducerFacts:
    return ProducerFacts(
        entry.producer_id,
        entry.epoch,
        entry.last_sequence,
        entry.timestamp_ms,
        -1 if entry.transaction_start is None else entry.transaction_start,
        entry.coordinator_epoch,
    )


def _appended(header: BatchHeader) -> Appended:
    return Appended(
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        last_sequence(header.base_sequence, header.last_offset_delta + 1),
        header.base_offset,
        header.max_timestamp,
        header.is_transactional,
    )
