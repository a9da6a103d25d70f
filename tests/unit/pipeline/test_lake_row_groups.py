from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from goqueue.pipeline.lake import row_groups
from goqueue.pipeline.lake.row_groups import RowGroups


def batch_of(numbers: range) -> pa.RecordBatch:
    return pa.record_batch([pa.array(numbers, pa.int64())], names=["n"])


def written(path: Path, batches: list[pa.RecordBatch]) -> pq.ParquetFile:
    groups = RowGroups(pq.ParquetWriter(path, pa.schema([("n", pa.int64())])))
    for batch in batches:
        groups.write(batch)
    groups.close()
    return pq.ParquetFile(path)


def test_batches_share_a_row_group_and_keep_their_order(tmp_path: Path) -> None:
    file = written(tmp_path / "f", [batch_of(range(10)), batch_of(range(10, 25))])
    assert file.num_row_groups == 1
    assert file.read().column("n").to_pylist() == [*range(25)]


@pytest.mark.parametrize(("limit", "value"), [("ROW_GROUP_ROWS", 20), ("ROW_GROUP_BYTES", 160)])
def test_a_row_group_ends_where_it_is_large_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    monkeypatch.setattr(row_groups, limit, value)
    file = written(tmp_path / "f", [batch_of(range(at, at + 10)) for at in range(0, 50, 10)])
    assert [file.metadata.row_group(at).num_rows for at in range(file.num_row_groups)] == [20, 20, 10]
    assert file.read().column("n").to_pylist() == [*range(50)]


def test_a_file_without_batches_is_whole(tmp_path: Path) -> None:
    assert written(tmp_path / "f", []).read().num_rows == 0
