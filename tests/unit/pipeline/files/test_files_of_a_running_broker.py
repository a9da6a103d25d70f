"""A folder that its broker works on meanwhile: appends, checkpoints, retention, compaction."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.logs import FOLDER, plain_batch
from tests.support.segment_folders import PLACE, RandomLog, Row, all_rows, read_rows, whole

from goqueue.log.segment import segment_prefix
from goqueue.pipeline.arrow.decode import SpanDecoder
from goqueue.pipeline.errors import DataLoss
from goqueue.pipeline.files.storage import LocalStorage
from goqueue.pipeline.files.transport import FilesTransport
from goqueue.pipeline.span import Chunk, Span


@contextmanager
def held(root: Path) -> Iterator[None]:
    """As a running broker holds its folder."""
    with open(root / "lock", "a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


def decoded(span: Span, chunks: Iterator[Chunk]) -> list[tuple[int, bytes | None]]:
    batches = SpanDecoder(span, ("offset", "value"), committed=True).decode(chunks)
    return [(row["offset"], row["value"]) for batch in batches for row in batch.to_pylist()]


def pairs(rows: list[Row]) -> list[tuple[int, bytes | None]]:
    return [(row.offset, row.value) for row in rows]


def compacted_once(seed: int) -> RandomLog:
    """So that segments are small, and the next pass makes one of several."""
    log = RandomLog(seed)
    log.steps(60, with_cleaning=False)
    log.finish_all()
    log.disk.compact(10**6)
    log.steps(40, with_cleaning=False)
    log.finish_all()
    log.disk.checkpoint()
    return log


@pytest.mark.parametrize("seed", range(10))
def test_a_running_brokers_log_is_read_up_to_its_checkpoint(seed: int, tmp_path: Path) -> None:
    log = RandomLog(seed)
    log.steps(40)
    log.disk.lead()
    log.disk.checkpoint()
    end, stable = log.end, log.disk.last_stable_offset
    rows = {committed: log.rows(committed=committed) for committed in (True, False)}
    log.steps(25, with_cleaning=False)
    checkpoint = (log.write_out(tmp_path) / FOLDER / "checkpoint").read_bytes()
    log.disk.sync()
    log.write_out(tmp_path)
    (tmp_path / FOLDER / "checkpoint").write_bytes(checkpoint)
    transport = FilesTransport(str(tmp_path))
    with held(tmp_path):
        seen = transport.latest([PLACE], committed=False)[PLACE]
        assert end <= seen <= log.end
        if seen == end:  # no checkpoint among the steps
            assert transport.latest([PLACE], committed=True) == {PLACE: stable}
            for committed in (True, False):
                assert all_rows(transport, committed=committed) == rows[committed]
        promised = Span(*PLACE, log.disk.log.log_start, log.end)
        assert read_rows(transport, promised, committed=False) == log.rows(committed=False)
    assert transport.latest([PLACE], committed=False) == {PLACE: log.end}


def test_a_torn_tail_of_a_running_broker_is_never_looked_at(tmp_path: Path) -> None:
    log = RandomLog(4)
    log.steps(20)
    log.disk.checkpoint()
    log.write_out(tmp_path)
    last = max((tmp_path / FOLDER).glob("*.log"))
    last.write_bytes(last.read_bytes() + plain_batch(b"half")[:40])
    with held(tmp_path):
        assert all_rows(FilesTransport(str(tmp_path)), committed=False) == log.rows(committed=False)


@pytest.mark.parametrize("seed", range(10))
def test_segments_that_compaction_replaces_are_found_again(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LocalStorage, "piece_bytes", 200)
    log = compacted_once(seed)
    log.write_out(tmp_path)
    before = log.rows(committed=True)
    transport = FilesTransport(str(tmp_path))
    span = whole(transport, committed=True)
    chunks = transport.read(span, committed=True)
    first = [next(chunks), next(chunks)]
    log.disk.compact(2 * 10**6)
    log.write_out(tmp_path)
    rows = decoded(span, iter([*first, *chunks]))
    after = pairs(log.rows(committed=True))
    assert set(after) <= set(rows) <= set(pairs(before))
    assert rows == sorted(rows)
    assert len(after) < len(before)


def test_segments_that_retention_removes_ahead_of_a_reader_are_a_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LocalStorage, "piece_bytes", 200)
    log = RandomLog(3)
    log.steps(60, with_cleaning=False)
    log.finish_all()
    log.disk.checkpoint()
    log.write_out(tmp_path)
    transport = FilesTransport(str(tmp_path))
    span = whole(transport, committed=True)
    chunks = transport.read(span, committed=True)
    next(chunks)
    log.disk.log.delete_before(log.end - 5)
    log.disk.checkpoint()
    log.write_out(tmp_path)
    with pytest.raises(DataLoss, match=f"starts at offset {log.end - 5} now"):
        list(chunks)
    late = Span(*PLACE, log.end - 5, log.end)
    assert read_rows(transport, late, committed=True) == log.rows(committed=True)


@pytest.mark.parametrize("is_begun", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_a_compaction_that_a_crash_interrupted_counts(seed: int, is_begun: bool, tmp_path: Path) -> None:
    log = compacted_once(seed)
    before = log.disk.device.snapshot()
    result = log.disk.compact(2 * 10**6)
    after = log.disk.device.snapshot()
    assert result is not None
    (old, new), *others = sorted(result.replaced, key=lambda pair: -len(pair[0]))
    assert len(old) > 1
    swap = f"{segment_prefix(FOLDER, new.base_offset)}-{new.end_offset:020d}.swap"
    rows = log.rows(committed=True)
    log.write_out(tmp_path)
    for path, content in before.items():
        (tmp_path / path).write_bytes(content)
    for replaced, segment in others:
        for one in replaced:
            (tmp_path / one.path).unlink()
        (tmp_path / segment.path).write_bytes(after[segment.path])
    (tmp_path / swap).write_bytes(after[new.path])
    (tmp_path / FOLDER / "00000000000000000000.cleaned").write_bytes(b"half a rewrite")
    if is_begun:
        for segment in old[1:]:
            (tmp_path / segment.path).unlink()
    assert all_rows(FilesTransport(str(tmp_path)), committed=True) == rows
