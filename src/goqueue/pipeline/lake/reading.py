"""A table of the lake as a frame: the files that the manifest names, and no others."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from goqueue.pipeline.columns import ALL_COLUMNS, spark_ddl
from goqueue.pipeline.errors import PipelineError
from goqueue.pipeline.lake.manifest import LakeFile, Table
from goqueue.pipeline.lake.writing import DATE_COLUMN


def read_lake(
    spark: SparkSession,
    lake: str,
    topic: str,
    *,
    time_min_ms: int | None = None,
    time_max_ms: int | None = None,
) -> DataFrame:
    """The archived records as a read of the topic gives them, and their date. Files wholly outside the times are not read;
    rows outside them may still be there."""
    table = Table(lake, topic)
    manifest = table.open()
    if manifest.number == 0:
        raise PipelineError(f"there is no archive of topic {topic!r} in the lake {lake!r}")
    names = [file.name for file in manifest.files if _overlaps(file, time_min_ms, time_max_ms)]
    schema = f"{spark_ddl(ALL_COLUMNS)}, {DATE_COLUMN} date"
    if not names:
        return spark.createDataFrame([], schema)
    reader = spark.read.schema(schema).option("basePath", table.url(""))
    return reader.parquet(*(table.url(name) for name in names))


def _overlaps(file: LakeFile, time_min_ms: int | None, time_max_ms: int | None) -> bool:
    return (time_min_ms is None or file.time_max_ms >= time_min_ms) and (
        time_max_ms is None or file.time_min_ms <= time_max_ms
    )
