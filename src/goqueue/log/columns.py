"""Records as columns, in the buffers that Arrow lays down: payloads of many batches gathered into columns, and rows of
columns written as the payload of one batch. No object is made per record where the C twin was compiled.

Nothing here needs Arrow. Buffers are bytes in the machine's order: offsets of 32 bits where columns are gathered (so
what is gathered at once has a limit) and of 64 bits where they are given; validity is a bitmap with the low bit first,
or None where nothing is null.
"""

from __future__ import annotations

import os
import struct
from array import array
from collections.abc import Callable
from typing import NamedTuple, Protocol

from goqueue.log.records import Row, decode_records, encode_row
from goqueue.model.delay import DELIVER_AT_HEADER, parse_deliver_at_ms
from goqueue.model.errors import InvalidDelay
from goqueue.model.partitioner import Partitioner, partition_for_key
from goqueue.model.priority import NORMAL, PRIORITY_HEADER, lane_of
from goqueue.model.record import Header

GATHERED = (
    "key",
    "value",
    "offset",
    "timestamp",
    "timestampType",
    "headers",
    "priority",
    "deliver_at",
    "traceparent",
    "schema_id",
)
TRACE_HEADER = "traceparent"
CREATE_TIME, LOG_APPEND_TIME = 0, 1
PAYLOAD_BYTES_MAX = 2**31 - 1 - 128  # the length of a batch is 32 bits with a sign
# Replacing what is no UTF-8 can make three bytes of one, and 32-bit offsets have to hold them all.
GATHER_BYTES_MAX = 2**29
NO_TIMESTAMP = -(2**63)
TIMESTAMP_MS_MAX = (2**63 - 1) // 1_000  # what microseconds can say
# The most that the fields of a record take whose size depends on its batch: length, timestamp and offset delta.
_DELTAS_BYTES_MAX = 5 + 10 + 5
_LONG = struct.Struct("q")
_LONGS = struct.Struct("qq")

Buffer = bytes | bytearray | memoryview
Parts = tuple[Buffer | None, ...]


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


class Gatherer(Protocol):
    """Takes the records of batch after batch; `take` gives the columns and starts anew."""

    @property
    def rows(self) -> int: ...

    @property
    def size_bytes(self) -> int:
        """Of the payloads that were added."""

    def add(
        self,
        payload: bytes | memoryview,
        start: int,
        count: int,
        last_offset_delta: int,
        base_offset: int,
        base_timestamp: int,
        append_timestamp: int | None,
        lower: int,
        upper: int,
        /,
    ) -> int:
        """The records with offsets [lower, upper) of a payload; how many they were. All of them are checked, and where
        one is wrong, ValueError names it and none is added."""

    def take(self) -> tuple[int, dict[str, Parts]]:
        """The count of rows, and each column's buffers:

        key, value and traceparent: validity, offsets, data; offset, timestamp, timestampType and priority: data;
        deliver_at and schema_id: validity, data; headers: offsets of the lists, offsets and data of the names, and
        validity, offsets and data of the values."""


def instant_us(text: bytes) -> int | None:
    """When the header gq-deliver-at says a record is due; None where it says nothing sensible."""
    try:
        return parse_deliver_at_ms(text.decode("utf-8", "replace")) * 1_000
    except InvalidDelay:
        return None


class GathererInPython:
    def __init__(
        self, names: tuple[str, ...], bytes_max: int, parse: Callable[[bytes], int | None], /
    ) -> None:
        for name in names:
            if name not in GATHERED:
                raise ValueError(f"records have no column {name!r}")
        if not 1 <= bytes_max <= GATHER_BYTES_MAX:
            raise ValueError(f"{bytes_max} bytes cannot be gathered; it must be 1 to {GATHER_BYTES_MAX}")
        self._names = tuple(name for name in GATHERED if name in names)
        self._bytes_max = bytes_max
        self._parse = parse
        self._start_anew()

    def _start_anew(self) -> None:
        self.size_bytes = 0
        self._rows: list[Row] = []
        self._offsets = array("q")
        self._timestamps = array("q")
        self._types = array("i")

    @property
    def rows(self) -> int:
        return len(self._rows)

    def add(
        self,
        payload: bytes | memoryview,
        start: int,
        count: int,
        last_offset_delta: int,
        base_offset: int,
        base_timestamp: int,
        append_timestamp: int | None,
        lower: int,
        upper: int,
        /,
    ) -> int:
        if not 0 <= start <= len(payload):
            raise ValueError("the batch has no payload")
        size_bytes = self.size_bytes + len(payload) - start
        if size_bytes > self._bytes_max:
            raise ValueError(
                f"{size_bytes} bytes of records are more than the {self._bytes_max} of one gathering"
            )
        if base_offset < 0 or base_offset + max(last_offset_delta, 0) >= 2**63:
            raise ValueError(f"offsets from {base_offset} to {last_offset_delta} behind it cannot be")
        found = decode_records(payload, start, count, last_offset_delta)
        wanted = [row for row in found if lower <= base_offset + row[0] < upper]
        for offset_delta, timestamp_delta, _, _, _ in wanted:
            time_ms = append_timestamp
            if time_ms is None:
                time_ms = base_timestamp + timestamp_delta
            self._offsets.append(base_offset + offset_delta)
            self._timestamps.append(max(-TIMESTAMP_MS_MAX, min(time_ms, TIMESTAMP_MS_MAX)) * 1_000)
            self._types.append(CREATE_TIME if append_timestamp is None else LOG_APPEND_TIME)
        self._rows += wanted
        self.size_bytes = size_bytes
        return len(wanted)

    def take(self) -> tuple[int, dict[str, Parts]]:
        count = len(self._rows)
        columns = {name: self._column(name) for name in self._names}
        self._start_anew()
        return count, columns

    def _column(self, name: str) -> Parts:
        match name:
            case "offset":
                return (_packed(self._offsets),)
            case "timestamp":
                return (_packed(self._timestamps),)
            case "timestampType":
                return (_packed(self._types),)
            case "key":
                return _blocks([row[2] for row in self._rows])
            case "value":
                return _blocks([row[3] for row in self._rows])
            case "headers":
                return _header_parts([row[4] for row in self._rows])
            case "priority":
                return (_packed(array("b", (_lane(row[4]) for row in self._rows))),)
            case "deliver_at":
                return _numbers("q", [self._due_us(row[4]) for row in self._rows])
            case "traceparent":
                return _blocks([_trace(row[4]) for row in self._rows])
            case _:
                return _numbers("i", [_schema_id(row[3]) for row in self._rows])

    def _due_us(self, headers: tuple[Header, ...]) -> int | None:
        for name, value in headers:
            if name == DELIVER_AT_HEADER:
                return self._parse(value or b"")
        return None


def _lane(headers: tuple[Header, ...]) -> int:
    for name, value in headers:
        if name == PRIORITY_HEADER:
            return lane_of(value)
    return NORMAL


def _trace(headers: tuple[Header, ...]) -> bytes | None:
    for name, value in headers:
        if name == TRACE_HEADER:
            return None if value is None else value.decode("utf-8", "replace").encode()
    return None


def _schema_id(value: bytes | None) -> int | None:
    """Of a value in the framing of schema registries: a zero byte, then the id."""
    if value is None or len(value) < 5 or value[0] != 0:
        return None
    return int.from_bytes(value[1:5], "big", signed=True)


def _packed(numbers: array[int]) -> bytearray:
    return bytearray(numbers.tobytes())


def _validity(blocks: list[bytes | None] | list[int | None]) -> bytearray | None:
    if None not in blocks:
        return None
    bitmap = bytearray((len(blocks) + 7) // 8)
    for at, block in enumerate(blocks):
        if block is not None:
            bitmap[at >> 3] |= 1 << (at & 7)
    return bitmap


def _numbers(code: str, numbers: list[int | None]) -> Parts:
    return _validity(numbers), _packed(array(code, (number or 0 for number in numbers)))


def _blocks(blocks: list[bytes | None]) -> Parts:
    ends = array("i", [0])
    end = 0
    for block in blocks:
        end += len(block or b"")
        ends.append(end)
    return _validity(blocks), _packed(ends), bytearray(b"".join(block or b"" for block in blocks))


def _header_parts(found: list[tuple[Header, ...]]) -> Parts:
    ends = array("i", [0])
    for headers in found:
        ends.append(ends[-1] + len(headers))
    _, name_ends, names = _blocks([name.encode() for headers in found for name, _ in headers])
    return _packed(ends), name_ends, names, *_blocks([value for headers in found for _, value in headers])


# ---------------------------------------------------------------- rows to records


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
    return _packed(sizes)


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
    return _packed(found)


def gatherer(names: tuple[str, ...], bytes_max: int = GATHER_BYTES_MAX) -> Gatherer:
    """Of these columns; more than so many bytes of records must not be added before they are taken."""
    return _Gatherer(names, bytes_max, instant_us)


_Gatherer: Callable[[tuple[str, ...], int, Callable[[bytes], int | None]], Gatherer]

# GOQUEUE_PURE_PYTHON turns the compiled twin off, for tests and for ruling it out when something is odd.
try:
    if os.environ.get("GOQUEUE_PURE_PYTHON"):
        raise ImportError
    from goqueue.log import _columns

    _Gatherer = _columns.Gatherer
    encode_columns = _columns.encode_columns
    record_sizes = _columns.record_sizes
    partitions_of = _columns.partitions_of
    IS_COMPILED = True
except ImportError:
    _Gatherer = GathererInPython
    encode_columns = encode_columns_in_python
    record_sizes = record_sizes_in_python
    partitions_of = partitions_of_in_python
    IS_COMPILED = False
