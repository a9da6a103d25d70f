"""What a partition log does when nothing goes wrong, and when the disk refuses."""

from __future__ import annotations

import errno
from random import Random

import pytest
from tests.support.logs import (
    BATCH_BYTES_MAX,
    FOLDER,
    LogOnDisk,
    plain_batch,
    small_settings,
    timed_batch,
    values,
)

from goqueue.log.batch import validate_new
from goqueue.log.retention import is_active_expired, retention_start
from goqueue.model.errors import (
    DiskFull,
    InvariantViolation,
    OffsetOutOfRange,
    PartitionOffline,
    StorageError,
)
from goqueue.model.settings import CleanupPolicy
from goqueue.sim.disk import Operation

# -------------------------------------------------------------------- seeking (trap 4)


def many_segments() -> LogOnDisk:
    disk = LogOnDisk(settings=small_settings(segment_bytes=16 * 1024, index_interval_bytes=1024))
    for at in range(1_200):
        disk.append(
            timed_batch(
                [(1_000_000 + 10 * at, None, b"x" * 100, ()), (1_000_000 + 10 * at + 5, None, b"", ())]
            )
        )
    disk.stop()
    disk.open()
    return disk


def test_a_timestamp_seek_is_right_on_a_log_of_many_segments_and_reads_little() -> None:
    disk = many_segments()
    assert len(disk.log.segments) > 10
    rng = Random(1)
    for _ in range(50):
        at = rng.randrange(1_200)
        assert disk.log.first_at_or_after(1_000_000 + 10 * at) == (2 * at, 1_000_000 + 10 * at)
        assert disk.log.first_at_or_after(1_000_000 + 10 * at + 1) == (2 * at + 1, 1_000_000 + 10 * at + 5)
    assert disk.log.first_at_or_after(0) == (0, 1_000_000)
    assert disk.log.first_at_or_after(2_000_000) is None
    log_bytes = disk.log.size_bytes
    before = disk.device.counters.read_bytes
    disk.log.first_at_or_after(1_000_000 + 10 * 1_111)
    assert disk.device.counters.read_bytes - before < 40 * 1024 < log_bytes / 4


def test_a_cold_seek_reads_headers_and_indexes_but_not_the_log() -> None:
    disk = many_segments()
    before = disk.device.counters.read_bytes
    disk.log.first_at_or_after(1_000_000 + 10 * 1_111)
    index_bytes = sum(len(c) for p, c in disk.device.snapshot().items() if not p.endswith(".log"))
    # Per segment: its indexes, the window in which their last entry is checked; then one segment from an entry on.
    allowed = index_bytes + len(disk.log.segments) * 10 * 1024 + 20 * 1024
    assert disk.device.counters.read_bytes - before < allowed


def test_a_read_by_offset_reads_little_more_than_it_returns() -> None:
    disk = many_segments()
    disk.log.read(1_500, end=2_400, bytes_max=1)
    before = disk.device.counters.read_bytes
    disk.log.read(1_733, end=2_400, bytes_max=1)
    assert disk.device.counters.read_bytes - before < 12 * 1024


def test_timestamps_out_of_order_are_found_by_the_first_record_that_is_not_older() -> None:
    disk = LogOnDisk(settings=small_settings(segment_bytes=400, index_interval_bytes=64))
    rng = Random(7)
    stamps = [rng.randrange(1_000, 1_100) for _ in range(200)]
    for at in range(0, 200, 2):
        disk.append(timed_batch([(stamps[at], None, b"", ()), (stamps[at + 1], None, b"", ())]))
    disk.log.delete_before(31)
    for restart in range(2):
        for timestamp in range(995, 1_105):
            expected = next(((at, s) for at, s in enumerate(stamps) if s >= timestamp and at >= 31), None)
            assert disk.log.first_at_or_after(timestamp) == expected
        if not restart:
            disk.stop()
            disk.open()


# -------------------------------------------------------------------- retention (trap 4)


def test_retention_by_time_takes_whole_segments_whose_newest_record_is_too_old() -> None:
    disk = LogOnDisk(
        settings=small_settings(segment_bytes=200, retention_ms=1_000, policy=CleanupPolicy.DELETE)
    )
    for at in range(10):
        disk.append(plain_batch(b"x" * 30, timestamp_ms=10_000 + 100 * at))
    boundaries = [segment.base_offset for segment in disk.log.segments]
    start = retention_start(disk.log, 11_450)
    assert start in boundaries
    kept_segment = next(segment for segment in disk.log.segments if segment.base_offset == start)
    assert 11_450 - kept_segment.max_timestamp <= 1_000
    disk.log.delete_before(start)
    disk.checkpoint()
    assert [r.offset for r in disk.records()] == list(range(start, 10))
    names = [entry.name for entry in disk.mount.list(FOLDER) if entry.name.endswith(".log")]
    assert names == [f"{segment.base_offset:020d}.log" for segment in disk.log.segments]


def test_retention_by_size_keeps_at_least_as_much_as_was_asked_for() -> None:
    disk = LogOnDisk(
        settings=small_settings(segment_bytes=200, retention_bytes=500, policy=CleanupPolicy.DELETE)
    )
    for _ in range(20):
        disk.append(plain_batch(b"x" * 30))
    disk.log.delete_before(retention_start(disk.log, 1_000))
    assert 500 <= disk.log.size_bytes < 500 + 200


def test_retention_never_passes_the_high_watermark_and_leaves_a_compacted_log_alone() -> None:
    disk = LogOnDisk(settings=small_settings(segment_bytes=200, retention_ms=1, policy=CleanupPolicy.DELETE))
    for _ in range(10):
        disk.append(plain_batch(b"x" * 30))
    disk.log.high_watermark = 3
    assert retention_start(disk.log, 10**12) <= 3
    compacted = LogOnDisk(settings=small_settings(retention_ms=1, policy=CleanupPolicy.COMPACT))
    compacted.append(plain_batch(b"x"))
    assert not is_active_expired(compacted.log, 10**12)
    compacted.log.roll(1_000)
    assert retention_start(compacted.log, 10**12) == 0


def test_deletion_outside_the_log_is_refused() -> None:
    disk = LogOnDisk()
    disk.append(plain_batch(b"a", b"b"))
    disk.log.delete_before(1)
    for offset in (0, 3):
        with pytest.raises(OffsetOutOfRange):
            disk.log.delete_before(offset)
    assert values(disk.records()) == [b"b"]


# -------------------------------------------------------------------- a disk that refuses


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, errno.EDQUOT])
def test_a_failed_append_leaves_the_log_unchanged_and_usable(error: int) -> None:
    for seed in range(20):
        disk = LogOnDisk(seed)
        disk.append(plain_batch(b"before"))
        disk.device.fail_next("append", error=error)
        expected = StorageError if error == errno.EIO else DiskFull
        with pytest.raises(expected):
            disk.append(plain_batch(b"refused", b"x" * 100))
        assert (disk.log.end, disk.log.failure) == (1, None)
        assert values(disk.records()) == [b"before"]
        assert disk.append(plain_batch(b"after")) == 1
        disk.sync()
        disk.device.crash()
        disk.open()
        assert values(disk.records()) == [b"before", b"after"]
        assert disk.report.damage == []


def test_a_failed_append_that_cannot_be_taken_back_stops_the_log() -> None:
    for seed in range(20):
        disk = LogOnDisk(seed)
        disk.append(plain_batch(b"before"))
        disk.sync()
        disk.device.fail_next("append")
        disk.device.fail_next("truncate")
        with pytest.raises(StorageError):
            disk.append(plain_batch(b"refused", b"x" * 100))
        assert values(disk.records()) == [b"before"]
        if disk.log.failure is None:  # nothing of it had been written
            assert disk.append(plain_batch(b"after")) == 1
            continue
        with pytest.raises(PartitionOffline):
            disk.append(plain_batch(b"after"))
        disk.device.kill()
        disk.open()
        assert values(disk.records())[:1] == [b"before"]
        assert disk.report.damage == []


@pytest.mark.parametrize("operation", ["open", "append", "truncate"])
def test_a_roll_that_fails_leaves_the_log_unchanged_and_usable(operation: Operation) -> None:
    disk = LogOnDisk(settings=small_settings(segment_bytes=150))
    disk.append(plain_batch(b"x" * 60))
    disk.append(plain_batch(b"y" * 60))
    disk.device.fail_next(operation, error=errno.ENOSPC)
    try:
        disk.append(plain_batch(b"z" * 60))
    except DiskFull:
        assert disk.log.end == 2
        assert disk.append(plain_batch(b"z" * 60)) == 2
    disk.checkpoint()
    assert len(disk.records()) == 3
    assert len({segment.base_offset for segment in disk.log.segments}) == len(disk.log.segments)
    assert disk.problems() == []


def test_a_full_disk_refuses_and_takes_writes_again_when_there_is_room() -> None:
    disk = LogOnDisk()
    disk.append(plain_batch(b"before"))
    disk.sync()
    disk.device.capacity_bytes = disk.device.platter.used_bytes() + 50
    for _ in range(3):
        with pytest.raises(DiskFull):
            disk.append(plain_batch(b"x" * 200))
    disk.device.free(10_000)
    assert disk.append(plain_batch(b"y" * 200)) == 1
    assert disk.log.failure is None


def test_a_failed_sync_moves_nothing_and_the_owner_stops_the_log() -> None:
    for seed in range(20):
        disk = LogOnDisk(seed)
        disk.append(plain_batch(b"durable"))
        disk.sync()
        disk.append(plain_batch(b"doubtful"))
        disk.device.fail_next("sync")
        job = disk.log.begin_sync()
        with pytest.raises(OSError, match="Input/output"):
            job.run()
        disk.log.sync_failed(OSError(errno.EIO, "Input/output error"))
        assert disk.log.durable_end == 1
        with pytest.raises(PartitionOffline):
            disk.append(plain_batch(b"late"))
        disk.device.kill()
        disk.open()
        disk.sync()
        durable_end = disk.log.durable_end
        disk.device.crash()
        disk.open()
        assert disk.log.end >= durable_end
        assert values(disk.records())[:1] == [b"durable"]
        assert disk.report.damage == []


def test_a_checkpoint_that_cannot_be_saved_leaves_the_one_before_in_force() -> None:
    operations: list[Operation] = ["open", "append", "rename", "sync_dir", "remove"]
    for operation in operations:
        for after in range(8):
            disk = LogOnDisk(after, small_settings(segment_bytes=200))
            for at in range(8):
                disk.append(plain_batch(b"x%d" % at))
            disk.log.delete_before(3)
            disk.sync()
            job = disk.log.begin_checkpoint()
            job.sync.run()
            disk.device.fail_next(operation, after=after)
            try:
                job.save()
            except OSError:
                disk.log.abandon_checkpoint(job)
            else:
                break  # no operation of the kind is left to fail
            disk.append(plain_batch(b"more"))
            disk.sync()
            if after % 2:
                disk.checkpoint()
            disk.device.crash()
            disk.open()
            assert disk.report.damage == [], f"{operation} {after}"
            assert disk.log.end == 9
            assert disk.problems() == []


# -------------------------------------------------------------------- epochs


def test_an_append_in_an_epoch_that_is_not_on_disk_is_a_broken_invariant() -> None:
    disk = LogOnDisk()
    batch = plain_batch(b"x")
    header = validate_new(batch, BATCH_BYTES_MAX)
    disk.log.begin_epoch(1)
    with pytest.raises(InvariantViolation, match="epoch 1"):
        disk.log.append(batch, header, now_ms=1_000)
    disk.checkpoint()
    assert disk.log.append(batch, header, now_ms=1_000) == 0


def test_the_log_stamps_its_epoch_and_offset_into_every_batch() -> None:
    disk = LogOnDisk()
    for life in range(3):
        disk.append(plain_batch(b"%d" % life, b""))
        disk.stop()
        disk.open()
    found = disk.log.read(0, end=6, bytes_max=10_000).batches
    assert [(f.header.base_offset, f.header.leader_epoch) for f in found] == [(0, 0), (2, 1), (4, 2)]
    assert disk.log.epochs.entries() == [(0, 0), (1, 2), (2, 4)]


def test_a_segment_rolls_by_size_and_by_age() -> None:
    disk = LogOnDisk(settings=small_settings(segment_bytes=250, segment_ms=1_000))
    disk.append(plain_batch(b"x" * 100), now_ms=1_000)
    disk.append(plain_batch(b"x" * 100), now_ms=1_100)
    assert [s.base_offset for s in disk.log.segments] == [0, 1]
    disk.append(plain_batch(b""), now_ms=2_099)
    assert [s.base_offset for s in disk.log.segments] == [0, 1]
    disk.append(plain_batch(b""), now_ms=2_100)
    assert [s.base_offset for s in disk.log.segments] == [0, 1, 3]
    names = [entry.name for entry in disk.mount.list(FOLDER) if entry.name.endswith(".log")]
    assert names == [f"{base:020d}.log" for base in (0, 1, 3)]


def test_indexes_of_sealed_segments_do_not_pile_up_in_memory() -> None:
    disk = LogOnDisk(settings=small_settings(segment_bytes=100))
    for at in range(50):
        disk.append(plain_batch(b"%d" % at))
    disk.device.kill()
    disk.open()
    disk.checkpoint()
    assert len(disk.records()) == 50
    held = [segment for segment in disk.log.segments if segment._index is not None]
    assert len(held) <= 6
