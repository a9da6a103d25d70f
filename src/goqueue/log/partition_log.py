"""The log of one partition: segments in a folder, written at the end, read anywhere.

One owner appends (the event loop); any thread may read. The list of segments is a tuple that is replaced,
never changed, so a reader works on the state it started with. What must wait for the disk is split in three:
`begin_…` captures on the owner's side what is to be made durable, the job's `run` blocks in a thread, and
`finish_…` takes the result back. Everything before `durable_end` survives a power cut.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import msgspec

from goqueue.log.aborted import Aborted, AbortedIndex, save_aborted
from goqueue.log.batch import PREFIX, PREFIX_BYTES, BatchHeader
from goqueue.log.checkpoint import Checkpoint, save_checkpoint
from goqueue.log.disk import Disk, File
from goqueue.log.epochs import NO_EPOCH, LeaderEpochs
from goqueue.log.index import save_index
from goqueue.log.scan import Found
from goqueue.log.segment import Segment, remove_segment
from goqueue.model.errors import (
    DiskFull,
    InvariantViolation,
    OffsetOutOfRange,
    PartitionOffline,
    StorageError,
    invariant,
)
from goqueue.model.settings import TopicSettings

RELATIVE_OFFSET_MAX = 2**31 - 1
SYNC_FAILED = "sync-failed"
_INDEX_COUNT_MAX = 4  # of sealed segments, in memory per log
NO_SPACE = {errno.ENOSPC, errno.EDQUOT}


class Owner(Protocol):
    """The state that is derived from a log's batches and kept in its checkpoint (producers and their transactions)."""

    def restore(self, state: msgspec.Raw | None) -> None:
        """Begin from a checkpoint's state, or from nothing."""

    def observe(self, header: BatchHeader, data: bytes | memoryview) -> Aborted | None:
        """A batch that recovery found after that state was taken; the transaction that it aborts, if it does."""

    def snapshot(self) -> msgspec.Raw: ...


class Slice(NamedTuple):
    """Whole batches; the first may begin before the offset that was asked for."""

    batches: list[Found]
    next_offset: int


@dataclass(slots=True)
class LogState:
    """What recovery hands over."""

    segments: tuple[Segment, ...]
    log_start: int
    high_watermark: int
    clean_end: int
    epochs: LeaderEpochs
    aborted: AbortedIndex
    durable_end: int
    unsynced: list[Segment] = field(default_factory=list)  # with bytes that may be in the page cache only
    unsaved: list[Segment] = field(default_factory=list)  # sealed, with an index that is not on disk


@dataclass(frozen=True, slots=True)
class SyncJob:
    """fsync of everything appended so far."""

    disk: Disk
    end: int
    files: list[File]
    folder: str | None  # set if file names changed too

    def run(self) -> None:
        for file in self.files:
            file.sync()
        if self.folder is not None:
            self.disk.sync_dir(self.folder)


@dataclass(frozen=True, slots=True)
class CheckpointJob:
    """First `sync.run`, then `save`. A failed sync leaves the state of the disk unknown; a failed save only leaves
    the checkpoint before it in force."""

    sync: SyncJob
    folder: str
    indexes: list[tuple[str, Callable[[], tuple[bytes, bytes]]]]
    aborted: AbortedIndex | None  # a copy, if its file has to be written
    aborted_change_count: int
    checkpoint: Checkpoint
    removed: list[str]
    sealed: list[Segment]  # whose index will be on disk for good

    def save(self) -> None:
        """Indexes, then the checkpoint that relies on them, then the removals that rely on it."""
        disk = self.sync.disk
        for prefix, encode in self.indexes:
            save_index(disk, prefix, encode())
        if self.aborted is not None:
            save_aborted(disk, self.folder, self.aborted)
        save_checkpoint(disk, self.folder, self.checkpoint)
        for prefix in self.removed:
            remove_segment(disk, prefix)

    def run(self) -> None:
        self.sync.run()
        self.save()


class PartitionLog:
    """Use `goqueue.log.recovery.open_log` to get one."""

    def __init__(
        self, disk: Disk, folder: str, settings: TopicSettings, state: LogState, owner: Owner
    ) -> None:
        self._disk = disk
        self._owner = owner
        self.folder = folder
        self.settings = settings
        self.failure: str | None = None
        self.is_out_of_space = False  # as of the last write
        self.adopt(state)

    def adopt(self, state: LogState) -> None:
        """Begin from a recovered state. After kill -9 what is in the files need not be on the disk."""
        self._segments = state.segments
        self._unsaved = state.unsaved
        self._unsynced = state.unsynced
        self._names_changed = bool(state.unsynced)
        self._removed: list[str] = []
        self._index_users: deque[Segment] = deque()
        self.epochs = state.epochs
        self.aborted = state.aborted
        self._durable_epoch: int | None = None  # none since the log was opened
        self._led_epoch: int | None = None  # the one in force, if it was begun here
        self.log_start = self.durable_start = state.log_start
        self.clean_end = state.clean_end  # compaction has been up to here
        self.durable_end = state.durable_end
        self.high_watermark = state.high_watermark
        if self._segments:
            self._segments[-1].hold_open()

    # ---------------------------------------------------------------- facts

    @property
    def end(self) -> int:
        """The offset that the next record gets."""
        return self._segments[-1].end_offset if self._segments else self.log_start

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self._segments)

    @property
    def segments(self) -> tuple[Segment, ...]:
        return self._segments

    @property
    def has_unsaved_segments(self) -> bool:
        """Whether a segment was sealed since the last checkpoint."""
        return bool(self._unsaved)

    @property
    def is_durable(self) -> bool:
        return self.durable_end == self.end and not self._names_changed

    @property
    def may_be_compacted(self) -> bool:
        """Here or on another replica."""
        return self.settings.cleanup_policy.compacts or self.clean_end > self.log_start

    @property
    def durable_epoch(self) -> int | None:
        """The epoch whose batches may be written: with the history up to it, it is on disk. None since the log was opened
        or cut, until a checkpoint says so again."""
        return self._durable_epoch

    @property
    def last_epoch(self) -> int:
        """The epoch of the last batch; NO_EPOCH in an empty log. With the end it is what a follower's leader compares."""
        epoch = self.epochs.at(self.end - 1) if self.end > self.log_start else None
        return NO_EPOCH if epoch is None else epoch

    def advance_high_watermark(self, offset: int) -> None:
        if offset > self.end:
            raise InvariantViolation(f"high watermark {offset} beyond the end {self.end} of {self.folder}")
        self.high_watermark = max(self.high_watermark, offset)

    def note_high_watermark(self, offset: int) -> None:
        """What the leader says, as far as this log goes."""
        self.high_watermark = max(self.high_watermark, min(offset, self.end))

    # ---------------------------------------------------------------- writing

    def begin_epoch(self, epoch: int) -> None:
        """A new leader takes over. Its first append may follow only after a checkpoint: the history of epochs
        must be on disk before a batch of the epoch can be."""
        self.epochs.begin(epoch, self.end)
        self._led_epoch = epoch

    def adopt_epoch(self, epoch: int, start: int) -> None:
        """The batches from `start`, the end, on were written by another leader in `epoch`. As with one that begins here, the
        first may be written only after a checkpoint. Nothing changes if the epoch is in force already."""
        invariant(start == self.end, f"epoch {epoch} from {start} on where {self.folder} ends at {self.end}")
        self.epochs.adopt(epoch, start)
        self._led_epoch = None

    def append(self, batch: bytes, header: BatchHeader, *, now_ms: int) -> int:
        """Write a validated batch at the end and return the base offset it got. Durable only after a sync."""
        base, epoch = self.end, self.epochs.latest
        if epoch != self._led_epoch or epoch != self._durable_epoch:
            self._refuse_epoch(epoch)
        prefix = PREFIX.pack(base, header.length, epoch)
        self._write((prefix, memoryview(batch)[PREFIX_BYTES:]), header, len(batch), now_ms)
        return base

    def replicate(self, batch: bytes | memoryview, header: BatchHeader, *, now_ms: int) -> None:
        """Write a leader's batch at the end as it is, offsets, epoch and all. Its checksum is the caller's to check, and so
        is where it begins: a leader that has compacted may answer with a batch from before the end (see `cut_back`)."""
        epoch = header.leader_epoch
        if self._led_epoch is not None or epoch != self.epochs.current or epoch != self._durable_epoch:
            self._refuse_epoch(epoch)
        invariant(
            header.base_offset == self.end and header.size == len(batch),
            f"batch of {len(batch)} bytes at {header.base_offset} where {self.folder} ends at {self.end}",
        )
        self._write((batch,), header, len(batch), now_ms)

    def _write(
        self, chunks: Sequence[bytes | memoryview], header: BatchHeader, size: int, now_ms: int
    ) -> None:
        if self.failure is not None:
            raise PartitionOffline(f"{self.folder} takes no writes: {self.failure}", folder=self.folder)
        try:
            segment = self._segment_for(header, now_ms)
            segment.append(
                chunks,
                end_offset=segment.end_offset + header.last_offset_delta + 1,
                max_timestamp=header.max_timestamp,
                size=size,
            )
        except OSError as error:
            raise self._write_failed(error) from error
        self.is_out_of_space = False
        if not self._unsynced or self._unsynced[-1] is not segment:
            self._unsynced.append(segment)

    def _refuse_epoch(self, epoch: int) -> None:
        if self.failure is not None:
            raise PartitionOffline(f"{self.folder} takes no writes: {self.failure}", folder=self.folder)
        raise InvariantViolation(
            f"write to {self.folder} in epoch {epoch}: in force is {self.epochs.current}, begun here {self._led_epoch}, "
            f"on disk {self._durable_epoch}"
        )

    def roll(self, now_ms: int) -> None:
        """Begin another segment, then seal the one before: if the first fails nothing has changed. An empty one
        goes on being the active one: two segments cannot begin at the same offset."""
        if self._segments and not self._segments[-1].size:
            return
        segment = self._new_segment(self.end)
        segment.first_append_ms = now_ms
        if self._segments:
            sealed = self._segments[-1]
            sealed.index().seal()
            self._unsaved.append(sealed)
            if sealed not in self._unsynced:
                self._unsynced.append(sealed)
        self._segments = (*self._segments, segment)

    def _segment_for(self, header: BatchHeader, now_ms: int) -> Segment:
        active = self._segments[-1] if self._segments else None
        if active is None or (active.size and self._is_full(active, header, now_ms)):
            self.roll(now_ms)
            active = self._segments[-1]
        if active.first_append_ms is None:
            active.first_append_ms = now_ms
        return active

    def _is_full(self, active: Segment, header: BatchHeader, now_ms: int) -> bool:
        return (
            active.size + header.size > self.settings.segment_bytes
            or (
                active.first_append_ms is not None
                and now_ms - active.first_append_ms >= self.settings.segment_ms
            )
            or active.end_offset + header.last_offset_delta - active.base_offset > RELATIVE_OFFSET_MAX
        )

    def _new_segment(self, base_offset: int) -> Segment:
        segment = Segment(
            self._disk,
            self.folder,
            base_offset,
            size=0,
            end_offset=base_offset,
            interval_bytes=self.settings.index_interval_bytes,
            epoch_of=self.epochs.at,
        )
        segment.hold_open(create=True)
        self._names_changed = True
        return segment

    def _write_failed(self, error: OSError) -> StorageError | DiskFull:
        """Nothing of the batch may stay behind: a log whose file is longer than it knows is stopped."""
        active = self._segments[-1] if self._segments else None
        if active is not None:
            try:
                is_whole = active.file().size() == active.size
            except OSError:
                is_whole = False
            if not is_whole:
                self.fail(f"a failed write could not be taken back: {error}")
        if error.errno in NO_SPACE:
            self.is_out_of_space = True
            return DiskFull(f"no space is left to write to {self.folder}; free some and try again")
        return StorageError(f"writing to {self.folder} failed: {error}")

    def fail(self, reason: str) -> None:
        """Stop taking writes until the log has been recovered."""
        self.failure = self.failure or reason

    # ---------------------------------------------------------------- reading

    def read(self, offset: int, *, end: int, bytes_max: int, cached_only: bool = False) -> Slice:
        """Batches from the one that holds `offset`, up to offset `end` (exclusive) and about `bytes_max`."""
        segments, log_end = self._segments, self.end
        if not self.log_start <= offset <= log_end:
            raise OffsetOutOfRange(offset, earliest=self.log_start, latest=log_end)
        end = min(end, log_end)
        if offset >= end:
            return Slice([], offset)
        segment = segments[_segment_index(segments, offset)]
        batches = segment.read(offset, end=end, bytes_max=bytes_max, cached_only=cached_only)
        self._note_index_use(segment)
        return Slice(batches, batches[-1].header.end_offset)

    def first_at_or_after(self, timestamp: int) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record that is not older than `timestamp`."""
        for segment in self._segments:
            if segment.end_offset > self.log_start:
                found = segment.first_at_or_after(timestamp, from_offset=self.log_start)
                self._note_index_use(segment)
                if found is not None:
                    return found
        return None

    def _note_index_use(self, segment: Segment) -> None:
        """Keep the indexes of the few sealed segments that are read, and let the others go."""
        if segment is self._segments[-1] or (self._index_users and self._index_users[-1] is segment):
            return
        self._index_users.append(segment)
        if len(self._index_users) > _INDEX_COUNT_MAX:
            oldest = self._index_users.popleft()
            if oldest not in self._unsaved and oldest not in self._index_users:
                oldest.forget_index()

    # ---------------------------------------------------------------- durability

    def begin_sync(self) -> SyncJob:
        folder = self.folder if self._names_changed else None
        self._names_changed = False
        return SyncJob(self._disk, self.end, [segment.file() for segment in self._unsynced], folder)

    def finish_sync(self, job: SyncJob) -> None:
        self.durable_end = max(self.durable_end, job.end)
        for segment in self._unsynced:
            # Until here through the descriptor it was written by: the kernel tells a failed write-back to that one.
            if segment.end_offset <= job.end and segment is not self._segments[-1]:
                segment.release()
        self._unsynced = [segment for segment in self._unsynced if segment.end_offset > job.end]

    def sync_failed(self, error: OSError) -> None:
        """Stop, and leave a mark for the next start: what was written need not be on the disk although the page cache
        has it. The mark needs no sync of its own, for after a power cut there is no page cache to mistrust."""
        self.fail(f"fsync failed: {error}")
        try:
            self._disk.open(f"{self.folder}/{SYNC_FAILED}", create=True)
        except OSError as second:
            self.fail(f"fsync failed: {error}; and marking that failed too: {second}")

    def begin_checkpoint(self) -> CheckpointJob:
        indexes = [(segment.prefix, segment.index().encode) for segment in self._unsaved]
        aborted = self.aborted.digest(self.log_start, self.end)
        checkpoint = Checkpoint(
            log_start=self.log_start,
            high_watermark=self.high_watermark,
            clean_end=self.clean_end,
            recovery_offset=self.end,
            recovery_segment=self._segments[-1].base_offset if self._segments else self.log_start,
            recovery_position=self._segments[-1].size if self._segments else 0,
            recovery_max_timestamp=self._segments[-1].max_timestamp if self._segments else -1,
            epoch_latest=self.epochs.latest,
            epochs=self.epochs.entries(),
            owner=self._owner.snapshot(),
            aborted_count=aborted.entry_count,
            aborted_crc=aborted.crc,
        )
        if self._segments and self._segments[-1].size:
            active = self._segments[-1]
            active.index().seal()
            encoded = active.index().encode()  # now: the index grows while the job runs
            indexes.append((active.prefix, lambda: encoded))
        removed, self._removed = self._removed, []
        sealed = list(self._unsaved)  # not the active one, although it may be sealed before the job is done
        return CheckpointJob(
            self.begin_sync(),
            self.folder,
            indexes,
            None if self.aborted.is_saved else self.aborted.copy(),
            self.aborted.change_count,
            checkpoint,
            removed,
            sealed,
        )

    def abandon_checkpoint(self, job: CheckpointJob) -> None:
        """It was synced but could not be saved; the next one takes over its work."""
        self.finish_sync(job.sync)
        self._removed = job.removed + self._removed

    def finish_checkpoint(self, job: CheckpointJob) -> None:
        self.finish_sync(job.sync)
        epochs = job.checkpoint.epochs
        self._durable_epoch = epochs[-1][0] if epochs else None
        self.aborted.saved(job.aborted_change_count)
        # Not earlier: until a checkpoint says where the log starts now, a crash brings the older start back.
        self.durable_start = job.checkpoint.log_start
        self.aborted.forget_before(self.durable_start)
        self._unsaved = [segment for segment in self._unsaved if segment not in job.sealed]
        for segment in job.sealed:
            self._note_index_use(segment)

    # ---------------------------------------------------------------- shortening

    def delete_before(self, offset: int) -> None:
        """Move the start of the log. Whole segments before it go with the next checkpoint."""
        if not self.log_start <= offset <= self.high_watermark:
            raise OffsetOutOfRange(offset, earliest=self.log_start, latest=self.high_watermark)
        self.log_start = offset
        self.epochs.forget_before(offset)
        gone = [segment for segment in self._segments[:-1] if segment.end_offset <= offset]
        self._segments = self._segments[len(gone) :]
        self._unsaved = [segment for segment in self._unsaved if segment not in gone]
        # They stay among the unsynced: until a checkpoint says that they are gone, recovery needs them whole, or it
        # would take what follows them for never written.
        self._removed += [segment.prefix for segment in gone]

    def replace_segments(self, old: tuple[Segment, ...], new: Segment) -> None:
        """Compaction has put `new` in the place of `old` on disk; readers follow from here on."""
        at = self._segments.index(old[0])
        invariant(
            self._segments[at : at + len(old)] == old, f"segments of {self.folder} changed while compacting"
        )
        invariant(
            new.end_offset == old[-1].end_offset, f"compaction moved the end of a segment of {self.folder}"
        )
        self._segments = (*self._segments[:at], new, *self._segments[at + len(old) :])


def _segment_index(segments: tuple[Segment, ...], offset: int) -> int:
    low, high = 0, len(segments)
    while high - low > 1:
        middle = (low + high) // 2
        if segments[middle].base_offset <= offset:
            low = middle
        else:
            high = middle
    return low
