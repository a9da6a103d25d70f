"""A data source that does nothing: it gives Arrow batches that lie ready in files and forgets what it is given.

What Spark itself costs around a Python source and sink, and so the ceiling of ours. Its own module, for workers import it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from goqueue.pipeline.columns import KAFKA_COLUMNS, spark_ddl

FORMAT = "bench_null"
_SUFFIX = ".arrow"


@dataclass(frozen=True)
class _File(InputPartition):
    path: str


class NullSource(DataSource):
    """Option `path`: the folder that `save_batches` wrote to."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return spark_ddl(KAFKA_COLUMNS)

    def reader(self, schema: StructType) -> DataSourceReader:
        return _NullReader(self.options["path"])

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return _NullWriter()


class _NullReader(DataSourceReader):
    def __init__(self, folder: str) -> None:
        self._folder = folder

    def partitions(self) -> list[InputPartition]:
        return [_File(str(path)) for path in sorted(Path(self._folder).glob(f"*{_SUFFIX}"))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, _File):
            return
        with pa.memory_map(partition.path) as source, pa.ipc.open_file(source) as file:
            for index in range(file.num_record_batches):
                yield file.get_batch(index)


class _NullWriter(DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()


def save_batches(folder: Path, number: int, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
    """The rows of one task."""
    folder.mkdir(parents=True, exist_ok=True)
    with pa.ipc.new_file(str(folder / f"{number:05d}{_SUFFIX}"), schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
