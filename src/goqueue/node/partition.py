"""One partition as the node runs it: its log, its producers, its group commit, and the readers that wait."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import NamedTuple, Protocol

from goqueue.core.producer import Duplicate, ProducerEntry
from goqueue.log.aborted import AbortedSpans
from goqueue.log.batch import NO_PRODUCER, BatchHeader
from goqueue.log.control import encode_marker
from goqueue.log.disk import NotCached
from goqueue.log.partition_log import PartitionLog, Slice
from goqueue.model.cluster_errors import NotLeader, OffsetNotAvailable, ReplicationUnknown
from goqueue.model.errors import (
    DataCorrupt,
    PartitionOffline,
    StorageError,
    TopicNotFound,
)
from goqueue.model.record import Producer
from goqueue.node.commit import GroupCommit
from goqueue.node.metrics import Metrics
from goqueue.node.producer_state import ProducerState
from goqueue.node.threads import Threads

logger = logging.getLogger(__name__)
_DAMAGE_REPORTS_MAX = 1_000


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


class Leadership(Protocol):
    """What a partition asks of whoever knows its replicas, while this node leads it."""

    @property
    def epoch(self) -> int: ...

    @property
    def has_enough(self) -> bool:
        """As many replicas are in sync as `acks=all` needs."""

    def began(self, partition: Partition) -> None:
        """Its log is ready for the first write of the epoch."""

    def appended(self, partition: Partition) -> None:
        """It has more: tell the followers, and raise the high watermark if it need not wait for them."""


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
        is_solo: bool = True,
    ) -> None:
        """`is_solo`: nobody but this node ever has it, and it counts its epochs itself. Else `follow` or `take_over` says
        what to do."""
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
        self.damaged_from: int | None = None  # the first offset that recovery found damaged
        self.is_led = False
        self.is_deleted = False
        self.is_solo = is_solo
        self.leadership: Leadership | None = None
        self.leader: int | None = None  # the number of the node that leads it, where that is another
        self._epoch = -1  # that the controller gave
        self.epoch_start = 0  # where this node began to lead
        self._unsettled: list[
            tuple[int, asyncio.Future[None]]
        ] = []  # whose batches are not on enough replicas
        if is_solo:
            log.advance_high_watermark(log.end)  # alone, whatever is in the log is replicated everywhere

    # ---------------------------------------------------------------- leading

    async def lead(self) -> None:
        """Before every write: where this node is alone it begins a new leader epoch, once per start; where it is not, it
        must have been made the leader."""
        while not self.is_led:
            if self._leading is not None:
                await asyncio.shield(self._leading)
                continue
            self._refuse_if_deleted()
            if not self.is_solo and self.leadership is None:
                raise NotLeader(self.topic, self.index, self.leader)
            await self._begin(
                self.log.epochs.latest + 1 if self.leadership is None else self.leadership.epoch
            )

    async def _begin(self, epoch: int) -> None:
        leading = self._leading = asyncio.get_running_loop().create_future()
        leadership = self.leadership
        try:
            if self.log.epochs.latest != epoch:
                self.log.begin_epoch(epoch)
            self.epoch_start = self.log.end
            await self.commit.checkpoint()
            if leadership is not None and leadership is self.leadership:
                leadership.began(self)
            self.is_led = leadership is self.leadership
        finally:
            leading.set_result(None)
            self._leading = None

    def take_over(self, leadership: Leadership) -> None:
        """The controller has made this node the leader. `lead` does the rest."""
        self._resign()
        self.leadership, self.leader, self._epoch = leadership, None, leadership.epoch

    def follow(self, leader: int | None, epoch: int) -> None:
        """Another node leads, or none: whoever waits here has to ask there."""
        self._resign()
        self.leadership, self.leader, self._epoch = None, leader, epoch
        self.wake()

    def _resign(self) -> None:
        self.is_led = False
        unsettled, self._unsettled = self._unsettled, []
        for _, future in unsettled:
            if not future.done():
                future.set_exception(self._unknown())

    def _unknown(self) -> ReplicationUnknown:
        return ReplicationUnknown(
            f"{self.topic}-{self.index} has got another leader; whether the messages are stored is not known",
            topic=self.topic,
            partition=self.index,
        )

    def raise_watermark(self, offset: int) -> None:
        """Everything before `offset` is committed: it may be read, and who waits for it is told."""
        if offset <= self.log.high_watermark:
            return
        self.log.advance_high_watermark(offset)
        if self._unsettled:
            for end, future in self._unsettled:
                if end <= offset and not future.done():
                    future.set_result(None)
            self._unsettled = [one for one in self._unsettled if one[0] > offset and not one[1].done()]
        if self._parked:
            self._wake_reached()

    def note_watermark(self, offset: int) -> None:
        """A follower hears how far its leader has got."""
        self.log.note_high_watermark(offset)
        if self._parked:
            self._wake_reached()

    async def settled(self, end: int, *, since: float | None = None) -> None:
        """Until everything before `end` is on disk here and on every replica that is in sync. An error or a time-out
        means: not known to be. Who waits for several says since when, so that the time runs once for all."""
        leadership = self.leadership
        await self.commit.wait(end, since=since)
        if not self.is_solo and (leadership is None or leadership is not self.leadership):
            raise self._unknown()  # what is there now may be another leader's
        if self.log.high_watermark >= end or self.is_solo:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._unsettled.append((end, future))
        await self.commit.in_time(future, since)

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
        self._producers.table.decide_marker(
            producer_id, epoch, is_epoch_bumped=is_epoch_bumped, coordinator_epoch=coordinator_epoch
        )
        header, batch = encode_marker(
            producer_id,
            epoch,
            is_commit=is_commit,
            coordinator_epoch=coordinator_epoch,
            timestamp_ms=now_ms,
        )
        return self._write(batch, header, now_ms)

    def _write(self, batch: bytes, header: BatchHeader, now_ms: int) -> Stored:
        if self.leadership is None and not self.is_solo:
            raise NotLeader(self.topic, self.index, self.leader)
        base = self.log.append(batch, header, now_ms=now_ms)
        if header.producer_id != NO_PRODUCER:
            aborted = self._producers.observe(header._replace(base_offset=base), batch)
            if aborted is not None:
                self.log.aborted.add(aborted)
        self._on_write(self)
        if self.leadership is not None:
            self.leadership.appended(self)
        else:
            self.log.advance_high_watermark(self.log.end)
        if self._parked:
            self._wake_reached()
        return Stored(base, base + header.last_offset_delta + 1, is_duplicate=False)

    @property
    def owner(self) -> ProducerState:
        """What goes back with the log when it is cut."""
        return self._producers

    def replicate(self, batch: memoryview, header: BatchHeader, *, now_ms: int) -> None:
        """A follower's write: a batch as its leader has it, whose epoch the log has adopted."""
        self._refuse_if_deleted()
        self.log.replicate(batch, header, now_ms=now_ms)
        if header.producer_id != NO_PRODUCER:
            aborted = self._producers.observe(header, batch)
            if aborted is not None:
                self.log.aborted.add(aborted)
        self._on_write(self)

    def note_write(self) -> None:
        """Something was written past this object: the disk has to hear of it."""
        self._on_write(self)

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

    def check_leads(self) -> None:
        """Raise NotLeader where clients have to ask another node."""
        if self.leadership is None and not self.is_solo:
            raise NotLeader(self.topic, self.index, self.leader)

    def check_knows_end(self) -> None:
        """Raise OffsetNotAvailable while a leader that has just begun does not know what its predecessor had committed."""
        if self.leadership is not None and self.log.high_watermark < self.epoch_start:
            raise OffsetNotAvailable(
                f"the leader of {self.topic}-{self.index} has just begun; try again",
                topic=self.topic,
                partition=self.index,
            )

    async def read(self, offset: int, *, end: int, bytes_max: int, is_own: bool = False) -> Slice:
        """Batches from `offset`, never past the high watermark: from memory at once, else from a thread. Only replicas and
        the owner of a state (`is_own`) see what is not committed yet."""
        self._refuse_if_deleted()
        if not is_own:
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
        if not self.is_solo:
            return self._epoch
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
