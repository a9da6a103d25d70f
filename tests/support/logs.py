"""Logs on a simulated disk: what the tests of the log layer share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random

from goqueue.core.producer import Appended, last_sequence
from goqueue.log.batch import (
    ATTRIBUTE_TRANSACTIONAL,
    MAGIC,
    NO_PRODUCER,
    BatchHeader,
    assemble,
    decode_batch,
    validate_new,
)
from goqueue.log.check import CheckReport, check_partition
from goqueue.log.compaction import CompactionPlan, CompactionResult, compact, plan_compaction
from goqueue.log.compression import Codec, compress
from goqueue.log.control import encode_marker
from goqueue.log.disk import Disk
from goqueue.log.partition_log import PartitionLog
from goqueue.log.records import encode_row
from goqueue.log.recovery import RecoveryReport, open_log
from goqueue.model.record import Header, Producer, StoredRecord
from goqueue.model.settings import CleanupPolicy, TopicSettings
from goqueue.node.producer_state import ProducerState
from goqueue.sim.disk import Mount, SimDisk

FOLDER = "logs/topic/0"
BATCH_BYTES_MAX = 1024 * 1024
READ_BYTES = 64 * 1024

# timestamp, key, value, headers
Timed = tuple[int, bytes | None, bytes | None, tuple[Header, ...]]


def small_settings(
    *,
    segment_bytes: int = 700,
    index_interval_bytes: int = 128,
    policy: CleanupPolicy = CleanupPolicy.COMPACT_DELETE,
    retention_ms: int = -1,
    retention_bytes: int = -1,
    delete_retention_ms: int = 1_000,
    segment_ms: int = 10**12,
) -> TopicSettings:
    """Segments of a few batches, so that a test sees many of them."""
    return TopicSettings(
        cleanup_policy=policy,
        retention_ms=retention_ms,
        retention_bytes=retention_bytes,
        segment_bytes=segment_bytes,
        segment_ms=segment_ms,
        index_interval_bytes=index_interval_bytes,
        delete_retention_ms=delete_retention_ms,
    )


def appended(header: BatchHeader) -> Appended | None:
    if header.producer_id == NO_PRODUCER or header.is_control:
        return None
    return Appended(
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        last_sequence(header.base_sequence, header.last_offset_delta + 1),
        header.base_offset,
        header.max_timestamp,
        header.is_transactional,
    )


def timed_batch(
    records: Sequence[Timed],
    *,
    producer: Producer | None = None,
    codec: Codec = Codec.NONE,
    is_transactional: bool = False,
) -> bytes:
    """A new batch whose records have a timestamp each, as Kafka's clients build them."""
    base = records[0][0]
    rows = [
        (at, stamp - base, key, value, headers) for at, (stamp, key, value, headers) in enumerate(records)
    ]
    return assemble(
        BatchHeader(
            base_offset=0,
            length=0,
            leader_epoch=-1,
            magic=MAGIC,
            crc=0,
            attributes=codec | (ATTRIBUTE_TRANSACTIONAL if is_transactional else 0),
            last_offset_delta=len(records) - 1,
            base_timestamp=base,
            max_timestamp=max(record[0] for record in records),
            producer_id=producer.id if producer else NO_PRODUCER,
            producer_epoch=producer.epoch if producer else -1,
            base_sequence=producer.sequence if producer else -1,
            record_count=len(records),
        ),
        compress(codec, b"".join(map(encode_row, rows))),
    )


def plain_batch(*values: bytes, key: bytes | None = None, timestamp_ms: int = 1_000) -> bytes:
    return timed_batch([(timestamp_ms, key, value, ()) for value in values])


class LogOnDisk:
    """One partition's log and the simulated disk below it, through any number of lives."""

    def __init__(self, seed: int = 0, settings: TopicSettings | None = None) -> None:
        self.device = SimDisk(Random(seed), not_cached_rate=0.0)
        self.settings = settings or small_settings()
        self.mount = self.device.mount()
        self.mount.make_dir(FOLDER)
        for parent in ("", "logs", "logs/topic"):
            self.mount.sync_dir(parent)
        self.open()

    def open(self) -> RecoveryReport:
        """A new process opens the log. The one before must have ended."""
        self.mount = self.device.mount()
        self.owner = ProducerState()
        self.is_led = False
        self.log, self.report = open_log(self.mount, FOLDER, self.settings, self.owner)
        return self.report

    def lead(self) -> None:
        if not self.is_led:
            self.log.begin_epoch(self.log.epochs.latest + 1)
            self.checkpoint()
            self.is_led = True

    def append(self, batch: bytes, now_ms: int = 1_000) -> int:
        self.lead()
        header = validate_new(batch, BATCH_BYTES_MAX)
        base = self.log.append(batch, header, now_ms=now_ms)
        self.observe(header._replace(base_offset=base), batch)
        self.log.advance_high_watermark(self.log.end)
        return base

    def append_marker(
        self,
        producer_id: int,
        epoch: int,
        *,
        is_commit: bool,
        coordinator_epoch: int = 0,
        now_ms: int = 1_000,
    ) -> int:
        """End a transaction, as a partition does it."""
        self.lead()
        self.owner.table.decide_marker(producer_id, epoch)
        header, batch = encode_marker(
            producer_id,
            epoch,
            is_commit=is_commit,
            coordinator_epoch=coordinator_epoch,
            timestamp_ms=now_ms,
        )
        base = self.log.append(batch, header, now_ms=now_ms)
        self.observe(header._replace(base_offset=base), batch)
        self.log.advance_high_watermark(self.log.end)
        return base

    def observe(self, header: BatchHeader, batch: bytes) -> None:
        aborted = self.owner.observe(header, batch)
        if aborted is not None:
            self.log.aborted.add(aborted)

    @property
    def last_stable_offset(self) -> int:
        first_open = self.owner.table.first_open_offset()
        watermark = self.log.high_watermark
        return watermark if first_open is None else max(self.log.log_start, min(first_open, watermark))

    def sync(self) -> None:
        job = self.log.begin_sync()
        job.run()
        self.log.finish_sync(job)

    def checkpoint(self) -> None:
        job = self.log.begin_checkpoint()
        job.run()
        self.log.finish_checkpoint(job)

    def plan_compaction(self, now_ms: int) -> CompactionPlan | None:
        return plan_compaction(self.log, now_ms, stable_end=self.last_stable_offset)

    def compact(self, now_ms: int) -> CompactionResult | None:
        """As housekeeping does it."""
        plan = self.plan_compaction(now_ms)
        if plan is None:
            return None
        self.checkpoint()
        result = compact(self.mount, FOLDER, plan)
        self.take(result)
        return result

    def take(self, result: CompactionResult) -> None:
        for old, new in result.replaced:
            self.log.replace_segments(old, new)
        self.log.clean_end = max(self.log.clean_end, result.clean_end)
        self.log.aborted.forget(result.forgotten)
        self.checkpoint()

    def stop(self) -> None:
        """A clean stop."""
        self.checkpoint()
        self.device.kill()

    def records(self, *, bytes_max: int = READ_BYTES) -> list[StoredRecord]:
        return read_all(self.log, bytes_max=bytes_max)

    def problems(self) -> list[str]:
        return check(self.mount).problems


def check(disk: Disk) -> CheckReport:
    report = CheckReport()
    check_partition(disk, FOLDER, report)
    return report


def read_all(log: PartitionLog, *, bytes_max: int = READ_BYTES) -> list[StoredRecord]:
    """Every record from the start to the end; fails if the batches do not tile the log."""
    found: list[StoredRecord] = []
    offset = log.log_start
    while offset < log.end:
        piece = log.read(offset, end=log.end, bytes_max=bytes_max)
        assert piece.batches[0].header.base_offset <= offset
        for batch in piece.batches:
            assert batch.header.base_offset == offset or batch is piece.batches[0]
            found += [r for r in decode_batch(batch.data, batch.header) if r.offset >= log.log_start]
            offset = batch.header.end_offset
        assert piece.next_offset == offset
    return found


def values(records: Iterable[StoredRecord]) -> list[bytes | None]:
    return [record.value for record in records]


def copy_of(disk: SimDisk, seed: int = 0) -> tuple[SimDisk, Mount]:
    """Another device with the same durable files, so that one state can be damaged in many ways."""
    device = SimDisk(Random(seed), not_cached_rate=0.0)
    mount = device.mount()
    for path, content in disk.snapshot().items():
        parent = path.rpartition("/")[0]
        mount.make_dir(parent)
        file = mount.open(path, create=True)
        file.append([content])
        file.sync()
        while parent:
            mount.sync_dir(parent)
            parent = parent.rpartition("/")[0]
        mount.sync_dir("")
    return device, mount
