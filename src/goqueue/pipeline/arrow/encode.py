"""Rows of Arrow columns as a batch of records, ready to be sent."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from goqueue.log import columns as kernel
from goqueue.log.batch import (
    ATTRIBUTE_TRANSACTIONAL,
    HEADER_BYTES,
    MAGIC,
    NO_PRODUCER,
    BatchHeader,
    assemble,
)
from goqueue.log.compression import Codec, compress
from goqueue.model.record import Producer
from goqueue.pipeline.arrow.sink_rows import SinkRows, strings_of
from goqueue.pipeline.errors import BadRow

__all__ = ["SinkRows", "encode_rows", "partition_of_keys", "record_sizes"]

BATCH_OVERHEAD_BYTES: Final = HEADER_BYTES  # what a batch has besides its records
_NOBODY: Final = Producer(NO_PRODUCER, -1, -1)


def encode_rows(
    rows: SinkRows,
    picked: npt.NDArray[np.integer],
    *,
    codec: Codec,
    producer: Producer | None,
    is_transactional: bool,
    timestamp_ms: int,
) -> bytes:
    """One batch of the picked rows in this order. Rows without a timestamp of their own get `timestamp_ms`."""
    if not len(picked):
        raise ValueError("a batch has one record at least")
    indices = np.ascontiguousarray(picked, np.int64)
    rows.check(indices)
    times = rows.times_of(indices, timestamp_ms)
    base_timestamp, max_timestamp = (
        (timestamp_ms,) * 2 if times is None else (int(times[0]), int(times.max()))
    )
    try:
        payload = kernel.encode_columns(rows.columns, indices.data, base_timestamp, timestamp_ms)
    except ValueError as error:
        raise BadRow(str(error)) from None
    who = producer or _NOBODY
    header = BatchHeader(
        base_offset=0,
        length=0,
        leader_epoch=-1,
        magic=MAGIC,
        crc=0,
        attributes=codec | (ATTRIBUTE_TRANSACTIONAL if is_transactional else 0),
        last_offset_delta=len(indices) - 1,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=who.id,
        producer_epoch=who.epoch,
        base_sequence=who.sequence,
        record_count=len(indices),
    )
    return assemble(header, compress(codec, payload))


def record_sizes(rows: SinkRows) -> npt.NDArray[np.int64]:
    """The most bytes that each row takes as a record, before compression. A batch of some of them takes at most their
    sum and `BATCH_OVERHEAD_BYTES`."""
    return np.frombuffer(kernel.record_sizes(rows.columns), np.int64)


def partition_of_keys(
    keys: pa.Array | pa.ChunkedArray, partitioner: str, count: int
) -> npt.NDArray[np.int32]:
    """The partition of each key, as every producer with this partitioner has it; -1 where the key is null."""
    return np.frombuffer(kernel.partitions_of(strings_of("key", keys), partitioner, count), np.int32)
