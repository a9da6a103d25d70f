"""Transactions in a log: they survive every kind of stop, and compaction and `check` know of them."""

from __future__ import annotations

import msgspec
import pytest
from tests.support.logs import FOLDER, LogOnDisk, check, copy_of, small_settings, timed_batch

from goqueue.log.aborted import Aborted, AbortedIndex, AbortedSpans, load_aborted, save_aborted
from goqueue.log.batch import ATTRIBUTE_CONTROL, ATTRIBUTE_TRANSACTIONAL, decode_batch, encode_batch
from goqueue.log.checkpoint import Checkpoint, load_checkpoint
from goqueue.log.compaction import compact
from goqueue.log.recovery import open_log, truncate_log
from goqueue.log.scan import Found
from goqueue.model.record import NewRecord, Producer
from goqueue.node.producer_state import ProducerState
from goqueue.sim.disk import PowerLost

INDEX = f"{FOLDER}/aborted.index"


def write(disk: LogOnDisk, id: int, value: bytes, *, key: bytes | None = None, plain: bool = False) -> int:
    """As the producer's next batch."""
    entry = disk.owner.table.entry(id)
    producer = Producer(id, entry.epoch if entry else 0, entry.last_sequence + 1 if entry else 0)
    return disk.append(timed_batch([(1_000, key, value, ())], producer=producer, is_transactional=not plain))


def commit(disk: LogOnDisk, id: int, epoch: int = 0) -> int:
    return disk.append_marker(id, epoch, is_commit=True)


def abort(disk: LogOnDisk, id: int, epoch: int = 0) -> int:
    return disk.append_marker(id, epoch, is_commit=False)


def batches(disk: LogOnDisk) -> list[Found]:
    return [
        found
        for segment in disk.log.segments
        for found in segment.scan(0, segment.base_offset, check_crc=True)
        if isinstance(found, Found)
    ]


def markers(disk: LogOnDisk) -> list[int]:
    return [found.header.base_offset for found in batches(disk) if found.header.is_control]


def committed(disk: LogOnDisk) -> list[bytes | None]:
    end = disk.last_stable_offset
    spans = AbortedSpans(disk.log.aborted.overlapping(disk.log.log_start, end))
    return [
        record.value
        for found in batches(disk)
        if not found.header.is_control and not spans.cover(found.header)
        for record in decode_batch(found.data, found.header)
        if record.offset < end
    ]


def interleaved() -> LogOnDisk:
    """Producer 1 aborts, 2 commits, 3 stays open."""
    disk = LogOnDisk()
    for id in (1, 2, 3):
        write(disk, id, b"%d" % id)
    write(disk, 1, b"1 again")
    abort(disk, 1)  # 4
    commit(disk, 2)  # 5
    write(disk, 4, b"4", plain=True)
    return disk


# ---------------------------------------------------------------- recovery


@pytest.mark.parametrize("saved", ["before", "between", "after"])
@pytest.mark.parametrize("how", ["stop", "kill", "power cut"])
def test_open_and_aborted_transactions_survive_every_kind_of_stop(how: str, saved: str) -> None:
    disk = LogOnDisk()
    for id in (1, 2, 3):
        write(disk, id, b"%d" % id)
    if saved == "between":
        disk.checkpoint()
    write(disk, 1, b"1 again")
    abort(disk, 1)
    commit(disk, 2)
    write(disk, 4, b"4", plain=True)
    if saved == "after":
        disk.checkpoint()
    before = disk.owner.table.entries()
    aborted, stable = list(disk.log.aborted), disk.last_stable_offset
    match how:
        case "stop":
            disk.stop()
        case "kill":
            disk.device.kill()
        case _:
            disk.sync()
            disk.device.crash()
    disk.open()
    disk.log.advance_high_watermark(disk.log.end)
    assert disk.owner.table.entries() == before
    assert list(disk.log.aborted) == aborted == [Aborted(1, 0, 4, 1)]
    assert disk.last_stable_offset == stable == 2
    commit(disk, 3)
    assert committed(disk) == [b"2", b"3", b"4"]
    assert disk.problems() == []


def test_log_without_transactions_has_no_index_of_them() -> None:
    disk = LogOnDisk()
    write(disk, 1, b"v", plain=True)
    disk.stop()
    assert INDEX not in disk.device.snapshot()
    disk.open()
    assert disk.report.notes == []


def test_index_is_written_only_when_it_changed() -> None:
    disk = interleaved()
    disk.checkpoint()
    first = disk.device.snapshot()[INDEX]
    write(disk, 4, b"more", plain=True)
    job = disk.log.begin_checkpoint()
    assert job.aborted is None
    disk.log.abandon_checkpoint(job)
    abort(disk, 3)
    job = disk.log.begin_checkpoint()
    assert job.aborted is not None
    assert disk.device.snapshot()[INDEX] == first


@pytest.mark.parametrize("what", ["missing", "damaged", "of another time", "cut short"])
def test_index_that_is_not_the_checkpoints_is_read_off_the_log_again_and_noted(what: str) -> None:
    disk = interleaved()
    disk.log.roll(1_000)
    write(disk, 1, b"1 once more")
    abort(disk, 1)
    disk.stop()
    mount = disk.device.mount()
    match what:
        case "missing":
            mount.remove(INDEX)
            mount.sync_dir(FOLDER)
        case "damaged":
            disk.device.flip_bit(INDEX, 200)
        case "of another time":
            index = AbortedIndex()
            index.add(Aborted(1, 0, 4, 1))
            save_aborted(mount, FOLDER, index)
        case _:
            mount.open(INDEX).truncate(70)
    disk.open()
    assert disk.report.damage == []
    assert ["reading it off the log again" in note for note in disk.report.notes] == [True]
    assert list(disk.log.aborted) == [Aborted(1, 0, 4, 1), Aborted(1, 7, 8, 2)]
    disk.log.advance_high_watermark(disk.log.end)
    assert disk.owner.table.first_open_offset() == 2, (
        "what the checkpoint knew of producers is not lost with it"
    )
    disk.stop()
    disk.open()
    assert disk.report.notes == [], "it was written again"


def test_index_that_nobody_relies_on_may_be_damaged() -> None:
    disk = LogOnDisk()
    write(disk, 1, b"v", plain=True)
    disk.stop()
    mount = disk.device.mount()
    mount.open(INDEX, create=True).append([b"rubbish"])
    disk.open()
    assert len(disk.report.notes) == 1
    disk.stop()
    disk.open()
    assert disk.report.notes == []


def test_without_a_checkpoint_everything_comes_from_the_log() -> None:
    disk = interleaved()
    disk.stop()
    mount = disk.device.mount()
    mount.remove(f"{FOLDER}/checkpoint")
    mount.sync_dir(FOLDER)
    disk.open()
    assert list(disk.log.aborted) == [Aborted(1, 0, 4, 1)]
    assert [entry.transaction_start for entry in disk.owner.table.open_entries()] == [2]


def test_index_written_before_a_checkpoint_that_was_not_does_no_harm() -> None:
    disk = interleaved()
    disk.checkpoint()
    abort(disk, 3)
    job = disk.log.begin_checkpoint()
    job.sync.run()
    assert job.aborted is not None
    save_aborted(disk.mount, FOLDER, job.aborted)
    disk.device.crash()
    disk.open()
    assert disk.report.notes == []
    assert list(disk.log.aborted) == [Aborted(1, 0, 4, 1), Aborted(3, 2, 7, 8)]


def test_checkpoint_that_is_cut_short_never_leaves_an_index_that_must_be_read_off_the_log() -> None:
    for operations in range(1, 30):
        disk = interleaved()
        disk.checkpoint()
        abort(disk, 3)
        disk.device.crash_after(operations)
        try:
            disk.checkpoint()
        except PowerLost:
            disk.open()
            assert not any("off the log again" in note for note in disk.report.notes), operations
            assert next(iter(disk.log.aborted)) == Aborted(1, 0, 4, 1)
            continue
        return
    raise AssertionError("no checkpoint has so many steps")


def test_entries_before_the_start_of_the_log_go_with_the_checkpoint_that_moves_it() -> None:
    disk = interleaved()
    abort(disk, 3)  # 7
    disk.checkpoint()
    disk.log.delete_before(5)
    assert len(disk.log.aborted) == 2, "a crash would bring the older start back"
    disk.checkpoint()
    assert list(disk.log.aborted) == [Aborted(3, 2, 7, 8)]
    write(disk, 4, b"v", plain=True)
    disk.stop()
    disk.open()
    assert list(disk.log.aborted) == [Aborted(3, 2, 7, 8)]
    assert disk.report.notes == []
    assert disk.problems() == []


@pytest.mark.parametrize("saved", [True, False])
def test_truncation_takes_back_what_happened_behind_the_cut(saved: bool) -> None:
    disk = interleaved()
    if saved:
        disk.checkpoint()
    truncate_log(disk.log, disk.mount, disk.owner, 4, forced=True)
    disk.is_led = False
    assert list(disk.log.aborted) == []
    assert [entry.transaction_start for entry in disk.owner.table.open_entries()] == [0, 1, 2]
    disk.device.kill()
    disk.open()
    assert list(disk.log.aborted) == []
    disk.log.advance_high_watermark(disk.log.end)
    assert disk.last_stable_offset == 0
    for id in (1, 2, 3):
        commit(disk, id)
    assert committed(disk) == [b"1", b"2", b"3", b"1 again"]
    assert disk.problems() == []


def test_checkpoint_of_a_lost_tail_does_not_speak_for_it() -> None:
    disk = interleaved()
    size = sum(found.header.size for found in batches(disk)[:4])
    disk.stop()
    disk.device.mount().open(f"{FOLDER}/{0:020d}.log").truncate(size)
    disk.open()
    assert disk.report.damage != []
    assert disk.log.end == 4
    assert list(disk.log.aborted) == []
    assert [entry.transaction_start for entry in disk.owner.table.open_entries()] == [0, 1, 2]


def test_checkpoint_of_version_1_gives_the_producers_back() -> None:
    owner = ProducerState()
    owner.restore(msgspec.Raw(b"[[7,0,0,3,116,1700000000000],[7,0,4,5,120,1700000000000]]"))
    [entry] = owner.table.entries()
    assert (entry.producer_id, entry.last_sequence, entry.transaction_start) == (7, 5, None)


def test_marker_that_makes_no_sense_leaves_the_transaction_open_and_is_reported() -> None:
    disk = LogOnDisk()
    write(disk, 1, b"v")
    header, batch = encode_batch(
        [NewRecord(b"?", b"?")],
        1_000,
        producer=Producer(1, 0, -1),
        attributes=ATTRIBUTE_CONTROL | ATTRIBUTE_TRANSACTIONAL,
    )
    base = disk.log.append(batch, header, now_ms=1_000)
    disk.observe(header._replace(base_offset=base), batch)
    disk.stop()
    disk.open()
    assert disk.owner.table.first_open_offset() == 0
    assert ["a control record has no type" in problem for problem in disk.problems()] == [True]


# ---------------------------------------------------------------- compaction


def keyed(segment_bytes: int = 10_000) -> LogOnDisk:
    return LogOnDisk(settings=small_settings(segment_bytes=segment_bytes, delete_retention_ms=500))


def test_record_of_an_aborted_transaction_goes_and_never_stands_for_its_key() -> None:
    disk = keyed()
    write(disk, 1, b"committed", key=b"k")
    commit(disk, 1)
    write(disk, 2, b"aborted", key=b"k")
    write(disk, 2, b"aborted too", key=b"only")
    abort(disk, 2)
    disk.log.roll(1_000)
    result = disk.compact(2_000)
    assert result is not None
    assert (result.records_before, result.records_after) == (3, 1)
    left = [found for found in batches(disk) if not found.header.is_control]
    assert [record.value for found in left for record in decode_batch(found.data, found.header)] == [
        b"committed"
    ]
    assert committed(disk) == [b"committed"]
    assert disk.problems() == []


def test_nothing_from_an_open_transaction_on_is_compacted() -> None:
    disk = keyed()
    write(disk, 1, b"old", key=b"k")
    commit(disk, 1)
    disk.log.roll(1_000)
    write(disk, 2, b"open", key=b"k")
    write(disk, 3, b"new", key=b"k", plain=True)
    disk.log.roll(1_000)
    write(disk, 3, b"newest", key=b"k", plain=True)
    disk.log.roll(1_000)
    disk.compact(2_000)
    assert disk.log.clean_end == 2
    assert disk.plan_compaction(2_000) is None
    commit(disk, 2)
    disk.log.roll(1_000)
    disk.compact(3_000)
    assert committed(disk) == [b"newest"]


def test_sequence_and_epoch_of_a_transactional_producer_survive_compaction_and_a_lost_checkpoint() -> None:
    disk = keyed()
    write(disk, 7, b"1", key=b"k")
    write(disk, 7, b"2", key=b"k")
    commit(disk, 7)
    write(disk, 8, b"3", key=b"k")
    disk.append_marker(8, 4, is_commit=False)
    write(disk, 9, b"newest", key=b"k", plain=True)
    disk.log.roll(1_000)
    for now_ms in (2_000, 9_000, 99_000):
        disk.compact(now_ms)
        write(disk, 9, b"newest", key=b"k", plain=True)
        disk.log.roll(1_000)
    _, mount = copy_of(disk.device)
    mount.remove(f"{FOLDER}/checkpoint")
    owner = ProducerState()
    log, _ = open_log(mount, FOLDER, disk.settings, owner)
    seven, eight = owner.table.entry(7), owner.table.entry(8)
    assert seven is not None
    assert eight is not None
    assert (seven.epoch, seven.last_sequence, seven.transaction_start) == (0, 1, None)
    assert (eight.epoch, eight.transaction_start) == (4, None)
    assert owner.table.first_open_offset() is None
    assert len(log.aborted) == 1, "its last batch is still there, without records"


@pytest.mark.parametrize("is_commit", [True, False])
def test_marker_without_a_transaction_left_is_dated_and_then_goes(is_commit: bool) -> None:
    disk = keyed()
    for at in range(3):
        write(disk, 1, b"%d" % at, key=b"k")
        disk.append_marker(1, 0, is_commit=is_commit)
    disk.log.roll(1_000)

    def pass_at(now_ms: int) -> None:
        write(disk, 9, b"%d" % now_ms, key=b"k", plain=True)
        disk.log.roll(1_000)
        disk.compact(now_ms)
        assert disk.problems() == []

    disk.compact(2_000)
    assert markers(disk) == [1, 3, 5], "the first pass still met their batches"
    pass_at(3_000)
    assert markers(disk) == [1, 3, 5], "now they are dated"
    assert [entry.last_offset for entry in disk.log.aborted] == ([] if is_commit else [5])
    pass_at(3_499)
    assert markers(disk) == [1, 3, 5]
    pass_at(3_500)
    assert markers(disk) == [5], "the last one keeps the epoch"
    disk.stop()
    disk.open()
    assert disk.report.notes == []
    assert disk.owner.table.first_open_offset() is None


def test_last_marker_of_a_producer_keeps_its_epoch_although_it_ended_nothing() -> None:
    disk = keyed()
    disk.append_marker(8, 4, is_commit=False)
    for now_ms in (2_000, 9_000, 99_000):
        write(disk, 9, b"v", key=b"k", plain=True)
        disk.log.roll(1_000)
        disk.compact(now_ms)
    disk.stop()
    mount = disk.device.mount()
    mount.remove(f"{FOLDER}/checkpoint")
    mount.sync_dir(FOLDER)
    disk.open()
    entry = disk.owner.table.entry(8)
    assert entry is not None
    assert entry.epoch == 4


def test_entry_that_a_crash_kept_in_the_index_keeps_its_marker_for_another_pass() -> None:
    disk = keyed()
    for value in (b"1", b"2"):
        write(disk, 1, value, key=b"k")
        abort(disk, 1)

    def again(now_ms: int) -> None:
        write(disk, 9, b"v", key=b"j", plain=True)
        disk.log.roll(1_000)
        disk.compact(now_ms)

    disk.log.roll(1_000)
    disk.compact(2_000)
    write(disk, 9, b"v", key=b"j", plain=True)
    disk.log.roll(1_000)
    plan = disk.plan_compaction(3_000)
    assert plan is not None
    disk.checkpoint()
    assert compact(disk.mount, FOLDER, plan).forgotten == {1}
    disk.device.crash()  # the marker at 1 is dated, and its entry is still there
    disk.open()
    disk.log.advance_high_watermark(disk.log.end)
    assert [entry.last_offset for entry in disk.log.aborted] == [1, 3]
    again(99_000)
    assert ([entry.last_offset for entry in disk.log.aborted], markers(disk)) == ([3], [1, 3])
    again(199_000)
    assert ([entry.last_offset for entry in disk.log.aborted], markers(disk)) == ([3], [3])
    assert disk.problems() == []


def test_marker_outlives_its_entry_in_the_index() -> None:
    """Else a Kafka client that was told of the transaction would skip its producer for ever."""
    disk = keyed()
    write(disk, 1, b"1", key=b"k")
    abort(disk, 1)
    write(disk, 1, b"2", key=b"k")
    commit(disk, 1)
    disk.log.roll(1_000)
    disk.compact(2_000)
    write(disk, 9, b"v", key=b"j", plain=True)
    disk.log.roll(1_000)
    disk.compact(9_000_000)  # dates the marker at 1 and forgets its entry
    assert len(disk.log.aborted) == 0
    checkpoint = load_checkpoint(disk.mount, FOLDER)
    assert isinstance(checkpoint, Checkpoint)
    assert checkpoint.aborted_count == 0
    assert markers(disk) == [1, 3]


# ---------------------------------------------------------------- check


def test_check_finds_an_entry_without_a_marker_and_a_transaction_without_an_entry() -> None:
    disk = interleaved()
    disk.log.aborted.forget({4})
    disk.log.aborted.add(Aborted(9, 1, 3, 4))
    disk.stop()
    problems = check(disk.device.mount()).problems
    assert len(problems) == 2
    assert "producer 9 that ends at offset 3, where no such marker is" in problems[0]
    assert "of producer 1 in offsets 0 to 4 is not in the index" in problems[1]


def test_check_calls_a_damaged_index_a_problem_and_a_missing_one_a_note() -> None:
    disk = interleaved()
    disk.stop()
    device, mount = copy_of(disk.device)
    device.flip_bit(INDEX, 100)
    assert ["checksum" in problem for problem in check(mount).problems] == [True]
    mount.remove(INDEX)
    report = check(mount)
    assert report.problems == []
    assert ["missing" in note for note in report.notes] == [True]
    assert isinstance(load_aborted(mount, FOLDER), AbortedIndex)
