"""One partition as the node runs it: its log, its producers, its group commit, and the readers that wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from goqueue.core.producer import Appended, Duplicate
from goqueue.log.aborted import AbortedSpans
from goqueue.log.batch import NO_PRODUCER, BatchHeader
from goqueue.log.control import encode_marker
from goqueue.log.partition_log import PartitionLog, Slice
from goqueue.model.cluster_errors import NotLeader, OffsetNotAvailable, ReplicationUnknown
from goqueue.model.errors import (
    DataCorrupt,
    DiskFull,
    PartitionOffline,
    StorageError,
    TopicNotFound,
)
from goqueue.model.record import Producer
from goqueue.node.commit import GroupCommit
from goqueue.node.log_reading import LogReading
from goqueue.node.metrics import Metrics
from goqueue.node.parking import Parked, ParkedReaders
from goqueue.node.producer_facts import ProducerFacts, facts_of
from goqueue.node.producer_state import ProducerState
from goqueue.node.settling import Settling
from goqueue.node.threads import Threads


class Leadership(Protocol):
    """What a partition asks of whoever knows its replicas, while this node leads it."""

    @property
    def epoch(self) -> int: ...

    @property
    def has_enough(self) -> bool:
        """As many replicas are in sync as `acks=all` needs."""

    @property
    def is_cut_off(self) -> bool:
        """Neither the controller nor all who are in sync can be heard: nothing is committed until that is over."""

    def began(self, partition: Partition) -> None:
        """Its log is ready for the first write of the epoch."""

    def failed(self, partition: Partition) -> None:
        """The disk did not take a write of it."""

    def damaged(self, partition: Partition) -> bool:
        """Something of it cannot be read. Whether another one has that, and is to lead."""

    def appended(self, partition: Partition) -> None:
        """It has more: tell the followers, and raise the high watermark if it need not wait for them."""

    def synced(self, partition: Partition) -> None:
        """More of it is on disk here."""

    def deleted(self, partition: Partition, start: int) -> None:
        """What is before `start` is gone for good on the disk here."""

    def readable_at(self, partition: Partition, offset: int) -> Sequence[int]:
        """The numbers of followers in sync from which clients could read on from there."""


class Stored(NamedTuple):
    """Where a batch is: it may be read, and is acknowledged once `end` is durable."""

    base_offset: int
    end: int
    is_duplicate: bool
    under: Leadership | None = None  # by whose right it is there; None where this node is alone


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
        commit.when_synced = self._note_synced
        self._producers = producers
        self._reading = LogReading(topic, index, log, threads, metrics)
        self._metrics = metrics
        self._on_write = on_write
        self._parked = ParkedReaders()
        self._leading: asyncio.Future[None] | None = None
        self.rewriting = asyncio.Lock()  # held while a thread rewrites files, which must stay till then
        self.indexing = asyncio.Lock()  # the same, for the lists of the lanes
        self.damage = damage
        self.damaged_from: int | None = None  # the first offset that was found damaged
        self.when_damaged: Callable[[Partition], None] = lambda _: None  # while it follows
        self.is_short = False  # when it was opened it lacked what had been on disk
        self.is_led = False
        self.is_deleted = False
        self.is_solo = is_solo
        self.leadership: Leadership | None = None
        self.leader: int | None = None  # the number of the node that leads it, where that is another
        self._epoch = -1  # that the controller gave
        self.epoch_start = 0  # where this node began to lead
        self._settling = Settling()  # whose batches are not on enough replicas
        self.starting = Settling()  # who has deleted what is on other replicas still
        self._hold: int | None = None  # nothing from this offset on is shown for now
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
        for waiting in (self._settling, self.starting):
            waiting.fail(self._unknown("has got another leader"))

    def cut_off(self) -> None:
        """Nothing is committed for now: whoever may ask another node is told so at once."""
        for waiting in (self._settling, self.starting):
            waiting.fail(self._unknown("is cut off from the other replicas"), only_impatient=True)

    def _unknown(self, why: str) -> ReplicationUnknown:
        return ReplicationUnknown(
            f"{self.topic}-{self.index} {why}; whether the messages are stored is not known",
            topic=self.topic,
            partition=self.index,
        )

    def _note_synced(self) -> None:
        if self.leadership is not None:
            self.leadership.synced(self)

    def raise_watermark(self, offset: int) -> None:
        """Everything before `offset` is committed: it may be read, and who waits for it is told."""
        if offset <= self.log.high_watermark:
            return
        self.log.advance_high_watermark(offset)
        self._settling.reached(offset)
        self._wake_reached()

    def note_watermark(self, offset: int) -> None:
        """A follower hears how far its leader has got."""
        self.log.note_high_watermark(offset)
        self._wake_reached()

    async def settled(
        self, end: int, *, under: Leadership | None, since: float | None = None, gives_up: bool = False
    ) -> None:
        """Until everything before `end` is on disk here and on every replica that is in sync. An error or a time-out
        means: not known to be. `under` is the leadership in which it was there last: in another one something else may
        have come in its place. Who waits for several says since when, so that the time runs once for all. Who
        `gives_up` is told where it may take for ever because this node is cut off."""
        self._check_under(under)
        await self.commit.wait(end, since=since)
        self._check_under(under)
        if self.log.high_watermark >= end or self.is_solo:
            return
        if gives_up and under is not None and under.is_cut_off:
            raise self._unknown("is cut off from the other replicas")
        await self.commit.in_time(self._settling.add(end, gives_up=gives_up), since)

    def _check_under(self, leadership: Leadership | None) -> None:
        if not self.is_solo and (leadership is None or leadership is not self.leadership):
            raise self._unknown("has got another leader")  # what is there now may be that one's

    def append(self, batch: bytes, header: BatchHeader, *, now_ms: int) -> Stored:
        """Put a validated batch into the log, once. Call `lead` first."""
        known = self.find(header)
        if known is not None:
            self._metrics.duplicate_batches.inc()
            return known
        return self._write(batch, header, now_ms)

    def append_lacking(self, batch: bytes, header: BatchHeader, *, now_ms: int) -> Stored:
        """Records that were not there when others of their batch came, which `find` knows: it is the newest of its producer."""
        self._refuse_if_deleted()
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
        return Stored(verdict.base_offset, end, is_duplicate=True, under=self.leadership)

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
        if not self.is_led and not self.is_solo:  # or leads anew since, and has not begun
            raise NotLeader(self.topic, self.index, self.leader)
        try:
            base = self.log.append(batch, header, now_ms=now_ms)
        except (StorageError, DiskFull, PartitionOffline):
            if self.leadership is not None:
                self.leadership.failed(self)
            raise
        if header.producer_id != NO_PRODUCER:
            aborted = self._producers.observe(header._replace(base_offset=base), batch)
            if aborted is not None:
                self.log.aborted.add(aborted)
        self._on_write(self)
        if self.leadership is not None:
            self.leadership.appended(self)
        else:
            self.log.advance_high_watermark(self.log.end)
        self._wake_reached()
        return Stored(base, base + header.last_offset_delta + 1, is_duplicate=False, under=self.leadership)

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
    def visible_end(self) -> int:
        """As far as any reader may go: to the high watermark, or to where the partition is held (ADR 35)."""
        watermark = self.log.high_watermark
        return watermark if self._hold is None else max(self.log.log_start, min(self._hold, watermark))

    def show_until(self, hold: int | None) -> None:
        """Nothing from that offset on, or everything that is committed."""
        if hold != self._hold:
            self._hold = hold
            self._wake_reached()

    @property
    def last_stable_offset(self) -> int:
        """As far as readers of committed records may go: to the oldest transaction that is open or whose marker is not
        committed, or to what may be read."""
        table, end = self._producers.table, self.visible_end
        table.settle(self.log.high_watermark)
        first = table.first_unstable_offset()
        return end if first is None else max(self.log.log_start, min(first, end))

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
        return [facts_of(entry) for entry in self._producers.table.entries()]

    def newest_sequence(self, producer_id: int, epoch: int) -> int | None:
        """Of what the producer has written here; None where nothing is known of it."""
        entry = self._producers.table.entry(producer_id)
        return None if entry is None or entry.epoch != epoch else entry.last_sequence

    def newest_batches(self, producer_id: int, epoch: int) -> tuple[Appended, ...]:
        """Those of the producer that are remembered, the newest last."""
        entry = self._producers.table.entry(producer_id)
        return () if entry is None or entry.epoch != epoch else entry.batches

    def producer_epoch(self, producer_id: int) -> int | None:
        """The newest in which the producer has written here; None where nothing is known of it in any."""
        entry = self._producers.table.entry(producer_id)
        return None if entry is None else entry.epoch

    def newest_timestamp(self, producer_id: int) -> int | None:
        """Of the newest batch that the producer has written here, the largest; None where none is known."""
        entry = self._producers.table.entry(producer_id)
        return entry.batches[-1].timestamp_ms if entry is not None and entry.batches else None

    def open_transactions(self) -> list[ProducerFacts]:
        """The producers with an open transaction, the oldest first."""
        return [facts_of(entry) for entry in self._producers.table.open_entries()]

    # ---------------------------------------------------------------- reading

    def check_leads(self) -> None:
        """Raise NotLeader where clients have to ask another node."""
        if self.leadership is None and not self.is_solo:
            raise NotLeader(self.topic, self.index, self.leader)

    def check_knows_end(self) -> None:
        """Raise OffsetNotAvailable while a leader that has just begun does not know what its predecessor had committed."""
        has_begun = self.is_led and self.log.high_watermark >= self.epoch_start
        if self.leadership is not None and not has_begun:
            raise OffsetNotAvailable(
                f"the leader of {self.topic}-{self.index} has just begun; try again",
                topic=self.topic,
                partition=self.index,
            )

    async def read(self, offset: int, *, end: int, bytes_max: int, is_own: bool = False) -> Slice:
        """Batches from `offset`, never past what may be read: from memory at once, else from a thread. Only replicas and
        the owner of a state (`is_own`) see what is not committed yet."""
        self._refuse_if_deleted()
        if not is_own:
            end = min(end, self.visible_end)
        try:
            return await self._reading.read(offset, end=end, bytes_max=bytes_max)
        except DataCorrupt as error:
            if not self.is_solo and self.found_damage(error):
                raise NotLeader(self.topic, self.index, self.leader) from error
            raise

    def found_damage(self, error: DataCorrupt) -> bool:
        """Whether another replica has it, and leads or is to. What is damaged here is mended where this node follows one."""
        self.damaged_from = min(error.start, error.start if self.damaged_from is None else self.damaged_from)
        if self.leadership is not None:
            return self.leadership.damaged(self)
        if self.leader is not None:
            self.when_damaged(self)
        return self.leader is not None

    async def offset_at(self, timestamp_ms: int) -> int:
        """The offset of the first record at or after an instant; the end of what may be read if there is none."""
        found = await self.seek(timestamp_ms)
        return min(found[0], self.visible_end) if found else self.visible_end

    async def seek(self, timestamp_ms: int) -> tuple[int, int] | None:
        """Offset and timestamp of the first record at or after an instant, if there is one."""
        self._refuse_if_deleted()
        return await self._reading.seek(timestamp_ms)

    async def newest(self) -> tuple[int, int] | None:
        """Offset and timestamp of the record with the largest timestamp, if there is a record."""
        self._refuse_if_deleted()
        return await self._reading.newest()

    async def wait_beyond(self, offset: int, timeout_s: float, *, committed: bool = False) -> None:
        """Until the end of what may be read (or, of committed records, the last stable offset) is past `offset`, the time is
        up, or the partition is woken for another reason."""
        if (self.last_stable_offset if committed else self.visible_end) > offset:
            return
        parked = self._parked.add(asyncio.get_running_loop().create_future(), offset, committed=committed)
        self._metrics.parked_reads.inc()
        try:
            async with asyncio.timeout(timeout_s):
                await parked.future
        except TimeoutError:
            return
        finally:
            self._metrics.parked_reads.dec()
            self._parked.remove(parked)

    def _wake_reached(self) -> None:
        self._producers.table.settle(self.log.high_watermark)  # also where nobody reads, or it would grow
        if self._parked:
            self._parked.wake_reached(self.visible_end, self.last_stable_offset)

    @property
    def reign(self) -> tuple[Leadership | None, int]:
        """By whose right it is what it is here: another whenever another one leads it, or leads it anew. Always the same where
        this node is alone."""
        return self.leadership, self._epoch

    @property
    def leader_epoch(self) -> int:
        """The one in force, or the one that the first write of this start will begin."""
        if not self.is_solo:
            return self._epoch
        latest = self.log.epochs.latest
        return latest if self.is_led or self._leading is not None else latest + 1

    def park(self, future: asyncio.Future[None], offset: int, *, committed: bool) -> Parked:
        """Wake `future` when `offset` may be read: for those who wait for several partitions at once."""
        return self._parked.add(future, offset, committed=committed)

    def unpark(self, parked: Parked) -> None:
        self._parked.remove(parked)

    def wake(self) -> None:
        """Let every parked reader look again."""
        self._parked.wake()

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
