"""A partition's log as its files tell it: where it starts, how far it may be read, and its segments.

What the files say depends on who else uses them.

- *Nobody runs on the folder*: the log ends where the next start would say it does. Everything behind the checkpoint is
  checked, and a torn tail is left out.
- *A broker runs on it* (its `lock` is held): the log ends at the checkpoint's high watermark. What is behind may be half
  written, lost by a power cut, or not replicated yet. A checkpoint is saved every `log.checkpoint_interval_ms` (30 s) while
  there are writes and whenever a segment is sealed, so that much a reader is behind.

A checkpoint that is missing or damaged says nothing of what was durable. Then everything sound in the files counts, and
one reading of them finds the transactions.

What the checkpoint knows and the files do not have (a missing first or last segment, a file that was cut) stays within
the bounds of the log, so that whoever reads there learns of the loss.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

from goqueue.log.aborted import TransactionWalk, save_aborted
from goqueue.log.checkpoint import FILE_NAME as CHECKPOINT
from goqueue.log.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from goqueue.log.partition_log import PartitionLog
from goqueue.log.recovery import open_log
from goqueue.log.scan import Found, Scanner
from goqueue.log.segment import LOG_SUFFIX, segment_prefix
from goqueue.model.errors import DataCorrupt
from goqueue.model.settings import TopicSettings
from goqueue.pipeline.errors import DataLoss, PipelineError
from goqueue.pipeline.files.snapshot import FolderSnapshot
from goqueue.pipeline.files.storage import Listed, Storage, content_of
from goqueue.pipeline.files.transactions import OpenTransactions, producer_table
from goqueue.pipeline.span import Place

logger = logging.getLogger(__name__)

T = TypeVar("T")

LOGS = "logs"
ATTEMPT_COUNT_MAX = 10  # to find a folder that a broker works on at rest
_VIEW_COUNT_MAX = 512

_views: dict[tuple[str, bool], PartitionView] = {}  # by folder, and whether it ends at the checkpoint


@dataclass(frozen=True, slots=True)
class PartitionView:
    """Never changes: a folder that has changed gets another."""

    folder: str
    listing: tuple[Listed, ...]
    files: dict[int, Listed]  # of the segments, by base offset
    log: PartitionLog
    earliest: int
    high_watermark: int
    first_open_offset: int | None
    is_live: bool

    @property
    def last_stable_offset(self) -> int:
        first = self.first_open_offset
        return self.high_watermark if first is None else max(self.earliest, min(first, self.high_watermark))

    def latest(self, *, committed: bool) -> int:
        return self.last_stable_offset if committed else self.high_watermark

    @property
    def lost_from(self) -> int | None:
        """From where on the files do not have what the checkpoint knows."""
        return self.log.end if self.log.end < self.high_watermark else None

    @property
    def set_aside(self) -> int | None:
        """The first segment behind a hole that the checkpoint does not know of: a start would take it for never
        durable."""
        known = {segment.base_offset for segment in self.log.segments}
        return min((base for base in self.files if base not in known and base >= self.log.end), default=None)

    def is_outdated_by(self, listing: Sequence[Listed]) -> bool:
        """Whether the files below it have been replaced or removed. The last one may have grown."""
        now = {entry.name: entry for entry in listing}
        last = max(self.files, default=-1)
        for base, then in self.files.items():
            entry = now.get(then.name)
            if entry is None or (entry != then and base != last) or entry.size < then.size:
                return True
        return False


def partition_folder(place: Place) -> str:
    return f"{LOGS}/{place.topic}/{place.partition}"


def open_view(storage: Storage, place: Place, *, is_live: bool) -> PartitionView:
    """The view of a folder that may be empty or missing. One that was made before in this process serves as long as
    the folder's listing is the same."""
    folder = partition_folder(place)
    key = (storage.locate(folder), is_live)
    for _ in range(ATTEMPT_COUNT_MAX):
        known = _views.get(key)
        if known is not None and known.listing == tuple(storage.list(folder) or ()):
            return known
        checkpoint = content_of(storage, f"{folder}/{CHECKPOINT}")
        listing = tuple(storage.list(folder) or ())
        if content_of(storage, f"{folder}/{CHECKPOINT}") != checkpoint:
            continue
        try:
            view = view_of(storage, folder, listing, checkpoint, is_live=is_live)
        except FileNotFoundError:  # removed or replaced since it was listed
            continue
        if len(_views) >= _VIEW_COUNT_MAX:
            _views.pop(next(iter(_views)))
        _views[key] = view
        return view
    raise PipelineError(
        f"{storage.locate(folder)} changed {ATTEMPT_COUNT_MAX} times while it was opened; try again, or read from "
        "its broker instead"
    )


def steadily(storage: Storage, opened: Callable[[], PartitionView], use: Callable[[PartitionView], T]) -> T:
    """What `use` finds in a view, of another one if the files below it go meanwhile."""
    for _ in range(ATTEMPT_COUNT_MAX):
        view = opened()
        try:
            return use(view)
        except (OSError, DataCorrupt, DataLoss) as error:
            if view.is_outdated_by(storage.list(view.folder) or ()):
                continue
            if isinstance(error, OSError):
                raise unreadable(view, error) from error
            raise
    raise PipelineError(f"{view.folder} changed {ATTEMPT_COUNT_MAX} times while it was read; try again")


def unreadable(view: PartitionView, error: OSError) -> PipelineError:
    return PipelineError(f"{view.folder} cannot be read: {error}")


def view_of(
    storage: Storage, folder: str, listing: tuple[Listed, ...], content: bytes | None, *, is_live: bool
) -> PartitionView:
    """The view of a folder that had these files, and a checkpoint with this content."""
    snapshot = FolderSnapshot(storage, folder, listing, content)
    loaded = load_checkpoint(snapshot, folder)
    if isinstance(loaded, str):
        logger.warning("checkpoint ignored folder=%s reason=%s", storage.locate(folder), loaded)
    checkpoint = loaded if isinstance(loaded, Checkpoint) else _assumed(snapshot, folder)
    is_live = is_live and checkpoint is loaded
    if is_live:
        snapshot.end_at(checkpoint)
    transactions = OpenTransactions()
    log, _ = open_log(snapshot, folder, TopicSettings(), transactions)
    if checkpoint is not loaded:
        # They were learnt from the batches: one wrong bit in an epoch would speak against all that follow.
        log.epochs.truncate(0)
    for segment in log.segments:
        segment.release()  # views are many and descriptors few
    known = checkpoint.high_watermark
    return PartitionView(
        folder,
        listing,
        {base: entry for base, entry in snapshot.listed.items() if base >= _first_base(log)},
        log,
        earliest=checkpoint.log_start,
        high_watermark=known if is_live else max(known, log.end),
        first_open_offset=transactions.first_offset,
        is_live=is_live,
    )


def _first_base(log: PartitionLog) -> int:
    return log.segments[0].base_offset if log.segments else 0


def _assumed(snapshot: FolderSnapshot, folder: str) -> Checkpoint:
    """In place of one that cannot be read: every segment but the last was sealed, and the last is to be checked."""
    bases = sorted(snapshot.listed)
    walk = TransactionWalk()
    for base, following in pairwise(bases):
        file = snapshot.open(segment_prefix(folder, base) + LOG_SUFFIX)
        for item in Scanner(file, file.size(), check_crc=True).scan(0, base):
            if isinstance(item, Found) and item.header.base_offset < following:
                walk.note(item.header, item.data)
    first, last = (bases[0], bases[-1]) if bases else (0, 0)
    relied_on = walk.aborted.digest(first, last)
    checkpoint = Checkpoint(
        log_start=first,
        high_watermark=last,
        clean_end=first,
        recovery_offset=last,
        recovery_segment=last,
        recovery_position=0,
        recovery_max_timestamp=-1,
        epoch_latest=-1,
        epochs=[],
        owner=producer_table(walk.open),
        aborted_count=relied_on.entry_count,
        aborted_crc=relied_on.crc,
    )
    save_aborted(snapshot, folder, walk.aborted)
    save_checkpoint(snapshot, folder, checkpoint)
    return checkpoint
