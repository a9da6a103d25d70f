"""Compaction of a log at rest: what stays is what the broker's own passes would leave, and the folder is one it opens."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.backups import here
from tests.support.logs import FOLDER, LogOnDisk, Timed, plain_batch, read_all, small_settings, timed_batch
from tests.support.segment_folders import PLACE, RandomLog, Row, all_rows

from goqueue.log.check import CheckReport, check_partition
from goqueue.log.folder import DataFolder
from goqueue.log.os_disk import OsDisk
from goqueue.log.recovery import open_log
from goqueue.model.settings import CleanupPolicy, TopicSettings
from goqueue.node.cluster.identity import Identity, IdentityFile
from goqueue.node.producer_state import ProducerState
from goqueue.pipeline.errors import OptionError, PipelineError
from goqueue.pipeline.files.transport import FilesTransport
from goqueue.pipeline.jobs.compact import CompactRequest, compact_partition, compact_topics
from goqueue.pipeline.jobs.compact_log import Compacted, alone_in, compact_log

NOW_MS = 10_000_000
SETTINGS = small_settings(delete_retention_ms=1_000)


def stopped(seed: int, *, step_count: int = 120) -> RandomLog:
    """As a clean stop leaves it."""
    found = RandomLog(seed)
    found.steps(step_count)
    found.finish_all()
    found.disk.checkpoint()
    return found


def compacted(root: Path, *, key_count_max: int = 1_000, is_dry: bool = False) -> Compacted:
    return compact_partition(
        str(root), PLACE, SETTINGS, now_ms=NOW_MS, key_count_max=key_count_max, is_dry=is_dry
    )


def last_of_each(rows: list[Row]) -> list[Row]:
    last = {row.key: row.offset for row in rows if row.key is not None}
    return [row for row in rows if row.key is None or last[row.key] == row.offset]


def without_tombstones(rows: list[Row]) -> list[Row]:
    """Those go when it is their time, which depends on when a pass first met them."""
    return [row for row in rows if row.key is None or row.value is not None]


def contents(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize("seed", range(15))
def test_the_last_committed_record_of_each_key_stays_in_all_of_the_log(seed: int, tmp_path: Path) -> None:
    log = stopped(seed)
    before = log.rows(committed=True)
    root = log.write_out(tmp_path)
    done = compacted(root)
    after = all_rows(FilesTransport(str(root)), committed=True)
    assert (done.failure, done.note) == ("", "")
    assert without_tombstones(after) == without_tombstones(last_of_each(before))
    assert set(after) <= set(last_of_each(before))
    assert all_rows(FilesTransport(str(root)), committed=False) == after  # what was aborted is gone
    report = CheckReport()
    check_partition(OsDisk(str(root)), FOLDER, report)
    assert report.problems == []


@pytest.mark.parametrize("seed", range(5))
def test_a_broker_goes_on_where_it_stopped(seed: int, tmp_path: Path) -> None:
    log = stopped(seed)
    end, producers = log.end, log.disk.owner.snapshot()
    root = log.write_out(tmp_path)
    compacted(root)
    owner = ProducerState()
    opened, report = open_log(OsDisk(str(root)), FOLDER, SETTINGS, owner)
    assert (opened.end, opened.high_watermark, report.damage, report.scanned_bytes) == (end, end, [], 0)
    assert bytes(owner.snapshot()) == bytes(producers)
    read_all(opened)  # fails if its batches do not tile it


@pytest.mark.parametrize("seed", range(5))
def test_few_keys_at_a_time_leave_the_same_records(seed: int, tmp_path: Path) -> None:
    log = stopped(seed)
    roots = [log.write_out(tmp_path / name) for name in ("one", "many")]
    whole, passes = compacted(roots[0]), compacted(roots[1], key_count_max=1)
    assert whole.pass_count == 1
    assert passes.pass_count >= 1
    first, second = (
        without_tombstones(all_rows(FilesTransport(str(root)), committed=True)) for root in roots
    )
    assert first == second
    assert passes.records_before == whole.records_before


@pytest.mark.parametrize("seed", range(5))
def test_a_dry_run_tells_what_a_real_one_does_and_changes_nothing(seed: int, tmp_path: Path) -> None:
    root = stopped(seed).write_out(tmp_path)
    before = contents(root)
    dry = compacted(root, is_dry=True)
    assert contents(root) == before
    assert compacted(root) == dry
    again = compacted(root)
    assert (again.pass_count, again.bytes_before) == (0, dry.bytes_after)


@pytest.mark.parametrize("seed", range(8))
def test_after_a_kill_what_lies_before_the_checkpoint_is_compacted(seed: int, tmp_path: Path) -> None:
    log = stopped(seed)
    disk = log.disk
    before_checkpoint = disk.log.end
    for at in range(6):
        disk.append(plain_batch(b"late%d" % at, key=b"a"))
    disk.sync()
    rows = log.rows(committed=True)
    root = log.write_out(tmp_path)
    done = compacted(root)
    after = all_rows(FilesTransport(str(root)), committed=True)
    assert done.failure == ""
    assert "not stopped cleanly" in done.note
    assert without_tombstones(last_of_each(after)) == without_tombstones(last_of_each(rows))
    assert [row for row in after if row.offset >= before_checkpoint] == rows[-6:]
    owner = ProducerState()
    opened, report = open_log(OsDisk(str(root)), FOLDER, SETTINGS, owner)
    assert report.damage == []
    assert bytes(owner.snapshot()) == bytes(disk.owner.snapshot())
    assert opened.end == disk.log.end


def test_power_may_fail_at_any_moment() -> None:
    """Each time the next start finds a whole log; another run does the rest."""
    log = stopped(3, step_count=60)
    expected = without_tombstones(last_of_each(log.rows(committed=True)))
    markers = set(range(log.end)) - {row.offset for row in log.rows(committed=False)}
    log.disk.stop()
    begun = log.disk.device.snapshot()
    cut_count = 0
    for operations in range(1, 400, 3):
        one = LogOnDisk(operations, SETTINGS)
        for path, content in begun.items():
            file = one.mount.open(path, create=True)
            file.append([content])
            file.sync()
        one.mount.sync_dir(FOLDER)
        one.device.kill()
        one.device.crash_after(operations)
        try:
            cut_count += bool(
                compact_log(one.device.mount(), PLACE, SETTINGS, now_ms=NOW_MS, key_count_max=3).failure
            )
        except OSError:  # while it was opened
            cut_count += 1
        one.device.calm()
        done = compact_log(one.device.mount(), PLACE, SETTINGS, now_ms=NOW_MS, key_count_max=3)
        assert done.failure == ""
        one.device.kill()
        report = one.open()
        assert report.damage == []
        assert one.problems() == []
        found = [
            Row(row.offset, row.timestamp_ms, row.key, row.value, tuple(row.headers)) for row in one.records()
        ]
        assert without_tombstones([row for row in found if row.offset not in markers]) == expected
    assert cut_count > 10


def test_damage_is_told_and_left_alone(tmp_path: Path) -> None:
    root = stopped(4).write_out(tmp_path)
    first = sorted((root / FOLDER).glob("*.log"))[0]
    content = bytearray(first.read_bytes())
    content[70] ^= 1
    first.write_bytes(content)
    done = compacted(root)
    assert first.name in done.failure
    assert first.read_bytes() == bytes(content)


def test_records_of_a_transaction_that_is_open_stay(tmp_path: Path) -> None:
    log = RandomLog(5)
    for _ in range(10):
        log.disk.append(plain_batch(b"before", key=b"k"))
    log.write(1)
    log.disk.append(plain_batch(b"after", key=b"k"))
    log.disk.checkpoint()
    rows = log.rows(committed=False)
    root = log.write_out(tmp_path)
    compacted(root)
    after = all_rows(FilesTransport(str(root)), committed=False)
    assert after[-len(rows) + 10 :] == rows[10:]


def test_records_younger_than_the_lag_stay(tmp_path: Path) -> None:
    log = LogOnDisk(1, small_settings())
    records: list[Timed] = [(NOW_MS - at * 1_000, b"k", b"%d" % at, ()) for at in range(20, 0, -1)]
    for record in records:
        log.append(timed_batch([record]))
    log.checkpoint()
    settings = TopicSettings(
        cleanup_policy=CleanupPolicy.COMPACT, segment_bytes=700, min_compaction_lag_ms=10_000_000
    )
    log.device.kill()
    assert compact_log(log.device.mount(), PLACE, settings, now_ms=NOW_MS, key_count_max=10).pass_count == 0


def test_a_folder_without_a_checkpoint_is_left_to_a_broker(tmp_path: Path) -> None:
    root = stopped(6).write_out(tmp_path)
    (root / FOLDER / "checkpoint").unlink()
    before = contents(root)
    done = compacted(root)
    assert "no checkpoint" in done.note
    assert {name: content for name, content in contents(root).items() if name.endswith(".log")} == {
        name: content for name, content in before.items() if name.endswith(".log")
    }


def test_two_attempts_of_one_task_do_not_meet(tmp_path: Path) -> None:
    root = stopped(7).write_out(tmp_path)
    with alone_in(str(root / FOLDER)), pytest.raises(PipelineError, match="another attempt"):
        compacted(root)


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    root = stopped(8).write_out(tmp_path)
    held = DataFolder.lock(str(root))
    try:
        for is_dry in (False, True):
            with pytest.raises(PipelineError, match="a broker runs on"):
                compact_topics(here, CompactRequest(str(root), is_dry=is_dry))
    finally:
        held.release()


def test_the_folder_of_a_node_of_a_cluster_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    """Other nodes know what may go: a replica that has not seen a tombstone would bring its key back."""
    root = stopped(11).write_out(tmp_path)
    IdentityFile(OsDisk(str(root))).save(Identity("node-2", "c1"))
    before = contents(root)
    with pytest.raises(PipelineError, match=r"node 'node-2' of a cluster.*min.cleanable.dirty.ratio"):
        compact_topics(here, CompactRequest(str(root)))
    assert contents(root) == before
    assert not compact_topics(here, CompactRequest(str(root), is_dry=True)).is_failure
    (root / "node.json").write_text("{")
    with pytest.raises(PipelineError, match=r"node.json cannot be read"):
        compact_topics(here, CompactRequest(str(root)))


def test_what_cannot_be_is_refused_in_a_sentence(tmp_path: Path) -> None:
    root = stopped(9).write_out(tmp_path / "data")
    with pytest.raises(OptionError, match="there is no topic 'topic'"):  # there is no catalogue
        compact_topics(here, CompactRequest(str(root), ["topic"]))
    with pytest.raises(OptionError, match="logs is not there"):
        compact_topics(here, CompactRequest(str(tmp_path / "nothing")))
    with pytest.raises(OptionError, match="one is the least"):
        CompactRequest(str(root), key_count_max=0)


def test_a_folder_without_topics_to_compact_is_said_to_have_none(tmp_path: Path) -> None:
    root = stopped(10).write_out(tmp_path)
    report = compact_topics(here, CompactRequest(str(root)))
    assert report.counts["partitions"] == 0
    assert "no topic has cleanup.policy=compact" in report.notes[0]
    assert not report.is_failure
