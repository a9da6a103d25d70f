"""`df.writeStream.format("goqueue")`: each micro-batch as a whole, and once."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from functools import partial

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from goqueue.pipeline.sink.batch_writer import current_task
from goqueue.pipeline.sink.identity import batch_of_stream, identify, run_of_stream
from goqueue.pipeline.sink.job import Connect, abort, commit, write_task
from goqueue.pipeline.sink.live import connect
from goqueue.pipeline.sink.messages import those_of
from goqueue.pipeline.sink.options import SinkOptions


class StreamWriter(DataSourceStreamArrowWriter):
    """Spark makes one to plan and another for each commit: only the messages of the tasks say which query it is."""

    def __init__(
        self, options: SinkOptions, names: tuple[str, ...], connect_to: Connect | None = None
    ) -> None:
        self._options = options
        self._names = names
        self._connect = connect_to or partial(connect, options.connection)
        self._run_id = uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        task = current_task()
        identity = identify(task, batch_of_stream(task), run_of_stream(task, self._run_id))
        return write_task(self._connect, self._options, self._names, identity, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        written = those_of(messages)
        if written:
            commit(self._connect, self._options, written[0].batch, written, is_stream=True)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Where no task has come to its end there is nobody to ask for the query: each has given up its own part."""
        written = those_of(messages)
        if written:
            abort(self._connect, self._options, written[0].batch)
