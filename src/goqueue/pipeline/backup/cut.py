"""One moment of a whole data folder, also while a broker writes to it.

Logs only grow, so a moment of a log is how long its files were. Of all logs together it must be one that a crash could have
left, for a crash is what the broker recovers from. What its own logs say must be true of the others:

- an offset commit, a ledger or a schedule speaks of records that are there. So those logs are cut *before* the topics;
- a transaction is ended in `__transaction_state` first and in the topics then; a delayed message is decided on in its
  schedule, a dead letter in its ledger, before they are appended, each under the next sequence of a producer. Had those logs
  stopped earlier than the topics, they would decide again on what has happened. So *they do not change* between the
  first look at them and the last.

To look is to ask for the size of one file a partition, some microseconds each. That they are still the same afterwards is
soon found, and if not, one looks again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from goqueue.log.checkpoint import FILE_NAME as CHECKPOINT
from goqueue.log.segment import LOG_SUFFIX
from goqueue.pipeline.errors import OptionError, PipelineError
from goqueue.pipeline.files.storage import Listed, LocalStorage, Storage, content_of
from goqueue.pipeline.files.view import LOGS, partition_folder
from goqueue.pipeline.span import Place

OFFSETS_TOPIC = "__consumer_offsets"
_INTERNAL = "__"
_LISTING_COUNT_MAX = 50
_LOOK_COUNT_MAX = 2_000
_PAUSE_S = 0.002


@dataclass(frozen=True, slots=True)
class CutPartition:
    """A partition's folder at the moment of the cut. The checkpoint may be older than the files, as after a crash."""

    place: Place
    listing: tuple[Listed, ...]
    checkpoint: bytes | None


@dataclass(frozen=True, slots=True)
class Cut:
    taken_ms: int
    partitions: tuple[CutPartition, ...]


def check_source(storage: Storage) -> None:
    if storage.list(LOGS) is None:
        raise OptionError(
            f"{storage.locate(LOGS)} is not there: the path of a data folder or of a copy of one is wanted"
        )


def take_cut(
    storage: Storage, *, now_ms: Callable[[], int], sleep: Callable[[float], None] = time.sleep
) -> Cut:
    check_source(storage)
    for _ in range(_LISTING_COUNT_MAX):
        before = _folders(storage)
        taken_ms = now_ms()
        last = _last_files(storage, before, sleep) if isinstance(storage, LocalStorage) else {}
        if last is None:
            continue
        after = {place: storage.list(partition_folder(place)) for place in before}
        if all(_is_same(one.listing, after[place]) for place, one in before.items()):
            return Cut(taken_ms, tuple(_cut(one, last.get(place)) for place, one in sorted(before.items())))
    raise PipelineError(
        f"{storage.locate('')} changed {_LISTING_COUNT_MAX} times while it was looked at: its broker is too busy for a "
        "backup of its folder; take one of a snapshot of the file system, or stop the broker"
    )


def _folders(storage: Storage) -> dict[Place, CutPartition]:
    found: dict[Place, CutPartition] = {}
    for topic in storage.list(LOGS) or ():
        for partition in (storage.list(f"{LOGS}/{topic.name}") or ()) if topic.is_dir else ():
            if not partition.is_dir or not partition.name.isdecimal():
                continue
            place = Place(topic.name, int(partition.name))
            folder = partition_folder(place)
            checkpoint = content_of(storage, f"{folder}/{CHECKPOINT}")
            found[place] = CutPartition(place, tuple(storage.list(folder) or ()), checkpoint)
    return found


def _last_files(
    storage: LocalStorage, folders: dict[Place, CutPartition], sleep: Callable[[float], None]
) -> dict[Place, Listed] | None:
    """The file that each partition is written to, all at one moment; None if there is none in sight."""
    paths = {
        place: (name, storage.locate(f"{partition_folder(place)}/{name}"))
        for place, one in folders.items()
        if (name := _last_segment(one.listing)) is not None
    }
    deciding = [place for place in paths if _decides(place.topic)]
    offsets = [place for place in paths if place.topic == OFFSETS_TOPIC]
    topics = [place for place in paths if not place.topic.startswith(_INTERNAL)]

    def sizes(places: Iterable[Place]) -> dict[Place, Listed]:
        return {place: _stat(*paths[place]) for place in places}

    try:
        for _ in range(_LOOK_COUNT_MAX):
            decided = sizes(deciding)
            found = decided | sizes(offsets) | sizes(topics)
            if sizes(deciding) == decided:
                return found
            sleep(_PAUSE_S)
    except FileNotFoundError:  # deleted, or compacted away
        return None
    return None


def _decides(topic: str) -> bool:
    """The catalogue, transactions, ledgers and schedules."""
    return topic.startswith(_INTERNAL) and topic != OFFSETS_TOPIC


def _stat(name: str, path: str) -> Listed:
    status = os.stat(path)
    return Listed(name, status.st_size, False, status.st_mtime_ns)


def _last_segment(listing: Iterable[Listed]) -> str | None:
    return max((entry.name for entry in listing if entry.name.endswith(LOG_SUFFIX)), default=None)


def _is_same(before: tuple[Listed, ...], after: list[Listed] | None) -> bool:
    """Whether it has the same segments, of which only the last has changed."""
    return after is not None and _segments(before) == _segments(after)


def _segments(listing: Iterable[Listed]) -> list[Listed | str]:
    entries = [entry for entry in listing if entry.name.endswith((LOG_SUFFIX, ".swap"))]
    last = _last_segment(entries)
    return [entry.name if entry.name == last else entry for entry in entries]


def _cut(found: CutPartition, last: Listed | None) -> CutPartition:
    if last is None:
        return found
    listing = tuple(last if entry.name == last.name else entry for entry in found.listing)
    return CutPartition(found.place, listing, found.checkpoint)
