"""A follower's log: batches as their leader has them, cut back where it differs, begun anew where it is behind."""

from __future__ import annotations

import errno
from pathlib import Path
from random import Random

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
from tests.support.replicas import batches_of, catch_up, replicate

from goqueue.log.batch import BatchHeader, read_header
from goqueue.log.disk import Disk, read_file
from goqueue.log.epochs import NO_EPOCH
from goqueue.log.os_disk import OsDisk
from goqueue.log.partition_log import PartitionLog
from goqueue.log.recovery import batch_boundary, cut_back, open_log, reset_log, truncate_log
from goqueue.model.errors import (
    DiskFull,
    InvariantViolation,
    OffsetOutOfRange,
    PartitionOffline,
    StorageError,
)
from goqueue.model.record import Producer
from goqueue.node.producer_state import ProducerState
from goqueue.sim.disk import PowerLost, SimDisk


def leader_batch(base: int, epoch: int, *values: bytes, timestamp_ms: int = 1_000) -> bytes:
    """As a leader has it on its disk: base offset and epoch lie outside the checksum."""
    batch = plain_batch(*values, timestamp_ms=timestamp_ms)
    return base.to_bytes(8, "big") + batch[8:12] + epoch.to_bytes(4, "big") + batch[16:]


def put(log: PartitionLog, batch: bytes, *, now_ms: int = 1_000) -> BatchHeader:
    header = read_header(batch)
    log.replicate(batch, header, now_ms=now_ms)
    return header


def checkpoint(log: PartitionLog) -> None:
    job = log.begin_checkpoint()
    job.run()
    log.finish_checkpoint(job)


def led(*, count: int = 12, segment_bytes: int = 250, seed: int = 0) -> LogOnDisk:
    """A leader's log: batches of two records in several segments, in epochs 0 and 3."""
    leader = LogOnDisk(seed, small_settings(segment_bytes=segment_bytes))
    for at in range(count):
        if at == count // 2:
            leader.log.begin_epoch(3)
            leader.checkpoint()
        leader.append(plain_batch(b"value %d" % at, b"", timestamp_ms=1_000 + at), now_ms=1_000 + at)
    return leader


def following(seed: int = 1, *, segment_bytes: int = 250) -> LogOnDisk:
    return LogOnDisk(seed, small_settings(segment_bytes=segment_bytes))


@pytest.fixture(params=["os", "sim"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    found: Disk = OsDisk(str(tmp_path / "root")) if request.param == "os" else SimDisk(Random(1)).mount()
    found.make_dir(FOLDER)
    return found


def opened(disk: Disk) -> tuple[PartitionLog, ProducerState]:
    owner = ProducerState()
    log, report = open_log(disk, FOLDER, small_settings(), owner)
    assert report.damage == []
    return log, owner


# -------------------------------------------------------------------- on every disk


def test_a_batch_of_an_adopted_epoch_is_written_as_it_is(disk: Disk) -> None:
    log, _ = opened(disk)
    batches = [leader_batch(0, 4, b"a", b"b"), leader_batch(2, 4, b"c"), leader_batch(3, 9, b"d")]
    for batch in batches:
        header = read_header(batch)
        log.adopt_epoch(header.leader_epoch, header.base_offset)
        checkpoint(log)
        put(log, batch)
    assert (log.end, log.last_epoch, log.high_watermark) == (4, 9, 0)
    assert read_file(disk, f"{FOLDER}/{0:020d}.log") == b"".join(batches)
    assert log.epochs.entries() == [(4, 0), (9, 3)]
    again, _ = opened(disk)
    assert (again.end, again.last_epoch) == (4, 9)
    assert values(read_all(again)) == [b"a", b"b", b"c", b"d"]


def test_a_log_that_is_cut_goes_on_with_what_its_leader_has(disk: Disk) -> None:
    log, owner = opened(disk)
    log.adopt_epoch(1, 0)
    checkpoint(log)
    for base in (0, 2, 4):
        put(log, leader_batch(base, 1, b"old", b"old"))
    log.note_high_watermark(2)
    truncate_log(log, disk, owner, 2)
    assert (log.end, log.last_epoch, log.high_watermark, log.durable_epoch) == (2, 1, 2, None)
    log.adopt_epoch(2, 2)
    checkpoint(log)
    put(log, leader_batch(2, 2, b"new"))
    again, _ = opened(disk)
    assert values(read_all(again)) == [b"old", b"old", b"new"]
    assert again.epochs.entries() == [(1, 0), (2, 2)]


def test_a_log_that_begins_anew_is_empty_at_its_offset_and_goes_on_there(disk: Disk) -> None:
    log, owner = opened(disk)
    log.adopt_epoch(1, 0)
    checkpoint(log)
    put(log, leader_batch(0, 1, b"old", b"old"))
    reset_log(log, disk, owner, 50)
    assert (log.log_start, log.end, log.high_watermark, log.durable_end) == (50, 50, 50, 50)
    assert (log.last_epoch, log.epochs.entries(), log.epochs.latest) == (NO_EPOCH, [], 1)
    assert log.size_bytes == 0
    assert log.is_durable
    log.adopt_epoch(2, 50)
    checkpoint(log)
    put(log, leader_batch(50, 2, b"new"))
    again, _ = opened(disk)
    assert (again.log_start, again.end) == (50, 51)
    assert values(read_all(again)) == [b"new"]
    assert check(disk).problems == []


# -------------------------------------------------------------------- replicating


@pytest.mark.parametrize("bytes_max", [1, 150, 10_000])
def test_segments_of_a_follower_have_the_bytes_of_the_leaders(bytes_max: int) -> None:
    leader, follower = led(), following()
    catch_up(follower, leader.log, bytes_max=bytes_max)
    leader.checkpoint()
    follower.checkpoint()
    kept = (".log", ".index", ".timeindex")
    found, expected = (
        {path: content for path, content in one.device.snapshot().items() if path.endswith(kept)}
        for one in (follower, leader)
    )
    assert found == expected
    assert len(found) == 3 * len(leader.log.segments) > 3 * 3
    assert follower.log.epochs.entries() == leader.log.epochs.entries()
    assert follower.problems() == []


def test_segments_of_a_follower_roll_by_its_own_clock() -> None:
    follower = LogOnDisk(settings=small_settings(segment_ms=100))
    follower.log.adopt_epoch(1, 0)
    follower.checkpoint()
    put(follower.log, leader_batch(0, 1, b"a"), now_ms=1_000)
    put(follower.log, leader_batch(1, 1, b"b"), now_ms=1_100)
    assert [segment.base_offset for segment in follower.log.segments] == [0, 1]


def test_a_batch_that_does_not_begin_at_the_end_is_a_broken_invariant() -> None:
    follower = following()
    follower.log.adopt_epoch(1, 0)
    follower.checkpoint()
    for base in (1, 5):
        with pytest.raises(InvariantViolation, match=f"at {base} where"):
            put(follower.log, leader_batch(base, 1, b"x"))
    with pytest.raises(InvariantViolation, match="batch of 99 bytes"):
        follower.log.replicate(b"x" * 99, read_header(leader_batch(0, 1, b"x")), now_ms=1_000)
    assert follower.log.end == 0


def test_a_batch_of_an_epoch_that_is_not_on_disk_is_a_broken_invariant() -> None:
    follower = following()
    batch = leader_batch(0, 2, b"x")
    with pytest.raises(InvariantViolation, match="in epoch 2"):
        put(follower.log, batch)
    follower.log.adopt_epoch(2, 0)
    with pytest.raises(InvariantViolation, match="in epoch 2"):
        put(follower.log, batch)
    follower.checkpoint()
    with pytest.raises(InvariantViolation, match="in epoch 1"):
        put(follower.log, leader_batch(0, 1, b"x"))
    put(follower.log, batch)
    assert follower.log.end == 1


def test_only_who_begins_an_epoch_appends_in_it_and_only_others_replicate_it() -> None:
    follower = following()
    follower.log.adopt_epoch(2, 0)
    follower.checkpoint()
    batch = plain_batch(b"x")
    with pytest.raises(InvariantViolation, match="in epoch 2"):
        follower.log.append(batch, read_header(batch), now_ms=1_000)
    follower.log.begin_epoch(3)
    follower.checkpoint()
    with pytest.raises(InvariantViolation, match="in epoch 3"):
        put(follower.log, leader_batch(0, 3, b"x"))
    assert follower.log.append(batch, read_header(batch), now_ms=1_000) == 0


def test_an_epoch_that_is_in_force_may_be_adopted_again_and_again() -> None:
    follower = following()
    for _ in range(2):
        follower.log.adopt_epoch(2, 0)
    follower.checkpoint()
    put(follower.log, leader_batch(0, 2, b"x"))
    follower.log.adopt_epoch(2, 1)
    assert follower.log.durable_epoch == 2
    put(follower.log, leader_batch(1, 2, b"y"))
    assert follower.log.epochs.entries() == [(2, 0)]
    with pytest.raises(InvariantViolation, match="from 1 on"):
        follower.log.adopt_epoch(3, 1)


def test_an_epoch_that_left_no_trace_may_be_followed_by_a_smaller_one() -> None:
    """A leader of epoch 5 that wrote nothing now follows one that has batches of epoch 4 it never saw."""
    follower = following()
    follower.log.adopt_epoch(3, 0)
    follower.checkpoint()
    put(follower.log, leader_batch(0, 3, b"x"))
    follower.log.begin_epoch(5)
    follower.checkpoint()
    follower.log.adopt_epoch(4, 1)
    assert follower.log.durable_epoch == 5
    follower.checkpoint()
    put(follower.log, leader_batch(1, 4, b"y"))
    follower.log.adopt_epoch(6, 2)
    follower.checkpoint()
    put(follower.log, leader_batch(2, 6, b"z"))
    assert follower.log.epochs.entries() == [(3, 0), (4, 1), (6, 2)]
    with pytest.raises(InvariantViolation, match="does not follow"):
        follower.log.adopt_epoch(5, 3)


def test_a_follower_that_stops_between_an_epoch_and_its_first_batch_goes_on() -> None:
    for stop in ("crash", "kill"):
        follower = following()
        follower.log.adopt_epoch(2, 0)
        follower.checkpoint()
        put(follower.log, leader_batch(0, 2, b"x"))
        follower.log.adopt_epoch(7, 1)
        follower.checkpoint()
        getattr(follower.device, stop)()
        follower.open()
        assert (follower.log.end, follower.log.last_epoch, follower.log.durable_epoch) == (1, 2, None)
        assert follower.log.epochs.current == 7
        follower.checkpoint()
        put(follower.log, leader_batch(1, 7, b"y"))
        follower.sync()
        follower.device.crash()
        assert follower.open().damage == []
        assert values(follower.records()) == [b"x", b"y"]


def test_a_followers_high_watermark_is_its_leaders_as_far_as_its_log_goes() -> None:
    leader, follower = led(), following()
    replicate(follower, leader.log, bytes_max=200)
    assert follower.log.high_watermark == follower.log.end < leader.log.high_watermark
    follower.log.note_high_watermark(0)
    assert follower.log.high_watermark == follower.log.end
    follower.stop()
    follower.open()
    assert follower.log.high_watermark == follower.log.end


def test_a_write_that_fails_leaves_nothing_behind_and_may_be_tried_again() -> None:
    for error, expected in ((errno.ENOSPC, DiskFull), (errno.EIO, StorageError)):
        follower = following()
        follower.log.adopt_epoch(1, 0)
        follower.checkpoint()
        put(follower.log, leader_batch(0, 1, b"x"))
        follower.device.fail_next("append", error=error)
        with pytest.raises(expected):
            put(follower.log, leader_batch(1, 1, b"y"))
        put(follower.log, leader_batch(1, 1, b"y"))
        assert values(follower.records()) == [b"x", b"y"]


def test_a_failed_log_takes_no_batches_and_cannot_be_cut() -> None:
    leader, follower = led(), following()
    catch_up(follower, leader.log)
    follower.log.fail("broken")
    with pytest.raises(PartitionOffline, match="broken"):
        put(follower.log, leader_batch(follower.log.end, 3, b"y"))
    with pytest.raises(PartitionOffline, match="broken"):
        truncate_log(follower.log, follower.mount, follower.owner, 2, forced=True)
    with pytest.raises(PartitionOffline, match="broken"):
        reset_log(follower.log, follower.mount, follower.owner, 2)


# -------------------------------------------------------------------- cutting


def test_a_cut_below_the_high_watermark_must_be_forced() -> None:
    leader, follower = led(), following()
    catch_up(follower, leader.log)
    with pytest.raises(InvariantViolation, match="below its high watermark 24"):
        truncate_log(follower.log, follower.mount, follower.owner, 22)
    assert follower.log.end == 24
    truncate_log(follower.log, follower.mount, follower.owner, 22, forced=True)
    assert (follower.log.end, follower.log.high_watermark) == (22, 22)


def test_a_cut_inside_a_batch_is_a_broken_invariant() -> None:
    leader = led()
    with pytest.raises(InvariantViolation, match="begins at 7"):
        truncate_log(leader.log, leader.mount, leader.owner, 7, forced=True)
    assert len(leader.records()) == 24


def test_a_boundary_is_where_the_batch_that_holds_an_offset_begins() -> None:
    leader = led()
    found = [batch_boundary(leader.log, offset) for offset in range(30)]
    assert found == [min(offset // 2 * 2, 24) for offset in range(30)]
    leader.log.delete_before(7)
    assert [batch_boundary(leader.log, offset) for offset in (0, 6, 7, 8, 9)] == [7, 7, 7, 8, 8]
    empty = following()
    assert [batch_boundary(empty.log, offset) for offset in (0, 5)] == [0, 0]


def test_a_log_that_starts_inside_a_batch_is_empty_at_its_start_when_all_of_it_is_cut() -> None:
    leader = led()
    leader.log.delete_before(7)
    leader.checkpoint()
    truncate_log(leader.log, leader.mount, leader.owner, 7, forced=True)
    assert (leader.log.log_start, leader.log.end, leader.log.last_epoch) == (7, 7, NO_EPOCH)
    leader.device.crash()
    leader.open()
    assert (leader.log.log_start, leader.log.end, leader.log.epochs.latest) == (7, 7, 3)


def test_a_log_that_starts_behind_where_it_is_to_end_begins_anew_there() -> None:
    leader = led()
    leader.log.delete_before(10)
    with pytest.raises(OffsetOutOfRange):
        truncate_log(leader.log, leader.mount, leader.owner, 4, forced=True)
    with pytest.raises(InvariantViolation):
        cut_back(leader.log, leader.mount, leader.owner, 4)
    cut_back(leader.log, leader.mount, leader.owner, 4, forced=True)
    assert (leader.log.log_start, leader.log.end, leader.log.high_watermark) == (4, 4, 4)


def test_what_was_durable_before_a_cut_still_is() -> None:
    leader = led()
    leader.sync()
    truncate_log(leader.log, leader.mount, leader.owner, 10, forced=True)
    assert leader.log.durable_end == 10
    leader.device.crash()
    leader.open()
    assert leader.log.end == 10


def test_a_cut_calls_nothing_durable_that_was_not() -> None:
    leader = led()
    assert leader.log.durable_end == 12
    boundary = leader.log.segments[-1].base_offset
    truncate_log(leader.log, leader.mount, leader.owner, boundary, forced=True)
    assert (leader.log.end, leader.log.durable_end) == (boundary, 12)
    leader.sync()
    assert leader.log.durable_end == boundary > 12


def test_a_power_cut_in_a_cut_leaves_no_damage_and_the_true_epochs() -> None:
    """Batches beyond the cut are of epochs that the cut log does not know."""
    for operations in range(1, 30):
        for seed in range(6):
            leader = led(seed=seed)
            leader.checkpoint()
            leader.device.crash_after(operations)
            try:
                truncate_log(leader.log, leader.mount, leader.owner, 6, forced=True)
            except (PowerLost, StorageError):
                pass
            leader.device.crash_after(0)
            leader.device.crash()
            report = leader.open()
            assert (report.damage, report.damaged) == ([], [])
            assert 6 <= leader.log.end <= 24
            for base, batch in batches_of(leader.log):
                assert leader.log.epochs.at(base) == read_header(batch).leader_epoch
            assert leader.log.epochs.current == (0 if leader.log.end < 12 else 3)


def test_a_cut_that_fails_stops_the_log_until_it_is_opened_again() -> None:
    leader = led()
    leader.device.fail_next("sync_dir", after=1)
    with pytest.raises(StorageError, match="cutting"):
        truncate_log(leader.log, leader.mount, leader.owner, 6, forced=True)
    assert leader.log.failure is not None
    leader.device.kill()
    assert leader.open().damage == []


def test_a_follower_cuts_off_what_a_power_cut_left_damaged_and_fetches_it_again() -> None:
    leader, follower = led(), following()
    catch_up(follower, leader.log)
    follower.sync()
    _, mount = copy_of(follower.device)
    segment = follower.log.segments[2]
    file = mount.open(segment.path)
    content = file.read(0, segment.size)
    size = read_header(content).size
    file.truncate(size)
    file.append([b"\x01" * 40 + content[size + 40 :]])
    owner = ProducerState()
    mount.remove(f"{FOLDER}/checkpoint")
    log, report = open_log(mount, FOLDER, follower.settings, owner)
    start = segment.base_offset + 2
    assert report.damaged == [(start, start + 2)]
    assert batch_boundary(log, start + 1) == start
    cut_back(log, mount, owner, report.damaged[0][0], forced=True)
    assert log.end == start
    assert batches_of(log) == [one for one in batches_of(leader.log) if one[0] < start]


# -------------------------------------------------------------------- beginning anew


def test_a_power_cut_in_a_reset_leaves_the_old_log_or_an_empty_one() -> None:
    outcomes: set[tuple[int, int]] = set()
    for offset in (0, 7, 10, 24, 100):
        for operations in range(1, 60):
            leader = led(seed=operations)
            leader.append(timed_batch([(1_000, None, b"x", ())], producer=Producer(1, 0, 0)))
            leader.checkpoint()
            before = leader.records()
            leader.device.crash_after(operations)
            is_done = False
            try:
                reset_log(leader.log, leader.mount, leader.owner, offset)
                is_done = True
            except (PowerLost, StorageError):
                assert leader.log.failure is not None
            leader.device.crash_after(2 if operations % 3 else 0)  # and another one while it is opened
            try:
                leader.open()
            except PowerLost:
                pass
            leader.device.crash_after(0)
            leader.device.crash()
            assert leader.open().damage == []
            found = (leader.log.log_start, leader.log.end)
            outcomes.add(found)
            if found == (0, 25) and not is_done:
                assert leader.records() == before
                assert len(leader.owner.table.entries()) == 1
            else:
                assert found == (offset, offset)
                assert leader.owner.table.entries() == []
                assert [e.name for e in leader.mount.list(FOLDER)] in (
                    ["checkpoint"],
                    ["aborted.index", "checkpoint"],
                )
            assert leader.log.epochs.latest == 3
            assert leader.problems() == []
            if is_done:
                break
        else:
            raise AssertionError("the operations are more than were tried")
    assert outcomes == {(0, 25), (0, 0), (7, 7), (10, 10), (24, 24), (100, 100)}


def test_an_unfinished_reset_is_no_problem_of_the_folder() -> None:
    leader = led()
    leader.checkpoint()
    leader.mount.open(f"{FOLDER}/{30:020d}.reset", create=True)
    report = check(leader.mount)
    assert report.problems == []
    assert any("00030.reset is left over" in note for note in report.notes)
    leader.device.kill()
    assert leader.open().notes == [f"{FOLDER}: begun anew at offset 30"]
    assert (leader.log.log_start, leader.log.end) == (30, 30)


def test_a_follower_behind_its_leaders_start_begins_anew_and_has_all_that_is_left() -> None:
    leader, follower = led(), following()
    replicate(follower, leader.log, bytes_max=200)
    assert follower.log.end < 15
    leader.log.delete_before(15)
    leader.checkpoint()
    catch_up(follower, leader.log)
    assert follower.log.log_start == leader.log.log_start
    assert batches_of(follower.log) == batches_of(leader.log)
    follower.sync()
    follower.device.crash()
    assert follower.open().damage == []
    assert values(follower.records())[-9:] == values(leader.records())


def test_a_follower_whose_end_lies_in_a_batch_that_its_leader_compacted_fetches_it_whole() -> None:
    leader, follower = LogOnDisk(0, small_settings(segment_bytes=250)), following()
    for at in range(12):
        leader.append(plain_batch(b"value %d" % at, key=b"k", timestamp_ms=1_000), now_ms=1_000)
    for _ in range(2):
        replicate(follower, leader.log, bytes_max=1)
    assert follower.log.end == 2
    leader.log.roll(2_000)
    leader.append(plain_batch(b"last", key=b"k"), now_ms=2_000)
    leader.log.roll(2_000)
    leader.append(plain_batch(b"active", key=b"other"), now_ms=2_000)
    assert leader.compact(3_000) is not None
    first = leader.log.read(2, end=3, bytes_max=1).batches[0].header
    assert first.base_offset < 2 < first.end_offset
    catch_up(follower, leader.log)
    assert batches_of(follower.log) == batches_of(leader.log)
