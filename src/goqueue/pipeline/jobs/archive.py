"""Archive: topics into a lake, from where the last run ended. Running it again is how it goes on.

Each topic is a table of Parquet files by date (`goqueue.pipeline.lake`). Its manifest has the offsets that it goes up to,
so records and progress are committed as one: whatever stops a run, the next one neither misses a record nor has it twice.
A run takes a large topic in several steps, each committed, so that what is done stays done.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import TypeVar

from msgspec.structs import replace
from pyspark.sql import SparkSession

from goqueue.pipeline.arrow.decode import SpanDecoder
from goqueue.pipeline.columns import ALL_COLUMNS, arrow_schema
from goqueue.pipeline.errors import DataLoss, OptionError, PipelineError
from goqueue.pipeline.jobs.report import Report
from goqueue.pipeline.lake.manifest import Gap, LakeFile, Manifest, Table
from goqueue.pipeline.lake.merging import FILES_MIN, TARGET_BYTES, merge_files, merge_plan
from goqueue.pipeline.lake.store import Store
from goqueue.pipeline.lake.writing import LakeWriter, Staged
from goqueue.pipeline.origin import Origin
from goqueue.pipeline.source.options import Access, Sizes
from goqueue.pipeline.source.planning import plan
from goqueue.pipeline.source.transports import open_transport
from goqueue.pipeline.span import Place, Span, Transport
from goqueue.pipeline.tasks import attempt_name, run_tasks

T = TypeVar("T")
R = TypeVar("R")

COMPRESSIONS = ("zstd", "snappy", "lz4", "gzip", "none")
STEP_RECORDS = 50_000_000


@dataclass(frozen=True, slots=True)
class ArchiveRequest:
    origin: Origin
    topics: Sequence[str]
    lake: str
    compression: str = "zstd"
    step_records: int = STEP_RECORDS  # between two commits
    fails_on_loss: bool = True
    target_bytes: int = TARGET_BYTES  # of a file, once small ones are merged
    merge_at: int = FILES_MIN  # small files of a date; 0 never merges

    def __post_init__(self) -> None:
        if self.compression not in COMPRESSIONS:
            raise OptionError(
                f"compression is {self.compression!r}; it must be one of {', '.join(COMPRESSIONS)}"
            )
        if self.step_records < 1 or self.target_bytes < 1 or self.merge_at < 0:
            raise OptionError("step, target size and merge threshold of an archive must be positive")
        if not self.topics:
            raise OptionError("an archive needs at least one topic")


@dataclass(slots=True)
class _Progress:
    topic: str
    rows: int = 0
    files: int = 0
    size: int = 0
    merged: int = 0
    gaps: list[Gap] = field(default_factory=list)


def run(spark: SparkSession, request: ArchiveRequest) -> Report:
    done = [_archive_topic(spark, request, topic) for topic in request.topics]
    notes = [
        f"{one.topic}/{gap.partition}: offsets {gap.start} to {gap.end - 1} were gone before they were archived"
        for one in done
        for gap in one.gaps
    ]
    return Report(
        "archive",
        counts={
            "records": sum(one.rows for one in done),
            "files": sum(one.files for one in done),
            "bytes": sum(one.size for one in done),
            "merged_files": sum(one.merged for one in done),
        },
        headings=("topic", "records", "files", "bytes"),
        rows=[(one.topic, one.rows, one.files, one.size) for one in done],
        notes=notes,
    )


def _archive_topic(spark: SparkSession, request: ArchiveRequest, topic: str) -> _Progress:
    access = request.origin.access(topic=topic, failOnDataLoss=request.fails_on_loss)
    table = Table(request.lake, topic)
    manifest = table.open()
    progress = _Progress(topic)
    with closing(open_transport(access)) as transport:
        places = _places(transport, topic)
        ends = transport.latest(places, committed=access.committed)
        starts = transport.earliest(places)
    spans, gaps = _missing(manifest, topic, starts, ends, fails_on_loss=request.fails_on_loss)
    progress.gaps = gaps
    begun = {place.partition: start for place, start in starts.items()}
    manifest = replace(manifest, ends=begun | manifest.ends, gaps=(*manifest.gaps, *gaps))
    for step in _steps(spans, request.step_records):
        manifest = _archive_step(spark, request, access, table, manifest, step, progress)
    if request.merge_at:
        _merge(spark, request, table, manifest, progress)
    return progress


def _places(transport: Transport, topic: str) -> list[Place]:
    count = transport.topics().get(topic)
    if count is None:
        raise PipelineError(f"there is no topic {topic!r}")
    return [Place(topic, index) for index in range(count)]


def _missing(
    manifest: Manifest,
    topic: str,
    starts: dict[Place, int],
    ends: dict[Place, int],
    *,
    fails_on_loss: bool,
) -> tuple[list[Span], list[Gap]]:
    """What the table does not have yet; and what it never will."""
    spans: list[Span] = []
    gaps: list[Gap] = []
    for place, end in sorted(ends.items()):
        known = manifest.ends.get(place.partition)
        start = starts[place] if known is None else max(known, starts[place])
        if known is not None and known > end:
            raise DataLoss(
                f"the archive of {topic}/{place.partition} goes up to offset {known}, but the topic ends at {end}: it is "
                "another topic of the same name, or was restored; archive it into another lake"
            )
        if known is not None and start > known:
            if fails_on_loss:
                raise DataLoss(
                    f"{topic}/{place.partition}: offsets {known} to {start - 1} are gone before they were archived; "
                    "give failOnDataLoss=false to go on without them"
                )
            gaps.append(Gap(place.partition, known, start))
        if start < end:
            spans.append(Span(topic, place.partition, start, end))
    return spans, gaps


def _steps(spans: Sequence[Span], records_max: int) -> list[tuple[Span, ...]]:
    return plan(spans, Sizes(tasks_min=1, tasks_max=1, records_max=records_max))


def _archive_step(
    spark: SparkSession,
    request: ArchiveRequest,
    access: Access,
    table: Table,
    manifest: Manifest,
    spans: tuple[Span, ...],
    progress: _Progress,
) -> Manifest:
    run_id = uuid.uuid4().hex[:12]
    tasks = plan(spans, Sizes())
    store_uri, compression = table.store.uri, request.compression

    def work(task: tuple[Span, ...]) -> list[Staged]:
        return archive_spans(access, task, store_uri, run_id, compression)

    staged = [one for files in _stage(spark, table, run_id, work, tasks) for one in files]
    after = replace(
        manifest,
        ends=manifest.ends | {span.partition: span.end for span in spans},
        files=(*manifest.files, *(one.file for one in staged)),
        run=run_id,
        staged={one.staged: one.file.name for one in staged},
        removed=(),
    )
    progress.rows += sum(one.file.rows for one in staged)
    progress.files += len(staged)
    progress.size += sum(one.file.size for one in staged)
    return table.commit(manifest, after)


def _stage(
    spark: SparkSession, table: Table, run_id: str, work: Callable[[T], R], items: Sequence[T]
) -> list[R]:
    """What the tasks of a run give. A run that fails leaves no files behind."""
    try:
        return run_tasks(spark, work, items)
    except BaseException:
        table.discard(run_id)
        raise


def archive_spans(
    access: Access, spans: Sequence[Span], store_uri: str, run_id: str, compression: str
) -> list[Staged]:
    """In an executor: what these spans hold, as staged files."""
    writer = LakeWriter(
        Store(store_uri), run_id, attempt_name(), arrow_schema(ALL_COLUMNS), compression=compression
    )
    with closing(open_transport(access)) as transport:
        for span in spans:
            chunks = transport.read(span, committed=access.committed)
            writer.write(SpanDecoder(span, ALL_COLUMNS, committed=access.committed).decode(chunks))
    return writer.finish()


def _merge(
    spark: SparkSession, request: ArchiveRequest, table: Table, manifest: Manifest, progress: _Progress
) -> None:
    groups = merge_plan(manifest.files, target_bytes=request.target_bytes, files_min=request.merge_at)
    if not groups:
        return
    run_id = uuid.uuid4().hex[:12]
    store_uri, compression = table.store.uri, request.compression

    def work(files: tuple[LakeFile, ...]) -> Staged:
        return merge_files(Store(store_uri), run_id, attempt_name(), files, compression=compression)

    staged = _stage(spark, table, run_id, work, groups)
    gone = {file.name for group in groups for file in group}
    after = replace(
        manifest,
        files=(*(file for file in manifest.files if file.name not in gone), *(one.file for one in staged)),
        run=run_id,
        staged={one.staged: one.file.name for one in staged},
        removed=tuple(sorted(gone)),
    )
    table.commit(manifest, after)
    progress.merged = len(gone)
