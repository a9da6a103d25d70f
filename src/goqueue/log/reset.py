"""Beginning a log anew: empty, at an offset that somebody else gave (a leader, whose log starts there).

The decision is an empty file that is named after the offset. Before its name is on disk the log is the old one; from
then on the old one is gone, however much of it is still there, and every start finishes the work before it looks at
anything else. The name goes last, when a checkpoint says the same.
"""

from __future__ import annotations

import re

from goqueue.log.aborted import FILE_NAME as ABORTED
from goqueue.log.checkpoint import NO_STATE, Checkpoint, load_checkpoint, save_checkpoint
from goqueue.log.disk import Disk, Entry
from goqueue.log.epochs import NO_EPOCH
from goqueue.log.partition_log import SYNC_FAILED
from goqueue.log.postings import remove_postings
from goqueue.log.segment import INDEX_SUFFIXES, LOG_SUFFIX

RESET_SUFFIX = ".reset"
_RESET_NAME = re.compile(r"(\d{20})\.reset")
_GOES = (LOG_SUFFIX, *INDEX_SUFFIXES, ".swap", ".cleaned", ".tmp")


def decide_reset(disk: Disk, folder: str, offset: int) -> None:
    disk.open(_path(folder, offset), create=True)
    disk.sync_dir(folder)


def decided_reset(entries: list[Entry]) -> int | None:
    """The offset at which the log of a folder with these entries begins anew, if that was decided and not finished."""
    return next((int(match[1]) for entry in entries if (match := _RESET_NAME.fullmatch(entry.name))), None)


def finish_reset(disk: Disk, folder: str, offset: int) -> None:
    """May be repeated after a crash anywhere. The highest epoch is kept: its number was used."""
    before = load_checkpoint(disk, folder)
    epoch_latest = before.epoch_latest if isinstance(before, Checkpoint) else NO_EPOCH
    for entry in disk.list(folder):
        if entry.name.endswith(_GOES) or entry.name in (ABORTED, SYNC_FAILED):
            disk.remove(f"{folder}/{entry.name}")
    remove_postings(disk, folder)
    disk.sync_dir(folder)
    save_checkpoint(disk, folder, _empty_at(offset, epoch_latest))
    disk.remove(_path(folder, offset))
    disk.sync_dir(folder)


def _path(folder: str, offset: int) -> str:
    return f"{folder}/{offset:020d}{RESET_SUFFIX}"


def _empty_at(offset: int, epoch_latest: int) -> Checkpoint:
    return Checkpoint(
        log_start=offset,
        high_watermark=offset,
        clean_end=offset,
        recovery_offset=offset,
        recovery_segment=offset,
        recovery_position=0,
        recovery_max_timestamp=-1,
        epoch_latest=epoch_latest,
        epochs=[],
        owner=NO_STATE,
    )
