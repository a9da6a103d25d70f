"""The data source with a writer whose process is killed, once, when it has written its rows and before it can say so."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from goqueue.pipeline.sink.batch_writer import BatchWriter
from goqueue.pipeline.sink.writers import batch_writer

FORMAT = "goqueue_killed"
TRAP = "trap"  # a file: whoever removes it dies


class KillingSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return FORMAT

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        options = dict(self.options)
        return KillingWriter(Path(options.pop(TRAP)), batch_writer(options, schema, overwrite))


class KillingWriter(DataSourceArrowWriter):
    def __init__(self, trap: Path, inner: BatchWriter) -> None:
        self._trap = trap
        self._inner = inner

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        message = self._inner.write(iterator)
        try:
            self._trap.unlink()
        except FileNotFoundError:
            return message
        os.kill(os.getpid(), signal.SIGKILL)
        return message

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._inner.commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._inner.abort(messages)
