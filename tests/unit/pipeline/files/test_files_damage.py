"""Whatever is wrong with a folder is said, or left out exactly; it is never given and never passed over in silence."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from tests.support.logs import FOLDER
from tests.support.segment_folders import PLACE, RandomLog, Row, all_rows, read_rows

from goqueue.log.batch import BatchHeader, read_header
from goqueue.pipeline.errors import DataLoss, OptionError, PipelineError
from goqueue.pipeline.files.transport import FilesTransport
from goqueue.pipeline.span import Span

EPOCH_BYTES = range(12, 16)
HEADER_FIELDS = (0, 7, 8, 11, 12, 15, 16, 17, 21, 22, 23, 26, 27, 35, 43, 51, 53, 57, 60)  # a byte of each


def written(
    root: Path, *, seed: int = 2, step_count: int = 40, tail_step_count: int = 0
) -> tuple[RandomLog, list[Path]]:
    log = RandomLog(seed)
    log.steps(step_count, with_cleaning=False)
    log.finish_all()
    log.disk.checkpoint()
    log.steps(tail_step_count, with_cleaning=False)
    log.disk.sync()
    log.write_out(root)
    return log, sorted((root / FOLDER).glob("*.log"))


def batches(content: bytes | bytearray) -> list[tuple[int, BatchHeader]]:
    """With their positions."""
    found, position = [], 0
    while position < len(content):
        found.append((position, read_header(bytes(content), position)))
        position += found[-1][1].size
    return found


def without(rows: list[Row], start: int, end: int) -> list[Row]:
    return [row for row in rows if not start <= row.offset < end]


@pytest.mark.parametrize("at", [0, 1, -1], ids=["first", "second", "last"])
@pytest.mark.parametrize("has_checkpoint", [True, False])
def test_one_wrong_byte_costs_its_batch_and_nothing_else(
    tmp_path: Path, at: int, has_checkpoint: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    log, files = written(tmp_path)
    if not has_checkpoint:
        (tmp_path / FOLDER / "checkpoint").unlink()
    path, content = files[at], files[at].read_bytes()
    expected = {committed: log.rows(committed=committed) for committed in (True, False)}
    for position, header in batches(content):
        for byte in (*HEADER_FIELDS, *range(61, header.size, 9)):
            damaged = bytearray(content)
            damaged[position + byte] ^= 0x41
            path.write_bytes(damaged)
            if byte in EPOCH_BYTES and not has_checkpoint:  # nothing says what it was, and no row has it
                assert all_rows(FilesTransport(str(tmp_path)), committed=False) == expected[False]
                continue
            with pytest.raises(
                DataLoss, match=f"offsets {header.base_offset} to .*{path.name} at byte {position}"
            ):
                all_rows(FilesTransport(str(tmp_path)), committed=False)
            skipping = FilesTransport(str(tmp_path), on_damage="skip")
            lost = (header.base_offset, header.end_offset)
            assert all_rows(skipping, committed=False) == without(expected[False], *lost), byte
            assert skipping.skipped_offset_count == header.end_offset - header.base_offset
            if has_checkpoint:
                assert all_rows(skipping, committed=True) == without(expected[True], *lost), byte


def test_a_lost_abort_marker_still_ends_its_transaction(tmp_path: Path) -> None:
    log = RandomLog(1)
    log.write(1)
    log.finish(1, is_commit=False)
    marker = log.end - 1
    log.write(1)
    log.finish(1, is_commit=True)
    log.disk.checkpoint()
    path = log.write_out(tmp_path) / FOLDER / "00000000000000000000.log"
    content = bytearray(path.read_bytes())
    position = next(at for at, header in batches(content) if header.base_offset == marker)
    content[position + 70] ^= 1
    path.write_bytes(content)
    rows = all_rows(FilesTransport(str(tmp_path), on_damage="skip"), committed=True)
    assert rows == log.rows(committed=True) != []


def test_span_besides_the_damage_is_read(tmp_path: Path) -> None:
    log, files = written(tmp_path)
    content = bytearray(files[1].read_bytes())
    _, header = batches(content)[1]
    content[batches(content)[1][0] + 70] ^= 1
    files[1].write_bytes(content)
    transport = FilesTransport(str(tmp_path))
    before, after = Span(*PLACE, 0, header.base_offset), Span(*PLACE, header.end_offset, log.end)
    rows = read_rows(transport, before, committed=False) + read_rows(transport, after, committed=False)
    assert rows == without(log.rows(committed=False), header.base_offset, header.end_offset)
    with pytest.raises(DataLoss, match=f"offsets {header.last_offset} to {header.end_offset}"):
        read_rows(transport, Span(*PLACE, header.last_offset, log.end), committed=False)


@pytest.mark.parametrize("committed", [True, False])
def test_a_file_that_was_cut_is_a_loss_below_the_checkpoint(tmp_path: Path, committed: bool) -> None:
    log, files = written(tmp_path)
    expected = log.rows(committed=committed)
    for path in (files[1], files[-1]):
        content = path.read_bytes()
        following = batches(content)[-1][1].end_offset
        for size in range(0, len(content), 11):
            path.write_bytes(content[:size])
            whole = [header for position, header in batches(content) if position + header.size <= size]
            start = whole[-1].end_offset if whole else batches(content)[0][1].base_offset
            with pytest.raises(DataLoss, match=f"offsets {start} to {following}"):
                all_rows(FilesTransport(str(tmp_path)), committed=committed)
            skipping = FilesTransport(str(tmp_path), on_damage="skip")
            if path is files[1] or not committed:
                assert all_rows(skipping, committed=committed) == without(expected, start, following)
                assert skipping.skipped_offset_count == following - start
        path.write_bytes(content)


@pytest.mark.parametrize("seed", range(4))
def test_a_torn_tail_behind_the_checkpoint_is_not_there(tmp_path: Path, seed: int) -> None:
    log, files = written(tmp_path, seed=seed, tail_step_count=4)
    content = files[-1].read_bytes()
    position, header = batches(content)[-1]
    expected = without(log.rows(committed=False), header.base_offset, header.end_offset)
    for size in range(position, len(content), 3):
        files[-1].write_bytes(content[:size])
        transport = FilesTransport(str(tmp_path))
        assert transport.latest([PLACE], committed=False) == {PLACE: header.base_offset}
        assert all_rows(transport, committed=False) == expected
    files[-1].write_bytes(content[:position] + bytes(500))
    assert all_rows(FilesTransport(str(tmp_path)), committed=False) == expected


@pytest.mark.parametrize("has_checkpoint", [True, False])
def test_a_missing_segment_is_a_loss_of_its_offsets(tmp_path: Path, has_checkpoint: bool) -> None:
    log, files = written(tmp_path)
    if not has_checkpoint:
        (tmp_path / FOLDER / "checkpoint").unlink()
    for path in files if has_checkpoint else files[1:-1]:
        content = path.read_bytes()
        start, end = int(path.stem), batches(content)[-1][1].end_offset
        path.unlink()
        with pytest.raises(DataLoss, match=f"offsets {start} to {end}"):
            all_rows(FilesTransport(str(tmp_path)), committed=False)
        skipping = FilesTransport(str(tmp_path), on_damage="skip")
        assert all_rows(skipping, committed=False) == without(log.rows(committed=False), start, end)
        assert skipping.skipped_offset_count == end - start
        path.write_bytes(content)


def test_a_hole_behind_the_checkpoint_is_a_loss(tmp_path: Path) -> None:
    log = RandomLog(2)
    log.steps(5, with_cleaning=False)
    log.disk.checkpoint()
    checkpoint = log.disk.device.snapshot()[f"{FOLDER}/checkpoint"]
    log.steps(60, with_cleaning=False)
    log.disk.checkpoint()
    log.write_out(tmp_path)
    (tmp_path / FOLDER / "checkpoint").write_bytes(checkpoint)
    files = sorted((tmp_path / FOLDER).glob("*.log"))
    assert len(files) > 4
    files[-3].unlink()
    with pytest.raises(DataLoss, match=f"there is a segment from {int(files[-2].stem)} on"):
        FilesTransport(str(tmp_path)).latest([PLACE], committed=False)
    skipping = FilesTransport(str(tmp_path), on_damage="skip")
    rows = without(log.rows(committed=False), int(files[-3].stem), log.end)
    assert all_rows(skipping, committed=False) == rows


def test_all_segments_missing_is_a_loss(tmp_path: Path) -> None:
    log, files = written(tmp_path)
    for path in files:
        path.unlink()
    with pytest.raises(DataLoss, match=f"offsets 0 to {log.end}"):
        all_rows(FilesTransport(str(tmp_path)), committed=True)


def test_offsets_that_retention_has_taken_are_a_loss(tmp_path: Path) -> None:
    log, _ = written(tmp_path)
    log.disk.log.delete_before(10)
    log.disk.checkpoint()
    log.write_out(tmp_path)
    transport = FilesTransport(str(tmp_path))
    assert transport.earliest([PLACE]) == {PLACE: 10}
    with pytest.raises(DataLoss, match=r"offsets 3 to 10 .*starts at offset 10 now"):
        read_rows(transport, Span(*PLACE, 3, log.end), committed=True)
    skipping = FilesTransport(str(tmp_path), on_damage="skip")
    rows = read_rows(skipping, Span(*PLACE, 3, log.end), committed=True)
    assert rows == [row for row in log.rows(committed=True) if row.offset >= 10]


def test_time_search_ends_in_damage_or_goes_past_it(tmp_path: Path) -> None:
    _, files = written(tmp_path)
    content = bytearray(files[0].read_bytes())
    header = batches(content)[0][1]
    content[70] ^= 1
    files[0].write_bytes(content)
    with pytest.raises(DataLoss, match="time in topic-0"):
        FilesTransport(str(tmp_path)).at_time([PLACE], 0)
    skipping = FilesTransport(str(tmp_path), on_damage="skip")
    assert skipping.at_time([PLACE], 0) == {PLACE: header.end_offset}
    assert skipping.at_time([PLACE], 10**9) == {PLACE: None}


def test_span_behind_the_end_is_a_loss(tmp_path: Path) -> None:
    log, _ = written(tmp_path)
    with pytest.raises(DataLoss, match=f"the log ends at offset {log.end}"):
        read_rows(FilesTransport(str(tmp_path)), Span(*PLACE, 0, log.end + 5), committed=True)


def test_file_that_cannot_be_read_is_no_loss(tmp_path: Path) -> None:
    _, files = written(tmp_path)
    span = Span(*PLACE, 0, 10)
    transport = FilesTransport(str(tmp_path))
    transport.latest([PLACE], committed=True)
    content = files[0].read_bytes()
    files[0].unlink()
    files[0].mkdir()
    with pytest.raises(PipelineError):
        read_rows(transport, span, committed=True)
    files[0].rmdir()
    files[0].write_bytes(content)
    assert read_rows(transport, span, committed=True)


def test_wrong_paths_and_options_are_named(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="logs is not there"):
        FilesTransport(str(tmp_path)).topics()
    with pytest.raises(OptionError, match="nowhere://x"):
        FilesTransport("nowhere://x")
    with pytest.raises(OptionError, match="'ignore'"):
        FilesTransport(str(tmp_path), on_damage="ignore")  # type: ignore[arg-type] # what a user may write
