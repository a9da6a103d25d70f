"""A log that lacks what its checkpoint says was durable says so; a torn tail, which never was, does not count."""

from __future__ import annotations

import pytest
from tests.support.logs import FOLDER, LogOnDisk, copy_of, plain_batch, small_settings

from goqueue.log.disk import Disk
from goqueue.log.partition_log import PartitionLog
from goqueue.log.recovery import RecoveryReport, open_log, truncate_log
from goqueue.log.reset import decide_reset
from goqueue.node.producer_state import ProducerState


def saved_log(batch_count: int = 9) -> LogOnDisk:
    """In several segments; the checkpoint is at the end."""
    disk = LogOnDisk(settings=small_settings(segment_bytes=250))
    for at in range(batch_count):
        disk.append(plain_batch(b"value %d" % at))
    disk.checkpoint()
    assert len(disk.log.segments) >= 3
    return disk


def reopened(disk: Disk) -> tuple[PartitionLog, RecoveryReport]:
    return open_log(disk, FOLDER, small_settings(), ProducerState())


@pytest.mark.parametrize("lost_bytes", [1, 60, 10_000])
def test_whose_last_file_has_lost_its_end(lost_bytes: int) -> None:
    disk = saved_log()
    _, mount = copy_of(disk.device)
    active = disk.log.segments[-1]
    mount.open(active.path).truncate(max(0, active.size - lost_bytes))
    log, report = reopened(mount)
    assert log.end < disk.log.end
    assert report.is_short
    assert report.damage
    assert report.damaged == []


def test_whose_files_are_all_gone() -> None:
    disk = saved_log()
    _, mount = copy_of(disk.device)
    for segment in disk.log.segments:
        mount.remove(segment.path)
    log, report = reopened(mount)
    assert (log.end, report.is_short, report.damaged) == (0, True, [])


def test_whose_last_files_are_gone() -> None:
    disk = saved_log()
    for count in range(1, len(disk.log.segments)):
        _, mount = copy_of(disk.device)
        for segment in disk.log.segments[-count:]:
            mount.remove(segment.path)
        log, report = reopened(mount)
        assert (log.end, report.is_short, report.damaged) == (
            disk.log.segments[-count].base_offset,
            True,
            [],
        )


def test_whose_first_file_is_gone_cannot_serve_what_was_in_it() -> None:
    disk = saved_log()
    _, mount = copy_of(disk.device)
    first, second, *_ = disk.log.segments
    mount.remove(first.path)
    log, report = reopened(mount)
    assert (log.log_start, log.end) == (second.base_offset, disk.log.end)
    assert (report.is_short, report.damaged) == (True, [(0, second.base_offset)])


def test_whose_recovery_segment_is_gone_from_before_a_later_one() -> None:
    disk = saved_log()
    checkpointed = disk.log.segments[-1]
    while disk.log.segments[-1] is checkpointed:
        disk.append(plain_batch(b"later"))
    disk.sync()
    _, mount = copy_of(disk.device)
    mount.remove(checkpointed.path)
    _, report = reopened(mount)
    assert report.is_short
    assert report.damaged == [(checkpointed.base_offset, disk.log.segments[-1].base_offset)]


def test_a_whole_log_is_not_short() -> None:
    disk = saved_log()
    assert not reopened(copy_of(disk.device)[1])[1].is_short
    disk.append(plain_batch(b"behind the checkpoint"))
    disk.sync()
    assert not reopened(copy_of(disk.device)[1])[1].is_short


def test_a_torn_tail_is_not_short() -> None:
    disk = saved_log()
    for at in range(2):  # the second is in the same segment as the first
        end = disk.log.end
        disk.append(plain_batch(b"not in the checkpoint %d" % at))
    disk.sync()
    active = disk.log.segments[-1]
    for lost_bytes in range(1, 60):
        _, mount = copy_of(disk.device)
        mount.open(active.path).truncate(active.size - lost_bytes)
        log, report = reopened(mount)
        assert (log.end, report.is_short, report.damage) == (end, False, [])


def test_what_was_cut_on_purpose_is_not_short() -> None:
    disk = saved_log()
    truncate_log(disk.log, disk.mount, disk.owner, 4, forced=True)
    assert not reopened(copy_of(disk.device)[1])[1].is_short
    decide_reset(disk.mount, FOLDER, 2)
    log, report = reopened(disk.mount)
    assert (log.end, report.is_short) == (2, False)


def test_whose_old_records_were_deleted_is_not_short() -> None:
    disk = saved_log()
    disk.log.delete_before(5)
    assert not reopened(copy_of(disk.device)[1])[1].is_short
    disk.checkpoint()
    assert not reopened(copy_of(disk.device)[1])[1].is_short
