"""Archive: topics into a lake, from where the last run ended. Running it again is how it goes on.

Each topic is a table of Parquet files by date (`goqueue.pipeline.lake`). Its manifest has the offsets that it goes up to,
so records and progress are committed as one: whatever stops a run, the next one neither misses a record nor has it twice.
A run takes a large topic in several steps, each committed, so that what is done stays done.

Tasks are few and large: two for each that Spark runs at once, or as many as it takes that none has too much to do again. Each
leaves at most one small file of a date, so a run of any size leaves few of them, and merges only those of runs before it:
to write a topic's worth of files and merge them at once would cost as much again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from msgspec.structs import replace
from pyspark.sql import SparkSession

from goqueue.pipeline.arrow.decode import SpanDecoder
from goqueue.pipeline.columns import ALL_COLUMNS, arrow_schema
from goqueue.pipeline.errors import DataLoss, OptionError, PipelineError
from goqueue.pipeline.jobs.report import Report
from goqueue.pipeline.lake.manifest import Gap, LakeFile, Manifest, Table
from goqueue.pipeline.lake.merging import FILES_MIN, merge_files, merge_plan
from goqueue.pipeline.lake.store import Store
from goqueue.pipeline.lake.writing import TARGET_BYTES, LakeWriter, Staged
from goqueue.pipeline.origin import Origin
from goqueue.pipeline.session.slots import task_slots
from goqueue.pipeline.source.options import Access, Sizes
from goqueue.pipeline.source.planning import plan
from goqueue.pipeline.source.transports import open_transport
from goqueue.pipeline.span import Place, Span, Transport
from goqueue.pipeline.tasks import attempt_name, run_tasks

COMPRESSIONS = ("zstd", "snappy", "lz4", "gzip", "none")
STEP_RECORDS = 50_000_000
TASK_RECORDS_MAX = 10_000_000  # some ten seconds of a core


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
        if not self.lake:
            raise OptionError("an archive needs a lake: a folder or an object store; its name is empty")


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
    gone = {gap.partition: gap.end for gap in gaps}
    known = replace(manifest, ends=begun | manifest.ends | gone, gaps=(*manifest.gaps, *gaps))
    manifest = (
        known if spans or not gaps else table.commit(manifest, replace(known, run="", staged={}, removed=()))
    )
    earlier = {file.name for file in manifest.files}
    for step in _steps(spans, request.step_records):
        manifest = _archive_step(spark, request, access, table, manifest, step, progress)
    if request.merge_at:
        _merge(spark, request, table, manifest, earlier, progress)
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
    run_id = table.begin_run(manifest)
    tasks = plan(spans, Sizes(tasks_max=_task_count_max(spark, spans)))
    store_uri, compression, target_bytes = table.store.uri, request.compression, request.target_bytes

    def work(task: tuple[Span, ...]) -> list[Staged]:
        writer = LakeWriter(
            Store(store_uri),
            run_id,
            attempt_name(),
            arrow_schema(ALL_COLUMNS),
            compression=compression,
            target_bytes=target_bytes,
        )
        return archive_spans(access, task, writer)

    with table.staging(run_id, manifest):
        staged = [one for files in run_tasks(spark, work, tasks) for one in files]
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


def _task_count_max(spark: SparkSession, spans: Sequence[Span]) -> int:
    """A multiple of what runs at once, so that all of it is busy to the end."""
    slots = task_slots(spark)
    least = -(-sum(span.size for span in spans) // TASK_RECORDS_MAX)
    return max(2, -(-least // slots)) * slots


def archive_spans(access: Access, spans: Sequence[Span], writer: LakeWriter) -> list[Staged]:
    """In an executor: what these spans hold, as staged files."""
    with closing(open_transport(access)) as transport:
        for span in spans:
            chunks = transport.read(span, committed=access.committed)
            writer.write(SpanDecoder(span, ALL_COLUMNS, committed=access.committed).decode(chunks))
    return writer.finish()


def _merge(
    spark: SparkSession,
    request: ArchiveRequest,
    table: Table,
    manifest: Manifest,
    earlier: Collection[str],
    progress: _Progress,
) -> None:
    """Of the files that earlier runs have left."""
    candidates = [file for file in manifest.files if file.name in earlier]
    groups = merge_plan(candidates, target_bytes=request.target_bytes, files_min=request.merge_at)
    if not groups:
        return
    run_id = table.begin_run(manifest)
    store_uri, compression = table.store.uri, request.compression

    def work(files: tuple[LakeFile, ...]) -> Staged:
        return merge_files(Store(store_uri), run_id, attempt_name(), files, compression=compression)

    with table.staging(run_id, manifest):
        staged = run_tasks(spark, work, groups)
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
