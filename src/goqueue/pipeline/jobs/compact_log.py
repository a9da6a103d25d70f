"""Key compaction of one partition at rest, by the code that the broker compacts with.

The broker leaves the segment alone that it writes to. Nobody writes here, so that one is sealed and compacted too, and an
empty one follows it. After a clean stop nothing is behind the checkpoint, and the state of producers that it holds stays
true. After any other stop that state is older than the log's end and only a broker can bring it up to date; then what is
before the checkpoint's segment is compacted, and the rest is left to a broker's start.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import msgspec
from msgspec import structs

from goqueue.log.aborted import Aborted, save_aborted
from goqueue.log.batch import BatchHeader
from goqueue.log.checkpoint import NO_STATE, Checkpoint, load_checkpoint, save_checkpoint
from goqueue.log.compaction import CompactionResult, compact, measure, plan_compaction
from goqueue.log.disk import Disk
from goqueue.log.partition_log import PartitionLog
from goqueue.log.recovery import open_log
from goqueue.model.errors import GoQueueError
from goqueue.model.settings import TopicSettings
from goqueue.pipeline.errors import PipelineError
from goqueue.pipeline.files.transactions import OpenTransactions
from goqueue.pipeline.files.view import partition_folder
from goqueue.pipeline.span import Place

_PASS_COUNT_MAX = 10_000


@dataclass(slots=True)
class Compacted:
    """What became of a partition. Bytes are those of its segments; records without what only marks transactions."""

    place: Place
    records_before: int = 0
    records_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    pass_count: int = 0
    note: str = ""
    failure: str = ""


class KeptState:
    """The owner of a log that changes nothing of what its owner knows: the checkpoint's state goes on as it is."""

    def __init__(self) -> None:
        self._state = NO_STATE
        self._transactions = OpenTransactions()
        self.observed_count = 0  # batches that the state does not know of

    @property
    def first_open_offset(self) -> int | None:
        return self._transactions.first_offset

    def restore(self, state: msgspec.Raw | None) -> None:
        self._state = NO_STATE if state is None else msgspec.Raw(bytes(state))
        self._transactions.restore(state)
        self.observed_count = 0

    def observe(self, header: BatchHeader, data: bytes | memoryview) -> Aborted | None:
        self.observed_count += 1
        return self._transactions.observe(header, data)

    def snapshot(self) -> msgspec.Raw:
        return self._state


def compact_log(
    disk: Disk,
    place: Place,
    settings: TopicSettings,
    *,
    now_ms: int,
    key_count_max: int,
    is_dry: bool = False,
) -> Compacted:
    """Damage and failures are told in the result, so that they stop no other partition. Where `is_dry`, only seal in memory
    and measure: the disk has to be one that keeps writes to itself."""
    done = Compacted(place)
    folder, owner = partition_folder(place), KeptState()
    log, report = open_log(disk, folder, settings, owner)
    done.bytes_before = done.bytes_after = log.size_bytes
    if report.damage:
        done.failure = report.damage[0]
        return done
    checkpoint = load_checkpoint(disk, folder)
    if not isinstance(checkpoint, Checkpoint):
        if log.segments:
            done.note = "it has no checkpoint: start a broker on the folder once, and stop it"
        return done
    work = _Work(disk, log, owner, checkpoint, done)
    try:
        work.run(now_ms, key_count_max=key_count_max, is_dry=is_dry)
    except (OSError, GoQueueError) as error:
        done.failure = str(error)
    return done


class _Work:
    def __init__(
        self, disk: Disk, log: PartitionLog, owner: KeptState, checkpoint: Checkpoint, done: Compacted
    ) -> None:
        self._disk = disk
        self._log = log
        self._checkpoint = checkpoint
        self._done = done
        self._is_clean = not owner.observed_count
        first_open = owner.first_open_offset
        self._stable_end = log.end if first_open is None else first_open

    def run(self, now_ms: int, *, key_count_max: int, is_dry: bool) -> None:
        self._seal(now_ms)
        removed = 0
        for _ in range(_PASS_COUNT_MAX):
            plan = plan_compaction(self._log, now_ms, stable_end=self._stable_end)
            if plan is None:
                return
            self._done.pass_count += 1
            plan = replace(plan, key_count_max=key_count_max)
            if is_dry:
                result = measure(self._disk, self._log.folder, plan)
                self._count(result, removed)
                self._done.bytes_after = self._log.size_bytes - result.bytes_before + result.bytes_after
                if result.clean_end < plan.segments[-1].end_offset:
                    self._done.note = (
                        f"more than {key_count_max} keys: measured up to offset {result.clean_end}"
                    )
                return
            result = compact(self._disk, self._log.folder, plan)
            self._take(result)
            self._count(result, removed)
            removed += result.records_before - result.records_after
        raise PipelineError(f"{self._log.folder} is not compacted after {_PASS_COUNT_MAX} passes")

    def _seal(self, now_ms: int) -> None:
        if not self._is_clean:
            self._stable_end = min(self._stable_end, self._checkpoint.recovery_segment)
            self._done.note = (
                f"the broker was not stopped cleanly: compacted up to offset {self._checkpoint.recovery_segment}; "
                "start and stop it once for the rest"
            )
            return
        lag_ms = self._log.settings.min_compaction_lag_ms
        active = self._log.segments[-1] if self._log.segments else None
        is_old = active is not None and (not lag_ms or active.max_timestamp <= now_ms - lag_ms)
        if active is not None and is_old and active.end_offset <= self._stable_end:
            self._log.roll(now_ms)
        if active is not None and self._log.segments[-1].base_offset != self._checkpoint.recovery_segment:
            self._save()  # also where an earlier run came no further than sealing

    def _take(self, result: CompactionResult) -> None:
        for old, new in result.replaced:
            self._log.replace_segments(old, new)
        self._log.aborted.forget(result.forgotten)
        if result.failure is None:
            self._log.clean_end = max(self._log.clean_end, result.clean_end)
        self._save()
        self._done.bytes_after = self._log.size_bytes
        if result.failure is not None:
            raise result.failure

    def _count(self, result: CompactionResult, removed: int) -> None:
        """A pass reads everything from the start on: what earlier ones removed is all that it does not count."""
        self._done.records_after = result.records_after
        self._done.records_before = result.records_before + removed

    def _save(self) -> None:
        if self._is_clean:
            job = self._log.begin_checkpoint()
            job.run()
            self._log.finish_checkpoint(job)
            return
        before = self._checkpoint
        relied_on = self._log.aborted.digest(before.log_start, before.recovery_offset)
        save_aborted(self._disk, self._log.folder, self._log.aborted)
        changed = structs.replace(
            before,
            clean_end=min(self._log.clean_end, before.recovery_offset),
            aborted_count=relied_on.entry_count,
            aborted_crc=relied_on.crc,
        )
        save_checkpoint(self._disk, self._log.folder, changed)


@contextmanager
def alone_in(folder: str) -> Iterator[None]:
    """Keep a second attempt of the same task out: Spark may take one for lost that still works."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise PipelineError(f"another attempt of this task still works on {folder}") from None
    finally:
        os.close(descriptor)
