"""Control batches: the markers that end a transaction in a partition (docs/format/record.md), and gaps.

A marker is a batch of one record that no reader gets to see. Its key says whether the transaction of the batch's
producer is committed or aborted, its value which coordinator said so.

A gap tells a Kafka client to go on behind offsets that have no records. It is made for an answer and never stored.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from goqueue.log.batch import (
    ATTRIBUTE_CONTROL,
    ATTRIBUTE_TRANSACTIONAL,
    MAGIC,
    NO_PRODUCER,
    BatchHeader,
    decode_rows,
    encode_batch,
    rebuild_batch,
)
from goqueue.model.errors import InvalidBatch
from goqueue.model.record import NewRecord, Producer

_VERSION = 0
_ABORT, _COMMIT = 0, 1
_NOTHING = -1  # a type that Kafka's clients do not know, and so pass over
_DELTA_MAX = 2**31 - 1
_NO_SEQUENCE = -1
_KEY = struct.Struct(">hh")  # version, type
_VALUE = struct.Struct(">hi")  # version, coordinator epoch


class Marker(NamedTuple):
    is_commit: bool
    coordinator_epoch: int


def encode_marker(
    producer_id: int, producer_epoch: int, *, is_commit: bool, coordinator_epoch: int, timestamp_ms: int
) -> tuple[BatchHeader, bytes]:
    """The batch that ends a producer's transaction, ready to be appended."""
    key = _KEY.pack(_VERSION, _COMMIT if is_commit else _ABORT)
    value = _VALUE.pack(_VERSION, coordinator_epoch)
    return encode_batch(
        [NewRecord(key, value)],
        timestamp_ms,
        producer=Producer(producer_id, producer_epoch, _NO_SEQUENCE),
        attributes=ATTRIBUTE_TRANSACTIONAL | ATTRIBUTE_CONTROL,
    )


def encode_gap(start: int, end: int, *, leader_epoch: int, timestamp_ms: int) -> bytes:
    """A batch that stands for offsets [start, end), of which no record is left. Clients do not agree on batches without
    a record: librdkafka takes an answer of such for a message that is too large, aiokafka wants a record in every control
    batch. All of them pass over a control record of a type that they do not know, and go on behind it."""
    last = min(end - 1 - start, _DELTA_MAX)
    header = BatchHeader(
        base_offset=start,
        length=0,
        leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=ATTRIBUTE_CONTROL,
        last_offset_delta=last,
        base_timestamp=timestamp_ms,
        max_timestamp=timestamp_ms,
        producer_id=NO_PRODUCER,
        producer_epoch=-1,
        base_sequence=_NO_SEQUENCE,
        record_count=1,
    )
    row = (last, 0, _KEY.pack(_VERSION, _NOTHING), None, ())
    return rebuild_batch(header, [row], delete_horizon_ms=None)


def read_marker(batch: bytes | memoryview, header: BatchHeader) -> Marker | None:
    """What a control batch says of a transaction; None if it is about something else. Newer versions may have more
    fields behind those that are known."""
    rows = decode_rows(batch, header)
    if len(rows) != 1:
        raise InvalidBatch(f"a control batch has one record, not {len(rows)}")
    _, _, key, value, _ = rows[0]
    if key is None or len(key) < _KEY.size:
        raise InvalidBatch("a control record has no type")
    version, kind = _KEY.unpack_from(key)
    if kind not in (_ABORT, _COMMIT):
        return None
    if version < 0 or value is None or len(value) < _VALUE.size:
        raise InvalidBatch("a transaction marker does not say who wrote it")
    if header.producer_id == NO_PRODUCER:
        raise InvalidBatch("a transaction marker has no producer")
    return Marker(kind == _COMMIT, _VALUE.unpack_from(value)[1])
