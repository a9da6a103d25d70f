"""A table of the lake: whatever stops a commit, what is found afterwards is the table before it or after it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from goqueue.pipeline.columns import ALL_COLUMNS, arrow_schema
from goqueue.pipeline.errors import PipelineError
from goqueue.pipeline.lake import row_groups
from goqueue.pipeline.lake.manifest import KEPT_COUNT, LakeFile, Manifest, Table
from goqueue.pipeline.lake.merging import merge_files, merge_plan
from goqueue.pipeline.lake.store import Store
from goqueue.pipeline.lake.writing import OPEN_FILES_MAX, LakeWriter, Staged

DAY_US = 86_400_000_000
SCHEMA = arrow_schema(ALL_COLUMNS)


def _rows(first_offset: int, days: list[int], partition: int = 0) -> pa.RecordBatch:
    count = len(days)
    columns: dict[str, Any] = {
        "value": [b"v%d" % (first_offset + index) for index in range(count)],
        "topic": ["orders"] * count,
        "partition": [partition] * count,
        "offset": list(range(first_offset, first_offset + count)),
        "timestamp": [day * DAY_US for day in days],
        "timestampType": [0] * count,
    }
    arrays = [
        pa.array(columns.get(field.name, [None] * count), field.type)
        if field.name != "timestamp"
        else pa.array(columns["timestamp"], pa.int64()).cast(field.type)
        for field in SCHEMA
    ]
    return pa.record_batch(arrays, schema=SCHEMA)


def _staged(table: Table, run: str, batches: list[pa.RecordBatch]) -> list[Staged]:
    writer = LakeWriter(table.store, run, "0", SCHEMA, compression="zstd")
    writer.write(batches)
    return writer.finish()


def _next(manifest: Manifest, run: str, staged: list[Staged], ends: dict[int, int]) -> Manifest:
    return replace(
        manifest,
        ends=manifest.ends | ends,
        files=(*manifest.files, *(one.file for one in staged)),
        run=run,
        staged={one.staged: one.file.name for one in staged},
    )


def _visible(folder: Path) -> list[Path]:
    """What a reader finds that only lists the folder."""
    return sorted(path for path in (folder / "orders").glob("date=*/*.parquet"))


def _offsets(table: Table, files: tuple[LakeFile, ...]) -> list[int]:
    found = [pq.read_table(table.store.path(file.name), columns=["offset"]) for file in files]
    return sorted(offset for one in found for offset in one.column("offset").to_pylist())


def test_rows_go_to_the_file_of_their_date(tmp_path: Path) -> None:
    table = Table(str(tmp_path), "orders")
    staged = _staged(table, "run", [_rows(5, [0, 0, 1]), _rows(8, [1, 0])])
    assert [(one.file.name.partition("/")[0], one.file.rows) for one in staged] == [
        ("date=1970-01-01", 3),
        ("date=1970-01-02", 2),
    ]
    first = staged[0].file
    assert (first.first_offsets, first.last_offsets) == ({0: 5}, {0: 9})
    assert not _visible(tmp_path)


def test_files_of_more_dates_than_may_be_open_are_closed_and_begun_again(tmp_path: Path) -> None:
    table = Table(str(tmp_path), "orders")
    days = list(range(OPEN_FILES_MAX + 4))
    staged = _staged(table, "run", [_rows(0, days), _rows(len(days), days)])
    assert sum(one.file.rows for one in staged) == 2 * len(days)
    assert len({one.file.name for one in staged}) == len(staged) == 2 * len(days)


def test_file_that_is_large_enough_is_followed_by_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_groups, "ROW_GROUP_ROWS", 2)
    table = Table(str(tmp_path), "orders")
    writer = LakeWriter(
        table.store, "run", "0", SCHEMA, compression="none", target_bytes=100
    )  # more than the magic number
    writer.write([_rows(0, [0, 0]), _rows(2, [0]), _rows(3, [0]), _rows(4, [0])])
    staged = [one.file for one in writer.finish()]
    assert [(one.first_offsets[0], one.last_offsets[0], one.rows) for one in staged] == [
        (0, 1, 2),
        (2, 3, 2),
        (4, 4, 1),
    ]
    assert len({one.name for one in staged}) == 3


@pytest.mark.parametrize("day", [-(2**40), 2**40])
def test_times_beyond_the_calendar_have_the_nearest_date(tmp_path: Path, day: int) -> None:
    day = max(-106_751_990, min(day, 106_751_990))  # what microseconds in 64 bits can hold
    (staged,) = _staged(Table(str(tmp_path), "orders"), "run", [_rows(0, [day])])
    assert staged.file.name.startswith("date=0001-01-01/" if day < 0 else "date=9999-12-31/")


def test_commit_shows_files_and_offsets_together(tmp_path: Path) -> None:
    table = Table(str(tmp_path), "orders")
    first = table.open()
    assert (first.number, first.files) == (0, ())
    table.commit(first, _next(first, "a", _staged(table, "a", [_rows(0, [0, 0])]), {0: 2}))
    second = Table(str(tmp_path), "orders").open()
    assert (second.number, second.ends, len(second.files)) == (1, {0: 2}, 1)
    assert _offsets(table, second.files) == [0, 1]
    assert len(_visible(tmp_path)) == 1
    assert not (tmp_path / "orders" / "_staging" / "a").exists()


def test_of_two_that_commit_at_once_one_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    table, other = Table(str(tmp_path), "orders"), Table(str(tmp_path), "orders")
    before = table.open()
    mine = _next(before, "a", _staged(table, "a", [_rows(0, [0])]), {0: 1})
    theirs = _next(before, "b", _staged(other, "b", [_rows(0, [0])]), {0: 1})
    table.commit(before, mine)
    with pytest.raises(PipelineError, match="another archive of 'orders'"):
        other.commit(before, theirs)
    assert len(_visible(tmp_path)) == 1
    assert not (tmp_path / "orders" / "_staging" / "b").exists()


def test_commit_removes_what_killed_runs_have_staged_but_not_what_others_may_still_commit(
    tmp_path: Path,
) -> None:
    table = Table(str(tmp_path), "orders")
    before = table.open()
    killed, mine = table.begin_run(before), table.begin_run(before)
    _staged(table, killed, [_rows(0, [0])])
    after = table.commit(before, _next(before, mine, _staged(table, mine, [_rows(0, [0])]), {0: 1}))
    assert table.store.folders("_staging") == []
    later = table.begin_run(after)
    _staged(table, later, [_rows(1, [0])])
    table.open()
    assert table.store.folders("_staging") == [later]


def _fail_staging(table: Table, run: str, before: Manifest) -> None:
    with table.staging(run, before):
        _staged(table, run, [_rows(0, [0])])
        raise OSError("no space")


def test_run_that_fails_because_another_was_faster_says_so(tmp_path: Path) -> None:
    table = Table(str(tmp_path), "orders")
    before = table.open()
    run = table.begin_run(before)
    table.commit(before, _next(before, "a", _staged(table, "a", [_rows(0, [0])]), {0: 1}))
    with pytest.raises(PipelineError, match="another archive of 'orders' has committed"):
        _fail_staging(table, run, before)


def test_run_that_fails_leaves_no_staged_files(tmp_path: Path) -> None:
    table = Table(str(tmp_path), "orders")
    run = table.begin_run(table.open())
    with pytest.raises(OSError, match="no space"):
        _fail_staging(table, run, table.open())
    assert table.store.folders("_staging") == []


def test_reader_that_is_overtaken_by_a_merge_finds_the_merged_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, other = Table(str(tmp_path), "orders"), Table(str(tmp_path), "orders")
    first = table.open()
    first = table.commit(first, _next(first, "a", _staged(table, "a", [_rows(0, [0])]), {0: 1}))
    (merged,) = _staged(table, "b", [_rows(0, [0])])
    second = replace(_next(first, "b", [merged], {}), files=(merged.file,), removed=(first.files[0].name,))
    load = Table._load

    def overtaken(self: Table, number: int) -> Manifest:
        found = load(self, number)
        if number == 1:
            table.commit(first, second)
        return found

    monkeypatch.setattr(Table, "_load", overtaken)
    assert other.open().files == (merged.file,)


def test_file_that_cannot_be_written_leaves_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        Store(str(tmp_path)).create("folder/name", b"content")
    assert list((tmp_path / "folder").iterdir()) == []


class _Crash(Exception):
    pass


class _FailingStore(Store):
    """Ends the process, so to say, before its nth change."""

    def __init__(self, uri: str, left: int) -> None:
        super().__init__(uri)
        self._left = left

    def _step(self) -> None:
        if self._left == 0:
            raise _Crash
        self._left -= 1

    def create(self, name: str, content: bytes) -> None:
        self._step()
        super().create(name, content)

    def move(self, source: str, target: str) -> None:
        self._step()
        super().move(source, target)

    def remove(self, names: Any) -> None:
        for name in list(names):
            self._step()
            super().remove([name])

    def remove_folder(self, name: str) -> None:
        self._step()
        super().remove_folder(name)


@pytest.mark.parametrize("crash_at", range(9))
def test_crash_at_any_step_of_a_commit_leaves_the_table_before_or_after(
    tmp_path: Path, crash_at: int
) -> None:
    table = Table(str(tmp_path), "orders")
    manifest = table.open()
    for index in range(2):
        staged = _staged(table, f"r{index}", [_rows(2 * index, [0, 1])])
        manifest = table.commit(manifest, _next(manifest, f"r{index}", staged, {0: 2 * index + 2}))
    groups = merge_plan(manifest.files, files_min=2)
    merged = [
        merge_files(table.store, "m", str(at), files, compression="zstd") for at, files in enumerate(groups)
    ]
    after = replace(
        manifest,
        files=tuple(one.file for one in merged),
        run="m",
        staged={one.staged: one.file.name for one in merged},
        removed=tuple(file.name for file in manifest.files),
    )
    table.store = _FailingStore(table.store.uri, crash_at)
    try:
        table.commit(manifest, after)
    except _Crash:
        pass
    found = Table(str(tmp_path), "orders").open()
    assert found.files == (manifest.files if crash_at == 0 else after.files)
    assert _offsets(Table(str(tmp_path), "orders"), found.files) == [0, 1, 2, 3]
    assert sorted(path.name for path in _visible(tmp_path)) == sorted(
        file.name.rpartition("/")[2] for file in found.files
    )


def test_small_files_of_a_date_become_one_when_there_are_enough(tmp_path: Path) -> None:
    table = Table(str(tmp_path), "orders")
    staged = [one for at in range(4) for one in _staged(table, f"r{at}", [_rows(at, [at // 3])])]
    files = [one.file for one in staged]
    assert merge_plan(files, files_min=4) == []
    assert merge_plan(files, files_min=3) == [tuple(files[:3])]
    assert merge_plan(files, files_min=3, target_bytes=1) == []


def test_only_the_last_manifests_stay(tmp_path: Path) -> None:
    table = Table(str(tmp_path), "orders")
    manifest = table.open()
    for number in range(KEPT_COUNT + 3):
        manifest = table.commit(manifest, _next(manifest, "", [], {0: number}))
    assert len(list((tmp_path / "orders" / "_goqueue").iterdir())) == KEPT_COUNT
    assert table.open().ends == {0: KEPT_COUNT + 2}


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"{", "is no manifest"),
        (b'{"topic": "payments"}', "is of topic 'payments', not of 'orders'"),
        (b'{"topic": "orders", "version": 2}', "has version 2; this program reads 1"),
    ],
)
def test_manifest_that_cannot_be_is_refused(tmp_path: Path, content: bytes, sentence: str) -> None:
    table = Table(str(tmp_path), "orders")
    table.store.create("_goqueue/0000000001.json", content)
    with pytest.raises(PipelineError, match=sentence):
        table.open()
