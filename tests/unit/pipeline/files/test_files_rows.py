"""Rows from segment files against what the broker's own log gives."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow.fs import LocalFileSystem
from tests.support.logs import FOLDER, plain_batch
from tests.support.segment_folders import PLACE, RandomLog, all_rows, read_rows, whole

from goqueue.pipeline.errors import DataLoss, PipelineError
from goqueue.pipeline.files.storage import LocalStorage
from goqueue.pipeline.files.transport import FilesTransport
from goqueue.pipeline.span import Place, Span

SEEDS = range(40)


def stopped(seed: int, root: Path, *, step_count: int = 60) -> RandomLog:
    log = RandomLog(seed)
    log.steps(step_count)
    log.disk.checkpoint()
    log.write_out(root)
    return log


@pytest.mark.parametrize("seed", SEEDS)
def test_rows_and_bounds_are_those_of_the_broker(seed: int, tmp_path: Path) -> None:
    log = stopped(seed, tmp_path)
    transport = FilesTransport(str(tmp_path))
    assert transport.earliest([PLACE]) == {PLACE: log.disk.log.log_start}
    assert transport.latest([PLACE], committed=False) == {PLACE: log.disk.log.high_watermark}
    assert transport.latest([PLACE], committed=True) == {PLACE: log.disk.last_stable_offset}
    for committed in (True, False):
        assert all_rows(transport, committed=committed) == log.rows(committed=committed)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_was_written_after_the_checkpoint_is_found(seed: int, tmp_path: Path) -> None:
    log = RandomLog(seed)
    log.steps(30)
    log.disk.checkpoint()
    log.steps(20, with_cleaning=False)
    log.disk.sync()
    log.write_out(tmp_path)
    transport = FilesTransport(str(tmp_path))
    assert transport.latest([PLACE], committed=True) == {PLACE: log.disk.last_stable_offset}
    for committed in (True, False):
        assert all_rows(transport, committed=committed) == log.rows(committed=committed)


@pytest.mark.parametrize("lost", ["checkpoint", "aborted.index", "*index", "*"])
@pytest.mark.parametrize("seed", range(10))
def test_caches_may_be_missing_or_garbage(seed: int, lost: str, tmp_path: Path) -> None:
    log = RandomLog(seed)
    log.steps(60, with_cleaning=False)
    log.disk.checkpoint()
    log.write_out(tmp_path)
    for path in (tmp_path / FOLDER).glob(lost):
        if path.suffix != ".log":
            path.unlink() if seed % 2 else path.write_bytes(b"garbage!" * 12)
    transport = FilesTransport(str(tmp_path))
    assert transport.latest([PLACE], committed=True) == {PLACE: log.disk.last_stable_offset}
    for committed in (True, False):
        assert all_rows(transport, committed=committed) == log.rows(committed=committed)
    middle = Span(*PLACE, log.end // 2, log.disk.log.high_watermark)
    expected = [row for row in log.rows(committed=False) if row.offset >= middle.start]
    assert read_rows(transport, middle, committed=False) == expected


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), data=st.data())
def test_any_span_gives_exactly_its_rows(seed: int, data: st.DataObject) -> None:
    with TemporaryDirectory() as root:
        log = stopped(seed, Path(root), step_count=40)
        transport = FilesTransport(root)
        committed = data.draw(st.booleans())
        bounds = whole(transport, committed=committed)
        start = data.draw(st.integers(bounds.start, bounds.end))
        end = data.draw(st.integers(start, bounds.end))
        expected = [row for row in log.rows(committed=committed) if start <= row.offset < end]
        assert read_rows(transport, Span(*PLACE, start, end), committed=committed) == expected


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), after_ms=st.integers(0, 4_000))
def test_a_time_is_where_the_broker_finds_it(seed: int, after_ms: int) -> None:
    with TemporaryDirectory() as root:
        log = stopped(seed, Path(root), step_count=40)
        found = log.disk.log.first_at_or_after(after_ms)
        expected = {PLACE: None if found is None else found[0]}
        assert FilesTransport(root).at_time([PLACE], after_ms) == expected
        for path in (Path(root) / FOLDER).glob("*index"):
            path.unlink()
        assert FilesTransport(root).at_time([PLACE], after_ms) == expected


@pytest.mark.parametrize("seed", range(5))
def test_another_filesystem_gives_the_same(seed: int, tmp_path: Path) -> None:
    log = stopped(seed, tmp_path)
    for transport in (
        FilesTransport(str(tmp_path), filesystem=LocalFileSystem()),
        FilesTransport(tmp_path.as_uri()),
    ):
        assert transport.topics() == {"topic": 1}
        for committed in (True, False):
            assert all_rows(transport, committed=committed) == log.rows(committed=committed)


def test_large_batches_and_small_pieces_come_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = stopped(3, tmp_path)
    monkeypatch.setattr(LocalStorage, "piece_bytes", 80)
    assert all_rows(FilesTransport(str(tmp_path)), committed=True) == log.rows(committed=True)


def test_committed_records_behind_an_open_transaction_are_refused(tmp_path: Path) -> None:
    log = RandomLog(1)
    log.disk.append(plain_batch(b"a"))
    log.write(1)
    log.disk.checkpoint()
    log.write_out(tmp_path)
    transport = FilesTransport(str(tmp_path))
    with pytest.raises(PipelineError, match="open since 1") as caught:
        read_rows(transport, Span(*PLACE, 0, log.end), committed=True)
    assert not isinstance(caught.value, DataLoss)


def test_reading_changes_nothing_in_the_folder(tmp_path: Path) -> None:
    log = RandomLog(5)
    log.steps(40)
    log.disk.sync()
    log.write_out(tmp_path)
    last = max((tmp_path / FOLDER).glob("*.log"))
    last.write_bytes(last.read_bytes() + b"torn")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    all_rows(FilesTransport(str(tmp_path)), committed=True)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_partition_that_was_never_written_is_empty(tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir(parents=True)
    transport = FilesTransport(str(tmp_path))
    assert transport.topics() == {"topic": 1}
    assert transport.earliest([PLACE]) == transport.latest([PLACE], committed=True) == {PLACE: 0}
    assert transport.at_time([PLACE], 0) == {PLACE: None}
    assert all_rows(transport, committed=True) == []


def test_a_partition_without_a_folder_is_a_loss(tmp_path: Path) -> None:
    stopped(1, tmp_path)
    missing = Place("topic", 1)
    with pytest.raises(DataLoss, match="topic/1 is not there"):
        FilesTransport(str(tmp_path)).latest([missing], committed=True)
    assert FilesTransport(str(tmp_path), on_damage="skip").latest([missing], committed=True) == {missing: 0}
