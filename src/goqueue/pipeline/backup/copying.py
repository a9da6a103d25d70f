"""Copying a partition into a backup: only what no earlier backup has, and nothing that was not checked.

Every batch's frame and checksum is looked at on its way. A sealed segment that has the size and the time that an earlier
backup saw is not read. One that has grown is read up to where it had been, to see that it is the same file, and copied
from there on. Any other is copied whole; what of it is in some piece already is not written again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from goqueue.log.aborted import FILE_NAME as ABORTED
from goqueue.log.checkpoint import FILE_NAME as CHECKPOINT
from goqueue.log.disk import File
from goqueue.log.scan import EpochOf
from goqueue.log.segment import Segment
from goqueue.pipeline.backup.cut import CutPartition
from goqueue.pipeline.backup.manifest import Backups, Piece, StoredFile, StoredPartition, StoredSegment
from goqueue.pipeline.errors import DataLoss, PipelineError
from goqueue.pipeline.files.frames import sound_stretch
from goqueue.pipeline.files.storage import Storage, content_of, open_storage
from goqueue.pipeline.files.view import PartitionView, partition_folder, view_of

PIECE_BYTES = 16 * 1024 * 1024
OFFSET_MAX = 2**63 - 1
_GROWTH_COUNT_MAX = 64  # pieces of a segment that grew; then it is cut anew


@dataclass(frozen=True, slots=True)
class CopyTask:
    """Segments with a base offset in [start, end) of a partition, and with the first of them its small files. `known` is what
    an earlier backup has of the partition; where it is distrusted only the bytes count."""

    cut: CutPartition
    known: StoredPartition | None
    is_distrusted: bool = False
    start: int = 0
    end: int = OFFSET_MAX


@dataclass(slots=True)
class Copied:
    """`entry` is None where the files went or were replaced meanwhile: then another cut is wanted."""

    entry: StoredPartition | None
    new_bytes: int = 0
    read_bytes: int = 0
    damage: list[str] = field(default_factory=list)
    failure: PipelineError | None = None  # told rather than raised: Spark would try again, and find the same


def copy_segments(source: str, backups: Backups, task: CopyTask, *, keeps_damage: bool) -> Copied:
    """In an executor."""
    storage, cut = open_storage(source), task.cut
    folder = partition_folder(cut.place)
    copied = Copied(None)
    try:
        view = view_of(storage, folder, cut.listing, cut.checkpoint, is_live=False)
        copying = _Copying(storage, backups, view, copied, task, keeps_damage=keeps_damage)
        entry = copying.run()
    except (OSError, DataLoss) as error:
        if not _is_changed(storage, cut):
            copied.failure = (
                error if isinstance(error, DataLoss) else DataLoss(f"{folder} cannot be read: {error}")
            )
        return copied
    except PipelineError as error:  # of the place that is written to
        copied.failure = error
        return copied
    if not view.is_outdated_by(storage.list(folder) or ()):
        copied.entry = entry
    return copied


def _is_changed(storage: Storage, cut: CutPartition) -> bool:
    now = {entry.name: entry for entry in storage.list(partition_folder(cut.place)) or ()}
    logs = [entry for entry in cut.listing if entry.name.endswith(".log")]
    return any(
        (entry.name not in now) or (now[entry.name] != entry and entry is not logs[-1]) for entry in logs
    )


class _Copying:
    def __init__(
        self,
        storage: Storage,
        backups: Backups,
        view: PartitionView,
        copied: Copied,
        task: CopyTask,
        *,
        keeps_damage: bool,
    ) -> None:
        self._storage = storage
        self._backups = backups
        self._view = view
        self._copied = copied
        self._task = task
        self._keeps_damage = keeps_damage

    def run(self) -> StoredPartition:
        view, log, task = self._view, self._view.log, self._task
        if view.lost_from is not None or view.set_aside is not None:
            self._lose(f"{view.folder} ends at offset {log.end}, but what lies behind was there once")
        stored = {one.base_offset: one for one in task.known.segments} if task.known is not None else {}
        segments = [
            self._segment(one, stored.get(one.base_offset))
            for one in log.segments
            if task.start <= one.base_offset < task.end
        ]
        files = () if task.start else tuple(self._files(task.cut))
        return StoredPartition(*task.cut.place, log.end, tuple(segments), files)

    def _files(self, cut: CutPartition) -> Iterator[StoredFile]:
        aborted = content_of(self._storage, f"{self._view.folder}/{ABORTED}")
        for name, content in ((CHECKPOINT, cut.checkpoint), (ABORTED, aborted)):
            if content is not None:
                yield StoredFile(name, len(content), (self._put(content),))

    def _segment(self, segment: Segment, known: StoredSegment | None) -> StoredSegment:
        listed = self._view.files[segment.base_offset]
        whole = StoredSegment(
            segment.base_offset, segment.end_offset, segment.size, listed.modified_ns, pieces=()
        )
        if known is None or known.size > segment.size or known.is_damaged:
            return self._copied_from(segment, whole, 0)
        is_as_it_was = (known.size, known.end_offset, known.modified_ns) == (
            whole.size,
            whole.end_offset,
            whole.modified_ns,
        )
        if is_as_it_was and not self._task.is_distrusted:
            return known
        if len(known.pieces) >= _GROWTH_COUNT_MAX or not self._begins_with(segment.file(), known.pieces):
            return self._copied_from(segment, whole, 0)
        begun = StoredSegment(
            whole.base_offset, known.end_offset, whole.size, whole.modified_ns, pieces=known.pieces
        )
        return self._copied_from(segment, begun, known.size)

    def _copied_from(self, segment: Segment, begun: StoredSegment, position: int) -> StoredSegment:
        """From a position on; what is before is known."""
        offset = begun.end_offset if position else segment.base_offset
        pieces, is_damaged = list(begun.pieces), False
        file, path = segment.file(), self._storage.locate(segment.path)
        try:
            for content in sound_pieces(file, segment, position, offset, self._view.log.epochs.at, path):
                pieces.append(self._put(content))
                position += len(content)
        except DataLoss as error:
            self._lose(str(error))
            is_damaged = True
            for content in _raw_pieces(file, position, segment.size):
                pieces.append(self._put(content))
        return StoredSegment(
            segment.base_offset,
            segment.end_offset,
            segment.size,
            begun.modified_ns,
            tuple(pieces),
            is_damaged,
        )

    def _begins_with(self, file: File, pieces: tuple[Piece, ...]) -> bool:
        """Whether a file still begins with what was copied of it; and, where that is in doubt, whether the copy is sound."""
        position = 0
        for piece in pieces:
            content = file.read(position, piece.size)
            self._copied.read_bytes += len(content)
            position += piece.size
            if piece.digest:
                if hashlib.sha256(content).hexdigest() != piece.digest:
                    return False
                if self._task.is_distrusted and self._backups.problem(piece) is not None:
                    return False
            elif content != piece.content:
                return False
        return True

    def _put(self, content: bytes) -> Piece:
        piece, written = self._backups.put(content, distrusts=self._task.is_distrusted)
        self._copied.read_bytes += len(content)
        self._copied.new_bytes += written
        return piece

    def _lose(self, sentence: str) -> None:
        if not self._keeps_damage:
            raise DataLoss(f"{sentence}; to back it up as it is, keep damage")
        self._copied.damage.append(sentence)


def sound_pieces(
    file: File, segment: Segment, position: int, offset: int, epoch_of: EpochOf, shown: str
) -> Iterator[bytes]:
    """The bytes of a segment from a position on, whole batches at a time, each checked. DataLoss at the first that is not
    what it should be, or where the segment does not end at its end."""
    size = PIECE_BYTES
    while position < segment.size:
        window = file.read(position, min(size, segment.size - position))
        stretch = sound_stretch(memoryview(window), offset, segment.end_offset, epoch_of)
        if stretch.size:
            yield window[: stretch.size]
            position, offset, size = position + stretch.size, stretch.end, PIECE_BYTES
        elif len(window) < stretch.needed <= segment.size - position:
            size = stretch.needed
        else:
            raise DataLoss(f"{shown} is damaged at byte {position}, offset {offset}")
    if offset != segment.end_offset:
        raise DataLoss(f"{shown} ends at offset {offset}; it should at {segment.end_offset}")


def _raw_pieces(file: File, position: int, end: int) -> Iterator[bytes]:
    while position < end:
        content = file.read(position, min(PIECE_BYTES, end - position))
        if not content:
            raise OSError(f"the file has no bytes at {position}")
        yield content
        position += len(content)
