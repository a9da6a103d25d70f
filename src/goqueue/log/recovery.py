"""Opening a partition's folder after any kind of stop.

1. Finish or drop what compaction had begun (`.swap` is a finished rewrite, `.cleaned` an unfinished one).
2. Start at the checkpoint's recovery point; without a checkpoint that can be trusted, at the beginning.
3. Check every batch from there on. What is wrong is one of two things:
   - *A torn tail*: nothing sound follows, or the batch's whole header was never written, so no fsync after
     it ever returned and nothing from there on was acknowledged as durable. It is cut off.
   - *Damage*: bytes that were written and are wrong. They stay where they are and their offsets stay taken;
     readers get an error that names the range. Cutting here would lose sound batches behind it.
   What is cut and is more than an incomplete last write is copied to the quarantine folder first.

4. Give the producers and the index of aborted transactions what the checkpoint and its index knew, then every batch
   behind the recovery point. An index that is not the one the checkpoint relies on is read off the log again.

5. After a failed fsync the kernel may call pages clean that never reached the disk, and a process that is
   killed and started again would take them for durable. The partition left a marker then; everything after
   the recovery point is copied to fresh files before it is believed.

Every step may be interrupted and repeated. A clean stop leaves the recovery point at the end of the log, so
a start costs one directory listing and one small file.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from goqueue.log.aborted import AbortedIndex, Digest, TransactionWalk, empty_aborted, load_aborted
from goqueue.log.batch import HEADER_BYTES, read_header
from goqueue.log.checkpoint import NO_STATE, Checkpoint, load_checkpoint
from goqueue.log.cutting import CutRefused, cut_files
from goqueue.log.disk import Disk, Entry, read_file, replace_file
from goqueue.log.epochs import LeaderEpochs
from goqueue.log.index import SegmentIndex, load_index
from goqueue.log.partition_log import NO_SPACE, SYNC_FAILED, LogState, Owner, PartitionLog
from goqueue.log.reset import decide_reset, decided_reset, finish_reset
from goqueue.log.scan import Damage, Found, Scanner, is_all_there, offset_count
from goqueue.log.segment import (
    INDEX_SUFFIXES,
    LOG_NAME,
    LOG_SUFFIX,
    Segment,
    remove_segment,
    segment_prefix,
)
from goqueue.log.swap import SWAP_NAME, finish_swap
from goqueue.model.errors import OffsetOutOfRange, PartitionOffline, StorageError, invariant
from goqueue.model.settings import TopicSettings

QUARANTINE = "quarantine"


@dataclass(slots=True)
class RecoveryReport:
    """What opening a log found, for the operator's eyes."""

    folder: str
    scanned_bytes: int = 0
    cut_bytes: int = 0
    damage: list[str] = field(default_factory=list)
    damaged: list[tuple[int, int]] = field(default_factory=list)  # offsets [start, end) that cannot be served
    is_short: bool = False  # it lacks what the checkpoint says was durable; a torn tail never was
    notes: list[str] = field(default_factory=list)

    def note_short(self, detail: str) -> None:
        self.damage.append(detail)
        self.is_short = True


def open_log(
    disk: Disk, folder: str, settings: TopicSettings, owner: Owner
) -> tuple[PartitionLog, RecoveryReport]:
    """The log in a folder (which may be empty), and what had to be done to get it."""
    report = RecoveryReport(folder)
    state = _Recovery(disk, folder, settings, owner, report).run()
    return PartitionLog(disk, folder, settings, state, owner), report


def truncate_log(
    log: PartitionLog, disk: Disk, owner: Owner, offset: int, *, forced: bool = False
) -> RecoveryReport:
    """Cut the log so that it ends at `offset`, a batch boundary; the indexes, epochs and the owner's state go back with it.
    Only who is `forced` to may cut below the high watermark. No sync and no checkpoint may be under way."""
    if not log.log_start <= offset <= log.end:
        raise OffsetOutOfRange(offset, earliest=log.log_start, latest=log.end)
    _refuse_cut(log, offset, forced=forced)
    invariant(batch_boundary(log, offset) == offset, f"no batch of {log.folder} begins at {offset}")
    if offset == log.log_start:  # which may lie inside a batch
        return _begin_anew(log, disk, owner, offset)
    log_start, high_watermark, durable_end = log.log_start, log.high_watermark, log.durable_end
    report = RecoveryReport(log.folder)
    try:
        cut_files(log, disk, offset)
        log.adopt(_Recovery(disk, log.folder, log.settings, owner, report).run())
    except OSError as error:
        raise _half_done(log, error) from error
    log.epochs.truncate(offset)
    # The checkpoint may be older than these, and none may go back further than it must.
    log.note_high_watermark(high_watermark)
    log.durable_end = max(log.durable_end, min(durable_end, log.end))
    if log.log_start < log_start <= log.high_watermark:
        log.delete_before(log_start)
    return report


def reset_log(log: PartitionLog, disk: Disk, owner: Owner, offset: int) -> RecoveryReport:
    """Forget everything and begin empty at `offset`. After a crash the log is the old one or empty there, nothing between.
    No sync and no checkpoint may be under way."""
    invariant(offset >= 0, f"{log.folder} cannot begin at offset {offset}")
    _refuse_cut(log, offset, forced=True)
    return _begin_anew(log, disk, owner, offset)


def cut_back(
    log: PartitionLog, disk: Disk, owner: Owner, offset: int, *, forced: bool = False
) -> RecoveryReport:
    """Have the log end at or before `offset`, wherever that is: at the batch boundary before it, or empty at `offset` where
    the log starts only later. For offsets that a leader gives: the end of an epoch, or the start of a batch that it has
    compacted and this log has not."""
    if offset < log.log_start:
        _refuse_cut(log, offset, forced=forced)
        return _begin_anew(log, disk, owner, offset)
    return truncate_log(log, disk, owner, batch_boundary(log, offset), forced=forced)


def batch_boundary(log: PartitionLog, offset: int) -> int:
    """The largest offset up to `offset` at which a batch, sound or damaged, begins or the log ends. The start of the log
    counts as one, also inside a batch, and is the least."""
    holding = next((segment for segment in reversed(log.segments) if segment.base_offset <= offset), None)
    return max(log.log_start, holding.boundary(offset)[1] if holding else 0)


def _refuse_cut(log: PartitionLog, offset: int, *, forced: bool) -> None:
    if log.failure is not None:
        raise PartitionOffline(f"{log.folder} takes no changes: {log.failure}", folder=log.folder)
    if not forced and offset < log.high_watermark:
        raise CutRefused(f"{log.folder} cut at {offset}, below its high watermark {log.high_watermark}")


def _half_done(log: PartitionLog, error: OSError) -> StorageError:
    """What is in the files is not what the log knows: it has to be opened again, which finishes the cut or undoes it."""
    log.fail(f"cutting it failed: {error}")
    return StorageError(f"cutting {log.folder} failed: {error}")


def _begin_anew(log: PartitionLog, disk: Disk, owner: Owner, offset: int) -> RecoveryReport:
    report = RecoveryReport(log.folder)
    try:
        decide_reset(disk, log.folder, offset)
        log.adopt(_Recovery(disk, log.folder, log.settings, owner, report).run())
    except OSError as error:
        raise _half_done(log, error) from error
    return report


class _Recovery:
    """One opening of one folder."""

    def __init__(
        self, disk: Disk, folder: str, settings: TopicSettings, owner: Owner, report: RecoveryReport
    ) -> None:
        self._disk = disk
        self._folder = folder
        self._settings = settings
        self._owner = owner
        self._report = report

    def run(self) -> LogState:
        self._finish_interrupted()
        entries = self._disk.list(self._folder)
        sizes = {int(match[1]): entry.size for entry in entries if (match := LOG_NAME.fullmatch(entry.name))}
        self._remove_strays(entries, sizes)
        checkpoint = self._checkpoint(sizes)
        self._epochs = (
            LeaderEpochs(checkpoint.epochs, checkpoint.epoch_latest) if checkpoint else LeaderEpochs()
        )
        self._learns_epochs = not self._epochs.entries()
        if checkpoint:
            for base in self._below(sizes, checkpoint.log_start):
                remove_segment(self._disk, segment_prefix(self._folder, base))
                del sizes[base]
        if any(entry.name == SYNC_FAILED for entry in entries):
            self._write_again(
                [base for base in sorted(sizes) if not checkpoint or base >= checkpoint.recovery_segment]
            )
        self._owner.restore(checkpoint.owner if checkpoint and checkpoint.owner != NO_STATE else None)
        self._aborted = self._aborted_before(sorted(sizes.items()), checkpoint)
        segments = self._segments(sorted(sizes.items()), checkpoint)
        start = segments[0].base_offset if segments else 0
        log_start = max(start, checkpoint.log_start) if checkpoint else start
        if checkpoint and segments and start > checkpoint.log_start:
            self._report.note_short(
                f"{self._folder}: offsets {checkpoint.log_start} to {start} (exclusive) are missing; their segments are gone"
            )
            self._report.damaged.append((checkpoint.log_start, start))
        end = segments[-1].end_offset if segments else log_start
        self._epochs.truncate(end + 1)
        if checkpoint and end < checkpoint.recovery_offset:
            if not self._report.is_short:
                durable_end = checkpoint.recovery_offset
                self._report.note_short(
                    f"{self._folder} ends at offset {end}; {durable_end} was its durable end"
                )
            self._derive_again(segments)
        # Alone, a node's high watermark is its end; a follower's is what its leader told it.
        watermark = min(checkpoint.high_watermark, end) if checkpoint else log_start
        return LogState(
            segments=tuple(segments),
            log_start=min(log_start, end),
            high_watermark=min(max(watermark, log_start), end),
            clean_end=min(checkpoint.clean_end, end) if checkpoint else start,
            epochs=self._epochs,
            aborted=self._aborted,
            durable_end=min(checkpoint.recovery_offset, end) if checkpoint else log_start,
            unsynced=self._unsynced,
            unsaved=self._rescanned,
        )

    def _segments(self, files: list[tuple[int, int]], checkpoint: Checkpoint | None) -> list[Segment]:
        """Those before the recovery point as they are, those after it scanned."""
        segments: list[Segment] = []
        self._rescanned: list[Segment] = []
        self._unsynced: list[Segment] = []
        for at, (base, size) in enumerate(files):
            is_last = at == len(files) - 1
            end = base if is_last else files[at + 1][0]
            segment = self._segment(base, size, end)
            segments.append(segment)
            if checkpoint and not is_last and base < checkpoint.recovery_segment:
                continue
            is_whole = self._scan(segment, checkpoint, is_last=is_last)
            if not is_last:
                self._rescanned.append(segment)
            if not is_whole:
                self._set_aside([base for base, _ in files[at + 1 :]], segment.end_offset)
                if self._rescanned and self._rescanned[-1] is segment:
                    self._rescanned.pop()
                break
        return segments

    def _segment(self, base: int, size: int, end: int) -> Segment:
        return Segment(
            self._disk,
            self._folder,
            base,
            size=size,
            end_offset=end,
            interval_bytes=self._settings.index_interval_bytes,
            epoch_of=self._epochs.at,
        )

    def _scan(self, segment: Segment, checkpoint: Checkpoint | None, *, is_last: bool) -> bool:
        """Check a segment from the recovery point on and build its index; False if its tail had to be cut."""
        position, expected, index = self._starting_point(segment, checkpoint)
        self._report.scanned_bytes += segment.size - position
        if position < segment.size:
            segment.hold_open()
            self._unsynced.append(segment)
        scanner = Scanner(
            segment.file(),
            segment.size,
            check_crc=True,
            epoch_of=None if self._learns_epochs else self._epochs.at,
        )
        for item in scanner.scan(position, expected):
            if isinstance(item, Damage):
                item = self._with_known_end(segment, item, is_last=is_last)
                if item.end is None or self._is_unwritten(segment, item):
                    self._cut(segment, item)
                    position, expected = item.position, item.start
                    break
                self._report_damage(segment, item)
                position, expected = item.next_position, item.end or segment.end_offset
                continue
            header = item.header
            if self._learns_epochs and header.leader_epoch > self._epochs.latest:
                self._epochs.begin(header.leader_epoch, header.base_offset)
            if not checkpoint or header.base_offset >= checkpoint.recovery_offset:
                self._observe(item)
            index.note(header, item.position)
            if segment.first_append_ms is None:
                segment.first_append_ms = header.base_timestamp
            position, expected = item.position + header.size, header.end_offset
        is_whole = is_last or expected == segment.end_offset
        index.seal()
        segment.end_offset, segment.size = expected, position
        segment.adopt_index(index)
        return is_whole

    def _observe(self, found: Found) -> None:
        aborted = self._owner.observe(found.header, found.data)
        if aborted is not None:
            self._aborted.add(aborted)

    def _derive_again(self, segments: list[Segment]) -> None:
        """What the checkpoint knows includes batches that are lost: it must not speak for them."""
        self._owner.restore(None)
        self._aborted = empty_aborted(self._disk, self._folder)
        for segment in segments:
            for item in segment.scan(0, segment.base_offset, check_crc=True):
                if isinstance(item, Found):
                    self._observe(item)

    def _aborted_before(self, files: list[tuple[int, int]], checkpoint: Checkpoint | None) -> AbortedIndex:
        """The index up to the recovery point: the saved one, if it is the one that the checkpoint relies on."""
        if checkpoint is None:
            return empty_aborted(self._disk, self._folder)
        start, end = checkpoint.log_start, checkpoint.recovery_offset
        relied_on = Digest(checkpoint.aborted_count, checkpoint.aborted_crc)
        index = load_aborted(self._disk, self._folder)
        if isinstance(index, AbortedIndex) and index.digest(start, end) == relied_on:
            index.forget_from(end)
            return index
        reason = (
            index if isinstance(index, str) else "the index of aborted transactions is not the checkpoint's"
        )
        self._report.notes.append(f"{self._folder}: {reason}; reading it off the log again")
        walk = TransactionWalk(empty_aborted(self._disk, self._folder))
        for base, size in files if relied_on.entry_count else []:
            segment = self._segment(base, size, end)
            self._report.scanned_bytes += size
            for item in segment.scan(0, base, check_crc=True) if base < end else ():
                if isinstance(item, Found) and item.header.base_offset < end:
                    walk.note(item.header, item.data)
        return walk.aborted

    def _starting_point(
        self, segment: Segment, checkpoint: Checkpoint | None
    ) -> tuple[int, int, SegmentIndex]:
        """Where to scan from: the recovery point, if the index has everything before it."""
        interval_bytes = self._settings.index_interval_bytes
        fresh = SegmentIndex(segment.base_offset, interval_bytes)
        if (
            not checkpoint
            or segment.base_offset != checkpoint.recovery_segment
            or not checkpoint.recovery_position
        ):
            return 0, segment.base_offset, fresh
        if checkpoint.recovery_position > segment.size:
            self._report.note_short(
                f"{segment.path} has {segment.size} bytes; {checkpoint.recovery_position} were on disk when it was "
                "checkpointed; scanning it whole"
            )
            return 0, segment.base_offset, fresh
        index = load_index(self._disk, segment.prefix, segment.base_offset, interval_bytes)
        if index is not None:
            index.cut(checkpoint.recovery_offset, checkpoint.recovery_position)
        is_true = (
            index is not None
            and index.max_timestamp == checkpoint.recovery_max_timestamp
            and segment.matches(index)
        )
        if index is None or not is_true:
            self._report.notes.append(f"the index of {segment.path} is missing or wrong; rebuilding it")
            index = self._rebuilt_index(segment, checkpoint)
        first = segment.file().read(0, HEADER_BYTES)
        if len(first) == HEADER_BYTES:
            segment.first_append_ms = read_header(first).base_timestamp
        return checkpoint.recovery_position, checkpoint.recovery_offset, index

    def _rebuilt_index(self, segment: Segment, checkpoint: Checkpoint) -> SegmentIndex:
        """The index up to the recovery point. What is wrong before it was durable and sound once, so it is damage and
        never a torn tail."""
        index = SegmentIndex(segment.base_offset, self._settings.index_interval_bytes)
        self._report.scanned_bytes += checkpoint.recovery_position
        scanner = Scanner(
            segment.file(), checkpoint.recovery_position, check_crc=True, epoch_of=self._epochs.at
        )
        for item in scanner.scan(0, segment.base_offset):
            if isinstance(item, Damage):
                end = checkpoint.recovery_offset if item.end is None else item.end
                self._report_damage(segment, item._replace(end=end))
            else:
                index.note(item.header, item.position)
        return index

    def _report_damage(self, segment: Segment, damage: Damage) -> None:
        self._report.damaged.append((damage.start, segment.end_offset if damage.end is None else damage.end))
        self._report.damage.append(
            f"{segment.path} at byte {damage.position}: offsets {damage.start} to {damage.end} (exclusive) "
            f"are damaged: {damage.reason}"
        )

    def _with_known_end(self, segment: Segment, damage: Damage, *, is_last: bool) -> Damage:
        """The last batch of a file, all there but with a wrong bit: the next segment says which offsets it took, or
        else the batch itself."""
        if damage.end is not None:
            return damage
        content = segment.file().read(damage.position, segment.size - damage.position)
        if not is_last:
            return damage._replace(end=segment.end_offset) if is_all_there(content) else damage
        count = offset_count(content)
        return damage if count is None else damage._replace(end=damage.start + count)

    def _is_unwritten(self, segment: Segment, damage: Damage) -> bool:
        return not any(segment.file().read(damage.position, HEADER_BYTES))

    def _cut(self, segment: Segment, damage: Damage) -> None:
        file = segment.file()
        tail = segment.size - damage.position
        content = file.read(damage.position, min(tail, segment.size))
        if any(content):
            self._quarantine(f"{segment.base_offset:020d}-at-{damage.position}.tail", content)
        self._report.cut_bytes += tail
        self._report.notes.append(
            f"cut {tail} bytes off {segment.path} at byte {damage.position} (offset {damage.start}): {damage.reason}"
        )
        for suffix in INDEX_SUFFIXES:
            self._disk.remove(segment.prefix + suffix)
        self._disk.sync_dir(self._folder)  # an index never outlives the batches it points to
        file.truncate(damage.position)
        file.sync()

    def _set_aside(self, bases: list[int], end: int) -> None:
        """Segments behind a cut: written before what was cut had reached the disk, so never durable."""
        for base in bases:
            prefix = segment_prefix(self._folder, base)
            file = self._disk.open(prefix + LOG_SUFFIX)
            content = file.read(0, file.size())
            if content:
                self._quarantine(f"{base:020d}.log", content)
            self._report.cut_bytes += len(content)
            self._report.notes.append(f"set {prefix}.log aside: the log before it ends at offset {end}")
            remove_segment(self._disk, prefix)

    def _quarantine(self, name: str, content: bytes) -> None:
        """Keep what recovery takes out of a log: `quarantine/{folder}/{name}`."""
        folder = f"{QUARANTINE}/{self._folder}"
        path = f"{folder}/{name}"
        try:
            self._disk.make_dir(folder)
            self._disk.remove(path)
            file = self._disk.open(path, create=True)
            file.append([content])
            file.sync()
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            # A full disk must not keep the broker down, and what is cut was never durable.
            self._report.damage.append(f"{path} could not be kept: {error}")
            return
        while folder:
            self._disk.sync_dir(folder)
            folder = folder.rpartition("/")[0]
        self._disk.sync_dir("")

    def _write_again(self, bases: list[int]) -> None:
        """Give every byte that a failed fsync may have lost a new chance to be written, or to fail loudly."""
        for base in bases:
            path = segment_prefix(self._folder, base) + LOG_SUFFIX
            replace_file(self._disk, path, read_file(self._disk, path) or b"")
        self._report.notes.append(f"{self._folder}: wrote {len(bases)} segments again after a failed fsync")
        self._disk.remove(f"{self._folder}/{SYNC_FAILED}")
        self._disk.sync_dir(self._folder)

    def _checkpoint(self, sizes: dict[int, int]) -> Checkpoint | None:
        loaded = load_checkpoint(self._disk, self._folder)
        if isinstance(loaded, str):
            self._report.damage.append(f"{self._folder}: {loaded}; scanning the whole log")
            return None
        if loaded is not None and loaded.needs_its_segment and loaded.recovery_segment not in sizes:
            self._report.note_short(
                f"{self._folder}: segment {loaded.recovery_segment:020d}.log, which the checkpoint names, is missing"
            )
            behind = min((base for base in sizes if base > loaded.recovery_segment), default=None)
            if behind is not None:
                self._report.damaged.append((loaded.recovery_segment, behind))
        return loaded

    def _below(self, sizes: dict[int, int], log_start: int) -> list[int]:
        """Segments whose removal was decided but not finished: all their offsets are before the start."""
        bases = sorted(sizes)
        return [base for base, following in pairwise(bases) if following <= log_start]

    def _finish_interrupted(self) -> None:
        entries = self._disk.list(self._folder)
        reset_to = decided_reset(entries)
        if reset_to is not None:
            finish_reset(self._disk, self._folder, reset_to)
            self._report.notes.append(f"{self._folder}: begun anew at offset {reset_to}")
            return
        for entry in entries:
            match = SWAP_NAME.fullmatch(entry.name)
            if match:
                finish_swap(self._disk, self._folder, int(match[1]), int(match[2]))
            elif entry.name.endswith((".cleaned", ".tmp")):
                self._disk.remove(f"{self._folder}/{entry.name}")

    def _remove_strays(self, entries: list[Entry], sizes: dict[int, int]) -> None:
        for entry in entries:
            stem, _, suffix = entry.name.partition(".")
            if f".{suffix}" in INDEX_SUFFIXES and stem.isdigit() and int(stem) not in sizes:
                self._disk.remove(f"{self._folder}/{entry.name}")
