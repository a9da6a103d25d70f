"""Compact: key compaction of topics at rest, one task a partition, into segments that the broker opens.

The folder is a stopped broker's or a copy of one. Its lock is held meanwhile, so that no broker starts on it. A run that
was stopped left whole segments, old or new; the next one, or a broker's start, finishes what is to be finished.

Not one of a node of a cluster. Whether a tombstone may go, and what of the end of a log counts, is known by other nodes: a
replica that has not seen the tombstone would bring its key back, and what was never committed would take the place of what was.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import msgspec
from pyspark.sql import SparkSession

from goqueue.log.folder import DataFolder, FolderLocked
from goqueue.log.os_disk import OsDisk
from goqueue.model.errors import GoQueueError
from goqueue.model.settings import TopicSettings, resolve
from goqueue.pipeline.errors import OptionError, PipelineError
from goqueue.pipeline.files.catalogue import metadata_events
from goqueue.pipeline.files.snapshot import FolderSnapshot
from goqueue.pipeline.files.storage import LocalStorage, Storage, content_of, open_storage
from goqueue.pipeline.files.view import LOGS, partition_folder
from goqueue.pipeline.jobs.compact_log import Compacted, alone_in, compact_log
from goqueue.pipeline.jobs.report import Report
from goqueue.pipeline.span import Place
from goqueue.pipeline.tasks import Runner, run_bundles, runner_on

_IDENTITY = "node.json"  # what a node of a cluster has beside its logs
KEY_COUNT_MAX = 4_000_000  # in memory at once, 200 MB a task; a partition with more takes several passes


@dataclass(frozen=True, slots=True)
class CompactRequest:
    path: str
    topics: Sequence[str] = ()  # none: all whose policy compacts
    is_forced: bool = False  # also topics whose policy does not compact
    is_dry: bool = False
    key_count_max: int = KEY_COUNT_MAX
    now_ms: int | None = None

    def __post_init__(self) -> None:
        if self.key_count_max < 1:
            raise OptionError(f"{self.key_count_max} keys at once are too few; one is the least")


class _Identity(msgspec.Struct):
    name: str
    cluster_id: str | None = None


@dataclass(frozen=True, slots=True)
class _Topic:
    partition_count: int
    settings: TopicSettings


def run(spark: SparkSession, request: CompactRequest) -> Report:
    return compact_topics(runner_on(spark), request)


def check(request: CompactRequest) -> Storage:
    """What is wrong with the folder, before Spark is started for nothing."""
    storage = open_storage(request.path)
    if not isinstance(storage, LocalStorage) and not request.is_dry:
        raise OptionError(
            f"{request.path!r} is no local folder: segments are replaced by renaming, which only a disk can do"
        )
    if storage.is_held():
        raise PipelineError(f"a broker runs on {request.path!r}; stop it first, or compact a copy")
    if storage.list(LOGS) is None:
        raise OptionError(f"{storage.locate(LOGS)} is not there: the path of a data folder is wanted")
    if not request.is_dry:
        _refuse_cluster(storage, request.path)
    return storage


def _refuse_cluster(storage: Storage, path: str) -> None:
    content = content_of(storage, _IDENTITY)
    if content is None:
        return
    try:
        identity = msgspec.json.decode(content, type=_Identity)
    except msgspec.DecodeError as error:
        raise PipelineError(f"{storage.locate(_IDENTITY)} cannot be read: {error}") from None
    if identity.cluster_id is not None:
        raise PipelineError(
            f"{path!r} is the folder of node {identity.name!r} of a cluster: what may go is not known without the other nodes. "
            "They compact by themselves while they run; to have it sooner, alter the topic: min.cleanable.dirty.ratio=0. A copy "
            f"that no node will start on again may be compacted without its {_IDENTITY}"
        )


def compact_topics(runner: Runner, request: CompactRequest) -> Report:
    storage = check(request)
    with _locked(request):
        items, sizes = _planned(storage, request)
        path, is_dry, key_count_max = request.path, request.is_dry, request.key_count_max
        now_ms = int(time.time() * 1_000) if request.now_ms is None else request.now_ms

        def work(item: tuple[Place, TopicSettings]) -> Compacted:
            return compact_partition(path, *item, now_ms=now_ms, key_count_max=key_count_max, is_dry=is_dry)

        done = run_bundles(runner, work, items, sizes)
    return _report(sorted(done, key=lambda one: one.place), is_dry=request.is_dry)


def compact_partition(
    path: str, place: Place, settings: TopicSettings, *, now_ms: int, key_count_max: int, is_dry: bool
) -> Compacted:
    """In an executor."""
    folder = partition_folder(place)
    if is_dry:
        storage = open_storage(path)
        listing = storage.list(folder) or []
        snapshot = FolderSnapshot(storage, folder, listing, content_of(storage, f"{folder}/checkpoint"))
        return compact_log(snapshot, place, settings, now_ms=now_ms, key_count_max=key_count_max, is_dry=True)
    with alone_in(os.path.join(path, folder)):
        return compact_log(OsDisk(path), place, settings, now_ms=now_ms, key_count_max=key_count_max)


@contextmanager
def _locked(request: CompactRequest) -> Iterator[None]:
    if request.is_dry:
        yield
        return
    try:
        folder = DataFolder.lock(request.path)
    except FolderLocked as error:
        raise PipelineError(error.sentence) from None
    try:
        yield
    finally:
        folder.release()


def _planned(
    storage: Storage, request: CompactRequest
) -> tuple[list[tuple[Place, TopicSettings]], list[int]]:
    """One item a partition, and how many bytes each has."""
    topics = _topics(storage)
    wanted = list(dict.fromkeys(request.topics)) or sorted(
        name
        for name, topic in topics.items()
        if topic.settings.cleanup_policy.compacts and not name.startswith("__")
    )
    items: list[tuple[Place, TopicSettings]] = []
    sizes: list[int] = []
    for name in wanted:
        topic = topics.get(name)
        if topic is None:
            raise OptionError(f"there is no topic {name!r} in {request.path!r}")
        if not topic.settings.cleanup_policy.compacts and not request.is_forced:
            raise OptionError(
                f"topic {name!r} has cleanup.policy={topic.settings.cleanup_policy}: compaction would remove records that "
                "its owner keeps; force it if that is what you want"
            )
        for partition in range(topic.partition_count):
            place = Place(name, partition)
            entries = storage.list(partition_folder(place))
            if entries is not None:
                items.append((place, topic.settings))
                sizes.append(sum(entry.size for entry in entries))
    return items, sizes


def _topics(storage: Storage) -> dict[str, _Topic]:
    counts: dict[str, int] = {}
    overrides: dict[str, dict[str, str]] = {}
    for event in metadata_events(storage, skips_damage=False):
        match event.event:
            case "TopicCreated":
                counts[event.name], overrides[event.name] = event.partition_count, event.overrides
            case "TopicGrown":
                counts[event.name] = event.partition_count
            case "TopicAltered":
                overrides[event.name] = event.overrides
            case "TopicDeleted":
                counts.pop(event.name, None)
    try:
        return {
            name: _Topic(count, resolve(overrides[name], TopicSettings())) for name, count in counts.items()
        }
    except GoQueueError as error:
        raise PipelineError(f"the catalogue has settings that this program does not know: {error}") from None


def _report(done: Sequence[Compacted], *, is_dry: bool) -> Report:
    failures = [f"{_shown(one.place)}: {one.failure}" for one in done if one.failure]
    notes = [f"{_shown(one.place)}: {one.note}" for one in done if one.note]
    if not done:
        notes.append("no topic has cleanup.policy=compact, and none was named: there is nothing to compact")
    return Report(
        "compact",
        counts={
            "partitions": len(done),
            "records_before": sum(one.records_before for one in done),
            "records_after": sum(one.records_after for one in done),
            "bytes_before": sum(one.bytes_before for one in done),
            "bytes_after": sum(one.bytes_after for one in done),
        },
        headings=("topic", "partition", "records_before", "records_after", "bytes_before", "bytes_after"),
        rows=[
            (*one.place, one.records_before, one.records_after, one.bytes_before, one.bytes_after)
            for one in done
            if one.pass_count or one.failure
        ],
        notes=[*failures, *notes, *(["a dry run: nothing was changed"] if is_dry else [])],
        is_failure=bool(failures),
    )


def _shown(place: Place) -> str:
    return f"{place.topic}-{place.partition}"
