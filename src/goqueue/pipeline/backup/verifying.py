"""Whether a backup is what it says: every piece there and unchanged, every log a row of sound batches without a gap."""

from __future__ import annotations

from goqueue.log.checkpoint import FILE_NAME as CHECKPOINT
from goqueue.model.errors import GoQueueError
from goqueue.pipeline.backup.copying import sound_pieces
from goqueue.pipeline.backup.manifest import Backups, Manifest, StoredPartition
from goqueue.pipeline.backup.tree import BackupTree
from goqueue.pipeline.errors import PipelineError
from goqueue.pipeline.files.storage import content_of
from goqueue.pipeline.files.view import PartitionView, partition_folder, view_of


def verify_partition(backups: Backups, manifest: Manifest, entry: StoredPartition) -> list[str]:
    """What is wrong with it; in an executor. What was damaged when it was backed up is only to be the same."""
    shown = f"{entry.topic}-{entry.partition}"
    problems = [
        f"{shown}: {one.name}: {problem}"
        for one in entry.all_files()
        for piece in one.pieces
        if (problem := backups.problem(piece)) is not None
    ]
    if problems:  # then what the log says is no news
        return problems
    try:
        return [f"{shown}: {problem}" for problem in _log_problems(backups, manifest, entry)]
    except (OSError, GoQueueError, PipelineError) as error:
        return [f"{shown}: {error}"]


def _log_problems(backups: Backups, manifest: Manifest, entry: StoredPartition) -> list[str]:
    tree, folder = BackupTree(backups, manifest), partition_folder(entry.place)
    listing = tuple(tree.list(folder) or ())
    view = view_of(tree, folder, listing, content_of(tree, f"{folder}/{CHECKPOINT}"), is_live=False)
    problems: list[str] = []
    damaged = {one.base_offset for one in entry.segments if one.is_damaged}
    if not damaged and (view.lost_from is not None or view.log.end != entry.end_offset):
        problems.append(f"the log ends at offset {view.log.end}; the backup was to offset {entry.end_offset}")
    return problems + _segment_problems(view, damaged)


def _segment_problems(view: PartitionView, damaged: set[int]) -> list[str]:
    problems: list[str] = []
    epoch_of = view.log.epochs.at
    for segment in view.log.segments:
        if segment.base_offset in damaged:
            continue
        try:
            for _ in sound_pieces(segment.file(), segment, 0, segment.base_offset, epoch_of, segment.path):
                pass
        except PipelineError as error:
            problems.append(str(error))
    return problems
