"""What Kafka clients do with batches: build them, and sort out of a fetch what a reader of committed records may see."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop

from goqueue.log.batch import ATTRIBUTE_TRANSACTIONAL, build_batch, crc_matches, decode_batch, read_header
from goqueue.log.control import read_marker
from goqueue.model.record import NewRecord, Producer


def new_batch(
    values: Sequence[str], producer: Producer, timestamp_ms: int, *, is_transactional: bool
) -> bytes:
    records = [NewRecord(None, value.encode()) for value in values]
    attributes = ATTRIBUTE_TRANSACTIONAL if is_transactional else 0
    return build_batch(records, timestamp_ms, producer=producer, attributes=attributes)


@dataclass(slots=True)
class Records:
    """What one fetch gave of one partition."""

    values: dict[int, str] = field(default_factory=dict)  # by offset
    next_offset: int = 0
    leader_epoch: int = -1  # of the last batch
    is_corrupt: bool = False


def read_records(data: bytes, start: int, aborted: Iterable[tuple[int, int]] = ()) -> Records:
    """Records from offset `start` on without those of aborted transactions, which are named as (producer, first offset).
    This is Kafka's algorithm: a transaction is aborted from its first offset to its producer's next abort marker."""
    found = Records(next_offset=start)
    coming = [(first, producer_id) for producer_id, first in aborted]
    heapify(coming)
    dropped: dict[int, None] = {}
    at = 0
    while at < len(data):
        header = read_header(data, at)
        batch = data[at : at + header.size]
        if len(batch) < header.size or not crc_matches(data, at, header):
            found.is_corrupt = True
            return found
        at += header.size
        while coming and coming[0][0] <= header.last_offset:
            dropped[heappop(coming)[1]] = None
        found.leader_epoch = header.leader_epoch
        found.next_offset = max(start, header.end_offset)
        if header.is_control:
            marker = read_marker(batch, header)
            if marker is not None and not marker.is_commit:
                dropped.pop(header.producer_id, None)
        elif not (header.is_transactional and header.producer_id in dropped):
            for record in decode_batch(batch, header):
                if record.offset >= start:
                    found.values[record.offset] = (record.value or b"").decode()
    return found
