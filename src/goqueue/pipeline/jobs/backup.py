"""Backup: a data folder with everything that its broker knows, into a folder or an object store.

Of a stopped broker, of a snapshot of its file system, or of a running one. The cut (`backup.cut`) is one moment of all logs;
copying takes as long as it takes. What retention or compaction replaces meanwhile is met by another cut, which finds
most of it copied. The manifest is written last: until then there is no backup, and afterwards it never changes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from msgspec import structs
from pyspark.sql import SparkSession

from goqueue.pipeline.backup.copying import OFFSET_MAX, Copied, CopyTask, copy_segments
from goqueue.pipeline.backup.cut import Cut, CutPartition, check_source, take_cut
from goqueue.pipeline.backup.manifest import Backups, Manifest, StoredPartition
from goqueue.pipeline.backup.pruning import prune
from goqueue.pipeline.backup.verifying import verify_partition
from goqueue.pipeline.errors import OptionError, PipelineError
from goqueue.pipeline.files.storage import Storage, open_storage
from goqueue.pipeline.jobs.report import Report
from goqueue.pipeline.span import Place
from goqueue.pipeline.tasks import Runner, run_bundles, runner_on

TASK_BYTES = 1024 * 1024 * 1024
_CUT_COUNT_MAX = 5
_PROBLEM_COUNT_MAX = 100  # in a report


def _wall_ms() -> int:
    return int(time.time() * 1_000)


@dataclass(frozen=True, slots=True)
class BackupRequest:
    path: str
    place: str
    is_full: bool = False
    keeps_damage: bool = False
    task_bytes: int = TASK_BYTES
    now_ms: Callable[[], int] = _wall_ms

    def __post_init__(self) -> None:
        if not self.path or not self.place:
            raise OptionError("a backup needs the path of a data folder and a place to go to; one is empty")
        source, place = os.path.abspath(self.path), os.path.abspath(self.place)
        if "://" not in self.path + self.place and os.path.commonpath([source, place]) in (source, place):
            raise OptionError(f"a backup of {self.path!r} cannot be in it or around it: {self.place!r}")
        if self.task_bytes < 1:
            raise OptionError(f"{self.task_bytes} bytes a task are too few; one is the least")


@dataclass(slots=True)
class _Progress:
    """What has been copied, by the cut that it was found in."""

    known: dict[Place, StoredPartition]
    copied: set[Place] = field(default_factory=set)  # in this run: nobody needs to distrust it again
    new_bytes: int = 0
    read_bytes: int = 0
    damage: list[str] = field(default_factory=list)


def run(spark: SparkSession, request: BackupRequest) -> Report:
    return back_up(runner_on(spark), request)


def back_up(runner: Runner, request: BackupRequest) -> Report:
    backups = Backups(request.place)
    storage = open_storage(request.path)
    check_source(storage)
    backups.store.make_folder("")
    with backups.held():
        return _back_up(runner, request, backups, storage)


def _back_up(runner: Runner, request: BackupRequest, backups: Backups, storage: Storage) -> Report:
    before = backups.newest()
    progress = _Progress(_still_there(backups, before) if before else {})
    for _ in range(_CUT_COUNT_MAX):
        cut = take_cut(storage, now_ms=request.now_ms)
        entries = _copied(runner, request, cut, progress)
        if entries is not None:
            break
    else:
        raise PipelineError(
            f"files of {request.path!r} were replaced during each of {_CUT_COUNT_MAX} attempts to copy them; take a backup "
            "of a snapshot of the file system"
        )
    manifest = Manifest(
        number=before.number + 1 if before else 1,
        taken_ms=cut.taken_ms,
        source=request.path,
        is_full=request.is_full or before is None,
        new_bytes=progress.new_bytes,
        partitions=entries,
    )
    backups.commit(manifest)
    return _report(manifest, progress)


def _still_there(backups: Backups, before: Manifest) -> dict[Place, StoredPartition]:
    """What the last backup has, but for segments of which a piece was lost since: they are copied again."""
    sizes = backups.piece_sizes()
    return {
        one.place: structs.replace(
            one,
            segments=tuple(
                segment
                for segment in one.segments
                if all(sizes.get(piece.name) == piece.size for piece in segment.pieces if piece.digest)
            ),
        )
        for one in before.partitions
    }


def _copied(
    runner: Runner, request: BackupRequest, cut: Cut, progress: _Progress
) -> tuple[StoredPartition, ...] | None:
    """None if some files went before they were copied."""
    tasks = [task for one in cut.partitions for task in _tasks(one, request, progress)]
    work = partial(_copy, request.path, request.place, request.keeps_damage)
    progress.damage = []
    parts: dict[Place, list[StoredPartition]] = {}
    missing: set[Place] = set()
    sizes = [_bytes_of(task) for task in tasks]
    for task, found in zip(tasks, run_bundles(runner, work, tasks, sizes), strict=True):
        if found.failure is not None:
            raise found.failure
        progress.new_bytes += found.new_bytes
        progress.read_bytes += found.read_bytes
        progress.damage += found.damage
        if found.entry is None:
            missing.add(task.cut.place)
        else:
            parts.setdefault(task.cut.place, []).append(found.entry)
    for place, found_parts in parts.items():
        if place not in missing:
            progress.known[place] = _joined(found_parts)
            progress.copied.add(place)
    return None if missing else tuple(progress.known[one.place] for one in cut.partitions)


def _copy(path: str, place: str, keeps_damage: bool, task: CopyTask) -> Copied:
    return copy_segments(path, Backups(place), task, keeps_damage=keeps_damage)


def _tasks(cut: CutPartition, request: BackupRequest, progress: _Progress) -> list[CopyTask]:
    """Neighbouring segments together, up to so many bytes."""
    starts, size = [0], 0
    for entry in sorted(one for one in cut.listing if one.name.endswith(".log")):
        if size and size + entry.size > request.task_bytes:
            starts.append(int(entry.name.removesuffix(".log")))
            size = 0
        size += entry.size
    is_distrusted = request.is_full and cut.place not in progress.copied
    known = progress.known.get(cut.place)
    ends = [*starts[1:], OFFSET_MAX]
    return [CopyTask(cut, known, is_distrusted, start, end) for start, end in zip(starts, ends, strict=True)]


def _bytes_of(task: CopyTask) -> int:
    logs = [entry for entry in task.cut.listing if entry.name.endswith(".log")]
    return sum(entry.size for entry in logs if task.start <= int(entry.name.removesuffix(".log")) < task.end)


def _joined(parts: Sequence[StoredPartition]) -> StoredPartition:
    segments = tuple(segment for part in parts for segment in part.segments)
    return structs.replace(parts[0], segments=segments)


def _report(manifest: Manifest, progress: _Progress) -> Report:
    topics: dict[str, list[StoredPartition]] = {}
    for one in manifest.partitions:
        topics.setdefault(one.topic, []).append(one)
    return Report(
        "backup",
        counts={
            "backup": manifest.number,
            "partitions": len(manifest.partitions),
            "bytes": manifest.size,
            "read_bytes": progress.read_bytes,
            "new_bytes": manifest.new_bytes,
        },
        headings=("topic", "partitions", "bytes"),
        rows=[(topic, len(found), sum(one.size for one in found)) for topic, found in sorted(topics.items())],
        notes=progress.damage[:_PROBLEM_COUNT_MAX],
    )


# ---------------------------------------------------------------- what is there


def list_backups(place: str) -> Report:
    """Needs no Spark."""
    backups = Backups(place)
    found = [backups.load(number) for number in backups.numbers()]
    return Report(
        "backup list",
        counts={"backups": len(found)},
        headings=("backup", "taken_ms", "is_full", "partitions", "bytes", "new_bytes"),
        rows=[
            (one.number, one.taken_ms, one.is_full, len(one.partitions), one.size, one.new_bytes)
            for one in found
        ],
    )


def prune_backups(place: str, keep_count: int, *, is_dry: bool = False) -> Report:
    """Needs no Spark."""
    done = prune(Backups(place), keep_count=keep_count, is_dry=is_dry)
    return Report(
        "backup prune",
        counts={"removed": len(done.numbers), "pieces": done.piece_count, "bytes": done.piece_bytes},
        headings=("backup",),
        rows=[(number,) for number in done.numbers],
    )


def run_verify(spark: SparkSession, place: str, number: int | None = None) -> Report:
    return verify(runner_on(spark), place, number)


def verify(runner: Runner, place: str, number: int | None = None) -> Report:
    """One backup, the newest if no other is named. Fails if anything of it is missing or not what it was."""
    backups = Backups(place)
    manifest = backups.newest() if number is None else backups.load(number)
    if manifest is None:
        raise PipelineError(f"there is no backup in {place!r}")
    items = [structs.replace(manifest, partitions=(one,)) for one in manifest.partitions]
    sizes = [one.size for one in manifest.partitions]
    with backups.held():
        found = run_bundles(runner, partial(_verify, place), items, sizes)
    problems = [problem for one in found for problem in one]
    return Report(
        "backup verify",
        counts={
            "backup": manifest.number,
            "partitions": len(manifest.partitions),
            "bytes": manifest.size,
            "problems": len(problems),
        },
        notes=problems[:_PROBLEM_COUNT_MAX],
        is_failure=bool(problems),
    )


def _verify(place: str, manifest: Manifest) -> list[str]:
    return verify_partition(Backups(place), manifest, manifest.partitions[0])
