"""Replay: records of a topic, or of its archive, once more into a topic, with their own keys, headers and times.

The order of the records of a key stays what it was: a task reads whole partitions and writes them in the order of their
offsets. An archive has lost that order over its files, so it is sorted again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from goqueue.pipeline.connection import CONNECTION_OPTIONS
from goqueue.pipeline.errors import OptionError
from goqueue.pipeline.jobs.report import Report
from goqueue.pipeline.lake.reading import read_lake
from goqueue.pipeline.options import PREFIXES
from goqueue.pipeline.origin import Origin
from goqueue.pipeline.spark_errors import SPARK_ERRORS, quiet, told

_COLUMNS = ("key", "value", "headers", "timestamp")
_BOUNDS = ("startingOffsets", "endingOffsets")


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """From `topic` of `origin`, or of `lake`, to topic `to` of `target`. Times are milliseconds, the last excluded."""

    origin: Origin
    target: Origin
    topic: str
    to: str
    lake: str | None = None
    where: str | None = None  # over the columns of a read
    time_min_ms: int | None = None
    time_max_ms: int | None = None
    bounds: Mapping[str, str] = field(default_factory=dict)  # startingOffsets, endingOffsets
    keeps_partitions: bool = False  # else a record goes where its key belongs in the target
    sink_options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        unknown = sorted(set(self.bounds) - set(_BOUNDS))
        if unknown:
            raise OptionError(f"{', '.join(unknown)} cannot bound a replay; {' and '.join(_BOUNDS)} can")
        if "topic" in {name.lower() for name in self.sink_options}:
            raise OptionError(f"the topic to write is {self.to!r}; no option of the sink may name another")
        if self.lake is not None and self.origin.path is not None:
            raise OptionError(
                f"lake is {self.lake!r} and path is {self.origin.path!r}; records are read from one of them"
            )
        if self.lake is not None and self.bounds:
            raise OptionError("an archive is bounded by time or by where; offsets bound a topic")
        if (
            self.time_min_ms is not None
            and self.time_max_ms is not None
            and self.time_min_ms >= self.time_max_ms
        ):
            raise OptionError(
                f"a replay from {self.time_min_ms} to {self.time_max_ms} ms has nothing in it; the first must be less"
            )


def to_write_to(origin: Origin, bootstrap: str | None = None) -> Origin:
    """The broker that the records came from, or another; of the options of reading only those of the connection."""
    names = {name.lower() for option in CONNECTION_OPTIONS for name in option.names}
    options = {name: text for name, text in origin.options.items() if _bare(name) in names}
    return Origin(bootstrap or origin.bootstrap, None, options if bootstrap is None else {})


def _bare(name: str) -> str:
    for prefix in PREFIXES:
        name = name.lower().removeprefix(prefix)
    return name


def selected(
    records: DataFrame,
    *,
    where: str | None = None,
    time_min_ms: int | None = None,
    time_max_ms: int | None = None,
) -> DataFrame:
    """The records within the times that the condition holds for."""
    if time_min_ms is not None:
        records = records.where(f.col("timestamp") >= f.timestamp_millis(f.lit(time_min_ms)))
    if time_max_ms is not None:
        records = records.where(f.col("timestamp") < f.timestamp_millis(f.lit(time_max_ms)))
    if where is None:
        return records
    try:
        with quiet():
            return records.where(where)
    except SPARK_ERRORS as error:
        raise OptionError(f"where is {where!r}, which Spark refuses: {told(error).sentence}") from None


def to_write(records: DataFrame, *, keeps_partitions: bool) -> DataFrame:
    """What the sink takes of them."""
    return records.select(*_COLUMNS, *(("partition",) if keeps_partitions else ()))


def in_order(records: DataFrame) -> DataFrame:
    """Whole partitions, each in the order of its offsets."""
    return records.repartition("partition").sortWithinPartitions("partition", "offset")


def run(spark: SparkSession, request: ReplayRequest) -> Report:
    records = selected(
        _records(spark, request),
        where=request.where,
        time_min_ms=request.time_min_ms,
        time_max_ms=request.time_max_ms,
    )
    if request.lake is not None:
        records = in_order(records)
    rows = to_write(records, keeps_partitions=request.keeps_partitions)
    written = request.target.write(rows, **{"topic": request.to, **request.sink_options})
    counts = {"records": written.count, "bad_rows": sum(written.bad_rows.values())}
    return Report(
        "replay", counts, notes=[f"{reason}: {count}" for reason, count in written.bad_rows.items()]
    )


def _records(spark: SparkSession, request: ReplayRequest) -> DataFrame:
    if request.lake is not None:
        return read_lake(
            spark,
            request.lake,
            request.topic,
            time_min_ms=request.time_min_ms,
            time_max_ms=request.time_max_ms,
        )
    options: dict[str, str | int | bool] = {"columns": "*", "wholePartitions": True, **request.bounds}
    if request.time_min_ms is not None and "startingOffsets" not in request.bounds:
        options |= {"startingTimestamp": request.time_min_ms, "startingOffsetsByTimestampStrategy": "latest"}
    return request.origin.read(spark, [request.topic], **options)
