"""A partition log against a plain list: whatever is done to it, and however it is interrupted, the two agree."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.support.logs import FOLDER, LogOnDisk, Timed, appended, read_all, small_settings, timed_batch

from goqueue.core.producer import Appended, Duplicate, Fresh, ProducerTable
from goqueue.log.batch import ATTRIBUTE_DELETE_HORIZON, BatchHeader, decode_batch, read_header
from goqueue.log.checkpoint import NO_STATE, Checkpoint, load_checkpoint
from goqueue.log.compaction import compact
from goqueue.log.compression import Codec
from goqueue.log.recovery import truncate_log
from goqueue.log.retention import is_active_expired, retention_start
from goqueue.log.scan import Found, Scanner
from goqueue.model.errors import DataCorrupt, OffsetOutOfRange, StorageError
from goqueue.model.record import Producer, StoredRecord
from goqueue.sim.disk import PowerLost

KEYS = st.sampled_from([None, b"", b"a", b"b", b"a key of more than sixteen bytes"])
VALUES = st.sampled_from([None, b"", b"v", b"x" * 40, bytes(90), b"\x02" * 30])
HEADERS = st.sampled_from([(), (("h", b"1"), ("h", None)), (("", b""),)])
TIMESTAMPS = st.integers(1_000, 1_060)
RECORDS: st.SearchStrategy[list[Timed]] = st.lists(
    st.tuples(TIMESTAMPS, KEYS, VALUES, HEADERS), min_size=1, max_size=4
)
CODECS = st.sampled_from([Codec.NONE, Codec.NONE, Codec.LZ4, Codec.ZSTD])
RETENTION_MS = 5_000
DELETE_RETENTION_MS = 300


class Batch(NamedTuple):
    base: int
    end: int
    event: Appended | None


class LogMachine(RuleBasedStateMachine):
    @initialize(seed=st.integers(0, 2**32), segment_bytes=st.sampled_from([200, 400, 900]))
    def start(self, seed: int, segment_bytes: int) -> None:
        self.disk = LogOnDisk(
            seed,
            small_settings(
                segment_bytes=segment_bytes,
                retention_ms=RETENTION_MS,
                delete_retention_ms=DELETE_RETENTION_MS,
            ),
        )
        self.now_ms = 1_000
        self.end = 0
        self.log_start = 0
        self.log_start_saved = 0
        self.stored: dict[int, StoredRecord] = {}
        self.batches: list[Batch] = []
        self.events: list[Appended] = []
        self.horizons: dict[int, int] = {}
        self.sequences: dict[int, tuple[int, int]] = {}

    # ---------------------------------------------------------------- what it does

    def put(self, records: list[Timed], codec: Codec, producer: Producer | None) -> None:
        batch = timed_batch(records, producer=producer, codec=codec)
        base = self.disk.append(batch, self.now_ms)
        assert base == self.end
        for at, (stamp, key, value, headers) in enumerate(records):
            self.stored[base + at] = StoredRecord(base + at, stamp, key, value, headers)
        self.end += len(records)
        event = appended(read_header(batch)._replace(base_offset=base))
        self.batches.append(Batch(base, self.end, event))
        if event is not None:
            self.events.append(event)

    @rule(records=RECORDS, codec=CODECS)
    def append(self, records: list[Timed], codec: Codec) -> None:
        self.put(records, codec, None)

    @rule(records=RECORDS, id=st.integers(1, 2), bumps=st.booleans())
    def append_as_a_producer(self, records: list[Timed], id: int, bumps: bool) -> None:
        epoch, sequence = self.sequences.get(id, (0, 0))
        if bumps:
            epoch, sequence = epoch + 1, 0
        producer = Producer(id, epoch, sequence)
        assert isinstance(self.disk.owner.table.decide(producer, len(records)), Fresh)
        self.put(records, Codec.NONE, producer)
        self.sequences[id] = (epoch, sequence + len(records))

    @precondition(lambda self: self.events)
    @rule()
    def send_the_last_batch_again(self) -> None:
        event = self.events[-1]
        count = event.last_sequence - event.first_sequence + 1
        producer = Producer(event.producer_id, event.epoch, event.first_sequence)
        assert self.disk.owner.table.decide(producer, count) == Duplicate(event.base_offset)

    @rule(milliseconds=st.sampled_from([1, 100, 400, 6_000]))
    def wait(self, milliseconds: int) -> None:
        self.now_ms += milliseconds

    @rule()
    def roll(self) -> None:
        self.disk.log.roll(self.now_ms)

    @rule()
    def sync(self) -> None:
        self.disk.sync()
        assert self.disk.log.is_durable

    @rule(records=RECORDS, more=RECORDS)
    def append_while_a_sync_runs(self, records: list[Timed], more: list[Timed]) -> None:
        self.put(records, Codec.NONE, None)
        job = self.disk.log.begin_sync()
        promised = self.end
        self.put(more, Codec.NONE, None)
        job.run()
        self.put(records, Codec.NONE, None)
        self.disk.log.finish_sync(job)
        assert self.disk.log.durable_end >= promised

    @rule()
    def checkpoint(self) -> None:
        self.disk.checkpoint()
        self.log_start_saved = self.log_start

    @rule(records=RECORDS, rolls=st.booleans())
    def append_while_a_checkpoint_runs(self, records: list[Timed], rolls: bool) -> None:
        self.disk.lead()
        job = self.disk.log.begin_checkpoint()
        self.put(records, Codec.NONE, None)
        if rolls:
            self.disk.log.roll(self.now_ms)
        job.run()
        self.put(records, Codec.NONE, None)
        self.disk.log.finish_checkpoint(job)
        self.log_start_saved = self.log_start

    @rule(part=st.floats(0, 1), width=st.integers(0, 6), bytes_max=st.integers(1, 400))
    def read(self, part: float, width: int, bytes_max: int) -> None:
        log = self.disk.log
        offset = self.log_start + int(part * (self.end - self.log_start))
        end = min(offset + width, self.end)
        piece = log.read(offset, end=end, bytes_max=bytes_max)
        if offset >= end:
            assert piece == ([], offset)
            return
        first, last = piece.batches[0].header, piece.batches[-1].header
        assert first.base_offset <= offset < first.end_offset
        assert last.base_offset < end
        assert piece.next_offset == last.end_offset
        size = sum(found.header.size for found in piece.batches)
        assert len(piece.batches) == 1 or size <= bytes_max
        assert [found.header.base_offset for found in piece.batches[1:]] == [
            found.header.end_offset for found in piece.batches[:-1]
        ]

    @rule(offset=st.sampled_from([-1, 1]))
    def read_outside(self, offset: int) -> None:
        outside = self.log_start - 1 if offset < 0 else self.end + 1
        with pytest.raises(OffsetOutOfRange):
            self.disk.log.read(outside, end=self.end, bytes_max=100)

    @rule(timestamp=st.integers(990, 1_070))
    def seek(self, timestamp: int) -> None:
        expected = next(
            (
                (offset, record.timestamp_ms)
                for offset, record in sorted(self.stored.items())
                if record.timestamp_ms >= timestamp and offset >= self.log_start
            ),
            None,
        )
        assert self.disk.log.first_at_or_after(timestamp) == expected

    @rule(part=st.floats(0, 1))
    def delete_before(self, part: float) -> None:
        offset = self.log_start + int(part * (self.end - self.log_start))
        self.disk.log.advance_high_watermark(self.end)
        self.disk.log.delete_before(offset)
        self.log_start = offset

    @rule()
    def apply_retention(self) -> None:
        log = self.disk.log
        if is_active_expired(log, self.now_ms):
            log.roll(self.now_ms)
        start = retention_start(log, self.now_ms)
        for offset, record in self.stored.items():
            if self.log_start <= offset < start:
                assert self.now_ms - record.timestamp_ms > RETENTION_MS
        if start > self.log_start:
            log.delete_before(start)
            self.log_start = start

    @precondition(lambda self: self.batches)
    @rule(part=st.floats(0, 1))
    def truncate(self, part: float) -> None:
        ends = [end for end in self.batch_ends() if end >= self.log_start] or [self.end]
        offset = ends[int(part * (len(ends) - 1))]
        watermark = min(self.disk.log.high_watermark, offset)
        truncate_log(self.disk.log, self.disk.mount, self.disk.owner, offset, forced=True)
        assert self.disk.log.high_watermark == watermark
        self.disk.is_led = False
        self.forget_from(offset, self.disk.log.end)
        self.log_start_saved = min(self.log_start_saved, offset)
        self.expect_producers()

    def forget_from(self, offset: int, end: int) -> None:
        assert end == offset
        self.end = end
        self.stored = {at: record for at, record in self.stored.items() if at < end}
        self.batches = [batch for batch in self.batches if batch.end <= end]
        self.adopt_events([event for event in self.events if event.base_offset < end])
        self.horizons = {at: horizon for at, horizon in self.horizons.items() if at < end}

    def expect_producers(self) -> None:
        """After a truncation that took the checkpoint back, the table is rebuilt from what is left of the log: it
        forgets what retention or compaction took, but nothing that the log has."""
        checkpoint = load_checkpoint(self.disk.mount, FOLDER)
        assert isinstance(checkpoint, Checkpoint)
        if checkpoint.owner == NO_STATE:
            headers = [header for header in self.headers_on_disk() if header.base_offset < self.end]
            self.adopt_events([event for header in headers if (event := appended(header)) is not None])

    def adopt_events(self, events: list[Appended]) -> None:
        self.events = events
        self.sequences = {event.producer_id: (event.epoch, event.last_sequence + 1) for event in events}

    # ---------------------------------------------------------------- compaction

    @rule(records=RECORDS)
    def compact_while_appends_arrive(self, records: list[Timed]) -> None:
        disk = self.disk
        plan = disk.plan_compaction(self.now_ms)
        if plan is None:
            return
        disk.checkpoint()
        self.log_start_saved = self.log_start
        result = compact(disk.mount, FOLDER, plan)
        if result.failure is not None:
            raise result.failure
        self.put(records, Codec.NONE, None)
        for old, new in result.replaced:
            disk.log.replace_segments(old, new)
        disk.log.clean_end = max(disk.log.clean_end, result.clean_end)
        self.compact_model(result.clean_end)

    def compact_model(self, clean_end: int) -> None:
        last: dict[bytes, int] = {}
        for offset, record in sorted(self.stored.items()):
            if record.key is not None and offset < clean_end:
                last[record.key] = offset
        for offset, record in sorted(self.stored.items()):
            if offset >= clean_end or record.key is None:
                continue
            is_gone = offset < last[record.key]
            if record.value is None:
                is_gone = is_gone or self.horizons.get(offset, self.now_ms + 1) <= self.now_ms
                self.horizons.setdefault(offset, self.now_ms + DELETE_RETENTION_MS)
            if is_gone:
                del self.stored[offset]
                self.horizons.pop(offset, None)

    # ---------------------------------------------------------------- how it ends and starts again

    @rule()
    def stop_and_start(self) -> None:
        self.disk.stop()
        self.log_start_saved = self.log_start
        assert self.disk.open().scanned_bytes == 0
        self.came_back_whole()

    @rule()
    def kill_and_start(self) -> None:
        self.disk.device.kill()
        self.disk.open()
        self.came_back_whole()

    def came_back_whole(self) -> None:
        assert self.disk.report.damage == []
        assert self.disk.report.cut_bytes == 0
        assert self.log_start_saved <= self.disk.log.log_start <= self.log_start
        self.log_start = self.disk.log.log_start

    @rule()
    def lose_power_and_start(self) -> None:
        durable_end = self.disk.log.durable_end
        self.disk.device.crash()
        self.disk.open()
        self.came_back_shorter(durable_end)

    @rule(
        operations=st.integers(1, 25),
        what=st.sampled_from(["sync", "checkpoint", "compact", "stop_and_start", "truncate", "delete"]),
        part=st.floats(0, 1),
    )
    def lose_power_during(self, operations: int, what: str, part: float) -> None:
        actions: dict[str, Callable[[], None]] = {
            "sync": self.sync,
            "checkpoint": self.checkpoint,
            "compact": lambda: self.compact_while_appends_arrive([(1_000, b"a", b"late", ())]),
            "stop_and_start": self.stop_and_start,
            "truncate": lambda: self.truncate(part) if self.batches else None,
            "delete": lambda: (self.delete_before(part), self.checkpoint())[0],
        }
        durable_end, log = self.disk.log.durable_end, self.disk.log
        self.disk.lead()
        before = dict(self.stored)
        self.disk.device.crash_after(operations)
        try:
            actions[what]()
        except (PowerLost, StorageError):
            if what == "truncate":
                durable_end = min(durable_end, self.log_start)
            if what == "compact":
                self.expect_compacted(before)
            self.recover_with_power_cuts()
            if what == "truncate":
                self.came_back_shorter(durable_end)
                self.expect_producers()
            else:
                self.came_back_shorter(max(durable_end, log.durable_end))
        finally:
            self.disk.device.crash_after(0)

    def recover_with_power_cuts(self) -> None:
        """The first two attempts are cut short, too."""
        for operations in (1, 2):
            self.disk.device.crash_after(operations)
            try:
                self.disk.open()
            except PowerLost:
                continue
        self.disk.device.crash_after(0)
        self.disk.device.crash()
        self.disk.open()

    def expect_compacted(self, before: dict[int, StoredRecord]) -> None:
        """Part of the pass is done. What is missing must be what a whole pass would have taken."""
        self.is_compacted_in_part = True

    is_compacted_in_part = False

    def came_back_shorter(self, durable_end: int) -> None:
        self.cut_at_torn_middle(durable_end)
        log = self.disk.log
        assert log.end >= durable_end
        assert log.end in {self.end, log.log_start, *(batch.base for batch in self.batches)}
        self.forget_from(log.end, log.end)
        if self.is_compacted_in_part:
            self.is_compacted_in_part = False
            self.adopt_compacted()
        assert min(self.log_start_saved, log.end) <= log.log_start <= max(self.log_start, log.end)
        self.log_start = log.log_start
        self.log_start_saved = min(self.log_start_saved, log.log_start)

    def cut_at_torn_middle(self, durable_end: int) -> None:
        """A torn write with a whole one behind it is taken for damage: reported, never served, and never among
        what was durable. What is left behind it is sound; here an operator cuts it off."""
        log = self.disk.log
        offset = log.log_start
        while self.disk.report.damage and offset < log.end:
            try:
                offset = log.read(offset, end=log.end, bytes_max=1).next_offset
            except DataCorrupt as error:
                torn_at = error.start
                assert torn_at >= durable_end
                truncate_log(log, self.disk.mount, self.disk.owner, torn_at, forced=True)
                return

    def adopt_compacted(self) -> None:
        found = {record.offset: record for record in read_all(self.disk.log)}
        assert all(self.stored[offset] == record for offset, record in found.items())
        whole = dict(self.stored)
        self.compact_model(self.end)
        for offset, record in self.stored.items():
            assert found.get(offset, record) == record
            assert offset in found or offset < self.disk.log.log_start or record.value is None
        self.stored = {at: record for at, record in whole.items() if at in found}
        self.horizons = self.dated_tombstones()

    def batch_ends(self) -> list[int]:
        """Compaction makes one empty batch of several, so where batches end only the log can tell."""
        return [header.end_offset for header in self.headers()]

    def headers_on_disk(self) -> Iterator[BatchHeader]:
        """Also those of segments that the next checkpoint will remove."""
        for entry in self.disk.mount.list(FOLDER):
            if entry.name.endswith(".log"):
                file = self.disk.mount.open(f"{FOLDER}/{entry.name}")
                for found in Scanner(file, entry.size, check_crc=False).scan(0, int(entry.name[:20])):
                    if isinstance(found, Found):
                        yield found.header

    def headers(self) -> list[BatchHeader]:
        return [
            found.header
            for segment in self.disk.log.segments
            for found in segment.scan(0, segment.base_offset, check_crc=False)
            if isinstance(found, Found)
        ]

    def dated_tombstones(self) -> dict[int, int]:
        """Which batches the unfinished pass had come to, only the log can tell."""
        dated: dict[int, int] = {}
        for segment in self.disk.log.segments:
            for found in segment.scan(0, segment.base_offset, check_crc=True):
                assert isinstance(found, Found)
                if found.header.attributes & ATTRIBUTE_DELETE_HORIZON:
                    for record in decode_batch(found.data, found.header):
                        if record.key is not None and record.value is None:
                            dated[record.offset] = found.header.base_timestamp
        return dated

    # ---------------------------------------------------------------- what is always true

    @invariant()
    def the_log_is_the_model(self) -> None:
        log = self.disk.log
        assert (log.log_start, log.end) == (self.log_start, self.end)
        expected = [record for at, record in sorted(self.stored.items()) if at >= self.log_start]
        assert read_all(log, bytes_max=300) == expected
        assert log.durable_end <= log.end
        assert log.failure is None

    @invariant()
    def the_segments_tile_the_log(self) -> None:
        segments = self.disk.log.segments
        for first, second in pairwise(segments):
            assert first.end_offset == second.base_offset
            assert first.base_offset < second.base_offset

    @invariant()
    def the_replayed_producers_are_the_live_ones(self) -> None:
        assert self.disk.owner.table.entries() == table_of(self.events).entries()

    @invariant()
    def the_folder_is_sound(self) -> None:
        problems = self.disk.problems()
        assert problems == [], (problems, self.disk.report)


def table_of(events: list[Appended]) -> ProducerTable:
    table = ProducerTable()
    for event in events:
        table.apply(event)
    return table


TestPartitionLog = LogMachine.TestCase
TestPartitionLog.settings = settings(
    max_examples=60,
    report_multiple_bugs=False,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
