"""Rows as a sink takes them, and the writer that takes them there."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BinaryType, DataType, MapType, StringType, StructType

from goqueue.pipeline.declarative.problems import near
from goqueue.pipeline.declarative.spec import EXPRESSIONS, Definition, SinkSpec, texts
from goqueue.pipeline.errors import PipelineError
from goqueue.pipeline.origin import FORMAT
from goqueue.pipeline.sink.options import sink_options
from goqueue.pipeline.sink.rows import check_columns

ROWS, COUNT = "goqueue_rows", "count"  # the observation that counts what is written


def rows_for(frame: DataFrame, sink: SinkSpec) -> DataFrame:
    """The rows to write, or a PipelineError that says why they do not fit."""
    if sink.topic is not None:
        rows = frame if sink.format == "columns" else _topic_rows(frame, sink)
        check_columns(
            [(field.name, field.dataType.simpleString()) for field in rows.schema.fields],
            has_topic_option=True,
        )
        return rows
    for name in sink.partition_by:
        if name not in frame.columns:
            raise PipelineError(f"partition_by has {name!r}, which is no column; {near(name, frame.columns)}")
    return frame


def counted(rows: DataFrame) -> DataFrame:
    """The number of rows that pass is in the query's progress: sinks do not report it themselves."""
    return rows.observe(ROWS, F.count(F.lit(1)).alias(COUNT))


def sink_format(sink: SinkSpec) -> str:
    if sink.topic is not None:
        return FORMAT
    return "console" if sink.console else sink.format or "parquet"


def writer_options(definition: Definition, sink: SinkSpec) -> dict[str, str]:
    """Options of the write; those of a topic are checked here, before anything runs."""
    options = texts(sink.options)
    if sink.path is not None:
        return {"path": definition.located(sink.path), **options}
    if sink.topic is None:
        return options
    broker = definition.spec.broker
    options = {"bootstrap.servers": broker.bootstrap, **texts(broker.options), "topic": sink.topic, **options}
    sink_options(options)
    return options


def write_batch(definition: Definition, sink: SinkSpec, rows: DataFrame) -> None:
    """A sink without a stream: files are replaced unless rows are to be added, a topic gets them in one transaction."""
    if sink.console:
        rows.show(int(sink.options.get("numRows", 20)))
        return
    mode = "append" if sink.topic is not None or sink.mode == "append" else "overwrite"
    writer = rows.write.format(sink_format(sink)).options(**writer_options(definition, sink)).mode(mode)
    (writer.partitionBy(*sink.partition_by) if sink.partition_by else writer).save()


def stream_writer(
    definition: Definition, sink: SinkSpec, rows: DataFrame, checkpoint: Path
) -> Any:  # Any: DataStreamWriter
    """Everything but name, checkpoint and trigger, which are the runner's."""
    options = writer_options(definition, sink)
    if sink.topic is not None and sink.mode == "update":
        return rows.writeStream.outputMode("update").foreachBatch(_once(options, checkpoint))
    writer = rows.writeStream.format(sink_format(sink)).options(**options)
    if sink.partition_by:
        writer = writer.partitionBy(*sink.partition_by)
    return writer.outputMode(sink.mode or "append")


def _once(options: dict[str, str], checkpoint: Path) -> Callable[[DataFrame, int], None]:
    """Spark gives updates to Python's sinks only batch by batch. Each is written under the id that the checkpoint gives the
    query, and its number: one that was committed before a crash is not written again."""

    def write(rows: DataFrame, batch_id: int) -> None:
        query_id = json.loads((checkpoint / "metadata").read_text())["id"]
        once = {"txnAppId": query_id, "txnVersion": str(batch_id)}
        rows.write.format(FORMAT).options(**options, **once).mode("append").save()

    return write


def activate(spark: SparkSession) -> None:
    """Makes this session the one of the thread: Spark looks for Python's data sources there."""
    SparkSession._get_j_spark_session_class(spark._jvm).setActiveSession(spark._jsparkSession)


def _topic_rows(frame: DataFrame, sink: SinkSpec) -> DataFrame:
    """Key, value and the rest by their expressions; without one the value is the whole row as JSON."""
    columns: list[Column] = []
    for name in EXPRESSIONS:
        text = getattr(sink, name)
        if text is not None:
            columns.append(_as_written(name, F.expr(text), _type_of(frame, name, text)).alias(name))
        elif name == "value":
            whole = F.struct(*(F.col(f"`{column}`") for column in frame.columns))
            columns.append(F.to_json(whole, {"ignoreNullFields": "false"}).alias(name))
    return frame.select(*columns)


def _type_of(frame: DataFrame, name: str, text: str) -> DataType:
    try:
        return frame.select(F.expr(text).alias(name)).schema.fields[0].dataType
    except Exception as error:
        from goqueue.pipeline.spark_errors import told

        raise PipelineError(f"{name} is {text!r}: {told(error).sentence}") from error


def _as_written(name: str, value: Column, kind: DataType) -> Column:
    """In a type that records have: text of numbers and dates, JSON of what has parts."""
    if name in ("key", "value") and not isinstance(kind, StringType | BinaryType):
        has_parts = isinstance(kind, StructType | ArrayType | MapType)
        return F.to_json(value) if has_parts else value.cast("string")
    if name == "headers" and isinstance(kind, MapType):
        return F.map_entries(value)
    return value
