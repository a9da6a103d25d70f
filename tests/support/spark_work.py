"""The same work on whichever Spark: `python -m tests.support.spark_work REQUEST`, a JSON object; the last line is its result.

A topic is read and counted by key, its rows are written to another one (exactly once, as a batch), a stream copies it to a
third one, and, where jobs can run, it is archived.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import NamedTuple

import msgspec
from pyspark.sql import DataFrame, SparkSession

from goqueue.pipeline.jobs import archive
from goqueue.pipeline.jobs.archive import ArchiveRequest
from goqueue.pipeline.lake.reading import read_lake
from goqueue.pipeline.origin import Origin
from goqueue.pipeline.session.session import SessionOptions, start_session

RESULT = "result "
_STREAM_TIMEOUT_S = 180


class WorkRequest(msgspec.Struct, frozen=True):
    kafka: str
    source: str
    written: str
    streamed: str
    folder: str
    master: str | None = None
    remote: str | None = None
    settings: dict[str, str] = {}
    is_archived: bool = False


class Work(NamedTuple):
    counts: list[tuple[str, int, int]]  # key, rows, sum
    archived: list[str]
    archive_counts: dict[str, int]


def work(spark: SparkSession, request: WorkRequest) -> Work:
    origin = Origin(request.kafka)
    rows = origin.read(spark, [request.source], minPartitions=4, includeHeaders=True)
    counts = _counts(rows)
    origin.write(rows.select("key", "value", "headers"), topic=request.written)
    _stream(spark, request)
    archived, archive_counts = [], {}
    if request.is_archived:
        report = archive.run(
            spark, ArchiveRequest(origin, [request.source], f"{request.folder}/lake", merge_at=0)
        )
        archive_counts = {"records": report.counts["records"]}
        lake = read_lake(spark, f"{request.folder}/lake", request.source)
        archived = sorted(bytes(row.value).decode() for row in lake.select("value").collect())
    return Work(counts, archived, archive_counts)


def _counts(rows: DataFrame) -> list[tuple[str, int, int]]:
    frame = rows.selectExpr("cast(key as string) key", "cast(cast(value as string) as long) number")
    grouped = frame.groupBy("key").agg({"*": "count", "number": "sum"}).orderBy("key")
    return [(row[0], row[1], row[2]) for row in grouped.select("key", "count(1)", "sum(number)").collect()]


def _stream(spark: SparkSession, request: WorkRequest) -> None:
    reader = spark.readStream.format("goqueue").option("bootstrap.servers", request.kafka)
    reader = reader.option("subscribe", request.source).option("startingOffsets", "earliest")
    frame = reader.option("maxOffsetsPerTrigger", 150).option("includeHeaders", "true").load()
    writer = frame.select("key", "value", "headers").writeStream.format("goqueue")
    writer = writer.option("bootstrap.servers", request.kafka).option("topic", request.streamed)
    writer = writer.option("checkpointLocation", str(Path(request.folder) / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    if not query.awaitTermination(_STREAM_TIMEOUT_S):
        raise TimeoutError(f"the stream has not ended in {_STREAM_TIMEOUT_S} s")


def main() -> None:
    request = msgspec.json.decode(sys.argv[1], type=WorkRequest)
    options = SessionOptions("work", request.master, request.remote, request.settings, is_short=True)
    spark = start_session(options)
    try:
        print(RESULT + json.dumps(work(spark, request)), flush=True)
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
