"""Rows of columns, in the buffers that Arrow lays down, written as the payload of one batch. No object is made per record where
the C twin was compiled.

Nothing here needs Arrow. Buffers are bytes in the machine's order, with offsets of 64 bits; validity is a bitmap with the low
bit first, or None where nothing is null.
"""

from __future__ import annotations

import os
import struct
from array import array
from typing import NamedTuple

from goqueue.log.records import encode_row
from goqueue.model.delay import DELIVER_AT_HEADER
from goqueue.model.partitioner import Partitioner, partition_for_key
from goqueue.model.priority import PRIORITY_HEADER
from goqueue.model.record import Header

PAYLOAD_BYTES_MAX = 2**31 - 1 - 128  # the length of a batch is 32 bits with a sign
NO_TIMESTAMP = -(2**63)
TIMESTAMP_MS_MAX = (2**63 - 1) // 1_000  # what microseconds can say
# The most that the fields of a record take whose size depends on its batch: length, timestamp and offset delta.
_DELTAS_BYTES_MAX = 5 + 10 + 5
_LONG = struct.Struct("q")
_LONGS = struct.Struct("qq")

Buffer = bytes | bytearray | memoryview


class Strings(NamedTuple):
    """`length` blocks of bytes from index `first` on, as Arrow's large_binary has them."""

    validity: Buffer | None
    offsets: Buffer
    data: Buffer
    first: int
    length: int


class Lists(NamedTuple):
    """The headers of the rows from index `first` on, as Arrow's large_list of structs has them."""

    validity: Buffer | None
    offsets: Buffer
    first: int
    names: Strings
    values: Strings


class Rows(NamedTuple):
    """Columns to be written as records. Priorities are int8 and -1 for none; times are int64 in milliseconds."""

    length: int
    keys: Strings | None
    values: Strings | None
    headers: Lists | None
    priorities: Buffer | None
    deliver_ats: Buffer | None  # -1 for none
    timestamps: Buffer | None  # NO_TIMESTAMP for that which the rest of the batch gets
    prefix: bytes  # before every value that is not null


def packed(numbers: array[int]) -> bytearray:
    return bytearray(numbers.tobytes())


class _RowReader:
    """The rows of columns, one by one."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def timestamp_delta(self, row: int, base_timestamp: int, usual_timestamp: int) -> int:
        times = self._rows.timestamps
        time_ms = NO_TIMESTAMP if times is None else _long_at(times, row)
        delta = (usual_timestamp if time_ms == NO_TIMESTAMP else time_ms) - base_timestamp
        if not -(2**63) <= delta < 2**63:
            raise ValueError(f"row {row}: its timestamp is too far from that of its batch")
        return delta

    def record(self, row: int) -> tuple[bytes | None, bytes | None, tuple[Header, ...]]:
        rows = self._rows
        key = None if rows.keys is None else _block_at(rows.keys, row, row)
        value = None if rows.values is None else _block_at(rows.values, row, row)
        if value is not None:
            value = rows.prefix + value
        headers = [] if rows.headers is None else _headers_at(rows.headers, row)
        if rows.priorities is not None:
            priority = memoryview(rows.priorities).cast("B").cast("b")[row]
            if priority >= 0:
                headers.append((PRIORITY_HEADER, b"%d" % priority))
        if rows.deliver_ats is not None:
            due_ms = _long_at(rows.deliver_ats, row)
            if due_ms >= 0:
                headers.append((DELIVER_AT_HEADER, b"%d" % due_ms))
        return key, value, tuple(headers)


def _long_at(numbers: Buffer, at: int) -> int:
    (number,) = _LONG.unpack_from(numbers, at * _LONG.size)
    return int(number)


def _is_valid(validity: Buffer | None, at: int) -> bool:
    return validity is None or bool(memoryview(validity).cast("B")[at >> 3] >> (at & 7) & 1)


def _ends_at(offsets: Buffer, at: int) -> tuple[int, int]:
    start, end = _LONGS.unpack_from(offsets, at * _LONG.size)
    return start, end


def _block_at(strings: Strings, index: int, row: int) -> bytes | None:
    at = strings.first + index
    if not _is_valid(strings.validity, at):
        return None
    start, end = _ends_at(strings.offsets, at)
    if not 0 <= start <= end <= len(strings.data):
        raise ValueError(f"row {row}: its bytes lie outside of their buffer")
    return bytes(strings.data[start:end])


def _headers_at(lists: Lists, row: int) -> list[Header]:
    at = lists.first + row
    if not _is_valid(lists.validity, at):
        return []
    start, end = _ends_at(lists.offsets, at)
    if not 0 <= start <= end <= min(lists.names.length, lists.values.length):
        raise ValueError(f"row {row}: its headers lie outside of their buffer")
    headers: list[Header] = []
    for index in range(start, end):
        name = _block_at(lists.names, index, row)
        if name is None:
            raise ValueError(f"row {row}: a header has no name")
        headers.append((name.decode(), _block_at(lists.values, index, row)))
    return headers


def _check(rows: Rows) -> None:
    """That the buffers have what they should: the compiled twin would read outside of them."""
    strings_columns = [strings for strings in (rows.keys, rows.values) if strings is not None]
    if rows.length < 0 or any(strings.length < rows.length for strings in strings_columns):
        raise ValueError("a column is shorter than the rows")
    if rows.headers is not None:
        strings_columns += (rows.headers.names, rows.headers.values)
        _check_ends(rows.headers.validity, rows.headers.offsets, rows.headers.first, rows.length)
    for strings in strings_columns:
        _check_ends(strings.validity, strings.offsets, strings.first, strings.length)
    for numbers, width in ((rows.priorities, 1), (rows.deliver_ats, 8), (rows.timestamps, 8)):
        if numbers is not None and memoryview(numbers).nbytes < rows.length * width:
            raise ValueError("a column is shorter than the rows")


def _check_ends(validity: Buffer | None, offsets: Buffer, first: int, count: int) -> None:
    if first < 0 or count < 0 or memoryview(offsets).nbytes < (first + count + 1) * 8:
        raise ValueError("a column is shorter than the rows")
    if validity is not None and memoryview(validity).nbytes * 8 < first + count:
        raise ValueError("a column is shorter than the rows")


def encode_columns_in_python(
    rows: Rows, picked: Buffer, base_timestamp: int, usual_timestamp: int, /
) -> bytes:
    """The picked rows (int64 indices) as a payload, with offset deltas from 0 up.

    Priority and time of delivery become headers behind the row's own."""
    _check(rows)
    reader = _RowReader(rows)
    out: list[bytes] = []
    size_bytes = 0
    for offset_delta in range(memoryview(picked).nbytes // _LONG.size):
        row = _long_at(picked, offset_delta)
        if not 0 <= row < rows.length:
            raise ValueError(f"there is no row {row}; there are {rows.length}")
        timestamp_delta = reader.timestamp_delta(row, base_timestamp, usual_timestamp)
        key, value, headers = reader.record(row)
        out.append(encode_row((offset_delta, timestamp_delta, key, value, headers)))
        size_bytes += len(out[-1])
        if size_bytes > PAYLOAD_BYTES_MAX:
            raise ValueError(f"the rows take more than the {PAYLOAD_BYTES_MAX} bytes that a batch can have")
    return b"".join(out)


def record_sizes_in_python(rows: Rows, /) -> bytearray:
    """The most bytes that each row takes as a record of any batch (int64)."""
    _check(rows)
    reader = _RowReader(rows)
    sizes = array("q")
    for row in range(rows.length):
        key, value, headers = reader.record(row)
        record = encode_row((0, 0, key, value, headers))
        sizes.append(len(record) - _length_bytes(record) - 2 + _DELTAS_BYTES_MAX)  # each delta took one byte
    return packed(sizes)


def _length_bytes(record: bytes) -> int:
    return next(at + 1 for at, byte in enumerate(record) if byte < 128)


def partitions_of_in_python(keys: Strings, partitioner: str, count: int, /) -> bytearray:
    """The partition of each key (int32); -1 where it is null."""
    _check_ends(keys.validity, keys.offsets, keys.first, keys.length)
    if not 1 <= count < 2**31:
        raise ValueError(f"a topic cannot have {count} partitions")
    hash_name = Partitioner(partitioner)
    found = array("i")
    for row in range(keys.length):
        key = _block_at(keys, row, row)
        found.append(-1 if key is None else partition_for_key(hash_name, key, count))
    return packed(found)


# GOQUEUE_PURE_PYTHON turns the compiled twin off, for tests and for ruling it out when something is odd.
try:
    if os.environ.get("GOQUEUE_PURE_PYTHON"):
        raise ImportError
    from goqueue.log import _columns

    encode_columns = _columns.encode_columns
    record_sizes = _columns.record_sizes
    partitions_of = _columns.partitions_of
    IS_COMPILED = True
except ImportError:
    encode_columns = encode_columns_in_python
    record_sizes = record_sizes_in_python
    partitions_of = partitions_of_in_python
    IS_COMPILED = False
