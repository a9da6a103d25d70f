"""Transactions in a log against a plain list of what happened: whatever is done to the log and however it is interrupted,
what is open, what is aborted and what a reader of committed records gets are the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.support.logs import FOLDER, LogOnDisk, small_settings, timed_batch

from goqueue.core.producer import Fresh
from goqueue.log.aborted import AbortedSpans
from goqueue.log.batch import BatchHeader, decode_batch
from goqueue.log.checkpoint import NO_STATE, Checkpoint, load_checkpoint
from goqueue.log.control import Marker, read_marker
from goqueue.log.recovery import truncate_log
from goqueue.log.scan import Found, Scanner
from goqueue.model.errors import DataCorrupt, StorageError
from goqueue.model.record import Producer
from goqueue.sim.disk import PowerLost

IDS = (1, 2, 3)
KEYS = st.lists(st.sampled_from([b"a", b"b", b"c"]), min_size=1, max_size=3)
DELETE_RETENTION_MS = 300


class Item(NamedTuple):
    """A batch, or a marker."""

    base: int
    end: int
    producer_id: int
    epoch: int
    is_transactional: bool
    marker: bool | None  # whether it commits; None for a batch
    keys: tuple[bytes, ...] = ()


class TransactionMachine(RuleBasedStateMachine):
    @initialize(seed=st.integers(0, 2**32), segment_bytes=st.sampled_from([200, 400, 900]))
    def start(self, seed: int, segment_bytes: int) -> None:
        self.disk = LogOnDisk(
            seed, small_settings(segment_bytes=segment_bytes, delete_retention_ms=DELETE_RETENTION_MS)
        )
        self.now_ms = 1_000
        self.items: list[Item] = []
        self.end = 0
        self.log_start = 0
        self.is_compacted = False
        self.clean_end = (
            0  # a truncation may put what was decided in doubt again; then compaction has to come again
        )

    # ---------------------------------------------------------------- what it does

    def next_of(self, id: int) -> Producer:
        """Where the producer goes on; one that was forgotten may go on where it likes."""
        entry = self.disk.owner.table.entry(id)
        if entry is None:
            return Producer(id, self.epoch_of(id), 0)
        return Producer(id, entry.epoch, entry.last_sequence + 1)

    def epoch_of(self, id: int) -> int:
        return max((item.epoch for item in self.items if item.producer_id == id), default=0)

    @rule(id=st.sampled_from(IDS), keys=KEYS, is_transactional=st.sampled_from([True, True, False]))
    def append(self, id: int, keys: list[bytes], is_transactional: bool) -> None:
        is_transactional = is_transactional or id in self.open_starts()
        producer = self.next_of(id)
        verdict = self.disk.owner.table.decide(producer, len(keys), is_transactional=is_transactional)
        assert isinstance(verdict, Fresh)
        batch = timed_batch(
            [(self.now_ms, key, b"%d" % (self.end + at), ()) for at, key in enumerate(keys)],
            producer=producer,
            is_transactional=is_transactional,
        )
        base = self.disk.append(batch, self.now_ms)
        end = base + len(keys)
        self.items.append(Item(base, end, id, producer.epoch, is_transactional, None, tuple(keys)))
        self.end = end

    @rule(id=st.sampled_from(IDS), is_commit=st.booleans(), bump=st.integers(0, 1))
    def complete(self, id: int, is_commit: bool, bump: int) -> None:
        epoch = self.next_of(id).epoch + bump
        base = self.disk.append_marker(id, epoch, is_commit=is_commit, now_ms=self.now_ms)
        self.items.append(Item(base, base + 1, id, epoch, True, is_commit))
        self.end = base + 1

    @rule(milliseconds=st.sampled_from([1, 200, 400]))
    def wait(self, milliseconds: int) -> None:
        self.now_ms += milliseconds

    @rule()
    def roll(self) -> None:
        if self.disk.log.segments:
            self.disk.log.roll(self.now_ms)

    @rule()
    def sync(self) -> None:
        self.disk.sync()

    @rule()
    def checkpoint(self) -> None:
        self.disk.checkpoint()

    @rule(id=st.sampled_from(IDS), is_commit=st.booleans())
    def complete_while_a_checkpoint_runs(self, id: int, is_commit: bool) -> None:
        self.disk.lead()
        job = self.disk.log.begin_checkpoint()
        self.complete(id, is_commit, 0)
        job.run()
        self.append(id, [b"a"], True)
        self.disk.log.finish_checkpoint(job)

    @rule()
    def compact(self) -> None:
        result = self.disk.compact(self.now_ms)
        if result is not None and result.failure is not None:
            raise result.failure
        if result is not None:
            self.is_compacted = True
            self.clean_end = result.clean_end

    @rule(part=st.floats(0, 1))
    def delete_before(self, part: float) -> None:
        self.log_start += int(part * (self.end - self.log_start))
        self.disk.log.delete_before(self.log_start)

    @precondition(lambda self: self.items)
    @rule(part=st.floats(0, 1))
    def truncate(self, part: float) -> None:
        ends = [found.header.end_offset for found in self.batches()]
        ends = [end for end in ends if end >= self.log_start] or [self.end]
        self.cut(ends[int(part * (len(ends) - 1))])

    def cut(self, offset: int) -> None:
        truncate_log(self.disk.log, self.disk.mount, self.disk.owner, offset, forced=True)
        self.disk.is_led = False
        self.adopt()

    # ---------------------------------------------------------------- how it ends and starts again

    @rule()
    def stop_and_start(self) -> None:
        entries = self.disk.owner.table.entries()
        self.disk.stop()
        assert self.disk.open().scanned_bytes == 0
        assert self.disk.owner.table.entries() == entries
        self.adopt()

    @rule()
    def kill_and_start(self) -> None:
        entries = self.disk.owner.table.entries()
        aborted = [entry for entry in self.disk.log.aborted if entry.last_offset >= self.log_start]
        log_start = self.log_start
        self.disk.device.kill()
        self.disk.open()
        assert (self.disk.report.damage, self.disk.log.end) == ([], self.end)
        assert self.disk.owner.table.entries() == entries
        assert [entry for entry in self.disk.log.aborted if entry.last_offset >= log_start] == aborted
        self.adopt()

    @rule(name=st.sampled_from(["checkpoint", "aborted.index"]))
    def lose_a_file(self, name: str) -> None:
        self.disk.stop()
        mount = self.disk.device.mount()
        mount.remove(f"{FOLDER}/{name}")
        mount.sync_dir(FOLDER)
        self.disk.device.kill()
        self.disk.open()
        assert self.disk.report.damage == []
        self.adopt(is_rebuilt=name == "checkpoint")

    @rule(bit=st.integers(0, 2**16))
    def damage_the_index(self, bit: int) -> None:
        self.disk.stop()
        path = f"{FOLDER}/aborted.index"
        content = self.disk.device.snapshot().get(path)
        if content is not None:
            self.disk.device.flip_bit(path, bit % (8 * len(content)))
        self.disk.open()
        assert bool(self.disk.report.notes) == (content is not None)
        self.adopt()
        self.disk.checkpoint()

    @rule()
    def lose_power_and_start(self) -> None:
        self.disk.device.crash()
        self.disk.open()
        self.came_back_shorter()

    @rule(
        operations=st.integers(1, 25),
        what=st.sampled_from(["sync", "checkpoint", "compact", "stop_and_start", "truncate", "delete"]),
        part=st.floats(0, 1),
    )
    def lose_power_during(self, operations: int, what: str, part: float) -> None:
        actions: dict[str, Callable[[], None]] = {
            "sync": self.sync,
            "checkpoint": self.checkpoint,
            "compact": self.compact,
            "stop_and_start": self.stop_and_start,
            "truncate": lambda: self.truncate(part) if self.items else None,
            "delete": lambda: (self.delete_before(part), self.checkpoint())[0],
        }
        self.disk.lead()
        self.disk.device.crash_after(operations)
        try:
            actions[what]()
        except (PowerLost, StorageError):
            self.is_compacted = self.is_compacted or what == "compact"
            self.recover_with_power_cuts()
            self.came_back_shorter()
        finally:
            self.disk.device.crash_after(0)

    def recover_with_power_cuts(self) -> None:
        for operations in (1, 2):
            self.disk.device.crash_after(operations)
            try:
                self.disk.open()
            except PowerLost:
                continue
        self.disk.device.crash_after(0)
        self.disk.device.crash()
        self.disk.open()

    def came_back_shorter(self) -> None:
        """A torn write with a whole one behind it is reported as damage; an operator cuts it off."""
        self.adopt()
        log = self.disk.log
        offset = log.log_start
        while self.disk.report.damage and offset < log.end:
            try:
                offset = log.read(offset, end=log.end, bytes_max=1).next_offset
            except DataCorrupt as error:
                self.cut(error.start)
                return

    def adopt(self, *, is_rebuilt: bool = False) -> None:
        """What the log has lost never happened. Where the table was rebuilt from the log, it knows of what is left."""
        log = self.disk.log
        log.advance_high_watermark(log.end)
        self.end, self.log_start = log.end, log.log_start
        self.items = [item for item in self.items if item.end <= self.end]
        if self.disk.last_stable_offset < self.clean_end:
            self.clean_end = 0
        checkpoint = load_checkpoint(self.disk.mount, FOLDER)
        if is_rebuilt or (isinstance(checkpoint, Checkpoint) and checkpoint.owner == NO_STATE):
            left = {(header.base_offset, header.producer_id) for header in self.headers_on_disk()}
            self.items = [item for item in self.items if (item.base, item.producer_id) in left]

    def headers_on_disk(self) -> Iterator[BatchHeader]:
        """Also those of segments that the next checkpoint will remove."""
        for entry in self.disk.mount.list(FOLDER):
            if entry.name.endswith(".log"):
                file = self.disk.mount.open(f"{FOLDER}/{entry.name}")
                for found in Scanner(file, entry.size, check_crc=False).scan(0, int(entry.name[:20])):
                    if isinstance(found, Found):
                        yield found.header

    # ---------------------------------------------------------------- what is true

    def open_starts(self) -> dict[int, int]:
        starts: dict[int, int] = {}
        for item in self.items:
            if item.marker is not None:
                starts.pop(item.producer_id, None)
            elif item.is_transactional:
                starts.setdefault(item.producer_id, item.base)
        return starts

    def counts(self) -> dict[int, bytes]:
        """Offset to key of every record that is no longer in doubt and was not aborted."""
        found: dict[int, bytes] = {}
        pending: dict[int, dict[int, bytes]] = {}
        for item in self.items:
            if item.marker is not None:
                ended = pending.pop(item.producer_id, {})
                found |= ended if item.marker else {}
                continue
            records = dict(zip(range(item.base, item.end), item.keys, strict=True))
            if item.is_transactional:
                pending.setdefault(item.producer_id, {}).update(records)
            else:
                found |= records
        return found

    def batches(self) -> list[Found]:
        log = self.disk.log
        found: list[Found] = []
        offset = log.log_start
        while offset < log.end:
            piece = log.read(offset, end=log.end, bytes_max=500)
            found += piece.batches
            offset = piece.next_offset
        return found

    def visible(self, batches: list[Found], start: int, end: int) -> dict[int, bytes | None]:
        """As the broker filters for a reader of committed records."""
        spans = AbortedSpans(self.disk.log.aborted.overlapping(start, end))
        return {
            record.offset: record.key
            for found in batches
            if not found.header.is_control and not spans.cover(found.header)
            for record in decode_batch(found.data, found.header)
            if start <= record.offset < end
        }

    @invariant()
    def the_open_transactions_are_known(self) -> None:
        table = self.disk.owner.table
        starts = self.open_starts()
        assert {entry.producer_id: entry.transaction_start for entry in table.open_entries()} == starts
        assert table.first_open_offset() == min(starts.values(), default=None)

    @invariant()
    def the_epochs_are_known(self) -> None:
        for id in IDS:
            epochs = [item.epoch for item in self.items if item.producer_id == id]
            entry = self.disk.owner.table.entry(id)
            assert not epochs or (entry is not None and entry.epoch == epochs[-1])

    @invariant()
    def readers_get_what_counts(self) -> None:
        batches, counts = self.batches(), self.counts()
        self.a_reader_of_committed_records_gets_what_counts(batches, counts)
        self.compaction_leaves_nothing_that_was_aborted(batches, counts)
        self.a_kafka_client_gets_the_same_from_anywhere(batches)

    def a_reader_of_committed_records_gets_what_counts(
        self, batches: list[Found], counts: dict[int, bytes]
    ) -> None:
        stable = self.disk.last_stable_offset
        counts = {at: key for at, key in counts.items() if self.log_start <= at < stable}
        visible = self.visible(batches, self.log_start, stable)
        assert visible.items() <= counts.items()
        if not self.is_compacted:
            assert visible == counts
        if self.clean_end == self.disk.log.clean_end:
            latest = {key: at for at, key in sorted(counts.items())}
            assert set(latest.values()) <= visible.keys()

    def compaction_leaves_nothing_that_was_aborted(
        self, batches: list[Found], counts: dict[int, bytes]
    ) -> None:
        for found in batches:
            if not found.header.is_control and found.header.end_offset <= self.clean_end:
                for record in decode_batch(found.data, found.header):
                    assert record.offset in counts or record.offset < self.log_start

    def a_kafka_client_gets_the_same_from_anywhere(self, batches: list[Found]) -> None:
        """It skips a producer from the first offset of an aborted transaction until it meets the abort marker."""
        stable = self.disk.last_stable_offset
        batches = [found for found in batches if found.header.base_offset < stable]
        for start in range(self.log_start, stable, max(1, (stable - self.log_start) // 3)):
            pending = sorted(
                (entry.first_offset, entry.producer_id)
                for entry in self.disk.log.aborted.overlapping(start, stable)
            )
            skipped: set[int] = set()
            delivered: dict[int, bytes | None] = {}
            for found in batches:
                header = found.header
                if header.end_offset <= start:
                    continue
                while pending and pending[0][0] <= header.last_offset:
                    skipped.add(pending.pop(0)[1])
                if header.is_control:
                    if read_marker(found.data, header) == Marker(is_commit=False, coordinator_epoch=0):
                        skipped.discard(header.producer_id)
                elif not (header.is_transactional and header.producer_id in skipped):
                    for record in decode_batch(found.data, header):
                        if record.offset >= start:
                            delivered[record.offset] = record.key
            assert delivered == self.visible(batches, start, stable)

    @invariant()
    def the_folder_is_sound(self) -> None:
        problems = self.disk.problems()
        assert problems == [], (problems, self.disk.report)


TestTransactions = TransactionMachine.TestCase
TestTransactions.settings = settings(
    max_examples=60,
    report_multiple_bugs=False,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
