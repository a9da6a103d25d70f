"""Key compaction: the last record of every key stays, and everything else that it promises to keep."""

from __future__ import annotations

import errno

import pytest
from tests.support.logs import (
    FOLDER,
    LogOnDisk,
    Timed,
    copy_of,
    read_all,
    small_settings,
    timed_batch,
    values,
)

from goqueue.log.batch import ATTRIBUTE_DELETE_HORIZON, decode_batch
from goqueue.log.compaction import compact, dirty_ratio, plan_compaction
from goqueue.log.compression import Codec
from goqueue.log.recovery import open_log
from goqueue.log.scan import Found
from goqueue.model.errors import DataCorrupt
from goqueue.model.record import Producer
from goqueue.node.producer_state import ProducerState

HOUR_MS = 3_600_000


def keyed_log(*, delete_retention_ms: int = HOUR_MS, segment_bytes: int = 300) -> LogOnDisk:
    return LogOnDisk(
        settings=small_settings(segment_bytes=segment_bytes, delete_retention_ms=delete_retention_ms)
    )


def put(disk: LogOnDisk, key: bytes | None, value: bytes | None) -> int:
    record: Timed = (1_000, key, value, ())
    return disk.append(timed_batch([record]))


def by_offset(disk: LogOnDisk) -> dict[int, tuple[bytes | None, bytes | None]]:
    return {record.offset: (record.key, record.value) for record in disk.records()}


def markers(disk: LogOnDisk) -> list[int]:
    return [
        found.header.base_offset
        for segment in disk.log.segments
        for found in segment.scan(0, segment.base_offset, check_crc=True)
        if isinstance(found, Found) and found.header.is_control
    ]


def test_only_the_last_record_of_a_key_stays_and_it_keeps_its_offset() -> None:
    disk = keyed_log()
    for at in range(20):
        put(disk, b"k%d" % (at % 3), b"v%d" % at)
    disk.log.roll(1_000)
    result = disk.compact(2_000)
    assert result is not None
    assert by_offset(disk) == {17: (b"k2", b"v17"), 18: (b"k0", b"v18"), 19: (b"k1", b"v19")}
    assert (result.records_before, result.records_after) == (20, 3)
    assert disk.log.end == 20
    assert disk.problems() == []


def test_keyless_records_and_headers_and_timestamps_are_kept() -> None:
    disk = keyed_log()
    headers = (("trace", b"\x00\xff"), ("trace", None), ("", b""))
    records: list[Timed] = [
        (1_005, b"k", b"old", ()),
        (1_001, None, b"no key", headers),
        (1_009, b"k", b"new", headers),
        (1_002, None, None, ()),
        (1_003, b"gone", None, headers),
    ]
    for codec in Codec:
        disk.append(timed_batch(records, codec=codec))
    disk.log.roll(1_000)
    before = {record.offset: record for record in disk.records()}
    disk.compact(2_000)
    after = {record.offset: record for record in disk.records()}
    assert all(before[offset] == record for offset, record in after.items())
    assert set(after) == {at for at in range(25) if at % 5 in (1, 3)} | {22, 24}


def test_a_long_key_is_told_from_others_by_all_of_its_bytes() -> None:
    disk = keyed_log(segment_bytes=4_000)
    long_keys = [b"x" * 40 + b"%d" % at for at in range(4)]
    for key in (*long_keys, *long_keys):
        put(disk, key, key[-1:])
    disk.log.roll(1_000)
    disk.compact(2_000)
    assert [record.key for record in disk.records()] == long_keys


def test_a_tombstone_stays_for_its_time_and_then_goes() -> None:
    disk = keyed_log(delete_retention_ms=500)
    put(disk, b"k", b"value")
    put(disk, b"k", None)
    disk.log.roll(1_000)
    disk.compact(2_000)
    assert by_offset(disk) == {1: (b"k", None)}
    assert disk.records()[0].timestamp_ms == 1_000
    put(disk, b"other", b"1")
    disk.log.roll(1_000)
    disk.compact(2_499)
    assert by_offset(disk) == {1: (b"k", None), 2: (b"other", b"1")}
    put(disk, b"other", b"2")
    disk.log.roll(1_000)
    disk.compact(2_500)
    assert by_offset(disk) == {3: (b"other", b"2")}
    assert disk.problems() == []


def compact_again(disk: LogOnDisk, now_ms: int, *, forget_before: int | None = None) -> None:
    """As housekeeping does it, which knows whether all replicas have what is committed, and every index on disk."""
    put(disk, b"other", b"at %d" % now_ms)
    disk.log.roll(1_000)
    plan = plan_compaction(disk.log, now_ms, stable_end=disk.last_stable_offset, forget_before=forget_before)
    assert plan is not None
    disk.checkpoint()
    disk.take(compact(disk.mount, FOLDER, plan))
    assert disk.problems() == []


def test_a_tombstone_stays_beyond_its_time_while_a_replica_may_not_have_it() -> None:
    """One that was away would never hear of it, and bring the value back when it leads."""
    disk = keyed_log(delete_retention_ms=500)
    put(disk, b"k", b"value")
    put(disk, b"k", None)
    for now_ms in (2_000, 2_500, 99_000):
        compact_again(disk, now_ms, forget_before=0)
        assert [record.value for record in disk.records() if record.key == b"k"] == [None]
    compact_again(disk, 99_001)
    assert [record for record in disk.records() if record.key == b"k"] == []


def test_tombstones_behind_the_offset_up_to_which_they_may_be_forgotten_stay_beyond_their_time() -> None:
    disk = keyed_log(delete_retention_ms=500)
    for key in (b"first", b"second"):
        put(disk, key, b"value")
        put(disk, key, None)
    compact_again(disk, 2_000, forget_before=0)
    compact_again(disk, 2_500, forget_before=3)
    assert [offset for offset, (_, value) in by_offset(disk).items() if value is None] == [3]
    compact_again(disk, 3_000, forget_before=4)
    assert [offset for offset, (_, value) in by_offset(disk).items() if value is None] == []


def test_a_marker_without_a_transaction_stays_beyond_its_time_while_a_replica_may_not_have_it() -> None:
    """One that was away may have the records, and would hold up its readers for ever."""
    disk = keyed_log(delete_retention_ms=500)
    for sequence in range(2):
        record: Timed = (1_000, b"k", b"%d" % sequence, ())
        disk.append(timed_batch([record], producer=Producer(1, 0, sequence), is_transactional=True))
        disk.append_marker(1, 0, is_commit=True)
    for now_ms in (2_000, 3_000, 3_500, 99_000):
        compact_again(disk, now_ms, forget_before=0)
        assert markers(disk) == [1, 3]
    compact_again(disk, 99_001)
    assert markers(disk) == [3], "the last one keeps the epoch"


def test_the_time_of_a_tombstone_counts_from_the_pass_that_first_met_it_also_after_a_restart() -> None:
    disk = keyed_log(delete_retention_ms=500)
    put(disk, b"k", None)
    disk.log.roll(1_000)
    disk.compact(2_000)
    disk.device.crash()
    disk.open()
    [header] = [
        item.header
        for segment in disk.log.segments
        for item in segment.scan(0, segment.base_offset, check_crc=True)
        if isinstance(item, Found)
    ]
    assert header.attributes & ATTRIBUTE_DELETE_HORIZON
    assert header.base_timestamp == 2_500


def test_a_tombstone_kept_for_ever_does_not_stop_compaction() -> None:
    disk = keyed_log(delete_retention_ms=2**63 - 1)
    put(disk, b"k", b"value")
    put(disk, b"k", None)
    disk.log.roll(1_000)
    disk.compact(2_000)
    assert [(r.offset, r.timestamp_ms, r.value) for r in disk.records()] == [(1, 1_000, None)]


@pytest.mark.parametrize("stamp", [-(2**63), -1, 0, 2**63 - 1])
def test_a_tombstone_with_an_absurd_timestamp_stays_readable(stamp: int) -> None:
    disk = keyed_log()
    disk.append(timed_batch([(stamp, b"k", None, ())]))
    disk.log.roll(1_000)
    disk.compact(2_000)
    [record] = disk.records()
    assert (record.key, record.value) == (b"k", None)
    if -1 <= stamp <= 2_000:
        assert record.timestamp_ms == stamp


def test_the_last_sequence_of_an_idempotent_producer_survives() -> None:
    disk = keyed_log()
    for sequence in range(6):
        disk.append(timed_batch([(1_000, b"k", b"%d" % sequence, ())], producer=Producer(7, 3, sequence)))
    put(disk, b"k", b"newest")
    disk.log.roll(1_000)
    disk.compact(2_000)
    assert values(disk.records()) == [b"newest"]
    _, mount = copy_of(disk.device)
    mount.remove(f"{FOLDER}/checkpoint")  # so that the table can only come from the batches
    owner = ProducerState()
    open_log(mount, FOLDER, disk.settings, owner)
    [entry] = owner.table.entries()
    [event] = entry.batches
    assert (event.producer_id, event.epoch, event.last_sequence, event.base_offset) == (7, 3, 5, 5)


def test_appends_that_arrive_while_it_runs_are_kept_and_win() -> None:
    disk = keyed_log()
    for at in range(10):
        put(disk, b"k", b"v%d" % at)
    disk.log.roll(1_000)
    plan = disk.plan_compaction(2_000)
    assert plan is not None
    disk.checkpoint()
    put(disk, b"k", b"during")
    result = compact(disk.mount, FOLDER, plan)
    put(disk, b"k", b"before the swap is known")
    assert by_offset(disk)[0] == (b"k", b"v0"), "readers see the old segments until they are replaced"
    disk.take(result)
    put(disk, b"k", b"after")
    assert values(disk.records()) == [b"v9", b"during", b"before the swap is known", b"after"]
    disk.stop()
    disk.open()
    assert values(disk.records()) == [b"v9", b"during", b"before the swap is known", b"after"]
    assert disk.problems() == []


def test_small_neighbours_become_one_segment_and_offsets_go_on_tiling() -> None:
    disk = keyed_log(segment_bytes=300)
    for at in range(40):
        put(disk, b"k", b"v%d" % at)
    disk.log.roll(1_000)
    count_before = len(disk.log.segments)
    disk.compact(2_000)
    put(disk, b"k", b"again")
    disk.log.roll(1_000)
    disk.compact(3_000)
    assert len(disk.log.segments) < count_before / 2
    assert values(disk.records()) == [b"again"]
    assert disk.problems() == []


def test_nothing_above_the_high_watermark_or_in_the_active_segment_takes_part() -> None:
    disk = keyed_log(segment_bytes=10_000)
    put(disk, b"k", b"1")
    put(disk, b"k", b"2")
    assert disk.plan_compaction(2_000) is None
    assert dirty_ratio(disk.log, stable_end=disk.last_stable_offset) == 0.0
    disk.log.roll(1_000)
    disk.log.high_watermark = 1
    assert disk.plan_compaction(2_000) is None


def test_damage_stops_a_pass_before_it_changes_anything() -> None:
    disk = keyed_log()
    for at in range(10):
        put(disk, b"k", b"v%d" % at)
    disk.log.roll(1_000)
    disk.checkpoint()
    disk.device.flip_bit(f"{FOLDER}/{0:020d}.log", 8 * 70)
    before = disk.device.snapshot()
    plan = disk.plan_compaction(2_000)
    assert plan is not None
    with pytest.raises(DataCorrupt, match="damaged"):
        compact(disk.mount, FOLDER, plan)
    assert disk.device.snapshot() == before


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("operation", ["append", "sync"])
def test_a_pass_that_cannot_write_leaves_the_log_as_it_was(operation: str, error: int) -> None:
    for after in range(3):
        disk = keyed_log()
        for at in range(12):
            put(disk, b"k%d" % (at % 2), b"v%d" % at)
        disk.log.roll(1_000)
        plan = disk.plan_compaction(2_000)
        assert plan is not None
        disk.checkpoint()
        disk.device.fail_next("append" if operation == "append" else "sync", error=error, after=after)
        result = compact(disk.mount, FOLDER, plan)
        is_index_lost = result.failure is None  # a cache, which may be missing
        assert is_index_lost or result.clean_end == plan.clean_end
        assert disk.log.failure is None
        for old, new in result.replaced:
            disk.log.replace_segments(old, new)
        latest = {record.key: record.value for record in disk.records()}
        assert latest == {b"k0": b"v10", b"k1": b"v11"}
        disk.device.kill()
        disk.open()
        assert {record.key: record.value for record in disk.records()} == latest
        put(disk, None, b"more")
        disk.log.roll(1_000)
        disk.compact(3_000)
        assert by_offset(disk) == {10: (b"k0", b"v10"), 11: (b"k1", b"v11"), 12: (None, b"more")}
        assert disk.problems() == []


@pytest.mark.parametrize("operation", ["rename", "sync_dir", "remove"])
def test_a_pass_that_fails_anywhere_loses_nothing_also_if_retention_follows(operation: str) -> None:
    for after in range(12):
        disk = keyed_log(segment_bytes=300)
        for at in range(9):
            put(disk, b"k%d" % at, b"v%d" % at)  # nothing to take, so that nothing may be missing
            if at % 2:
                disk.log.roll(1_000)
        disk.log.roll(1_000)
        plan = disk.plan_compaction(2_000)
        assert plan is not None
        disk.checkpoint()
        match operation:
            case "rename":
                disk.device.fail_next("rename", after=after)
            case "sync_dir":
                disk.device.fail_next("sync_dir", after=after)
            case _:
                disk.device.fail_next("remove", after=after)
        result = compact(disk.mount, FOLDER, plan)
        for old, new in result.replaced:
            disk.log.replace_segments(old, new)
        if result.failure is None:
            continue
        start = 0
        if disk.log.failure is None:
            start = 2
            disk.log.delete_before(start)
            disk.checkpoint()
        assert len(disk.records()) == 9 - start
        disk.device.kill()
        disk.open()
        assert disk.report.damage == [], f"{operation} {after}"
        assert len(read_all(disk.log)) == 9 - start, f"{operation} {after}"


def test_a_batch_that_lost_all_of_its_records_reads_as_an_empty_one() -> None:
    disk = keyed_log()
    put(disk, b"k", b"1")
    put(disk, b"k", b"2")
    disk.log.roll(1_000)
    disk.compact(2_000)
    [found] = disk.log.read(0, end=1, bytes_max=1).batches
    assert list(decode_batch(found.data, found.header)) == []
    assert found.header.end_offset == 1


def test_compaction_without_a_checkpoint_that_covers_it_is_refused() -> None:
    """The recovery point would lie inside a file that is rewritten, and recovery would cut there."""
    disk = keyed_log(segment_bytes=10_000)
    for at in range(4):
        put(disk, b"k", b"v%d" % at)
    disk.checkpoint()
    for at in range(4):
        put(disk, b"k", b"w%d" % at)
    disk.sync()
    disk.log.roll(1_000)
    put(disk, b"k", b"active")
    disk.sync()
    plan = disk.plan_compaction(2_000)
    assert plan is not None
    with pytest.raises(AssertionError, match="checkpoint"):
        compact(disk.mount, FOLDER, plan)
    assert len(disk.records()) == 9
