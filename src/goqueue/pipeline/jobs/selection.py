"""Which records a job looks at: topics of a broker or folder, or their archives in a lake, within times."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from goqueue.pipeline.errors import OptionError, PipelineError
from goqueue.pipeline.lake.reading import read_lake
from goqueue.pipeline.origin import Origin
from goqueue.pipeline.source.transports import open_transport

_NAMES_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Selection:
    """Times are milliseconds of the records' own timestamps, the last excluded. Offsets are options of the origin."""

    origin: Origin
    topics: Sequence[str]
    lake: str | None = None
    time_min_ms: int | None = None
    time_max_ms: int | None = None

    def __post_init__(self) -> None:
        if not self.topics:
            raise OptionError("name at least one topic")
        if self.lake is not None and self.origin.path is not None:
            raise OptionError(
                f"lake is {self.lake!r} and path is {self.origin.path!r}; records are read from one of them"
            )
        if (
            self.time_min_ms is not None
            and self.time_max_ms is not None
            and self.time_min_ms >= self.time_max_ms
        ):
            raise OptionError(
                f"from {self.time_min_ms} to {self.time_max_ms} ms there is nothing; the first must be less"
            )

    def read(self, spark: SparkSession, columns: Sequence[str]) -> DataFrame:
        if self.lake is None:
            check_topics(self.origin, self.topics)
            records = self._read_topics(spark, columns)
        else:
            records = self._read_lake(spark, self.lake).select(*columns)
        if self.time_min_ms is not None:
            records = records.where(f.col("timestamp") >= f.timestamp_millis(f.lit(self.time_min_ms)))
        if self.time_max_ms is not None:
            records = records.where(f.col("timestamp") < f.timestamp_millis(f.lit(self.time_max_ms)))
        return records

    def _read_topics(self, spark: SparkSession, columns: Sequence[str]) -> DataFrame:
        options: dict[str, str | int | bool] = {"columns": ",".join(columns)}
        if self.time_min_ms is not None and "startingOffsets" not in self.origin.options:
            options |= {
                "startingTimestamp": self.time_min_ms,
                "startingOffsetsByTimestampStrategy": "latest",
            }
        return self.origin.read(spark, self.topics, **options)

    def _read_lake(self, spark: SparkSession, lake: str) -> DataFrame:
        tables = [
            read_lake(spark, lake, topic, time_min_ms=self.time_min_ms, time_max_ms=self.time_max_ms)
            for topic in self.topics
        ]
        return reduce(DataFrame.union, tables)


def topic_counts(origin: Origin) -> dict[str, int]:
    """Names to partition counts, without the broker's own."""
    with closing(open_transport(origin.access(topic="any"))) as transport:
        return transport.topics()


def check_topics(origin: Origin, topics: Sequence[str]) -> None:
    """A misspelt name is said before Spark starts to work."""
    there = sorted(topic_counts(origin))
    missing = [topic for topic in topics if topic not in there]
    if missing:
        shown = ", ".join(there[:_NAMES_SHOWN]) or "none"
        more = f" and {len(there) - _NAMES_SHOWN} more" if len(there) > _NAMES_SHOWN else ""
        raise PipelineError(f"there is no topic {', '.join(map(repr, missing))}; there are {shown}{more}")
