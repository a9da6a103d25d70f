"""Small files of a table into larger ones: every archive run leaves a file per date and task, and readers pay for each.

To rewrite a date at every run would cost more than it saves. So files are merged when enough of them have gathered; those
that are large enough already are left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from goqueue.pipeline.lake.manifest import STAGING, LakeFile
from goqueue.pipeline.lake.row_groups import RowGroups
from goqueue.pipeline.lake.store import Store
from goqueue.pipeline.lake.writing import TARGET_BYTES, Staged

FILES_MIN = 8
_BATCH_ROWS = 65_536


def merge_plan(
    files: Iterable[LakeFile], *, target_bytes: int = TARGET_BYTES, files_min: int = FILES_MIN
) -> list[tuple[LakeFile, ...]]:
    """Groups of small files of one date each, every one of which becomes one file."""
    by_date: dict[str, list[LakeFile]] = {}
    for file in files:
        if file.size < target_bytes // 2:
            by_date.setdefault(_folder(file), []).append(file)
    groups: list[tuple[LakeFile, ...]] = []
    for small in by_date.values():
        if len(small) >= files_min:
            groups += _packed(sorted(small, key=_place), target_bytes)
    return groups


def _packed(files: list[LakeFile], target_bytes: int) -> list[tuple[LakeFile, ...]]:
    groups: list[list[LakeFile]] = [[]]
    size = 0
    for file in files:
        if groups[-1] and size + file.size > target_bytes:
            groups.append([])
            size = 0
        groups[-1].append(file)
        size += file.size
    return [tuple(group) for group in groups if len(group) > 1]


def merge_files(store: Store, run: str, task: str, files: Sequence[LakeFile], *, compression: str) -> Staged:
    """One file with the rows of all of these."""
    folder = _folder(files[0])
    staged = f"{folder.partition('=')[2]}-{run}-{task}-merged.parquet"
    path = store.path(f"{STAGING}/{run}/{staged}")
    store.make_folder(f"{STAGING}/{run}")
    schema = _schema(store, files[0])
    with pq.ParquetWriter(path, schema, filesystem=store.filesystem, compression=compression) as writer:
        groups = RowGroups(writer)
        for file in files:
            with store.filesystem.open_input_file(store.path(file.name)) as source:
                for batch in pq.ParquetFile(source).iter_batches(_BATCH_ROWS):
                    groups.write(batch)
        groups.close()
    store.sync(f"{STAGING}/{run}/{staged}")
    merged = LakeFile(
        name=f"{folder}/{staged}",
        rows=sum(file.rows for file in files),
        size=store.filesystem.get_file_info(path).size,
        first_offsets=_combined(min, [file.first_offsets for file in files]),
        last_offsets=_combined(max, [file.last_offsets for file in files]),
        time_min_ms=min(file.time_min_ms for file in files),
        time_max_ms=max(file.time_max_ms for file in files),
    )
    return Staged(staged, merged)


def _combined(choose: Callable[[Iterable[int]], int], maps: Sequence[dict[int, int]]) -> dict[int, int]:
    partitions = sorted({partition for offsets in maps for partition in offsets})
    return {
        partition: choose(offsets[partition] for offsets in maps if partition in offsets)
        for partition in partitions
    }


def _schema(store: Store, file: LakeFile) -> pa.Schema:
    with store.filesystem.open_input_file(store.path(file.name)) as source:
        return pq.read_schema(source)


def _folder(file: LakeFile) -> str:
    return file.name.rpartition("/")[0]


def _place(file: LakeFile) -> tuple[tuple[int, int], ...]:
    return tuple(sorted(file.first_offsets.items()))
