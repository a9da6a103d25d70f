"""Restore: a backup into an empty data folder, whole or some topics of it, as it was or as it was at a time.

Everything is written beside the place where a broker looks for it and moved there in one step at the end. Whatever stops a
restore leaves a folder that a broker takes for empty, and the next restore may use.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from functools import partial

import msgspec
from pyspark.sql import SparkSession

from goqueue.log.batch import encode_batch
from goqueue.log.folder import LOCK, LOGS, DataFolder, FolderLocked
from goqueue.log.os_disk import OsDisk
from goqueue.log.partition_log import PartitionLog
from goqueue.log.recovery import open_log
from goqueue.model.record import NewRecord
from goqueue.model.settings import UNLIMITED, TopicSettings
from goqueue.pipeline.backup.manifest import Backups, Manifest, StoredPartition
from goqueue.pipeline.backup.restoring import Restored, restore_partition
from goqueue.pipeline.errors import OptionError, PipelineError
from goqueue.pipeline.files.catalogue import METADATA, MetadataEvent, metadata_events
from goqueue.pipeline.files.storage import LocalStorage
from goqueue.pipeline.files.view import partition_folder
from goqueue.pipeline.jobs.compact_log import KeptState, alone_in
from goqueue.pipeline.jobs.report import Report
from goqueue.pipeline.tasks import Runner, run_bundles, runner_on

RESTORING = "restoring"
_COMPANIONS = ("__ledger.", "__schedule.")
_INTERNAL = "__"


@dataclass(frozen=True, slots=True)
class RestoreRequest:
    place: str
    target: str
    number: int | None = None  # the newest, or with a time the first that has everything up to it
    until_ms: int | None = None
    topics: Sequence[str] = ()  # all


def run(spark: SparkSession, request: RestoreRequest) -> Report:
    return restore(runner_on(spark), request)


def check(request: RestoreRequest) -> None:
    """What is wrong with the place to restore to, before Spark is started for nothing."""
    if not request.target:
        raise OptionError("a restore needs the path of a folder; it is empty")
    if "://" in request.target:
        raise OptionError(f"{request.target!r} is no local folder: a broker can only be started on a disk")
    _refuse_full(request.target)


def restore(runner: Runner, request: RestoreRequest) -> Report:
    check(request)
    backups = Backups(request.place)
    manifest = _chosen(backups, request)
    wanted = _wanted(manifest, request.topics)
    with backups.held(), _empty_folder(request.target):
        staging = os.path.join(request.target, RESTORING)
        disk = OsDisk(request.target)
        disk.remove_tree(RESTORING)
        work = partial(_restore, request.place, staging, request.until_ms)
        restored = _whole(run_bundles(runner, work, wanted, [one.size for one in wanted]))
        _refuse_nothing(manifest, request, restored)
        notes = _settle(OsDisk(staging), staging)
        _sync(OsDisk(staging))
        disk.rename(f"{RESTORING}/{LOGS}", LOGS)
        disk.sync_dir("")
        disk.remove_tree(RESTORING)
    return _report(manifest, request, restored, notes)


def _restore(place: str, staging: str, until_ms: int | None, entry: StoredPartition) -> Restored | str:
    """In an executor. What is wrong with the backup is told rather than raised: Spark would try again, and find the same."""
    disk = OsDisk(staging)
    parent = f"{LOGS}/{entry.topic}"
    disk.make_dir(parent)
    disk.make_dir(f"attempts/{entry.topic}/{entry.partition}")
    with alone_in(os.path.join(staging, "attempts", entry.topic, str(entry.partition))):
        try:
            return restore_partition(Backups(place), entry, disk, until_ms=until_ms)
        except PipelineError as error:
            return str(error)


def _whole(results: Sequence[Restored | str]) -> list[Restored]:
    problems = [one for one in results if isinstance(one, str)]
    if problems:
        raise PipelineError(
            f"nothing was restored: the backup is damaged in {len(problems)} partitions; the first: {problems[0]}"
        )
    return [one for one in results if not isinstance(one, str)]


def _chosen(backups: Backups, request: RestoreRequest) -> Manifest:
    """A backup that was taken after the time asked for has all that was there then; one from before may not."""
    numbers = backups.numbers()
    if not numbers:
        raise PipelineError(f"there is no backup in {request.place!r}")
    if request.number is not None:
        return backups.load(request.number)
    chosen = backups.load(numbers.pop())
    while numbers and request.until_ms is not None:
        earlier = backups.load(numbers.pop())
        if earlier.taken_ms < request.until_ms:
            break
        chosen = earlier
    return chosen


def _wanted(manifest: Manifest, topics: Collection[str]) -> list[StoredPartition]:
    """With some topics come their ledgers and schedules, and what belongs to no topic: the catalogue, groups, transactions."""
    if not topics:
        return list(manifest.partitions)
    known = {one.topic for one in manifest.partitions if not one.topic.startswith(_INTERNAL)}
    for topic in topics:
        if topic not in known:
            near = get_close_matches(topic, sorted(known), n=3)
            hint = f"; did you mean {', '.join(near)}?" if near else ""
            raise OptionError(f"backup {manifest.number} has no topic {topic!r}{hint}")
    return [one for one in manifest.partitions if _owner(one.topic) in (*topics, None)]


def _owner(topic: str) -> str | None:
    """The topic that a log belongs to; None for what belongs to none."""
    for prefix in _COMPANIONS:
        if topic.startswith(prefix):
            return topic.removeprefix(prefix)
    return None if topic.startswith(_INTERNAL) else topic


@contextmanager
def _empty_folder(target: str) -> Iterator[None]:
    """Held, so that no broker starts on it meanwhile."""
    try:
        folder = DataFolder.lock(target)
    except FolderLocked as error:
        raise PipelineError(error.sentence) from None
    try:
        _refuse_full(target)
        yield
    finally:
        folder.release()


def _refuse_full(target: str) -> None:
    try:
        found = sorted(set(os.listdir(target)) - {LOCK, RESTORING})
    except FileNotFoundError:
        return
    except NotADirectoryError:
        raise OptionError(f"{target!r} is no folder") from None
    if found:
        raise OptionError(
            f"{target!r} is not empty ({', '.join(found[:3])}): restore into a new folder, then start a broker on it"
        )


def _refuse_nothing(manifest: Manifest, request: RestoreRequest, restored: Sequence[Restored]) -> None:
    """A time from before the broker's first start is a mistake: seconds for milliseconds, or a wrong year."""
    is_cut = any(one.place == METADATA and one.cut_offset_count and not one.size for one in restored)
    if request.until_ms is not None and is_cut:
        raise OptionError(
            f"nothing was restored: all of backup {manifest.number} is newer than {_instant(request.until_ms)}; "
            f"it was taken at {_instant(manifest.taken_ms)}"
        )


def _instant(ms: int) -> str:
    try:
        moment = datetime.fromtimestamp(ms / 1_000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms"
    return f"{moment:%Y-%m-%dT%H:%M:%S}Z ({ms} ms)"


# ---------------------------------------------------------------- the catalogue


def _settle(disk: OsDisk, root: str) -> list[str]:
    """Make catalogue and folders agree: a log whose topic is not in the catalogue (it was made after the time asked for)
    goes, and a topic that has no log (it was not asked for, or was deleted before the backup) is noted as deleted."""
    if not disk.list(partition_folder(METADATA)):
        return []
    counts = _partition_counts(metadata_events(LocalStorage(root), skips_damage=False))
    folders = [entry.name for entry in disk.list(LOGS) if entry.is_dir]
    for name in folders:
        count = counts.get(_owner(name) or name, 0)
        if name == METADATA.topic:
            continue
        for entry in disk.list(f"{LOGS}/{name}"):
            if int(entry.name) >= count:
                disk.remove_tree(f"{LOGS}/{name}/{entry.name}")
        if not count:
            disk.remove_tree(f"{LOGS}/{name}")
    missing = sorted(name for name in counts if name not in folders)
    if missing:
        _append_deletions(disk, missing)
    return [f"topic {name!r} is not restored: its records are not in what was asked for" for name in missing]


def _partition_counts(events: Iterator[MetadataEvent]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for event in events:
        if event.event in ("TopicCreated", "TopicGrown"):
            counts[event.name] = event.partition_count
        elif event.event == "TopicDeleted":
            counts.pop(event.name, None)
    return counts


def _append_deletions(disk: OsDisk, topics: Sequence[str]) -> None:
    log, _ = open_log(disk, partition_folder(METADATA), TopicSettings(retention_ms=UNLIMITED), KeptState())
    log.begin_epoch(log.epochs.latest + 1)
    _checkpoint(log)
    now_ms = int(time.time() * 1_000)
    events = [msgspec.json.encode({"event": "TopicDeleted", "name": topic}) for topic in topics]
    header, batch = encode_batch([NewRecord(None, event) for event in events], now_ms)
    log.append(batch, header, now_ms=now_ms)
    log.advance_high_watermark(log.end)
    _checkpoint(log)


def _checkpoint(log: PartitionLog) -> None:
    job = log.begin_checkpoint()
    job.run()
    log.finish_checkpoint(job)


def _sync(disk: OsDisk) -> None:
    """The names; the files are."""
    for topic in disk.list(LOGS):
        disk.sync_dir(f"{LOGS}/{topic.name}")
    disk.sync_dir(LOGS)


def _report(
    manifest: Manifest, request: RestoreRequest, restored: Sequence[Restored], notes: list[str]
) -> Report:
    topics: dict[str, list[Restored]] = {}
    for one in restored:
        topics.setdefault(one.place.topic, []).append(one)
    if request.until_ms is not None and manifest.taken_ms < request.until_ms:
        notes = [*notes, f"backup {manifest.number} is from before that time: what came later is not in it"]
    return Report(
        "restore",
        counts={
            "backup": manifest.number,
            "partitions": len(restored),
            "bytes": sum(one.size for one in restored),
            "offsets_cut": sum(one.cut_offset_count for one in restored),
        },
        headings=("topic", "partitions", "bytes"),
        rows=[(topic, len(found), sum(one.size for one in found)) for topic, found in sorted(topics.items())],
        notes=notes,
    )
