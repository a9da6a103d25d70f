"""From exec to the ready line: with nothing, after a clean stop, and after kill -9 with a gigabyte of data.

A broker that is killed as soon as it is ready has written no checkpoint, so the next start finds the same state,
and one filled folder serves all rounds. That is not taken on trust: after the last round the log is opened once
more, and the run fails unless recovery still has as much to check as the line says. (Checkpoints only move
forward, so what holds for the last round holds for all.) The page cache is warm, as it is after a kill; a line
says where not.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from crc32c import crc32c

from bench.batches import verify_log
from bench.child import Broker, Child
from bench.fill import PARTITION_COUNT, TOPIC, Covered, fill_pool
from bench.line import Bound, Goal, Line, Rounds, alternate, require, spread
from bench.lines.log import NoOwner
from bench.scale import Run
from bench.workspace import fresh_folder
from goqueue.client.rest import NewMessage, RestClient
from goqueue.log.batch import read_header
from goqueue.log.os_disk import OsDisk
from goqueue.log.partition_log import PartitionLog
from goqueue.log.recovery import open_log
from goqueue.model.acks import Acks
from goqueue.model.settings import TopicSettings
from goqueue.node.folder import partition_folder

_IDLE_S = 1.0
_EMPTY_S_MAX = 1.0
_SECONDS_PER_GB_MAX = 3.0
_FILL_TIMEOUT_S = 180.0
_READ_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class _Case:
    name: str
    title: str
    covered: Covered
    records_per_batch: int = 16
    value_bytes: int = 1_000
    share: int = 1  # of the data that the others have: 1 / share
    is_cold: bool = False


_CASES = (
    _Case("start.clean", "after a clean stop", Covered.EVERYTHING),
    _Case(
        "start.killed.usual", "after kill -9, half of each active segment to check", Covered.HALF_OF_ACTIVE
    ),
    _Case("start.killed.active", "after kill -9, active segments to check", Covered.SEALED),
    _Case("start.killed.whole", "after kill -9, no checkpoint, everything to check", Covered.NOTHING),
    _Case("start.killed.cold", "the same with a cold page cache", Covered.NOTHING, is_cold=True),
    _Case(
        "start.killed.small",
        "everything to check, batches of one 1 KB message",
        Covered.NOTHING,
        records_per_batch=1,
        share=8,
    ),
    _Case(
        "start.killed.tiny",
        "everything to check, batches of one 100 B message",
        Covered.NOTHING,
        records_per_batch=1,
        value_bytes=100,
        share=16,
    ),
)


def run(run: Run) -> list[Line]:
    empty, memory = _empty(run)
    return [empty, memory, *(_with_data(run, case) for case in _CASES)]


def _empty(run: Run) -> tuple[Line, Line]:
    first_publish, resident = [], []

    def start() -> float:
        with fresh_folder(run.folder) as folder, Broker(folder) as broker:
            _publish_one(broker.port)
            first_publish.append(time.perf_counter() - broker.started_at)
            broker.stop()
            return broker.ready_s

    def bare() -> float:
        with Child("bench.bare") as child:
            child.line()
            return time.perf_counter() - child.started_at

    rounds = alternate(run.scale.start_count, start, bare)
    for _ in range(2):
        with fresh_folder(run.folder) as folder, Broker(folder) as broker:
            time.sleep(_IDLE_S)
            resident.append(broker.resident_bytes() / 1e6)
    empty = rounds.line(
        "start.empty",
        "exec to ready, empty folder",
        "s",
        reference="a bare interpreter",
        goal=Goal(Bound.VALUE_BELOW, _EMPTY_S_MAX),
        details={"first_publish_s": spread(first_publish).median},
    )
    limit = Goal(Bound.VALUE_BELOW, 100)
    return empty, Line("idle.memory", "resident memory when idle", "MB", spread(resident), goal=limit)


def _publish_one(port: int) -> None:
    with RestClient(f"http://127.0.0.1:{port}") as client:
        client.create_topic("first", partition_count=1)
        (outcome,) = client.publish("first", [NewMessage(b"first", partition=0)], acks=Acks.ALL)
        require(outcome.error is None, f"the first publish failed: {outcome.error}")
        found = [message.value for message in client.read("first", 0, offset=0).messages]
        require(found == [b"first"], f"the first publish was read back as {found}")


def _with_data(run: Run, case: _Case) -> Line:
    pool = fill_pool(case.records_per_batch, case.value_bytes)
    with fresh_folder(run.folder) as folder:
        partition_bytes = _partition_bytes(run.scale.recovery_bytes // case.share)
        shape = (str(partition_bytes), str(case.records_per_batch), str(case.value_bytes), case.covered)
        with Child("bench.fill", str(folder), *shape) as child:
            counts = [int(word) for word in child.line(timeout_s=_FILL_TIMEOUT_S).split()]
        expected = [count * case.records_per_batch for count in counts]
        ready: list[float] = []
        resident: list[float] = []

        def start() -> float:
            if case.is_cold:
                _drop_cache(folder)
            with Broker(folder) as broker:  # killed at once: half a second later it would save a checkpoint
                resident.append(broker.resident_bytes() / 1e6)
            ready.append(broker.ready_s)
            return broker.ready_s if case.covered is Covered.EVERYTHING else broker.ready_s - _empty_s(run)

        def plain() -> float:
            if case.is_cold:
                _drop_cache(folder)
            return _read_time_s(folder)

        rounds = alternate(run.scale.start_count, start, plain)
        scanned_gb = _verify_content(folder, pool, counts, case) / 1e9
        with Broker(folder) as broker:
            _verify_ends(broker.port, expected)
        details: dict[str, float | str] = {
            "ready_s": spread(ready).median,
            "data_gb": sum(_sizes(folder)) / 1e9,
            "scanned_gb": scanned_gb,
            "resident_mb": spread(resident).median,
        }
        return _line(case, rounds, sum(_sizes(folder)) / 1e9, details)


def _empty_s(run: Run) -> float:
    """An empty start in the same round: what starting costs changes with what else the machine does."""
    with fresh_folder(run.folder) as folder, Broker(folder) as broker:
        return broker.ready_s


def _line(case: _Case, rounds: Rounds, data_gb: float, details: dict[str, float | str]) -> Line:
    """After a kill what counts is the time beyond an empty start, per gigabyte: the goal must not be met with seconds
    that starting did not use."""
    title, reference = f"{data_gb:.2f} GB {case.title}", "read + crc32c of the files"
    if case.covered is Covered.EVERYTHING:
        goal = Goal(Bound.VALUE_BELOW, _EMPTY_S_MAX)
        title = f"exec to ready, {title}"
        return rounds.line(case.name, title, "s", reference=reference, goal=goal, details=details)
    per_gb = Rounds(
        [extra_s / data_gb for extra_s in rounds.values],
        [read_s / data_gb for read_s in rounds.references],
    )
    goal = Goal(Bound.VALUE_BELOW, _SECONDS_PER_GB_MAX)
    title = f"recovery, {title}"
    return per_gb.line(case.name, title, "s/GB", reference=reference, goal=goal, details=details)


def _partition_bytes(byte_count: int) -> int:
    """As much that the last segment of each partition is nearly full: the most that can be active."""
    segment_bytes = TopicSettings().segment_bytes
    share = byte_count // PARTITION_COUNT
    if share < segment_bytes:
        return share
    return share // segment_bytes * segment_bytes - segment_bytes // 16


def _verify_ends(port: int, expected: list[int]) -> None:
    with RestClient(f"http://127.0.0.1:{port}") as client:
        found = [partition.high_watermark for partition in client.partitions(TOPIC)]
    require(found == expected, f"the partitions end at {found} after the start, not at {expected}")


def _verify_content(folder: Path, pool: list[bytes], counts: list[int], case: _Case) -> int:
    """Every batch is there, and recovery checked what the case is about; how many bytes that was."""
    disk = OsDisk(str(folder))
    scanned = 0
    for index, count in enumerate(counts):
        log, report = open_log(disk, partition_folder(TOPIC, index), TopicSettings(), NoOwner())
        require(not report.damage and not report.cut_bytes, f"recovery found damage: {report}")
        least, most = _scan_bounds(case.covered, log)
        require(
            least <= report.scanned_bytes <= most,
            f"{case.name}: recovery checked {report.scanned_bytes} bytes of partition {index}, not {least} to {most}",
        )
        scanned += report.scanned_bytes
        step = read_header(pool[0]).record_count
        verify_log(log, {at * step: pool[at % len(pool)] for at in range(count)}, "start")
    return scanned


def _scan_bounds(covered: Covered, log: PartitionLog) -> tuple[int, int]:
    active, everything = log.segments[-1].size, log.size_bytes
    match covered:
        case Covered.EVERYTHING:
            return 0, 0
        case Covered.HALF_OF_ACTIVE:
            return active * 4 // 10, active * 6 // 10
        case Covered.SEALED:
            return active * 9 // 10, active
        case Covered.NOTHING:
            return everything, everything


def _files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.log"))


def _sizes(folder: Path) -> list[int]:
    return [path.stat().st_size for path in _files(folder)]


def _read_time_s(folder: Path) -> float:
    started = time.perf_counter()
    for path in _files(folder):
        with path.open("rb", buffering=0) as file:
            while data := file.read(_READ_BYTES):
                crc32c(data)
    return time.perf_counter() - started


def _drop_cache(folder: Path) -> None:
    for path in _files(folder):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fdatasync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
