"""Backups of random logs: each gives back what was there, and costs only what is new."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from pyarrow import fs
from tests.support.backups import here
from tests.support.logs import plain_batch
from tests.support.segment_folders import PLACE, RandomLog, all_rows

from goqueue.pipeline.backup.manifest import INLINE_BYTES_MAX, PIECES, Backups, Manifest
from goqueue.pipeline.errors import DataLoss, OptionError, PipelineError
from goqueue.pipeline.files.plan import partition_files
from goqueue.pipeline.files.transport import FilesTransport
from goqueue.pipeline.jobs.backup import BackupRequest, back_up, list_backups, verify
from goqueue.pipeline.jobs.restore import RESTORING, RestoreRequest, restore
from goqueue.pipeline.lake import store as store_module


def taken(
    source: Path, place: Path, *, at_ms: int = 1, is_full: bool = False, task_bytes: int = 2_000
) -> Manifest:
    request = BackupRequest(
        str(source), str(place), is_full=is_full, task_bytes=task_bytes, now_ms=lambda: at_ms
    )
    report = back_up(here, request)
    return Backups(str(place)).load(report.counts["backup"])


def pieces_of(place: Path) -> list[Path]:
    return sorted(path for path in (place / PIECES).rglob("*") if path.is_file())


def filled(seed: int, *, step_count: int = 60, segment_bytes: int = 6_000) -> RandomLog:
    found = RandomLog(seed, segment_bytes=segment_bytes)
    found.steps(step_count)
    found.disk.lead()
    found.disk.checkpoint()
    return found


@pytest.mark.parametrize("seed", range(12))
def test_each_of_several_backups_reads_and_restores_as_the_log_was(seed: int, tmp_path: Path) -> None:
    """Appends, transactions, deletions and compactions in between."""
    log = filled(seed)
    source, place = tmp_path / "data", tmp_path / "backups"
    expected = []
    for _ in range(3):
        log.write_out(source)
        manifest = taken(source, place)
        expected.append({committed: log.rows(committed=committed) for committed in (False, True)})
        assert verify(here, str(place)).is_failure is False
        log.steps(30)
        log.disk.checkpoint()
    for number, rows in enumerate(expected, 1):
        target = tmp_path / f"restored-{number}"
        restore(here, RestoreRequest(str(place), str(target), number=number))
        assert not (target / RESTORING).exists()
        for committed in (False, True):
            assert all_rows(FilesTransport(f"{place}@{number}"), committed=committed) == rows[committed]
            assert all_rows(FilesTransport(str(target)), committed=committed) == rows[committed]
    assert all_rows(FilesTransport(str(place)), committed=True) == expected[-1][True]
    assert manifest.number == 3


def test_a_second_backup_of_the_same_files_writes_and_reads_nothing(tmp_path: Path) -> None:
    source = filled(1).write_out(tmp_path / "data")
    place = tmp_path / "backups"
    first = taken(source, place)
    before = {path: path.stat().st_mtime_ns for path in pieces_of(place)}
    report = back_up(here, BackupRequest(str(source), str(place)))
    second = Backups(str(place)).load(2)
    assert second.new_bytes == 0
    assert second.partitions == first.partitions
    assert report.counts["read_bytes"] == sum(one.size for one in second.partitions[0].files)
    assert {path: path.stat().st_mtime_ns for path in pieces_of(place)} == before


def test_of_a_segment_that_grew_only_its_tail_is_written(tmp_path: Path) -> None:
    log = RandomLog(1, segment_bytes=1_000_000)
    for _ in range(3):
        log.disk.append(plain_batch(os.urandom(40_000)))
    log.disk.checkpoint()
    source, place = log.write_out(tmp_path / "data"), tmp_path / "backups"
    first = taken(source, place)
    log.disk.append(plain_batch(os.urandom(5_000)))
    log.disk.checkpoint()
    log.write_out(source)
    second = taken(source, place)
    assert first.new_bytes > 120_000
    assert 5_000 < second.new_bytes < 6_000
    assert second.partitions[0].segments[0].pieces[:-1] == first.partitions[0].segments[0].pieces
    assert all_rows(FilesTransport(str(place)), committed=True) == log.rows(committed=True)


def test_a_log_that_was_replaced_by_another_is_copied_anew(tmp_path: Path) -> None:
    place, source = tmp_path / "backups", tmp_path / "data"
    one, other = RandomLog(1), RandomLog(2)
    for at in range(3):
        one.disk.append(plain_batch(b"one%d" % at * 2_000))
        for _ in range(2):
            other.disk.append(plain_batch(b"two%d" % at * 2_000))
    for log in (one, other):
        log.disk.checkpoint()
        log.write_out(source)
        taken(source, place)
    for number, log in enumerate((one, other), 1):
        assert all_rows(FilesTransport(f"{place}@{number}"), committed=True) == log.rows(committed=True)


def test_bytes_behind_the_last_whole_batch_are_left_out(tmp_path: Path) -> None:
    log = filled(3)
    source = log.write_out(tmp_path / "data")
    last = sorted((source / "logs/topic/0").glob("*.log"))[-1]
    with open(last, "ab") as file:
        file.write(b"\x00" * 30)
    taken(source, tmp_path / "backups")
    assert all_rows(FilesTransport(str(tmp_path / "backups")), committed=False) == log.rows(committed=False)


def test_a_damaged_source_is_refused_by_name_or_kept_as_it_is(tmp_path: Path) -> None:
    source = filled(4, segment_bytes=1_500).write_out(tmp_path / "data")
    first = sorted((source / "logs/topic/0").glob("*.log"))[0]
    content = bytearray(first.read_bytes())
    content[len(content) // 2] ^= 1
    first.write_bytes(content)
    place = tmp_path / "backups"
    with pytest.raises(DataLoss, match=rf"{first.name} is damaged at byte \d+, offset \d+; .* keep damage"):
        taken(source, place)
    assert Backups(str(place)).numbers() == []
    report = back_up(here, BackupRequest(str(source), str(place), keeps_damage=True))
    assert first.name in report.notes[0]
    assert verify(here, str(place)).is_failure is False
    restore(here, RestoreRequest(str(place), str(tmp_path / "again")))
    assert (tmp_path / "again/logs/topic/0" / first.name).read_bytes() == bytes(content)


@pytest.mark.parametrize("harm", ["flip", "cut", "remove"])
def test_verify_finds_a_piece_that_is_not_what_it_was_and_a_restore_refuses_it(
    harm: str, tmp_path: Path
) -> None:
    log = RandomLog(5, segment_bytes=50_000)
    for _ in range(4):
        log.disk.append(plain_batch(os.urandom(9_000)))
    log.disk.checkpoint()
    source, place = log.write_out(tmp_path / "data"), tmp_path / "backups"
    taken(source, place)
    piece = pieces_of(place)[0]
    content = bytearray(piece.read_bytes())
    content[len(content) // 2] ^= 1
    if harm == "remove":
        piece.unlink()
    else:
        piece.write_bytes(content if harm == "flip" else content[:-1])
    report = verify(here, str(place))
    assert report.is_failure
    assert piece.name in report.notes[0]
    with pytest.raises(PipelineError, match=f"nothing was restored.*{piece.name}"):
        restore(here, RestoreRequest(str(place), str(tmp_path / "again")))
    assert not (tmp_path / "again/logs").exists()
    taken(source, place, is_full=True)  # reads all of it again, and mends what later backups rely on
    assert verify(here, str(place)).is_failure is False
    restore(here, RestoreRequest(str(place), str(tmp_path / "again")))
    assert all_rows(FilesTransport(str(tmp_path / "again")), committed=True) == log.rows(committed=True)


def test_an_earlier_attempt_that_was_stopped_does_not_matter(tmp_path: Path) -> None:
    log = filled(6)
    source, place, target = log.write_out(tmp_path / "data"), tmp_path / "backups", tmp_path / "again"
    taken(source, place)
    shutil.copytree(source / "logs", target / RESTORING / "logs")
    (target / RESTORING / "logs/topic/0/00000000000000000099.log").write_bytes(b"from before")
    restore(here, RestoreRequest(str(place), str(target)))
    assert all_rows(FilesTransport(str(target)), committed=True) == log.rows(committed=True)


def test_a_folder_that_is_not_empty_is_left_alone(tmp_path: Path) -> None:
    source = filled(7).write_out(tmp_path / "data")
    taken(source, tmp_path / "backups")
    with pytest.raises(OptionError, match="is not empty \\(logs\\)"):
        restore(here, RestoreRequest(str(tmp_path / "backups"), str(source)))


def test_what_cannot_be_is_refused_in_a_sentence(tmp_path: Path) -> None:
    source = filled(8).write_out(tmp_path / "data")
    place = tmp_path / "backups"
    with pytest.raises(OptionError, match="cannot be in it or around it"):
        BackupRequest(str(source), str(source / "backups"))
    with pytest.raises(OptionError, match="logs is not there"):
        back_up(here, BackupRequest(str(tmp_path / "nothing"), str(place)))
    with pytest.raises(PipelineError, match="there is no backup in"):
        verify(here, str(place))
    with pytest.raises(PipelineError, match="there is no backup in"):
        restore(here, RestoreRequest(str(place), str(tmp_path / "again")))
    taken(source, place)
    with pytest.raises(PipelineError, match=r"there is no backup 7 .*there are: 1"):
        restore(here, RestoreRequest(str(place), str(tmp_path / "again"), number=7))
    with pytest.raises(OptionError, match=r"has no topic 'topics'; did you mean topic\?"):
        restore(here, RestoreRequest(str(place), str(tmp_path / "again"), topics=["topics"]))
    with pytest.raises(OptionError, match="no local folder"):
        restore(here, RestoreRequest(str(place), "s3://bucket/data"))


def test_two_backups_at_once_do_not_become_the_same(tmp_path: Path) -> None:
    source = filled(9).write_out(tmp_path / "data")
    backups = Backups(str(tmp_path / "backups"))
    manifest = taken(source, tmp_path / "backups")
    with pytest.raises(PipelineError, match="has become number 1 meanwhile"):
        backups.commit(manifest)


def test_a_time_cuts_each_log_before_the_first_batch_that_is_newer(tmp_path: Path) -> None:
    log = RandomLog(10, segment_bytes=400)
    for at in range(20):
        log.disk.append(plain_batch(b"v%d" % at, timestamp_ms=1_000 + at))
    log.disk.checkpoint()
    source, place = log.write_out(tmp_path / "data"), tmp_path / "backups"
    taken(source, place, at_ms=1_019)
    for until_ms, count in ((999, 0), (1_000, 1), (1_007, 8), (1_019, 20), (5_000, 20)):
        target = tmp_path / f"until-{until_ms}"
        report = restore(here, RestoreRequest(str(place), str(target), until_ms=until_ms))
        rows = all_rows(FilesTransport(str(target)), committed=True)
        assert [row.value for row in rows] == [b"v%d" % at for at in range(count)]
        assert report.counts["offsets_cut"] == 20 - count
        assert bool(report.notes) is (until_ms == 5_000)


def test_a_time_is_served_by_the_first_backup_that_was_taken_after_it(tmp_path: Path) -> None:
    log, place = RandomLog(11), tmp_path / "backups"
    for number in (1, 2, 3):
        log.disk.append(plain_batch(b"v%d" % number, timestamp_ms=number * 100))
        log.disk.checkpoint()
        taken(log.write_out(tmp_path / "data"), place, at_ms=number * 100 + 50)
    chosen = {}
    for until_ms in (50, 150, 151, 250, 349, 999):
        target = tmp_path / f"until-{until_ms}"
        report = restore(here, RestoreRequest(str(place), str(target), until_ms=until_ms))
        chosen[until_ms] = report.counts["backup"]
    assert chosen == {50: 1, 150: 1, 151: 2, 250: 2, 349: 3, 999: 3}


def test_the_list_shows_what_each_backup_added(tmp_path: Path) -> None:
    log, place = filled(12), tmp_path / "backups"
    taken(log.write_out(tmp_path / "data"), place, at_ms=5)
    taken(tmp_path / "data", place, at_ms=6)
    report = list_backups(str(place))
    assert [row[:4] for row in report.rows] == [(1, 5, True, 1), (2, 6, False, 1)]
    assert report.rows[1][-1] == 0


def test_a_small_file_lies_in_the_manifest_itself(tmp_path: Path) -> None:
    log = RandomLog(13)
    log.disk.append(plain_batch(b"small"))
    log.disk.checkpoint()
    manifest = taken(log.write_out(tmp_path / "data"), tmp_path / "backups")
    assert pieces_of(tmp_path / "backups") == []
    assert all(piece.size <= INLINE_BYTES_MAX for piece in manifest.partitions[0].pieces())


def test_the_segments_of_a_backup_can_be_planned_like_those_of_a_folder(tmp_path: Path) -> None:
    source = filled(14).write_out(tmp_path / "data")
    taken(source, tmp_path / "backups")
    of_folder = partition_files(str(source), PLACE)
    of_backup = partition_files(str(tmp_path / "backups"), PLACE)
    assert [one[:3] for one in of_backup] == [one[:3] for one in of_folder]


def test_an_object_store_holds_backups_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One without renames and links: whatever pyarrow can write to and list."""
    (tmp_path / "bucket").mkdir()
    bucket = fs.SubTreeFileSystem(str(tmp_path / "bucket"), fs.LocalFileSystem())
    monkeypatch.setattr(store_module, "_open", lambda _: (bucket, "backups"))
    log, target = filled(15), tmp_path / "again"
    source = log.write_out(tmp_path / "data")
    for number in (1, 2):
        report = back_up(here, BackupRequest(str(source), "far://bucket/backups"))
        assert report.counts["backup"] == number
        log.disk.append(plain_batch(os.urandom(9_000)))
        log.disk.checkpoint()
        rows = log.rows(committed=False)
        log.write_out(source)
    assert pieces_of(tmp_path / "bucket/backups")
    assert not verify(here, "far://bucket/backups").is_failure
    restore(here, RestoreRequest("far://bucket/backups", str(target)))
    assert all_rows(FilesTransport(str(target)), committed=False) == rows[:-1]
