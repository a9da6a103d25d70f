"""Old backups go, and what the others need stays; what was lost is copied again; what cannot be is said."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.backups import here
from tests.support.logs import plain_batch
from tests.support.segment_folders import RandomLog, all_rows

from goqueue.pipeline.backup.manifest import PIECES, Backups
from goqueue.pipeline.errors import OptionError, PipelineError
from goqueue.pipeline.files.transport import FilesTransport
from goqueue.pipeline.jobs.backup import BackupRequest, back_up, prune_backups, verify
from goqueue.pipeline.jobs.restore import RestoreRequest, restore


def files_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def three_backups(tmp_path: Path) -> tuple[RandomLog, Path]:
    """Of a log that grows, is compacted and loses its beginning."""
    log, place = RandomLog(5, segment_bytes=6_000), tmp_path / "backups"
    for _ in range(3):
        log.steps(40)
        log.disk.append(plain_batch(os.urandom(5_000)))
        log.disk.lead()
        log.disk.checkpoint()
        log.write_out(tmp_path / "data")
        back_up(here, BackupRequest(str(tmp_path / "data"), str(place)))
    return log, place


def test_the_newest_stay_whole_and_nothing_else_is_left(tmp_path: Path) -> None:
    log, place = three_backups(tmp_path)
    half = place / PIECES / "ab" / ".of-a-backup-that-was-killed"
    half.parent.mkdir(exist_ok=True)
    half.write_bytes(b"half")
    before = files_in(place)
    would = prune_backups(str(place), 1, is_dry=True)
    assert files_in(place) == before
    done = prune_backups(str(place), 1)
    assert done == would
    assert done.rows == [(1,), (2,)]
    assert done.counts["pieces"] > 1
    assert Backups(str(place)).numbers() == [3]
    assert not half.exists()
    assert verify(here, str(place)).is_failure is False
    assert all_rows(FilesTransport(str(place)), committed=True) == log.rows(committed=True)
    named = {
        piece.name for one in Backups(str(place)).load(3).partitions for piece in one.pieces() if piece.digest
    }
    assert {str(path.relative_to(place)) for path in files_in(place / PIECES)} == named
    assert prune_backups(str(place), 1).counts == {"removed": 0, "pieces": 0, "bytes": 0}
    assert back_up(here, BackupRequest(str(tmp_path / "data"), str(place))).counts["backup"] == 4


def test_more_than_there_are_may_be_kept_but_not_none(tmp_path: Path) -> None:
    _, place = three_backups(tmp_path)
    assert prune_backups(str(place), 7).counts["removed"] == 0
    with pytest.raises(OptionError, match="0 backups are too few to keep"):
        prune_backups(str(place), 0)
    with pytest.raises(PipelineError, match="there is no backup in"):
        prune_backups(str(tmp_path / "nowhere"), 1)
    assert Backups(str(place)).numbers() == [1, 2, 3]


def test_nothing_is_removed_while_a_backup_is_taken_or_read(tmp_path: Path) -> None:
    _, place = three_backups(tmp_path)
    request = BackupRequest(str(tmp_path / "data"), str(place))
    with Backups(str(place)).held():
        back_up(here, request)  # several may read and add
        with pytest.raises(PipelineError, match="in use: a backup there is being taken or read"):
            prune_backups(str(place), 1)
    with Backups(str(place)).held(alone=True):
        works: tuple[Callable[[], object], ...] = (
            lambda: back_up(here, request),
            lambda: verify(here, str(place)),
            lambda: restore(here, RestoreRequest(str(place), str(tmp_path / "again"))),
        )
        for work in works:
            with pytest.raises(PipelineError, match="in use: old backups there are being removed"):
                work()
    assert Backups(str(place)).numbers() == [1, 2, 3, 4]


def test_backup_after_a_piece_was_lost_has_it_again(tmp_path: Path) -> None:
    _, place = three_backups(tmp_path)
    pieces = files_in(place / PIECES)
    pieces[0].unlink()
    pieces[-1].write_bytes(b"short")
    back_up(here, BackupRequest(str(tmp_path / "data"), str(place)))
    assert verify(here, str(place)).is_failure is False


def test_full_disk_under_a_backup_is_said_of_the_backup_and_not_of_the_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = RandomLog(5, segment_bytes=6_000)
    log.disk.append(plain_batch(os.urandom(5_000)))
    log.disk.checkpoint()
    source, place = log.write_out(tmp_path / "data"), tmp_path / "backups"

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(PipelineError, match=r"cannot be written to '.*backups': .*No space left"):
        back_up(here, BackupRequest(str(source), str(place)))
    assert files_in(place) == []


def test_paths_that_are_empty_are_refused(tmp_path: Path) -> None:
    for path, place in (("", str(tmp_path)), (str(tmp_path), "")):
        with pytest.raises(OptionError, match="one is empty"):
            BackupRequest(path, place)
    with pytest.raises(OptionError, match="it is empty"):
        restore(here, RestoreRequest(str(tmp_path), ""))
