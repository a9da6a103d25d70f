"""The writers that the data source hands to Spark. Everything that can be said before a task runs is said here."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.types import StructType

from goqueue.pipeline.errors import OptionError
from goqueue.pipeline.sink.batch_writer import BatchWriter
from goqueue.pipeline.sink.options import SinkOptions, sink_options
from goqueue.pipeline.sink.rows import check_columns
from goqueue.pipeline.sink.stream_writer import StreamWriter


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchWriter:
    if overwrite:
        raise OptionError("a topic cannot be overwritten; write with mode('append')")
    given = sink_options(options)
    return BatchWriter(given, _columns(given, schema))


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> StreamWriter:
    if overwrite:
        raise OptionError(
            "a topic cannot be overwritten; write with outputMode('append'), or changes from foreachBatch with txnAppId and "
            "txnVersion"
        )
    given = sink_options(options)
    if given.app_id is not None:
        raise OptionError(
            f"txnAppId is {given.app_id!r}; it names batch writes, and a stream is known by its own id: leave it out"
        )
    return StreamWriter(given, _columns(given, schema))


def _columns(given: SinkOptions, schema: StructType) -> tuple[str, ...]:
    columns = [(field.name, field.dataType.simpleString()) for field in schema.fields]
    return check_columns(columns, has_topic_option=given.topic is not None)
