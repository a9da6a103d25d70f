"""Archive into a table format that the Spark at hand can write, such as Delta or Iceberg.

Those keep their own log of what was committed, so here the archive is a streaming query that ends when it has caught up: its
checkpoint beside the table is the progress, and the table format makes a repeated micro-batch count once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from goqueue.pipeline.errors import OptionError, PipelineError
from goqueue.pipeline.jobs.report import Report
from goqueue.pipeline.lake.writing import DATE_COLUMN
from goqueue.pipeline.origin import Origin
from goqueue.pipeline.spark_errors import SPARK_ERRORS

CHECKPOINT = "_goqueue_checkpoint"


@dataclass(frozen=True, slots=True)
class StreamRequest:
    origin: Origin
    topics: Sequence[str]
    lake: str
    format: str
    fails_on_loss: bool = True

    def __post_init__(self) -> None:
        if not self.lake or not self.topics:
            raise OptionError(
                f"lake is {self.lake!r} and topics are {list(self.topics)}; neither may be empty"
            )


def with_date(records: DataFrame) -> DataFrame:
    """The records with the date (UTC) by which their table is partitioned."""
    return records.withColumn(DATE_COLUMN, f.to_date("timestamp"))


def run(spark: SparkSession, request: StreamRequest) -> Report:
    rows = [(topic, _archive_topic(spark, request, topic)) for topic in request.topics]
    counts = {"records": sum(count for _, count in rows)}
    return Report("archive", counts, headings=("topic", "records"), rows=list(rows))


def _archive_topic(spark: SparkSession, request: StreamRequest, topic: str) -> int:
    target = f"{request.lake.rstrip('/')}/{topic}"
    records = request.origin.stream(
        spark, [topic], startingOffsets="earliest", columns="*", failOnDataLoss=request.fails_on_loss
    )
    writer = (
        with_date(records)
        .writeStream.format(request.format)
        .partitionBy(DATE_COLUMN)
        .option("checkpointLocation", f"{target}/{CHECKPOINT}")
        .trigger(availableNow=True)
    )
    try:
        query = writer.start(target)
    except SPARK_ERRORS as error:
        if "DATA_SOURCE_NOT_FOUND" not in str(error):
            raise
        raise PipelineError(
            f"this Spark cannot write format {request.format!r}; add its package (--conf spark.jars.packages=...) "
            "or archive as parquet"
        ) from None
    query.awaitTermination()
    return sum(int(progress["numInputRows"]) for progress in query.recentProgress)
