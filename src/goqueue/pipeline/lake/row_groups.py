"""Row groups of a size that readers like. pyarrow makes a group of its own of every batch that it is given, and batches as they
come from a topic are small: more to look up, worse compression."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

ROW_GROUP_ROWS = 1_000_000
ROW_GROUP_BYTES = (
    32 * 1024 * 1024
)  # before compression; a task holds that much for each file that it has open


class RowGroups:
    """Takes the batches of one file."""

    def __init__(self, writer: pq.ParquetWriter) -> None:
        self._writer = writer
        self._held: list[pa.RecordBatch] = []
        self._rows = 0
        self._bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        self._held.append(batch)
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        if self._rows >= ROW_GROUP_ROWS or self._bytes >= ROW_GROUP_BYTES:
            self._flush()

    def close(self) -> None:
        """What is held, and the end of the file."""
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        if self._held:
            self._writer.write_table(pa.Table.from_batches(self._held), row_group_size=ROW_GROUP_ROWS)
        self._held = []
        self._rows = self._bytes = 0
