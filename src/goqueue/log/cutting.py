"""Taking the end off the files of a log.

A checkpoint that lies beyond the cut is taken back first. Otherwise a crash after the cut could leave it pointing into
bytes that were written later.
"""

from __future__ import annotations

from goqueue.log.checkpoint import NO_STATE, Checkpoint, load_checkpoint, save_checkpoint
from goqueue.log.disk import Disk
from goqueue.log.partition_log import PartitionLog
from goqueue.log.segment import INDEX_SUFFIXES, remove_segment
from goqueue.model.errors import InvariantViolation


class CutRefused(InvariantViolation):
    """It would take off what is committed, and nobody has decided that this is lost."""


def cut_files(log: PartitionLog, disk: Disk, offset: int) -> None:
    """The files of a log that shall end at `offset`, a batch boundary behind its start. The log itself has to be recovered
    from them; after a crash on the way it is the old one or one of its beginnings that has the new one."""
    folder = log.folder
    checkpoint = load_checkpoint(disk, folder)
    if not isinstance(checkpoint, Checkpoint) or checkpoint.recovery_offset > offset:
        save_checkpoint(disk, folder, _from_the_beginning(log, offset))
    for segment in reversed(log.segments):
        if segment.base_offset >= offset and segment is not log.segments[0]:
            remove_segment(disk, segment.prefix)
        elif segment.end_offset > offset:
            file, (position, _) = segment.file(), segment.boundary(offset)
            for suffix in INDEX_SUFFIXES:
                disk.remove(segment.prefix + suffix)
            disk.sync_dir(folder)  # an index never outlives the batches it points to
            file.truncate(position)
            file.sync()
    disk.sync_dir(folder)


def _from_the_beginning(log: PartitionLog, offset: int) -> Checkpoint:
    """With all epochs: until the files are cut they have batches of those beyond the cut, which are no damage."""
    first = log.segments[0].base_offset if log.segments else log.log_start
    return Checkpoint(
        log_start=min(log.log_start, offset),
        high_watermark=min(log.high_watermark, offset),
        clean_end=min(log.clean_end, offset),
        recovery_offset=first,
        recovery_segment=first,
        recovery_position=0,
        recovery_max_timestamp=-1,
        epoch_latest=log.epochs.latest,
        epochs=log.epochs.entries(),
        owner=NO_STATE,
    )
