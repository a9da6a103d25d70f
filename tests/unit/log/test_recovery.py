"""Opening a log after any kind of stop: what is torn is cut, what is damaged is reported and never served."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pytest
from tests.support.logs import (
    FOLDER,
    LogOnDisk,
    check,
    copy_of,
    plain_batch,
    read_all,
    small_settings,
    timed_batch,
    values,
)

from goqueue.log.batch import HEADER_BYTES, decode_batch, read_header
from goqueue.log.check import CheckReport, check_folder
from goqueue.log.disk import Disk, read_file, replace_file
from goqueue.log.partition_log import PartitionLog
from goqueue.log.recovery import QUARANTINE, RecoveryReport, open_log, truncate_log
from goqueue.model.errors import DataCorrupt, OffsetOutOfRange, StorageError
from goqueue.model.record import StoredRecord
from goqueue.node.producer_state import ProducerState
from goqueue.sim.disk import PowerLost, SimDisk

PATH_0 = f"{FOLDER}/{0:020d}.log"


def reopened(disk: Disk) -> tuple[PartitionLog, RecoveryReport]:
    return open_log(disk, FOLDER, small_settings(), ProducerState())


def read_around_damage(log: PartitionLog) -> tuple[list[StoredRecord], list[tuple[int, int]]]:
    """Every record that can be read, and the ranges that cannot, as a client would find them."""
    records: list[StoredRecord] = []
    lost: list[tuple[int, int]] = []
    offset = log.log_start
    while offset < log.end:
        try:
            piece = log.read(offset, end=log.end, bytes_max=1)
        except DataCorrupt as error:
            lost.append((error.start, error.end))
            is_on_the_way = error.start <= offset < error.end
            assert is_on_the_way, "a reader that goes on where the error says must get on"
            offset = error.end
        else:
            found = piece.batches[0]
            records += [r for r in decode_batch(found.data, found.header) if r.offset >= offset]
            offset = piece.next_offset
    return records, lost


def unsaved_log(*, batches: int = 7, synced: bool = True) -> LogOnDisk:
    """Batches of two records in several segments, all after the recovery point."""
    disk = LogOnDisk(settings=small_settings(segment_bytes=330))
    for at in range(batches):
        disk.append(
            timed_batch([(1_000 + at, b"k%d" % at, b"value %d" % at, (("h", b"1"),)), (990, None, b"", ())])
        )
    if synced:
        disk.sync()
    return disk


# -------------------------------------------------------------------- torn tails


def test_a_last_batch_torn_at_any_byte_is_cut_and_the_rest_is_whole() -> None:
    disk = LogOnDisk()
    for at in range(3):
        disk.append(plain_batch(b"record %d" % at, b"x"))
    kept = disk.log.segments[-1].size
    disk.append(plain_batch(b"torn", b"y" * 50))
    disk.sync()
    content = disk.device.snapshot()[PATH_0]
    for length in range(kept, len(content)):
        _, mount = copy_of(disk.device)
        mount.open(PATH_0).truncate(length)
        log, report = reopened(mount)
        assert (log.end, report.cut_bytes, report.damage) == (6, length - kept, [])
        assert len(values(read_all(log))) == 6
        assert mount.open(PATH_0).size() == kept
        assert check(mount).problems == []


def test_a_tail_of_zeros_is_cut_without_being_kept() -> None:
    disk = unsaved_log(batches=2)
    _, mount = copy_of(disk.device)
    mount.open(PATH_0).append([bytes(5_000)])
    log, report = reopened(mount)
    assert (log.end, report.cut_bytes, report.damage) == (4, 5_000, [])
    assert mount.list(QUARANTINE) == []


def test_a_batch_that_was_never_written_ends_the_log_whatever_follows_it() -> None:
    disk = LogOnDisk()
    for at in range(3):
        disk.append(plain_batch(b"record %d" % at))
    disk.sync()
    content = disk.device.snapshot()[PATH_0]
    size = read_header(content).size
    _, mount = copy_of(disk.device)
    replace_file(mount, PATH_0, content[:size] + bytes(size) + content[2 * size :])
    log, report = reopened(mount)
    assert values(read_all(log)) == [b"record 0"]
    assert report.damage == []
    assert report.cut_bytes == 2 * size
    assert mount.list(f"{QUARANTINE}/{FOLDER}") != []


def test_segments_behind_a_cut_are_set_aside_and_kept() -> None:
    disk = unsaved_log()
    _, mount = copy_of(disk.device)
    _, second, *rest = disk.log.segments
    file = mount.open(second.path)
    file.truncate(file.size() - 1)
    log, report = reopened(mount)
    assert log.end == second.end_offset - 2
    assert report.damage == []
    kept = {entry.name for entry in mount.list(f"{QUARANTINE}/{FOLDER}")}
    assert {f"{segment.base_offset:020d}.log" for segment in rest if segment.size} < kept
    assert check(mount).problems == []


# -------------------------------------------------------------------- flipped bits


def flips(disk: LogOnDisk) -> Iterator[tuple[str, int, SimDisk]]:
    """One bit of every byte of every segment, flipped on a copy."""
    for path, content in disk.device.snapshot().items():
        if path.endswith(".log"):
            for at in range(len(content)):
                device, _ = copy_of(disk.device)
                device.flip_bit(path, 8 * at + at % 8)
                yield path, at, device


def test_a_flipped_bit_after_the_recovery_point_is_reported_and_costs_one_batch() -> None:
    disk = unsaved_log()
    everything = disk.records()
    end = disk.log.end
    for path, at, device in flips(disk):
        where = f"{path} byte {at}"
        mount = device.mount()
        log, report = reopened(mount)
        records, lost = read_around_damage(log)
        assert report.damage, where
        assert log.end == end, f"{where}: offsets are given out twice"
        assert len(lost) == 1, where
        start, stop = lost[0]
        assert stop - start == 2, where
        assert records == [r for r in everything if not start <= r.offset < stop], where
        assert check(mount).problems, where


def test_a_flipped_bit_before_the_recovery_point_is_found_on_read_and_by_check() -> None:
    disk = unsaved_log()
    disk.checkpoint()
    everything = disk.records()
    for path, at, device in flips(disk):
        where = f"{path} byte {at}"
        mount = device.mount()
        log, _ = reopened(mount)
        records, lost = read_around_damage(log)
        assert len(lost) == 1, where
        start, stop = lost[0]
        assert stop - start == 2, where
        assert records == [r for r in everything if not start <= r.offset < stop], where
        report = check_folder(mount)
        assert any(path in problem for problem in report.problems), where


def test_every_offset_behind_a_flipped_bit_can_be_read_by_itself() -> None:
    """Also without an index that leads past the damage, and whatever the damaged header says."""
    disk = LogOnDisk(settings=small_settings(segment_bytes=10_000, index_interval_bytes=1 << 20))
    for at in range(5):
        disk.append(plain_batch(b"record %d" % at, b"x"))
    disk.checkpoint()
    size = read_header(disk.device.snapshot()[PATH_0]).size
    for bit in range(8 * size, 8 * (size + HEADER_BYTES)):
        device, _ = copy_of(disk.device)
        device.flip_bit(PATH_0, bit)
        log, _ = reopened(device.mount())
        for offset in range(10):
            if offset in (2, 3):
                with pytest.raises(DataCorrupt) as caught:
                    log.read(offset, end=10, bytes_max=1)
                assert (caught.value.start, caught.value.end) == (2, 4), f"bit {bit}"
            else:
                assert log.read(offset, end=10, bytes_max=1).next_offset == offset // 2 * 2 + 2, f"bit {bit}"


def test_damage_that_appears_while_the_log_is_open_is_found_on_read() -> None:
    disk = unsaved_log()
    assert len(disk.records()) == 14
    disk.device.flip_bit(PATH_0, 8 * 100)
    records, lost = read_around_damage(disk.log)
    assert len(records) == 12
    assert len(lost) == 1


def test_appends_go_on_behind_a_damaged_last_batch() -> None:
    disk = unsaved_log(batches=2)
    device, _ = copy_of(disk.device)
    device.flip_bit(PATH_0, 8 * (len(disk.device.snapshot()[PATH_0]) - 20))
    disk.device = device
    disk.open()
    assert disk.report.damage
    assert disk.append(plain_batch(b"new")) == 4
    disk.device.kill()
    disk.open()
    records, lost = read_around_damage(disk.log)
    assert lost == [(2, 4)]
    assert [record.offset for record in records] == [0, 1, 4]


# -------------------------------------------------------------------- power cuts in the middle of things


class Life:
    """A log with something of everything in it, made the same way every time."""

    def __init__(self, seed: int) -> None:
        self.disk = LogOnDisk(seed, small_settings(segment_bytes=260, delete_retention_ms=0))
        for at in range(8):
            self.disk.append(
                timed_batch([(1_000 + at, b"k%d" % (at % 2), b"v%d" % at, ()), (1_000, None, b"n", ())])
            )
            if at == 4:
                self.disk.checkpoint()
        self.disk.sync()


def expect_log(disk: LogOnDisk, allowed: Callable[[list[StoredRecord]], bool], where: str) -> None:
    assert disk.report.damage == [], where
    assert allowed(disk.records()), where
    assert disk.problems() == [], where
    base = disk.append(plain_batch(b"after"))
    disk.sync()
    disk.device.crash()
    disk.open()
    assert disk.log.end == base + 1, where
    assert disk.records()[-1].value == b"after", where
    assert disk.problems() == [], where


def survives_every_power_cut(
    action: Callable[[Life], object], allowed: Callable[[list[StoredRecord]], bool]
) -> None:
    """Cut the power in every operation of `action`, then in every operation of the recovery after it."""
    for seed in range(3):
        operations = 0
        is_done = False
        while not is_done:
            operations += 1
            life = Life(seed)
            is_done = not is_cut(life, operations, partial(action, life))
            again = 0
            recovers = False
            while not recovers and not is_done:
                again += 1
                life = Life(seed)
                assert is_cut(life, operations, partial(action, life))
                recovers = not is_cut(life, again, life.disk.open)
                life.disk.device.crash_after(0)
                life.disk.open()
                expect_log(life.disk, allowed, f"seed {seed}, cut at {operations}, then at {again}")
        assert operations > 2


def is_cut(life: Life, operations: int, action: Callable[[], object]) -> bool:
    life.disk.device.crash_after(operations)
    try:
        action()
    except (PowerLost, StorageError):
        return True
    life.disk.device.crash_after(0)
    return False


def is_whole(records: list[StoredRecord]) -> bool:
    return [record.offset for record in records] == list(range(16))


def test_a_power_cut_anywhere_in_a_checkpoint_loses_nothing() -> None:
    survives_every_power_cut(lambda life: life.disk.checkpoint(), is_whole)


def test_a_power_cut_anywhere_in_a_roll_loses_nothing() -> None:
    def roll(life: Life) -> None:
        life.disk.log.roll(2_000)
        life.disk.append(plain_batch(b"rolled"))
        life.disk.sync()

    survives_every_power_cut(roll, lambda records: is_whole(records[:16]) and len(records) <= 17)


def test_a_power_cut_anywhere_in_a_truncation_leaves_the_old_log_or_a_shorter_one() -> None:
    def truncate(life: Life) -> None:
        truncate_log(life.disk.log, life.disk.mount, life.disk.owner, 6, forced=True)

    def allowed(records: list[StoredRecord]) -> bool:
        return 6 <= len(records) <= 16 and [record.offset for record in records] == list(range(len(records)))

    survives_every_power_cut(truncate, allowed)


def test_a_power_cut_anywhere_in_a_deletion_removes_the_beginning_or_nothing() -> None:
    def delete(life: Life) -> None:
        life.disk.log.delete_before(9)
        life.disk.checkpoint()

    survives_every_power_cut(
        delete, lambda records: [record.offset for record in records] in (list(range(16)), list(range(9, 16)))
    )


def test_a_power_cut_anywhere_in_a_compaction_loses_nothing_but_what_it_was_to_take() -> None:
    kept = {at for at in range(16) if at % 2} | {12, 14}  # keyless, and the last of each key or nearly so

    def allowed(records: list[StoredRecord]) -> bool:
        offsets = {record.offset for record in records}
        return offsets >= kept and all(record.value == value_at(record.offset) for record in records)

    def value_at(offset: int) -> bytes:
        return b"n" if offset % 2 else b"v%d" % (offset // 2)

    survives_every_power_cut(lambda life: life.disk.compact(5_000), allowed)


# -------------------------------------------------------------------- caches and checkpoint


def spoiled(content: bytes) -> list[bytes | None]:
    """None: no file at all."""
    half = len(content) // 2
    flipped = bytearray(content)
    flipped[half] ^= 0x20
    whole_entries = [content[:12], content[:-12], content[:8], content[:-8]]
    return [None, b"", content[:half], bytes(len(content)), b"garbage!" * 9, bytes(flipped), *whole_entries]


@pytest.mark.parametrize("is_power_cut", [False, True])
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_whatever_happens_to_an_index_reads_and_seeks_stay_right(suffix: str, is_power_cut: bool) -> None:
    disk = LogOnDisk(settings=small_settings(segment_bytes=2_000, index_interval_bytes=64))
    stamps = [1_000, 1_500, 1_400, 1_450, 1_600, 1_100, 1_700, 1_650, 1_200, 1_750] * 6
    for at, stamp in enumerate(stamps):
        disk.append(plain_batch(b"value %d" % at, timestamp_ms=stamp + 10 * (at // 10)))
    disk.checkpoint()
    everything = disk.records()
    for path, content in disk.device.snapshot().items():
        if not path.endswith(suffix):
            continue
        for bad in spoiled(content):
            device, mount = copy_of(disk.device)
            if bad is None:
                mount.remove(path)
                mount.sync_dir(FOLDER)
            else:
                replace_file(mount, path, bad)
            if is_power_cut:
                device.crash()
            log, report = reopened(device.mount())
            assert report.damage == []
            assert read_all(log) == everything
            for timestamp in range(990, 1_820, 7):
                expected = next(
                    ((r.offset, r.timestamp_ms) for r in everything if r.timestamp_ms >= timestamp), None
                )
                assert log.first_at_or_after(timestamp) == expected, (path, bad, timestamp)
            assert [s.max_timestamp for s in log.segments] == [s.max_timestamp for s in disk.log.segments]


def test_a_bad_checkpoint_is_reported_and_the_log_scanned_from_its_beginning() -> None:
    disk = unsaved_log()
    disk.checkpoint()
    path = f"{FOLDER}/checkpoint"
    content = disk.device.snapshot()[path]
    for at in range(len(content)):
        device, mount = copy_of(disk.device)
        device.flip_bit(path, 8 * at + at % 8)
        log, report = reopened(mount)
        if at == len(content) - 1:
            continue  # the final line feed says nothing, so it may be anything
        assert report.damage, f"byte {at}"
        assert report.scanned_bytes == log.size_bytes
        assert read_all(log) == disk.records()
        assert any("checkpoint" in problem for problem in check(mount).problems)


def test_without_a_checkpoint_the_log_is_scanned_and_the_epochs_are_learnt() -> None:
    disk = unsaved_log()
    disk.stop()
    disk.open()
    disk.append(plain_batch(b"in the next epoch"))
    disk.sync()
    epochs = disk.log.epochs.entries()
    _, mount = copy_of(disk.device)
    mount.remove(f"{FOLDER}/checkpoint")
    log, report = reopened(mount)
    assert report.damage == []
    assert read_all(log) == disk.records()
    assert log.epochs.entries() == epochs


def test_a_clean_stop_leaves_nothing_to_scan() -> None:
    disk = unsaved_log()
    disk.stop()
    before = disk.device.counters.read_bytes
    report = disk.open()
    assert (report.scanned_bytes, report.cut_bytes, report.damage, report.notes) == (0, 0, [], [])
    read_bytes = disk.device.counters.read_bytes - before
    assert read_bytes < 2_000, "the checkpoint, the index and a header or two"


def test_a_log_shorter_than_its_checkpoint_is_reported_as_damage() -> None:
    disk = unsaved_log(batches=3)
    disk.checkpoint()
    _, mount = copy_of(disk.device)
    active = disk.log.segments[-1]
    mount.open(active.path).truncate(active.size - 5)
    log, report = reopened(mount)
    assert report.damage
    assert read_all(log) == disk.records()[: log.end]


def test_a_missing_segment_is_reported() -> None:
    disk = unsaved_log()
    disk.checkpoint()
    for segment in disk.log.segments:
        _, mount = copy_of(disk.device)
        mount.remove(segment.path)
        log, report = reopened(mount)
        _, lost = read_around_damage(log)
        assert report.damage or lost, segment.path
        assert check(mount).problems, segment.path


# -------------------------------------------------------------------- truncation (trap 8)


def test_truncation_shortens_the_log_and_its_indexes() -> None:
    disk = LogOnDisk(settings=small_settings(segment_bytes=1_000, index_interval_bytes=64))
    for at in range(30):
        disk.append(plain_batch(b"value %02d" % at, timestamp_ms=1_000 + at))
    disk.checkpoint()
    files_before = disk.device.snapshot()
    truncate_log(disk.log, disk.mount, disk.owner, 7, forced=True)
    disk.sync()
    assert (disk.log.end, disk.log.high_watermark, disk.log.durable_end) == (7, 7, 7)
    assert disk.log.first_at_or_after(1_007) is None
    disk.is_led = False
    disk.lead()
    disk.checkpoint()
    files = disk.device.snapshot()
    logs = [path for path in files if path.endswith(".log")]
    assert sum(len(files[path]) for path in logs) == 7 * read_header(files[PATH_0]).size
    for suffix in (".index", ".timeindex"):
        sizes = [sum(len(c) for p, c in fs.items() if p.endswith(suffix)) for fs in (files_before, files)]
        assert sizes[1] < sizes[0] / 2
    assert disk.append(plain_batch(b"again", timestamp_ms=5_000)) == 7
    assert disk.log.first_at_or_after(1_007) == (7, 5_000)
    assert disk.problems() == []


def test_truncation_outside_the_log_is_refused_and_changes_nothing() -> None:
    disk = unsaved_log()
    disk.log.delete_before(3)
    for offset in (2, disk.log.end + 1):
        with pytest.raises(OffsetOutOfRange):
            truncate_log(disk.log, disk.mount, disk.owner, offset, forced=True)
    assert len(disk.records()) == 11


def test_truncation_takes_neither_the_start_nor_the_high_watermark_back() -> None:
    disk = unsaved_log()
    disk.log.delete_before(5)
    truncate_log(disk.log, disk.mount, disk.owner, 10, forced=True)
    assert (disk.log.log_start, disk.log.high_watermark, disk.log.end) == (5, 10, 10)


def test_a_kill_and_a_power_cut_after_it_lose_nothing_that_the_log_calls_durable() -> None:
    """What a killed process wrote is in the page cache only, until somebody syncs it."""
    for seed in range(40):
        disk = LogOnDisk(seed)
        disk.append(plain_batch(b"a"))
        disk.log.roll(1_000)
        disk.device.kill()
        disk.open()
        disk.append(plain_batch(b"b"))
        disk.sync()
        durable_end = disk.log.durable_end
        assert durable_end == 2
        disk.device.crash()
        disk.open()
        assert values(disk.records()) == [b"a", b"b"]


def test_recovery_of_an_empty_folder_gives_an_empty_log() -> None:
    disk = LogOnDisk()
    assert (disk.log.log_start, disk.log.end, disk.log.segments) == (0, 0, ())
    assert check(disk.mount) == CheckReport(partition_count=1)
    assert read_file(disk.mount, f"{FOLDER}/checkpoint") is None
