"""Offline verification of a data folder: every checksum, every offset, every index, every checkpoint, every marker.

Reads everything and changes nothing. A *problem* is damage: bytes that were written and are wrong, or missing.
A *note* is what a start would mend by itself, such as the incomplete last write of a killed broker.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from goqueue.log.aborted import AbortedIndex, Digest, TransactionWalk, load_aborted
from goqueue.log.batch import BatchHeader, check_payload
from goqueue.log.checkpoint import Checkpoint, load_checkpoint
from goqueue.log.control import read_marker
from goqueue.log.disk import Disk, read_file
from goqueue.log.epochs import LeaderEpochs
from goqueue.log.index import SegmentIndex
from goqueue.log.reset import RESET_SUFFIX, decided_reset
from goqueue.log.scan import Damage, Scanner, offset_count
from goqueue.log.segment import LOG_SUFFIX, segment_prefix
from goqueue.model.errors import GoQueueError

LOGS = "logs"
_LOG_NAME = re.compile(r"(\d{20})\.log")
_LEFTOVERS = (".cleaned", ".swap", ".tmp", RESET_SUFFIX)


@dataclass(slots=True)
class CheckReport:
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    partition_count: int = 0
    segment_count: int = 0
    batch_count: int = 0
    record_count: int = 0
    size_bytes: int = 0


def check_folder(disk: Disk) -> CheckReport:
    """Every partition of every topic below `logs/`, the internal ones too."""
    report = CheckReport()
    if not disk.list(LOGS):
        report.notes.append("there is no logs folder: an empty data folder, or not one at all")
    for topic in disk.list(LOGS):
        for partition in disk.list(f"{LOGS}/{topic.name}"):
            if partition.is_dir:
                check_partition(disk, f"{LOGS}/{topic.name}/{partition.name}", report)
    return report


def check_partition(disk: Disk, folder: str, report: CheckReport) -> None:
    report.partition_count += 1
    checkpoint = load_checkpoint(disk, folder)
    if isinstance(checkpoint, str):
        report.problems.append(f"{folder}: {checkpoint}")
        checkpoint = None
    entries = disk.list(folder)
    report.notes += [
        f"{folder}/{entry.name} is left over from an interrupted step; the next start finishes or removes it"
        for entry in entries
        if entry.name.endswith(_LEFTOVERS)
    ]
    if decided_reset(entries) is not None:
        return  # what is still there is no log any more
    bases = [int(match[1]) for entry in entries if (match := _LOG_NAME.fullmatch(entry.name))]
    if checkpoint is not None:
        _check_start(folder, bases, checkpoint, report)
    transactions = _TransactionCheck(disk, folder, report)
    for at, base in enumerate(bases):
        following = bases[at + 1] if at + 1 < len(bases) else None
        _SegmentCheck(disk, folder, base, following, checkpoint, report, transactions).run()
    if checkpoint is not None:
        transactions.check_index(checkpoint)


def _check_start(folder: str, bases: list[int], checkpoint: Checkpoint, report: CheckReport) -> None:
    if bases and bases[0] > checkpoint.log_start:
        report.problems.append(
            f"{folder}: offsets {checkpoint.log_start} to {bases[0]} (exclusive) are missing"
        )
    if checkpoint.needs_its_segment and checkpoint.recovery_segment not in bases:
        report.problems.append(f"{folder}: segment {checkpoint.recovery_segment:020d}.log is missing")


class _SegmentCheck:
    def __init__(
        self,
        disk: Disk,
        folder: str,
        base: int,
        following: int | None,
        checkpoint: Checkpoint | None,
        report: CheckReport,
        transactions: _TransactionCheck,
    ) -> None:
        self._disk = disk
        self._base = base
        self._following = following
        self._prefix = segment_prefix(folder, base)
        self._path = self._prefix + LOG_SUFFIX
        self._checkpoint = checkpoint
        self._report = report
        self._transactions = transactions
        self._batches: dict[int, BatchHeader] = {}  # by position
        self._offsets: dict[int, int] = {}  # last offset of a batch to its largest timestamp
        self._max_timestamp = -1

    def run(self) -> None:
        file = self._disk.open(self._path)
        size = file.size()
        self._report.segment_count += 1
        self._report.size_bytes += size
        checkpoint = self._checkpoint
        epochs = LeaderEpochs(checkpoint.epochs, checkpoint.epoch_latest) if checkpoint else None
        expected = self._base
        for item in Scanner(file, size, check_crc=True, epoch_of=epochs.at if epochs else None).scan(
            0, self._base
        ):
            if isinstance(item, Damage):
                content = file.read(item.position, size - item.position) if item.end is None else b""
                self._report_damage(item, size, is_torn=item.end is None and offset_count(content) is None)
                expected = item.end if item.end is not None else expected
                continue
            self._count(item.position, item.header, item.data)
            expected = item.header.end_offset
        if self._following is not None and expected != self._following:
            self._report.problems.append(
                f"{self._path}: ends at offset {expected}; the next segment starts at {self._following}"
            )
        self._check_recovery_point(size)
        self._check_indexes()

    def _count(self, position: int, header: BatchHeader, data: memoryview) -> None:
        self._report.batch_count += 1
        self._report.record_count += header.record_count
        self._batches[position] = header
        self._offsets[header.last_offset] = header.max_timestamp
        self._max_timestamp = max(self._max_timestamp, header.max_timestamp)
        try:
            check_payload(data, header)
            self._transactions.note(header, data)
        except GoQueueError as error:
            self._report.problems.append(f"{self._path} at byte {position}: {error.sentence}")

    def _report_damage(self, damage: Damage, size: int, *, is_torn: bool) -> None:
        place = f"{self._path} at byte {damage.position} (offset {damage.start})"
        recovered_from = self._checkpoint.recovery_position if self._checkpoint else 0
        is_after_recovery_point = self._checkpoint is None or (
            self._base > self._checkpoint.recovery_segment
            or (self._base == self._checkpoint.recovery_segment and damage.position >= recovered_from)
        )
        if is_torn and self._following is None and is_after_recovery_point:
            self._report.notes.append(
                f"{place}: the last {size - damage.position} bytes are no whole batch: {damage.reason}"
            )
        else:
            self._report.problems.append(f"{place}: {damage.reason}")

    def _check_recovery_point(self, size: int) -> None:
        checkpoint = self._checkpoint
        if checkpoint is None or checkpoint.recovery_segment != self._base:
            return
        position = checkpoint.recovery_position
        if position > size:
            self._report.problems.append(
                f"{self._path}: has {size} bytes; {position} were on disk when it was checkpointed"
            )
        elif position < size and position not in self._batches:
            self._report.problems.append(f"{self._path}: no batch starts at the checkpoint's byte {position}")

    def _check_indexes(self) -> None:
        """Every entry must be true. A sealed segment's must also be complete; the active one's grows with the
        next checkpoint."""
        is_sealed = self._following is not None and (
            self._checkpoint is not None and self._base < self._checkpoint.recovery_segment
        )
        contents = [read_file(self._disk, self._prefix + suffix) for suffix in (".index", ".timeindex")]
        if contents[0] is None or contents[1] is None:
            if is_sealed:
                self._report.notes.append(
                    f"{self._prefix}: an index is missing; it is rebuilt when it is needed"
                )
            return
        index = SegmentIndex.decode(self._base, 0, contents[0], contents[1])
        if index is None:
            self._report.problems.append(f"{self._prefix}: an index is malformed")
            return
        for entry in index.entries():
            header = self._batches.get(entry.position)
            if header is None or header.last_offset != entry.last_offset:
                self._report.problems.append(
                    f"{self._prefix}.index: no batch ends at {entry.last_offset} from byte {entry.position}"
                )
        for timestamp, offset in index.time_entries():
            if self._offsets.get(offset) != timestamp:
                self._report.problems.append(
                    f"{self._prefix}.timeindex: {timestamp} is not the time at offset {offset}"
                )
        if is_sealed and index.max_timestamp != self._max_timestamp:
            self._report.problems.append(
                f"{self._prefix}.timeindex: ends at {index.max_timestamp}; the newest record is of {self._max_timestamp}"
            )


class _TransactionCheck:
    """Every marker can be read, and the index of aborted transactions says what the log says."""

    def __init__(self, disk: Disk, folder: str, report: CheckReport) -> None:
        self._disk = disk
        self._folder = folder
        self._report = report
        self._walk = TransactionWalk()
        self._abort_markers: dict[int, int] = {}  # offset to producer

    def note(self, header: BatchHeader, data: memoryview) -> None:
        """InvalidBatch for a control batch that makes no sense."""
        self._walk.note(header, data)
        marker = read_marker(data, header) if header.is_control else None
        if marker is not None and not marker.is_commit:
            self._abort_markers[header.base_offset] = header.producer_id

    def check_index(self, checkpoint: Checkpoint) -> None:
        """As far as the checkpoint relies on it; a start cuts off what is behind."""
        start, end = checkpoint.log_start, checkpoint.recovery_offset
        index = load_aborted(self._disk, self._folder)
        if isinstance(index, str):
            self._report.problems.append(f"{self._folder}: {index}")
        elif index.digest(start, end) != Digest(checkpoint.aborted_count, checkpoint.aborted_crc):
            self._report.notes.append(
                f"{self._folder}: the index of aborted transactions is missing or not the checkpoint's; "
                "the next start reads it off the log again"
            )
        else:
            self._compare(index, range(start, end))

    def _compare(self, index: AbortedIndex, relied_on: range) -> None:
        known = {entry.last_offset: entry for entry in index if entry.last_offset in relied_on}
        for entry in known.values():
            if self._abort_markers.get(entry.last_offset) != entry.producer_id:
                self._report.problems.append(
                    f"{self._folder}: the index of aborted transactions has one of producer {entry.producer_id} that ends "
                    f"at offset {entry.last_offset}, where no such marker is"
                )
        for found in self._walk.aborted:
            entry_there = known.get(found.last_offset)
            is_known = entry_there is not None and entry_there.first_offset <= found.first_offset
            if found.last_offset in relied_on and not is_known:
                self._report.problems.append(
                    f"{self._folder}: the aborted transaction of producer {found.producer_id} in offsets "
                    f"{found.first_offset} to {found.last_offset} is not in the index"
                )
