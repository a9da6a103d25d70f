"""How short a micro-batch can be: a hundred rows at a time, as fast as Spark starts one trigger after the other.

Spark keeps two files for every trigger; a source inside the JVM shows what remains of it without us."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from bench.child import Broker
from bench.line import BenchFailed, Line, Rounds, require, spread
from bench.peers.spark_connector import FORMAT as CONNECTOR_FORMAT
from bench.peers.spark_connector import NAME as CONNECTOR
from bench.peers.spark_connector import connector_title
from bench.scale import Run
from bench.spark_rows import Pool, content
from bench.spark_topics import Filled, fill_folder, read_topic
from bench.workspace import fresh_folder
from goqueue.pipeline.origin import Origin

TRIGGER_ROWS = 100
_VALUE_BYTES = 100
_SOURCE, _TARGET = "floor", "floor-copy"
_TIMEOUT_S = 120.0
_POLL_S = 0.02
_PHASES = ("walCommit", "latestOffset", "queryPlanning", "addBatch", "commitBatch", "commitOffsets")


@dataclass(frozen=True, slots=True)
class Stream:
    name: str
    title: str
    frame: Callable[[], DataFrame]
    topic: str | None = None  # where it goes, else nowhere


@dataclass(frozen=True, slots=True)
class Floor:
    """Milliseconds of each trigger, and of its parts."""

    triggers: list[float]
    phases: dict[str, float]  # medians


def run(run: Run) -> list[Line]:
    if not run.spark.has_spark():
        return []
    scale = run.scale.spark
    trigger_count = scale.trigger_warm_count + scale.trigger_count
    with fresh_folder(run.folder) as folder:
        pool = Pool(1, batch_rows=TRIGGER_ROWS, value_bytes=_VALUE_BYTES, key_count=TRIGGER_ROWS)
        rows = content(pool, batch_count=trigger_count, partition_count=1)
        fill_folder(folder / "data", [Filled(_SOURCE, rows)])
        with Broker(folder / "data") as broker:
            origin = Origin(f"127.0.0.1:{broker.ports['kafka']}")
            with origin.connect() as cluster:
                cluster.create_topic(_TARGET, 1)
            streams = _streams(run, origin)
            taken = {
                one.name: _measure(one, origin, folder / one.name, trigger_count, scale.trigger_warm_count)
                for one in streams
            }
            _verify_copy(origin, rows.row_count)
    return _lines({one.name: one for one in streams}, taken)


def _streams(run: Run, origin: Origin) -> list[Stream]:
    spark = run.spark.session()

    def read() -> DataFrame:
        return origin.stream(spark, [_SOURCE], startingOffsets="earliest", maxOffsetsPerTrigger=TRIGGER_ROWS)

    def read_by_connector() -> DataFrame:
        return _connector_frame(spark, origin.bootstrap or "")

    streams = [
        Stream("rate", "a source inside the JVM", lambda: _rate_frame(spark)),
        Stream("read", "topic to nowhere", read),
        Stream("copy", "topic to topic, exactly once", lambda: read().select("key", "value"), _TARGET),
    ]
    if run.spark.has_connector:
        streams.append(Stream(CONNECTOR, f"{connector_title()} to nowhere", read_by_connector))
    return streams


def _rate_frame(spark: SparkSession) -> DataFrame:
    reader = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", str(TRIGGER_ROWS))
    return reader.option("numPartitions", "1").load()


def _connector_frame(spark: SparkSession, address: str) -> DataFrame:
    reader = spark.readStream.format(CONNECTOR_FORMAT).option("kafka.bootstrap.servers", address)
    reader = reader.option("subscribe", _SOURCE).option("maxOffsetsPerTrigger", str(TRIGGER_ROWS))
    return reader.option("startingOffsets", "earliest").load()


def _measure(stream: Stream, origin: Origin, checkpoint: Path, trigger_count: int, warm_count: int) -> Floor:
    writer = stream.frame().writeStream.option("checkpointLocation", str(checkpoint))
    if stream.topic is None:
        writer = writer.format("noop")
    else:
        writer = writer.format("goqueue").options(**origin.place()).option("topic", stream.topic)
    query = writer.trigger(processingTime="0 seconds").start()
    try:
        deadline = time.monotonic() + _TIMEOUT_S
        while len(query.recentProgress) < trigger_count:
            require(query.exception() is None, f"{stream.title}: {query.exception()}")
            if time.monotonic() > deadline:
                raise BenchFailed(f"{stream.title}: {trigger_count} triggers took over {_TIMEOUT_S:g} s")
            time.sleep(_POLL_S)
        progress: list[Any] = list(query.recentProgress)[warm_count:trigger_count]
    finally:
        query.stop()
    for one in progress:
        rows = one["numInputRows"]
        require(rows == TRIGGER_ROWS, f"{stream.title}: a trigger had {rows} rows, not {TRIGGER_ROWS}")
    return floor_of([one["durationMs"] for one in progress])


def _verify_copy(origin: Origin, row_count: int) -> None:
    access = origin.access(topic=_TARGET)
    found = sum(batch.num_rows for _, batch in read_topic(access, _TARGET, ("offset",)))
    require(found == row_count, f"{row_count} rows were to be copied, {found} are there")


def floor_of(durations: list[dict[str, int]]) -> Floor:
    """Of what Spark says of each trigger."""
    phases = {
        phase: spread([float(one.get(phase, 0)) for one in durations]).median
        for phase in _PHASES
        if any(phase in one for one in durations)
    }
    return Floor([float(one["triggerExecution"]) for one in durations], phases)


def _lines(streams: dict[str, Stream], taken: dict[str, Floor]) -> list[Line]:
    lines = []
    for name, peer in (("read", "rate"), ("read", CONNECTOR), ("copy", "rate")):
        if peer not in taken:
            continue
        mine, other = taken[name], taken[peer]
        details: dict[str, float | str] = {f"{phase}_ms": amount for phase, amount in mine.phases.items()}
        details |= {f"{peer}_{phase}_ms": amount for phase, amount in other.phases.items()}
        lines.append(
            Rounds(mine.triggers, other.triggers).line(
                f"spark.trigger.{name}.vs_{peer}",
                f"one micro-batch of {TRIGGER_ROWS} rows, {streams[name].title}; against {streams[peer].title}",
                "ms",
                reference=streams[peer].title,
                details=details,
            )
        )
    return lines
