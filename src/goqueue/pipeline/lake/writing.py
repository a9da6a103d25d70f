"""Records into Parquet files by date, in the task that has read them: no row crosses into the JVM.

A task keeps one file open for each date that it meets. Records of a partition come in the order of their offsets, and their
times mostly in order, so that is one or two; where they are not, the file that was not used for the longest is closed.
A file that is large enough is followed by another one, so that a task may be as large as it likes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from goqueue.pipeline.lake.manifest import STAGING, LakeFile
from goqueue.pipeline.lake.row_groups import RowGroups
from goqueue.pipeline.lake.store import Store

OPEN_FILES_MAX = 16
TARGET_BYTES = 128 * 1024 * 1024  # of a file
DATE_COLUMN = "date"
_DAY_US = 86_400_000_000
_US_PER_MS = 1_000


@dataclass(frozen=True, slots=True)
class Staged:
    """A file that waits for the commit."""

    staged: str  # its name in the run's staging folder
    file: LakeFile


@dataclass(slots=True)
class _Open:
    date: str
    staged: str
    sink: pa.NativeFile
    writer: RowGroups
    rows: int = 0
    first_offsets: dict[int, int] = field(default_factory=dict)
    last_offsets: dict[int, int] = field(default_factory=dict)
    time_min_us: int = 2**63 - 1
    time_max_us: int = -(2**63)

    def note(self, batch: pa.RecordBatch) -> None:
        """A batch of rows, in each partition in the order of their offsets."""
        partitions = batch.column("partition").to_numpy()
        offsets = batch.column("offset").to_numpy()
        found, firsts = np.unique(partitions, return_index=True)
        lasts = len(partitions) - 1 - np.unique(partitions[::-1], return_index=True)[1]
        for partition, first, last in zip(found.tolist(), firsts.tolist(), lasts.tolist(), strict=True):
            self.first_offsets.setdefault(partition, int(offsets[first]))
            self.last_offsets[partition] = int(offsets[last])
        times = batch.column("timestamp").cast(pa.int64()).to_numpy()
        self.time_min_us = min(self.time_min_us, int(times.min()))
        self.time_max_us = max(self.time_max_us, int(times.max()))
        self.rows += batch.num_rows


class LakeWriter:
    """The files of one task. `task` tells it from every other one of the run, and from other attempts at it."""

    def __init__(
        self,
        store: Store,
        run: str,
        task: str,
        schema: pa.Schema,
        *,
        compression: str,
        target_bytes: int = TARGET_BYTES,
    ) -> None:
        self._store = store
        self._target_bytes = target_bytes
        self._folder = f"{STAGING}/{run}"
        self._task = f"{run}-{task}"
        self._schema = schema
        self._compression = compression
        self._open: dict[str, _Open] = {}  # by date, the one used last at the end
        self._done: list[Staged] = []
        self._count = 0
        store.make_folder(self._folder)

    def write(self, batches: Iterable[pa.RecordBatch]) -> None:
        for batch in batches:
            for date, rows in _by_date(batch):
                target = self._open.pop(date, None) or self._begin(date)
                self._open[date] = target
                target.writer.write(rows)
                target.note(rows)
                if target.sink.tell() >= self._target_bytes:
                    self._end(date)

    def finish(self) -> list[Staged]:
        """All files, whole and on disk."""
        while self._open:
            self._end(next(iter(self._open)))
        return self._done

    def _begin(self, date: str) -> _Open:
        if len(self._open) >= OPEN_FILES_MAX:
            self._end(next(iter(self._open)))
        staged = f"{date}-{self._task}-{self._count}.parquet"
        self._count += 1
        sink = self._store.filesystem.open_output_stream(self._store.path(f"{self._folder}/{staged}"))
        writer = pq.ParquetWriter(sink, self._schema, compression=self._compression)
        return _Open(date, staged, sink, RowGroups(writer))

    def _end(self, date: str) -> None:
        ended = self._open.pop(date)
        ended.writer.close()
        ended.sink.close()
        name = f"{self._folder}/{ended.staged}"
        self._store.sync(name)
        info = self._store.filesystem.get_file_info(self._store.path(name))
        self._done.append(
            Staged(
                ended.staged,
                LakeFile(
                    name=f"{DATE_COLUMN}={ended.date}/{ended.staged}",
                    rows=ended.rows,
                    size=info.size,
                    first_offsets=ended.first_offsets,
                    last_offsets=ended.last_offsets,
                    time_min_ms=ended.time_min_us // _US_PER_MS,
                    time_max_ms=ended.time_max_us // _US_PER_MS,
                ),
            )
        )


def _by_date(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of each date (UTC), in their order."""
    times = batch.column("timestamp").cast(pa.int64()).to_numpy()
    days = times // _DAY_US
    first = days[0]
    if (days == first).all():
        yield _date(int(first)), batch
        return
    for day in np.unique(days).tolist():
        yield _date(day), batch.filter(pa.array(days == day))


def _date(day: int) -> str:
    """Days since 1970 as Hive writes a date. Years outside 1-9999, which a client may write, count as the nearest."""
    bounded = min(max(day, _DAY_FIRST), _DAY_LAST)
    return str(pc.cast(pa.scalar(bounded, pa.int32()), pa.date32()).as_py())


_DAY_FIRST, _DAY_LAST = -719_162, 2_932_896
