"""`format("goqueue")`: what Spark finds, and nothing more. Everything heavy is imported when it is used.

Spark looks for data sources in every module that is named so, whoever asks for whichever; and it makes one of these in several
processes for every read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, DataSourceWriter

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamWriter
    from pyspark.sql.types import StructType

    from goqueue.pipeline.source.options import Mode, SourceOptions

NAME = "goqueue"


class GoQueueSource(DataSource):
    """Topics as tables. The options are documented where they are declared: `source/options.py` and `sink/options.py`."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        from goqueue.pipeline.columns import spark_ddl
        from goqueue.pipeline.source.options import columns_asked_for

        return spark_ddl(columns_asked_for(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        from goqueue.pipeline.source.batch_reader import BatchReader, FilteringBatchReader
        from goqueue.pipeline.source.options import Mode

        options = self._read_options(schema, Mode.BATCH)
        return FilteringBatchReader(options) if options.pushes_filters else BatchReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from goqueue.pipeline.source.options import Mode
        from goqueue.pipeline.source.stream_reader import StreamReader

        return StreamReader(self._read_options(schema, Mode.STREAM))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from goqueue.pipeline.sink.writers import batch_writer

        return batch_writer(self.options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from goqueue.pipeline.sink.writers import stream_writer

        return stream_writer(self.options, schema, overwrite=overwrite)

    def _read_options(self, schema: StructType, mode: Mode) -> SourceOptions:
        from dataclasses import replace

        from goqueue.pipeline.source.options import source_options
        from goqueue.pipeline.source.schema import columns_in

        return replace(source_options(self.options, mode), columns=columns_in(schema))
