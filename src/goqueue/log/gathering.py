"""Batches of records gathered into columns, in the buffers that Arrow lays down. No object is made per record where the C twin
was compiled.

Nothing here needs Arrow. Buffers are bytes in the machine's order, with offsets of 32 bits, so what is gathered at once has a
limit; validity is a bitmap with the low bit first, or None where nothing is null.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable
from typing import Protocol

from goqueue.log.batch import (
    ATTRIBUTE_LOG_APPEND_TIME,
    CHECKED_FROM,
    HEADER_BYTES,
    BatchHeader,
    frame_problem,
    read_header,
)
from goqueue.log.columns import TIMESTAMP_MS_MAX, Buffer, packed
from goqueue.log.records import Row, decode_records
from goqueue.model.delay import DELIVER_AT_HEADER, parse_deliver_at_ms
from goqueue.model.errors import InvalidDelay
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
# Replacing what is no UTF-8 can make three bytes of one, and 32-bit offsets have to hold them all.
GATHER_BYTES_MAX = 2**29

Parts = tuple[Buffer | None, ...]
Crc = Callable[[memoryview], int]


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

    def add_run(
        self,
        data: bytes | memoryview,
        position: int,
        lower: int,
        upper: int,
        rows_max: int,
        bytes_max: int,
        left_bits: int,
        crc: Crc | None,
        /,
    ) -> tuple[int, int]:
        """The records with offsets [lower, upper) of the batches at `position`, one batch behind the other; where it ends,
        and the offset behind the last batch that it took.

        It ends before the first batch that would make it more than so many rows or bytes, begins at `upper`, has one of these
        attributes, or is not sound: whatever is to be done or said about that one is left to the caller. `crc` is None where
        the checksums are known to be right."""

    def take(self) -> tuple[int, dict[str, Parts]]:
        """The count of rows, and each column's buffers:

        key, value and traceparent: validity, offsets, data; offset, timestamp, timestampType and priority: data;
        deliver_at and schema_id: validity, data; headers: validity (a record without headers has null) and offsets
        of the lists, offsets and data of the names, and validity, offsets and data of the values."""


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

    def add_run(
        self,
        data: bytes | memoryview,
        position: int,
        lower: int,
        upper: int,
        rows_max: int,
        bytes_max: int,
        left_bits: int,
        crc: Crc | None,
        /,
    ) -> tuple[int, int]:
        if not 0 <= position <= len(data):
            raise ValueError("the run begins outside of the bytes")
        view = memoryview(data)
        while (header := _frame(view, position)) is not None:
            if header.attributes & left_bits or header.base_offset >= upper:
                break
            batch = view[position : position + header.size]
            if header.end_offset > lower:
                if self.size_bytes + len(batch) - HEADER_BYTES > self._bytes_max:
                    break
                is_full = (
                    self.rows + header.record_count > rows_max or self.size_bytes + len(batch) > bytes_max
                )
                if (self.rows and is_full) or (crc is not None and crc(batch[CHECKED_FROM:]) != header.crc):
                    break
                try:
                    self._add_plain(batch, header, lower, upper)
                except ValueError:
                    break
                lower = header.end_offset
            position += header.size
        return position, lower

    def _add_plain(self, batch: memoryview, header: BatchHeader, lower: int, upper: int) -> None:
        if not header.record_count:
            return
        is_stamped = header.attributes & ATTRIBUTE_LOG_APPEND_TIME
        self.add(
            batch,
            HEADER_BYTES,
            header.record_count,
            header.last_offset_delta,
            header.base_offset,
            header.base_timestamp,
            header.max_timestamp if is_stamped else None,
            lower,
            upper,
        )

    def take(self) -> tuple[int, dict[str, Parts]]:
        count = len(self._rows)
        columns = {name: self._column(name) for name in self._names}
        self._start_anew()
        return count, columns

    def _column(self, name: str) -> Parts:
        match name:
            case "offset":
                return (packed(self._offsets),)
            case "timestamp":
                return (packed(self._timestamps),)
            case "timestampType":
                return (packed(self._types),)
            case "key":
                return _blocks([row[2] for row in self._rows])
            case "value":
                return _blocks([row[3] for row in self._rows])
            case "headers":
                return _header_parts([row[4] for row in self._rows])
            case "priority":
                return (packed(array("b", (_lane(row[4]) for row in self._rows))),)
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


def _frame(data: memoryview, position: int) -> BatchHeader | None:
    """The header of the batch at a position, if all of it is there and its fields can be."""
    if len(data) - position < HEADER_BYTES:
        return None
    header = read_header(data, position)
    if frame_problem(header) or header.size > len(data) - position or header.end_offset >= 2**63:
        return None
    return header


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


def _validity(blocks: list[bytes | None] | list[int | None]) -> bytearray | None:
    if None not in blocks:
        return None
    bitmap = bytearray((len(blocks) + 7) // 8)
    for at, block in enumerate(blocks):
        if block is not None:
            bitmap[at >> 3] |= 1 << (at & 7)
    return bitmap


def _numbers(code: str, numbers: list[int | None]) -> Parts:
    return _validity(numbers), packed(array(code, (number or 0 for number in numbers)))


def _blocks(blocks: list[bytes | None]) -> Parts:
    ends = array("i", [0])
    end = 0
    for block in blocks:
        end += len(block or b"")
        ends.append(end)
    return _validity(blocks), packed(ends), bytearray(b"".join(block or b"" for block in blocks))


def _header_parts(found: list[tuple[Header, ...]]) -> Parts:
    ends = array("i", [0])
    for headers in found:
        ends.append(ends[-1] + len(headers))
    _, name_ends, names = _blocks([name.encode() for headers in found for name, _ in headers])
    values = _blocks([value for headers in found for _, value in headers])
    return _validity([len(headers) or None for headers in found]), packed(ends), name_ends, names, *values


def gatherer(names: tuple[str, ...], bytes_max: int = GATHER_BYTES_MAX) -> Gatherer:
    """Of these columns; more than so many bytes of records must not be added before they are taken."""
    return _Gatherer(names, bytes_max, instant_us)


_Gatherer: Callable[[tuple[str, ...], int, Callable[[bytes], int | None]], Gatherer]

try:
    if os.environ.get("GOQUEUE_PURE_PYTHON"):
        raise ImportError
    from goqueue.log import _columns

    _Gatherer = _columns.Gatherer
except ImportError:
    _Gatherer = GathererInPython
