"""A partition out of a backup into a data folder, checked as it is written; and cut at a time, if one is given.

Each piece is compared with its digest, each batch with its checksum. The indexes are made on the way, so that a broker's
start has nothing to rebuild. A log that is cut begins with a checkpoint at its start: the broker reads it once and finds the
state of its producers as it was then.
"""

from __future__ import annotations

from dataclasses import dataclass

from goqueue.log.aborted import FILE_NAME as ABORTED
from goqueue.log.checkpoint import FILE_NAME as CHECKPOINT
from goqueue.log.checkpoint import NO_STATE, Checkpoint, load_checkpoint, save_checkpoint
from goqueue.log.disk import Disk, File, replace_file
from goqueue.log.epochs import LeaderEpochs
from goqueue.log.index import SegmentIndex, save_index
from goqueue.log.scan import Damage, EpochOf, Scanner
from goqueue.log.segment import segment_prefix
from goqueue.model.settings import TopicSettings
from goqueue.pipeline.backup.manifest import Backups, StoredPartition, StoredSegment
from goqueue.pipeline.errors import PipelineError
from goqueue.pipeline.files.view import partition_folder
from goqueue.pipeline.span import Place


@dataclass(frozen=True, slots=True)
class Restored:
    place: Place
    end_offset: int
    size: int
    cut_offset_count: int = 0  # that were newer than the time asked for


def restore_partition(
    backups: Backups, entry: StoredPartition, disk: Disk, *, until_ms: int | None
) -> Restored:
    """In an executor. What an earlier attempt left is removed first."""
    folder = partition_folder(entry.place)
    disk.remove_tree(folder)
    disk.make_dir(folder)
    for one in entry.files:
        replace_file(disk, f"{folder}/{one.name}", b"".join(map(backups.get, one.pieces)))
    restoring = _Restoring(backups, disk, entry, until_ms)
    restored = restoring.run()
    disk.sync_dir(folder)
    return restored


class _Restoring:
    def __init__(self, backups: Backups, disk: Disk, entry: StoredPartition, until_ms: int | None) -> None:
        self._backups = backups
        self._disk = disk
        self._entry = entry
        self._until_ms = until_ms
        self._folder = partition_folder(entry.place)
        loaded = load_checkpoint(disk, self._folder)
        self._checkpoint = loaded if isinstance(loaded, Checkpoint) else None
        self._epochs = (
            LeaderEpochs(self._checkpoint.epochs, self._checkpoint.epoch_latest)
            if self._checkpoint is not None
            else LeaderEpochs()
        )

    def run(self) -> Restored:
        size, end = 0, self._entry.segments[0].base_offset if self._entry.segments else self._entry.end_offset
        for segment in self._entry.segments:
            end, written = self._segment(segment)
            size += written
            if end < segment.end_offset:
                break
        cut_offset_count = self._entry.end_offset - end
        if cut_offset_count:
            self._begin_anew(end)
        return Restored(self._entry.place, end, size, cut_offset_count)

    def _segment(self, segment: StoredSegment) -> tuple[int, int]:
        """The offset and the size that it ends at."""
        prefix = segment_prefix(self._folder, segment.base_offset)
        file = self._disk.open(f"{prefix}.log", create=True)
        for piece in segment.pieces:
            file.append([self._backups.get(piece)])
        if file.size() != segment.size:
            raise PipelineError(
                f"{prefix}.log has {file.size()} bytes in its pieces; the backup says {segment.size}"
            )
        index = SegmentIndex(segment.base_offset, TopicSettings().index_interval_bytes)
        epoch_of = self._epochs.at if self._epochs.entries() else None
        end, size = self._checked(segment, file, index, epoch_of)
        if size < segment.size:
            file.truncate(size)
        file.sync()
        if size:
            index.seal()
            save_index(self._disk, prefix, index.encode())
        return end, size

    def _checked(
        self, segment: StoredSegment, file: File, index: SegmentIndex, epoch_of: EpochOf | None
    ) -> tuple[int, int]:
        scanner = Scanner(file, segment.size, check_crc=True, epoch_of=epoch_of)
        end, size = segment.base_offset, 0
        for item in scanner.scan(0, segment.base_offset):
            if isinstance(item, Damage):
                if not segment.is_damaged:
                    raise PipelineError(
                        f"{self._folder}/{segment.name} is damaged at byte {item.position}: {item.reason}"
                    )
                end = segment.end_offset if item.end is None else item.end
                size = item.next_position
                continue
            if self._until_ms is not None and item.header.max_timestamp > self._until_ms:
                return end, size
            index.note(item.header, item.position)
            end, size = item.header.end_offset, item.position + item.header.size
        if end != segment.end_offset and not segment.is_damaged:
            raise PipelineError(
                f"{self._folder}/{segment.name} ends at offset {end}; the backup says {segment.end_offset}"
            )
        return segment.end_offset, segment.size

    def _begin_anew(self, end: int) -> None:
        """The checkpoint knows of what has been cut: one from the beginning takes its place."""
        self._disk.remove(f"{self._folder}/{ABORTED}")
        self._epochs.truncate(end)
        before = self._checkpoint
        if before is None:
            self._disk.remove(f"{self._folder}/{CHECKPOINT}")
            return
        first = self._entry.segments[0].base_offset if self._entry.segments else before.log_start
        anew = Checkpoint(
            log_start=min(before.log_start, end),
            high_watermark=end,
            clean_end=min(before.clean_end, end),
            recovery_offset=first,
            recovery_segment=first,
            recovery_position=0,
            recovery_max_timestamp=-1,
            epoch_latest=self._epochs.latest,
            epochs=self._epochs.entries(),
            owner=NO_STATE,
        )
        save_checkpoint(self._disk, self._folder, anew)
