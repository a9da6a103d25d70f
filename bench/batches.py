"""Batches whose every byte is known, and the check that a log holds exactly them.

A pool of different batches is built once and appended over and over; what was appended at which offset is
remembered, so reading back proves count, order and bytes without keeping a copy of the data.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from bench.line import require
from goqueue.log.batch import PREFIX_BYTES, build_batch
from goqueue.log.partition_log import PartitionLog
from goqueue.model.record import NewRecord

_READ_BYTES = 4 * 1024 * 1024
_TIMESTAMP_MS = 1_700_000_000_000


def batch_pool(count: int, *, record_count: int, value_bytes: int) -> list[bytes]:
    """The same for every run: a seed, not the clock, makes the content."""
    random = Random(count * 1_000_003 + record_count)
    return [
        build_batch(
            [NewRecord(None, random.randbytes(value_bytes)) for _ in range(record_count)], _TIMESTAMP_MS
        )
        for _ in range(count)
    ]


def verify_log(log: PartitionLog, expected: Mapping[int, bytes], what: str) -> None:
    """The log is made of these batches at these offsets and of nothing else."""
    offset, seen = log.log_start, 0
    while offset < log.end:
        part = log.read(offset, end=log.end, bytes_max=_READ_BYTES)
        for found in part.batches:
            batch = expected.get(found.header.base_offset)
            require(found.header.base_offset == offset, f"{what}: offset {offset} is missing")
            require(batch is not None, f"{what}: nobody wrote a batch at offset {offset}")
            # The leader assigns offset and epoch; all behind them must be as it was written.
            same = batch is not None and found.data[PREFIX_BYTES:] == batch[PREFIX_BYTES:]
            require(same, f"{what}: the batch at offset {offset} has other bytes than were written")
            offset = found.header.end_offset
            seen += 1
    require(seen == len(expected), f"{what}: {len(expected)} batches were written and {seen} are there")
