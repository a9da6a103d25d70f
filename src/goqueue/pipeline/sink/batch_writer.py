"""`df.write.format("goqueue")`: all rows of the frame, or none."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from functools import partial

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from goqueue.pipeline.errors import PipelineError
from goqueue.pipeline.sink.identity import Task, batch_of_write, identify
from goqueue.pipeline.sink.job import Connect, abort, commit, write_task
from goqueue.pipeline.sink.live import connect
from goqueue.pipeline.sink.messages import those_of
from goqueue.pipeline.sink.options import SinkOptions


class BatchWriter(DataSourceArrowWriter):
    """Made once on the driver; what crosses to the tasks, and to the process that commits, is a copy of it."""

    def __init__(
        self, options: SinkOptions, names: tuple[str, ...], connect_to: Connect | None = None
    ) -> None:
        self._options = options
        self._names = names
        self._connect = connect_to or partial(connect, options.connection)
        self._run_id = uuid.uuid4().hex
        self._batch = batch_of_write(options, self._run_id)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        identity = identify(current_task(), self._batch, self._run_id)
        return write_task(self._connect, self._options, self._names, identity, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        commit(self._connect, self._options, self._batch, those_of(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        has_made_up_name = self._options.app_id is None
        abort(self._connect, self._options, self._batch, is_final=has_made_up_name)


def current_task() -> Task:
    task = TaskContext.get()
    if task is None:
        raise PipelineError("rows are written by Spark's tasks, and this is none")
    return task
