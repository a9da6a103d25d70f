"""Everything that Spark does in the demo, in one session: the pipeline, then the archive, the audit and the traces."""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from demo.diary import TOPIC
from demo.shift import DEAD_LETTERS
from goqueue.pipeline.declarative.loading import load, with_bootstrap
from goqueue.pipeline.declarative.pipeline_run import RunOptions
from goqueue.pipeline.declarative.running import run_pipelines
from goqueue.pipeline.declarative.state import RunState
from goqueue.pipeline.jobs import archive, audit, traces
from goqueue.pipeline.jobs.report import Report
from goqueue.pipeline.jobs.selection import Selection
from goqueue.pipeline.lake.reading import read_lake
from goqueue.pipeline.origin import Origin
from goqueue.pipeline.session.session import SessionOptions, start_session

SOURCES: Final = Path(__file__).parent
PIPELINE: Final = "orders.yaml"
_STDERR: Final = 2
_ENRICHED: Final = "lake/orders-enriched"
_SETTINGS: Final = {"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "1g"}


@contextmanager
def spark_session(log: Path) -> Iterator[SparkSession]:
    """A start that is fast counts for more here than long runs that are. What Java and Spark's workers say is in the log."""
    with _errors_to(log):
        spark = start_session(SessionOptions("goqueue demo", settings=_SETTINGS, is_short=True))
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def _errors_to(log: Path) -> Iterator[None]:
    """For processes that are started in the block, and theirs."""
    sys.stderr.flush()
    kept = os.dup(_STDERR)
    with log.open("wb") as stream:
        os.dup2(stream.fileno(), _STDERR)
    try:
        yield
    finally:
        os.dup2(kept, _STDERR)
        os.close(kept)


@dataclass(frozen=True, slots=True)
class Analysis:
    """`folder` has the shop's tables in it and gets the lake."""

    spark: SparkSession
    bootstrap: str
    folder: Path

    @property
    def origin(self) -> Origin:
        return Origin(bootstrap=self.bootstrap)

    def run_pipeline(self, on_batch: Callable[[str], None]) -> RunState:
        """Reads what is there and ends. Told is each micro-batch."""
        shutil.copy(SOURCES / PIPELINE, self.folder)
        definition = with_bootstrap(load(self.folder / PIPELINE), self.bootstrap)
        seen: dict[str, int] = {}

        def changed(run: RunState, name: str | None) -> None:
            query = run.queries.get(name or "")
            if query is None or query.batch_id is None or seen.get(name or "") == query.batch_id:
                return
            seen[name or ""] = query.batch_id
            on_batch(
                f"{name}, batch {query.batch_id}: {query.rows_in:,} rows in, {query.rows_out or 0:,} out"
            )

        options = RunOptions(is_available_now=True, on_change=changed)
        (state,) = run_pipelines(self.spark, [definition], options, threading.Event())
        return state

    def enriched_rows(self) -> int:
        return self.spark.read.parquet(str(self.folder / _ENRICHED)).count()

    def archive(self) -> Report:
        request = archive.ArchiveRequest(self.origin, [TOPIC, DEAD_LETTERS], str(self.folder / "lake"))
        return archive.run(self.spark, request)

    def archived_rows(self, topic: str) -> int:
        return read_lake(self.spark, str(self.folder / "lake"), topic).count()

    def audit(self) -> Report:
        request = audit.AuditRequest(
            Selection(self.origin, [TOPIC]),
            audit.FileSchema(str(SOURCES / "order.json")),
            new_schema=audit.FileSchema(str(SOURCES / "order-v2.json")),
            samples=3,
        )
        return audit.run(self.spark, request)

    def traces(self) -> Report:
        topics = Selection(self.origin, [TOPIC, DEAD_LETTERS])
        request = traces.TracesRequest([str(self.folder / "traces")], topics, slow=5)
        return traces.run(self.spark, request)
