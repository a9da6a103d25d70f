"""Key compaction: of records with the same key only the last stays. Offsets, keyless records and headers stay.

Only sealed segments below the last stable offset take part: whether a record counts is decided there. One pass reads the part that is new since the last
(the dirty part) into a bounded map of key to last offset, then rewrites everything up to there, a group of
neighbours into one segment. A batch that loses all of its records becomes part of an empty one, so offsets go
on tiling the log; the last batch of each idempotent producer keeps its header, so that its sequence survives.
A tombstone stays for `delete.retention.ms` after the pass that first meets it (KIP-534: the batch carries that
moment), so that a reader who started earlier still learns of the deletion.

Records of aborted transactions go, and never stand for their key. A marker that finds no batch of its transaction
left is treated like a tombstone, unless it is the last of its producer, whose epoch it keeps. Its entry in the index of
aborted transactions goes first and the marker in a later pass: a Kafka client that is told of an aborted transaction
skips what its producer writes until it meets the marker, so the entry must never outlive it.

The rewrite happens in a thread while the log takes appends. Its commit point is one rename to `.swap`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from goqueue.log.aborted import AbortedIndex, AbortedSpans, TransactionWalk
from goqueue.log.batch import (
    ATTRIBUTE_DELETE_HORIZON,
    NO_PRODUCER,
    BatchHeader,
    decode_rows,
    empty_batch,
    open_payload,
    read_header,
    rebuild_batch,
    refill_batch,
)
from goqueue.log.checkpoint import Checkpoint, load_checkpoint
from goqueue.log.disk import Disk, File
from goqueue.log.index import SegmentIndex, save_index
from goqueue.log.keys import KeyMap, Picked, new_key_map
from goqueue.log.partition_log import RELATIVE_OFFSET_MAX, PartitionLog
from goqueue.log.scan import Damage, Found
from goqueue.log.segment import Segment, segment_prefix
from goqueue.log.swap import finish_swap, swap_path
from goqueue.model.errors import GoQueueError, InvalidBatch, invariant

KEY_COUNT_MAX = 1_000_000  # 50 MB for the map; 150 where it is not compiled
_TIMESTAMP_MAX = 2**63 - 1
_WRITE_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """What one pass will do. `segments` are pinned: they stay readable while their files are replaced."""

    segments: tuple[Segment, ...]
    aborted: AbortedIndex
    clean_end: int  # up to here an earlier pass has been
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    stop_log: Callable[[str], None]
    # Tombstones and bare markers before it go when it is time: nobody needs them who has what they are about.
    forget_before: int
    key_count_max: int = (
        KEY_COUNT_MAX  # in memory at once; with more, a pass stops behind the segment that has them
    )


@dataclass(slots=True)
class CompactionResult:
    replaced: list[tuple[tuple[Segment, ...], Segment]]
    clean_end: int
    forgotten: set[int]  # markers of aborted transactions that need no entry in the index any more
    failure: Exception | None = None
    records_before: int = 0
    records_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0


@dataclass(slots=True)
class _Survey:
    """What a pass knows before it rewrites anything."""

    aborted: AbortedSpans
    clean_end: int
    last_offsets: KeyMap = field(default_factory=new_key_map)  # over the dirty part
    last_batches: dict[int, int] = field(default_factory=dict)  # by producer
    last_markers: dict[int, int] = field(default_factory=dict)  # by producer
    transactions: TransactionWalk = field(default_factory=TransactionWalk)


def dirty_ratio(log: PartitionLog, *, stable_end: int) -> float:
    """How much of what could be compacted is new since the last pass."""
    sealed = _sealed(log, stable_end)
    total = sum(segment.size for segment in sealed)
    dirty = sum(segment.size for segment in sealed if segment.end_offset > log.clean_end)
    return dirty / total if total else 0.0


def plan_compaction(
    log: PartitionLog, now_ms: int, *, stable_end: int, forget_before: int | None = None
) -> CompactionPlan | None:
    """None if there is nothing to do. Records younger than the compaction lag are left alone, and so is everything
    from the last stable offset on. What is deleted may be forgotten before an offset; None: wherever its time is over."""
    lag_ms = log.settings.min_compaction_lag_ms
    segments: list[Segment] = []
    for segment in _sealed(log, stable_end):
        if lag_ms and segment.max_timestamp > now_ms - lag_ms:
            break
        segments.append(segment)
    if not segments or segments[-1].end_offset <= log.clean_end:
        return None
    for segment in segments:
        segment.index()
        segment.pin()
    return CompactionPlan(
        tuple(segments),
        log.aborted.copy(),
        log.clean_end,
        now_ms,
        log.settings.delete_retention_ms,
        log.settings.segment_bytes,
        log.fail,
        log.end if forget_before is None else forget_before,
    )


def compact(disk: Disk, folder: str, plan: CompactionPlan) -> CompactionResult:
    """Rewrite the plan's segments. Blocks; the caller then tells the log of every one that was replaced, also if
    a later one failed. A failure after the commit point stops the log: names and memory no longer agree, so that
    retention could remove what it does not mean; the next start finishes the swap.

    The caller has saved a checkpoint since the segments were sealed. Without it the recovery point could lie inside a
    file that is rewritten."""
    checkpoint = load_checkpoint(disk, folder)
    invariant(
        isinstance(checkpoint, Checkpoint) and checkpoint.recovery_segment >= plan.segments[-1].end_offset,
        f"{folder} has no checkpoint behind the segments that are to be compacted",
    )
    survey, result = _begun(plan)
    for group in _groups(plan, survey.clean_end):
        rewrite = _Rewrite(disk, folder, plan, survey, result)
        try:
            result.replaced.append((group, rewrite.run(group)))
        except (OSError, GoQueueError) as error:
            result.failure = error
            result.clean_end = plan.clean_end
            if rewrite.is_committed:
                plan.stop_log(f"compaction could not put a segment in its place: {error}")
            break
    return result


def measure(disk: Disk, folder: str, plan: CompactionPlan) -> CompactionResult:
    """What `compact` would leave, by the same reading; nothing is written. DataCorrupt where a segment is damaged."""
    survey, result = _begun(plan)
    for group in _groups(plan, survey.clean_end):
        rewrite = _Rewrite(disk, folder, plan, survey, result)
        result.bytes_after += sum(map(len, rewrite.batches(group)))
    return result


def _begun(plan: CompactionPlan) -> tuple[_Survey, CompactionResult]:
    survey = _surveyed(plan)
    bare_markers = survey.transactions.bare_markers
    forgotten = {entry.last_offset for entry in plan.aborted if entry.last_offset in bare_markers}
    return survey, CompactionResult([], survey.clean_end, forgotten)


def _sealed(log: PartitionLog, stable_end: int) -> list[Segment]:
    end = min(log.high_watermark, stable_end)
    return [segment for segment in log.segments[:-1] if segment.end_offset <= end]


def _surveyed(plan: CompactionPlan) -> _Survey:
    """One reading of the log, up to where the map of keys is full."""
    survey = _Survey(AbortedSpans(plan.aborted), plan.segments[0].base_offset)
    for segment in plan.segments:
        for found in _batches(segment):
            _survey_batch(survey, found, plan.clean_end)
        survey.clean_end = segment.end_offset
        if len(survey.last_offsets) >= plan.key_count_max:
            break
    return survey


def _survey_batch(survey: _Survey, found: Found, clean_end: int) -> None:
    header = found.header
    survey.transactions.note(header, found.data)
    if header.is_control:
        survey.last_markers[header.producer_id] = header.base_offset
        return
    if header.producer_id != NO_PRODUCER:
        survey.last_batches[header.producer_id] = header.base_offset
    if header.end_offset <= clean_end or survey.aborted.cover(header):
        return
    payload, start = open_payload(found.data, header)
    try:
        survey.last_offsets.note(
            payload, start, header.record_count, header.last_offset_delta, header.base_offset
        )
    except ValueError as error:
        raise InvalidBatch(f"the batch at offset {header.base_offset} is malformed: {error}") from None


def _groups(plan: CompactionPlan, clean_end: int) -> Iterator[tuple[Segment, ...]]:
    """Neighbours that together are no larger than one segment may be."""
    group: list[Segment] = []
    for segment in plan.segments:
        if segment.end_offset > clean_end:
            break
        bytes_together = sum(member.size for member in group) + segment.size
        if group and (
            bytes_together > plan.segment_bytes
            or segment.end_offset - group[0].base_offset > RELATIVE_OFFSET_MAX
        ):
            yield tuple(group)
            group = []
        group.append(segment)
    if group:
        yield tuple(group)


def _batches(segment: Segment) -> Iterator[Found]:
    for item in segment.scan(0, segment.base_offset, check_crc=True):
        if isinstance(item, Damage):
            raise segment.as_error(item)
        yield item


class _Rewrite:
    """Several neighbouring segments into one file."""

    def __init__(
        self,
        disk: Disk,
        folder: str,
        plan: CompactionPlan,
        survey: _Survey,
        result: CompactionResult,
    ) -> None:
        self._disk = disk
        self._folder = folder
        self._plan = plan
        self._survey = survey
        self._result = result
        self._gap: BatchHeader | None = None  # emptied batches, not written yet
        self._gap_start = 0
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._size = 0
        self.is_committed = False

    def run(self, group: tuple[Segment, ...]) -> Segment:
        base, end = group[0].base_offset, group[-1].end_offset
        index = SegmentIndex(base, group[0].interval_bytes)
        cleaned = f"{segment_prefix(self._folder, base)}.cleaned"
        self._disk.remove(cleaned)
        file = self._disk.open(cleaned, create=True)
        for batch in self.batches(group):
            self._write(file, index, batch)
        self._flush(file)
        file.sync()
        index.seal()
        self._result.bytes_after += self._size
        self.is_committed = True
        self._disk.rename(cleaned, swap_path(self._folder, base, end))
        self._disk.sync_dir(self._folder)
        finish_swap(self._disk, self._folder, base, end)
        self._save_index(segment_prefix(self._folder, base), index)
        return group[0].successor(size=self._size, end_offset=end, index=index)

    def batches(self, group: tuple[Segment, ...]) -> Iterator[bytes]:
        """What the new segment consists of."""
        for segment in group:
            self._result.bytes_before += segment.size
            for found in _batches(segment):
                yield from self._rewritten(found)
        yield from self._flush_gap()

    def _save_index(self, prefix: str, index: SegmentIndex) -> None:
        try:
            save_index(self._disk, prefix, index.encode())
        except OSError:  # a cache: it is rebuilt when it is needed
            return

    def _rewritten(self, found: Found) -> Iterator[bytes]:
        header = found.header
        if header.is_control:
            yield from self._rewritten_marker(found)
            return
        kept_count, has_tombstone, payload = self._picked(found)
        self._result.records_before += header.record_count
        self._result.records_after += kept_count
        if not kept_count and self._survey.last_batches.get(header.producer_id) != header.base_offset:
            yield from self._drop(header)
            return
        yield from self._flush_gap()
        if payload is None:
            yield bytes(found.data)
            return
        horizon_ms = self._new_horizon_ms(header) if has_tombstone else None
        yield refill_batch(header, payload, record_count=kept_count, delete_horizon_ms=horizon_ms)

    def _rewritten_marker(self, found: Found) -> Iterator[bytes]:
        header, survey = found.header, self._survey
        is_bare = header.base_offset in survey.transactions.bare_markers
        if not is_bare or survey.last_markers[header.producer_id] == header.base_offset:
            yield from self._flush_gap()
            yield bytes(found.data)
        elif not header.attributes & ATTRIBUTE_DELETE_HORIZON:
            yield from self._flush_gap()
            rows = decode_rows(found.data, header)
            yield rebuild_batch(header, rows, delete_horizon_ms=self._horizon_ms())
        elif self._is_due(header) and header.base_offset not in self._result.forgotten:
            yield from self._drop(header)
        else:
            yield from self._flush_gap()
            yield bytes(found.data)

    def _drop(self, header: BatchHeader) -> Iterator[bytes]:
        """Leave the offsets of a batch to the empty one that is being gathered."""
        if self._gap is None or self._gap.leader_epoch != header.leader_epoch:
            yield from self._flush_gap()
            self._gap_start = header.base_offset
        self._gap = header

    def _picked(self, found: Found) -> Picked:
        header = found.header
        if self._survey.aborted.cover(header):
            return 0, False, b"" if header.record_count else None
        payload, start = open_payload(found.data, header)
        try:
            return self._survey.last_offsets.pick(
                payload,
                start,
                header.record_count,
                header.last_offset_delta,
                header.base_offset,
                self._is_due(header),
                header.base_timestamp,
                self._new_horizon_ms(header),
            )
        except ValueError as error:
            raise InvalidBatch(f"the batch at offset {header.base_offset} is malformed: {error}") from None

    def _is_due(self, header: BatchHeader) -> bool:
        """Whether the moment is over until which what is deleted is remembered."""
        has_moment = bool(header.attributes & ATTRIBUTE_DELETE_HORIZON)
        may_forget = header.end_offset <= self._plan.forget_before
        return may_forget and has_moment and header.base_timestamp <= self._plan.now_ms

    def _new_horizon_ms(self, header: BatchHeader) -> int | None:
        """From when on the tombstones of this batch may go; None if it has its moment already."""
        return None if header.attributes & ATTRIBUTE_DELETE_HORIZON else self._horizon_ms()

    def _horizon_ms(self) -> int:
        return min(self._plan.now_ms + self._plan.delete_retention_ms, _TIMESTAMP_MAX)

    def _flush_gap(self) -> Iterator[bytes]:
        if self._gap is not None:
            yield empty_batch(
                self._gap_start,
                self._gap.last_offset,
                leader_epoch=self._gap.leader_epoch,
                timestamp_ms=self._gap.max_timestamp,
            )
            self._gap = None

    def _write(self, file: File, index: SegmentIndex, batch: bytes) -> None:
        index.note(read_header(batch), self._size)
        self._size += len(batch)
        self._pending.append(batch)
        self._pending_bytes += len(batch)
        if self._pending_bytes >= _WRITE_BYTES:
            self._flush(file)

    def _flush(self, file: File) -> None:
        file.append(self._pending)
        self._pending, self._pending_bytes = [], 0
