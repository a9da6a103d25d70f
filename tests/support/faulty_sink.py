"""The data source with faults: what a crash does at each step of a write, at the moment that a test chooses.

A fault is a file in a folder, named after its step and, for streams, its micro-batch; the first who meets it removes it and
fails. So it happens once, in whichever process.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from goqueue.pipeline.sink.batch_writer import BatchWriter
from goqueue.pipeline.sink.stream_writer import StreamWriter
from goqueue.pipeline.sink.writers import batch_writer, stream_writer

FORMAT = "goqueue_with_faults"
FAULTS = "faults"


@dataclass(frozen=True)
class Faults:
    folder: Path

    def plan(self, step: str, batch: int, count: int = 1) -> None:
        for number in range(count):
            (self.folder / f"{step}-{batch}-{number}").touch()

    @property
    def are_over(self) -> bool:
        return not any(self.folder.iterdir())

    def meet(self, step: str, batch: int) -> None:
        for planned in sorted(self.folder.glob(f"{step}-{batch}-*")):
            try:
                planned.unlink()
            except FileNotFoundError:
                continue  # another task was first
            raise RuntimeError(f"a fault: {step} of batch {batch}")


class FaultySource(DataSource):
    @classmethod
    def name(cls) -> str:
        return FORMAT

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        faults, options = self._divided()
        return FaultyBatchWriter(faults, batch_writer(options, schema, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        faults, options = self._divided()
        return FaultyStreamWriter(faults, stream_writer(options, schema, overwrite))

    def _divided(self) -> tuple[Faults, dict[str, str]]:
        options = dict(self.options)
        return Faults(Path(options.pop(FAULTS))), options


class FaultyBatchWriter(DataSourceArrowWriter):
    def __init__(self, faults: Faults, inner: BatchWriter) -> None:
        self._faults = faults
        self._inner = inner

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        message = self._inner.write(iterator)
        self._faults.meet("written", _partition())
        return message

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._inner.commit(messages)
        self._faults.meet("committed", 0)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._inner.abort(messages)


class FaultyStreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, faults: Faults, inner: StreamWriter) -> None:
        self._faults = faults
        self._inner = inner

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        batch = _batch()
        self._faults.meet("begun", batch)
        message = self._inner.write(iterator)
        self._faults.meet("written", batch)
        return message

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._faults.meet("committing", batchId)
        self._inner.commit(messages, batchId)
        self._faults.meet("committed", batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._faults.meet("aborting", batchId)
        self._inner.abort(messages, batchId)


def _partition() -> int:
    task = TaskContext.get()
    assert task is not None
    return task.partitionId()


def _batch() -> int:
    task = TaskContext.get()
    assert task is not None
    return int(task.getLocalProperty("streaming.sql.batchId") or -1)
