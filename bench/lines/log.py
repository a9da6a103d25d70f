"""The log by itself: validate and append batches of 1 MB, against a plain write of the same bytes."""

from __future__ import annotations

import time

import msgspec

from bench.batches import batch_pool, verify_log
from bench.disk_probe import write_time_s
from bench.line import Bound, Goal, Line, alternate
from bench.scale import Run
from bench.workspace import fresh_folder
from goqueue.log.batch import BatchHeader, validate_new
from goqueue.log.os_disk import OsDisk
from goqueue.log.partition_log import PartitionLog
from goqueue.log.recovery import open_log
from goqueue.model.settings import TopicSettings

_NOW_MS = 1_700_000_000_000


class NoOwner:
    """A log without idempotent producers."""

    def restore(self, state: msgspec.Raw | None) -> None:
        pass

    def observe(self, header: BatchHeader, data: bytes | memoryview) -> None:
        pass

    def snapshot(self) -> msgspec.Raw:
        return msgspec.Raw(b"null")


def led_log(root: str, settings: TopicSettings) -> PartitionLog:
    """A new log, ready for its first append."""
    disk = OsDisk(root)
    disk.make_dir("log")
    log, _ = open_log(disk, "log", settings, NoOwner())
    log.begin_epoch(1)
    job = log.begin_checkpoint()
    job.run()
    log.finish_checkpoint(job)
    return log


def run(run: Run) -> list[Line]:
    pool = batch_pool(run.scale.log_chunk_count, record_count=1_000, value_bytes=1_024)
    size = sum(map(len, pool))

    def ours() -> float:
        with fresh_folder(run.folder) as folder:
            return size / _append_time_s(str(folder), pool) / 1e6

    def plain() -> float:
        with fresh_folder(run.folder) as folder:
            return size / write_time_s(folder / "plain", pool) / 1e6

    ours()
    plain()
    rounds = alternate(run.scale.log_round_count, ours, plain)
    return [
        rounds.line(
            "log.append",
            "validate + append, batches of 1,000 x 1 KB, no fsync",
            "MB/s",
            reference="os.write of the same bytes",
            goal=Goal(Bound.RATIO_AT_LEAST, 0.7),
        )
    ]


def _append_time_s(root: str, pool: list[bytes]) -> float:
    settings = TopicSettings()
    log = led_log(root, settings)
    offsets: list[int] = []
    started = time.perf_counter()
    for batch in pool:
        header = validate_new(batch, settings.max_message_bytes)
        offsets.append(log.append(batch, header, now_ms=_NOW_MS))
    elapsed = time.perf_counter() - started
    verify_log(log, dict(zip(offsets, pool, strict=True)), "log.append")
    return elapsed
