"""Rows whose content is known, as batches that a log takes as they are, and what a reader of them must find.

A pool of batches is made once and comes in a random order, over and over. So a topic of any size costs little to make, what
it holds is known without a copy of it, and the last record of a key lies anywhere in it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import NamedTuple
from zlib import crc32

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from goqueue.log.compression import Codec
from goqueue.pipeline.arrow.encode import SinkRows, encode_rows

KEY_BYTES = 12
RECORD_BYTES = KEY_BYTES + 10  # what a record has besides its value, about
_KEY_PREFIX = b"user-"
_KEY_POWERS = 10 ** np.arange(KEY_BYTES - len(_KEY_PREFIX) - 1, -1, -1)
_TEXT = b'{"type":"order.placed","currency":"EUR","status":"paid","channel":"web","reference":"'
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
_ZERO = ord("0")
_SEED = 5

Longs = npt.NDArray[np.int64]
Octets = npt.NDArray[np.uint8]


class Sums(NamedTuple):
    """Over all rows: equal sums of equally many rows are taken for equal rows."""

    rows: int
    key_crc: int
    value_crc: int
    offset: int


class Pool:
    """Batches of rows with keys of `key_count` different ones. Half of a value is text that repeats, half is random digits:
    it can be compressed about as well as what people send."""

    def __init__(self, count: int, *, batch_rows: int, value_bytes: int, key_count: int) -> None:
        random = np.random.default_rng(_SEED)
        self.batch_rows = batch_rows
        self.value_bytes = value_bytes
        self.keys: Longs = random.integers(0, key_count, (count, batch_rows), np.int64)
        self.timestamp_ms = time.time_ns() // 1_000_000  # retention goes by it
        self.batches = [_record_batch(numbers, value_bytes, random) for numbers in self.keys]

    def encoded(self, codec: Codec) -> list[bytes]:
        everything = np.arange(self.batch_rows)
        return [
            encode_rows(
                SinkRows.of(batch),
                everything,
                codec=codec,
                producer=None,
                is_transactional=False,
                timestamp_ms=self.timestamp_ms,
            )
            for batch in self.batches
        ]


@dataclass(frozen=True, slots=True)
class Content:
    """What each partition of a topic has: which batch of the pool comes when."""

    pool: Pool
    order: Longs
    partition_count: int

    @property
    def partition_rows(self) -> int:
        return len(self.order) * self.pool.batch_rows

    @property
    def row_count(self) -> int:
        return self.partition_rows * self.partition_count

    @property
    def row_bytes(self) -> int:
        return KEY_BYTES + self.pool.value_bytes

    def sums(self) -> Sums:
        uses = np.bincount(self.order, minlength=len(self.pool.batches)).tolist()
        key_crc, value_crc = (
            sum(
                count * crc_sum(batch.column(name))
                for count, batch in zip(uses, self.pool.batches, strict=True)
            )
            for name in ("key", "value")
        )
        offset_sum = self.partition_rows * (self.partition_rows - 1) // 2
        count = self.partition_count
        return Sums(self.row_count, count * key_crc, count * value_crc, count * offset_sum)

    def survivors(self) -> Longs:
        """The offsets that key compaction leaves in each partition."""
        keys = self.pool.keys[self.order].ravel()
        last = np.full(int(self.pool.keys.max()) + 1, -1, np.int64)
        last[keys] = np.arange(len(keys))  # of several with one key the last one stays
        return np.sort(last[last >= 0])


def content(pool: Pool, *, batch_count: int, partition_count: int) -> Content:
    order = np.random.default_rng(_SEED).integers(0, len(pool.batches), batch_count, np.int64)
    return Content(pool, order, partition_count)


def _record_batch(numbers: Longs, value_bytes: int, random: np.random.Generator) -> pa.RecordBatch:
    digits = (numbers[:, None] // _KEY_POWERS % 10 + _ZERO).astype(np.uint8)
    keys = np.hstack([np.tile(np.frombuffer(_KEY_PREFIX, np.uint8), (len(numbers), 1)), digits])
    half = value_bytes // 2
    text = np.resize(np.frombuffer(_TEXT, np.uint8), value_bytes - half)
    noise = _HEX[random.integers(0, len(_HEX), (len(numbers), half), np.uint8)]
    values = np.hstack([np.tile(text, (len(numbers), 1)), noise])
    return pa.record_batch([_binary(keys), _binary(values)], names=["key", "value"])


def _binary(rows: Octets) -> pa.Array:
    count, width = rows.shape
    ends = np.arange(count + 1, dtype=np.int32) * np.int32(width)
    return pa.Array.from_buffers(
        pa.binary(), count, [None, pa.py_buffer(ends), pa.py_buffer(np.ascontiguousarray(rows))]
    )


def crc_sum(column: pa.Array | pa.ChunkedArray) -> int:
    return sum(crc32(one.as_buffer()) for one in column)
