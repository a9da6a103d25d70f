"""The payload of a batch: records with varint lengths and deltas (docs/format/record.md).

Encoding is Python: with the varints of small numbers in a table it costs about 0.4 us a record. Checking and
decoding are C where the module was compiled, and Python otherwise; the two behave the same.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from goqueue.model.record import Header, NewRecord

# offset delta, timestamp delta, key, value, headers
Row = tuple[int, int, bytes | None, bytes | None, tuple[Header, ...]]

_TABLE_SIZE = 8192
_NULL = b"\x01"  # the varint of -1
_ATTRIBUTES = b"\x00"


def encode_varint(number: int) -> bytes:
    """Zigzag, then seven bits a byte with the low ones first."""
    raw = (number << 1) ^ (number >> 63)
    out = bytearray()
    while raw > 127:
        out.append(raw & 127 | 128)
        raw >>= 7
    out.append(raw)
    return bytes(out)


_VARINTS = [encode_varint(number) for number in range(_TABLE_SIZE)]


def _varint(number: int) -> bytes:
    return _VARINTS[number] if 0 <= number < _TABLE_SIZE else encode_varint(number)


def encode_records(records: Sequence[NewRecord]) -> bytes:
    """Records that share one timestamp, with offset deltas from 0 up."""
    out: list[bytes] = []
    join = b"".join
    for delta, record in enumerate(records):
        key, value = record.key, record.value
        body = join(
            (
                b"\x00\x00",  # attributes, timestamp delta
                _VARINTS[delta] if delta < _TABLE_SIZE else encode_varint(delta),
                _NULL if key is None else _varint(len(key)) + key,
                _NULL if value is None else _varint(len(value)),
                b"" if value is None else value,
                _encode_headers(record.headers) if record.headers else b"\x00",
            )
        )
        out.append(_varint(len(body)))
        out.append(body)
    return join(out)


def encode_row(row: Row) -> bytes:
    """One record as it was decoded: what compaction writes back."""
    offset_delta, timestamp_delta, key, value, headers = row
    body = b"".join(
        (
            _ATTRIBUTES,
            _varint(timestamp_delta),
            _varint(offset_delta),
            _NULL if key is None else _varint(len(key)) + key,
            _NULL if value is None else _varint(len(value)) + value,
            _encode_headers(headers),
        )
    )
    return _varint(len(body)) + body


def _encode_headers(headers: tuple[Header, ...]) -> bytes:
    out = [_varint(len(headers))]
    for name, value in headers:
        encoded = name.encode()
        out += (_varint(len(encoded)), encoded)
        out += (_NULL,) if value is None else (_varint(len(value)), value)
    return b"".join(out)


class _Payload:
    """A cursor over the bytes; every method raises ValueError rather than pass the end."""

    __slots__ = ("data", "end", "position")

    def __init__(self, data: bytes | memoryview, position: int, end: int) -> None:
        self.data = data
        self.position = position
        self.end = end

    def varint(self) -> int:
        raw = shift = 0
        while True:
            if self.position >= self.end or shift > 63:
                raise ValueError
            byte = self.data[self.position]
            if shift == 63 and byte > 1:
                raise ValueError
            self.position += 1
            raw |= (byte & 127) << shift
            if byte < 128:
                return (raw >> 1) ^ -(raw & 1)
            shift += 7

    def block(self, *, least: int) -> bytes | None:
        length = self.varint()
        if not least <= length <= self.end - self.position:
            raise ValueError
        if length < 0:
            return None
        start = self.position
        self.position += length
        return bytes(self.data[start : self.position])


def _decode_record(payload: _Payload, previous: int, last: int) -> Row:
    reason = "its length does not fit the batch"
    try:
        length = payload.varint()
        if not 1 <= length <= payload.end - payload.position:
            raise ValueError
        body = _Payload(payload.data, payload.position + 1, payload.position + length)
        payload.position += length
        reason = "bad timestamp delta"
        timestamp_delta = body.varint()
        reason = "bad offset delta"
        offset_delta = body.varint()
        reason = "its offset delta is out of order or beyond the batch's last"
        if not previous < offset_delta <= last:
            raise ValueError
        reason = "bad key length"
        key = body.block(least=-1)
        reason = "bad value length"
        value = body.block(least=-1)
        headers = []
        reason = "bad header count"
        header_count = body.varint()
        if header_count < 0:
            raise ValueError
        for _ in range(header_count):
            reason = "bad header name"
            name = body.block(least=0) or b""
            reason = "bad header value"
            headers.append((name.decode(errors="replace"), body.block(least=-1)))
        reason = "its length does not match its content"
        if body.position != body.end:
            raise ValueError
    except ValueError:
        raise ValueError(reason) from None
    return offset_delta, timestamp_delta, key, value, tuple(headers)


def decode_records_in_python(
    data: bytes | memoryview,
    start: int,
    count: int,
    last_offset_delta: int,
    wanted: list[int] | None = None,
    /,
) -> list[Row]:
    """All of them, or those with these offset deltas, which rise. The others are checked all the same."""
    if not 0 <= start <= len(data):
        raise ValueError("the batch has no payload")
    payload = _Payload(data, start, len(data))
    rows: list[Row] = []
    previous = -1
    for index in range(count):
        try:
            row = _decode_record(payload, previous, last_offset_delta)
        except ValueError as error:
            raise ValueError(f"record {index}: {error}") from None
        rows.append(row)
        previous = row[0]
    if payload.position != payload.end:
        raise ValueError(f"bytes are left over after {count} records")
    if wanted is None:
        return rows
    picked = set(wanted)
    return [row for row in rows if row[0] in picked]


def check_records_in_python(
    data: bytes | memoryview, start: int, count: int, last_offset_delta: int, /
) -> int | None:
    """The largest timestamp delta, which the batch's header must agree with; None if there are no records.

    Offset deltas rise and end at or before the last, so `count` of them up to `count - 1` are exactly 0, 1, 2, ..."""
    rows = decode_records_in_python(data, start, count, last_offset_delta)
    return max((timestamp_delta for _, timestamp_delta, _, _, _ in rows), default=None)


def contains_in_python(data: bytes | memoryview, mark: bytes, /) -> bool:
    return mark in (data if isinstance(data, bytes) else bytes(data))


# GOQUEUE_PURE_PYTHON turns the compiled twin off, for tests and for ruling it out when something is odd.
try:
    if os.environ.get("GOQUEUE_PURE_PYTHON"):
        raise ImportError
    from goqueue.log import _kernel

    check_records = _kernel.check_records
    decode_records = _kernel.decode_records
    contains = _kernel.contains
    IS_COMPILED = True
except ImportError:
    check_records = check_records_in_python
    decode_records = decode_records_in_python
    contains = contains_in_python
    IS_COMPILED = False
