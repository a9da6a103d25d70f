"""One partition as the node runs it: its log, its producers, its group commit, and the readers that wait."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from goqueue.core.producer import Appended, Duplicate, ProducerTable, last_sequence
from goqueue.log.batch import NO_PRODUCER, BatchHeader
from goqueue.log.disk import NotCached
from goqueue.log.partition_log import PartitionLog, Slice
from goqueue.model.errors import DataCorrupt, PartitionOffline, StorageError, TopicNotFound
from goqueue.model.record import Producer
from goqueue.node.commit import GroupCommit
from goqueue.node.metrics import Metrics
from goqueue.node.threads import Threads

logger = logging.getLogger(__name__)
_DAMAGE_REPORTS_MAX = 1_000


class ProducerState:
    """The producer table as the log's owner: rebuilt from its batches, kept in its checkpoint."""

    def __init__(self) -> None:
        self.table = ProducerTable()

    def restore(self, state: msgspec.Raw | None) -> None:
        self.table = ProducerTable()
        for event in msgspec.json.decode(state, type=list[Appended]) if state is not None else []:
            self.table.apply(event)

    def observe(self, header: BatchHeader) -> None:
        if header.producer_id != NO_PRODUCER and not header.is_control:
            self.table.apply(_appended(header))

    def snapshot(self) -> msgspec.Raw:
        return msgspec.Raw(msgspec.json.encode(self.table.events()))


class Stored(NamedTuple):
    """Where a batch is: it may be read, and is acknowledged once `end` is durable."""

    base_offset: int
    end: int
    is_duplicate: bool


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
        self._parked: list[asyncio.Future[None]] = []
        self._leading: asyncio.Future[None] | None = None
        self._damage_seen: set[int] = set()
        self.rewriting = (
            asyncio.Lock()
        )  # held while a thread rewrites files, which must stay until it is done
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
        self._refuse_if_deleted()
        if header.producer_id != NO_PRODUCER:
            producer = Producer(header.producer_id, header.producer_epoch, header.base_sequence)
            verdict = self._producers.table.decide(producer, header.record_count)
            if isinstance(verdict, Duplicate):
                end = verdict.base_offset + header.record_count
                if self.log.failure is not None and end > self.log.durable_end:
                    raise PartitionOffline(
                        f"{self.log.folder} takes no writes: {self.log.failure}", folder=self.log.folder
                    )
                self._metrics.duplicate_batches.inc()
                return Stored(verdict.base_offset, end, is_duplicate=True)
        base = self.log.append(batch, header, now_ms=now_ms)
        if header.producer_id != NO_PRODUCER:
            self._producers.observe(header._replace(base_offset=base))
        self.log.advance_high_watermark(self.log.end)
        self._on_write(self)
        if self._parked:
            self.wake()
        return Stored(base, base + header.last_offset_delta + 1, is_duplicate=False)

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
        self._refuse_if_deleted()
        try:
            found = await self._threads.run(lambda: self._seek_blocking(timestamp_ms))
        except DataCorrupt as error:
            self._report_damage(error)
            raise
        except OSError as error:
            raise StorageError(f"reading {self.log.folder} failed: {error}") from error
        return min(found[0], self.log.high_watermark) if found else self.log.high_watermark

    def _seek_blocking(self, timestamp_ms: int) -> tuple[int, int] | None:
        try:
            return self.log.first_at_or_after(timestamp_ms)
        except FileNotFoundError:  # as above
            return self.log.first_at_or_after(timestamp_ms)

    async def wait_beyond(self, offset: int, timeout_s: float) -> None:
        """Until the high watermark is past `offset`, the time is up, or the partition is woken for another reason."""
        if self.log.high_watermark > offset:
            return
        future = asyncio.get_running_loop().create_future()
        self._parked.append(future)
        self._metrics.parked_reads.inc()
        try:
            async with asyncio.timeout(timeout_s):
                await future
        except TimeoutError:
            return
        finally:
            self._metrics.parked_reads.dec()
            if future in self._parked:
                self._parked.remove(future)

    def wake(self) -> None:
        """Let every parked reader look again."""
        parked, self._parked = self._parked, []
        for future in parked:
            if not future.done():
                future.set_result(None)

    def forget_idle_producers(self, now_ms: int) -> None:
        self._producers.table.expire(now_ms)

    def retire(self) -> None:
        """The topic is deleted: nobody may write or read any more."""
        self.is_deleted = True
        self.wake()

    async def close(self) -> None:
        """Wait until no thread works on the files, then let go of them: the disk gets no space back from a deleted file
        that is still open. Call `retire` first."""
        async with self.rewriting:
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


def _appended(header: BatchHeader) -> Appended:
    return Appended(
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        last_sequence(header.base_sequence, header.last_offset_delta + 1),
        header.base_offset,
        header.max_timestamp,
    )
