"""Records with the headers that columns are made of, as raw as a client may write them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hypothesis import strategies as st
from tests.support.records import BLOCKS, INT64

from goqueue.log.records import encode_varint


class RawRecord(NamedTuple):
    """Header names are bytes here: nobody promises that they are text."""

    offset_delta: int
    timestamp_delta: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[bytes, bytes | None]] = ()

    def encoded(self) -> bytes:
        body = b"\x00" + encode_varint(self.timestamp_delta) + encode_varint(self.offset_delta)
        body += _block(self.key) + _block(self.value) + encode_varint(len(self.headers))
        body += b"".join(_block(name) + _block(value) for name, value in self.headers)
        return encode_varint(len(body)) + body


def _block(block: bytes | None) -> bytes:
    return encode_varint(-1) if block is None else encode_varint(len(block)) + block


PRIORITIES = [
    None,
    b"",
    b"0",
    b"4",
    b"5",
    b"-1",
    b" 3\n",
    b"\x1cHIGH\x1f",
    b"Background ",
    b"critica",
    b"lo\xff",
    b"02",
]
INSTANTS = [
    None,
    b"",
    b"0",
    b" 1700000000123\t",
    b"999999999999999",
    b"1000000000000000",
    b"-5",
    b"2026-01-31T12:00:00Z",
    b"2026-01-31T12:00:00.0001+02:00",
    b"0001-01-01T00:00:00+23:59",
    b"9999-12-31T23:59:59.999999-23:59",
    b"20260131",
    b"tomorrow",
    "\u00a01700000000123\u2003".encode(),
    "\u0661\u0662".encode(),
    b"\xff1",
    b"1" * 80,
]
TRACES = [
    None,
    b"",
    b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    b"\xe2\x82 \xc3\x28",
    "ü".encode(),
]
SCHEMA_VALUES = [
    b"\x00",
    b"\x00\x00\x00\x00",
    b"\x00\x00\x00\x01\x02",
    b"\x00\xff\xff\xff\xff rest",
    b"\x01\x00\x00\x00\x05",
]

RAW_HEADERS: st.SearchStrategy[list[tuple[bytes, bytes | None]]] = st.lists(
    st.one_of(
        st.tuples(st.just(b"gq-priority"), st.sampled_from(PRIORITIES)),
        st.tuples(st.just(b"gq-deliver-at"), st.sampled_from(INSTANTS)),
        st.tuples(st.just(b"traceparent"), st.sampled_from(TRACES)),
        st.tuples(st.binary(max_size=6), BLOCKS),
    ),
    max_size=4,
)
VALUES = st.one_of(BLOCKS, st.sampled_from(SCHEMA_VALUES))


@st.composite
def raw_records(draw: st.DrawFn) -> list[RawRecord]:
    """With rising offset deltas and gaps, as compaction leaves them; perhaps none."""
    found: list[RawRecord] = []
    at = -1
    for step in draw(st.lists(st.one_of(st.just(1), st.integers(1, 200)), max_size=6)):
        at += step
        deltas = st.one_of(st.integers(-5, 5), INT64)
        found.append(RawRecord(at, draw(deltas), draw(BLOCKS), draw(VALUES), draw(RAW_HEADERS)))
    return found


@st.composite
def damaged(draw: st.DrawFn, payload: bytes) -> bytes:
    """Some bytes replaced, put in or cut out."""
    data = bytearray(payload)
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(data)))
        data[at : at + draw(st.integers(0, 3))] = draw(
            st.one_of(
                st.binary(max_size=3),
                st.sampled_from([b"\x80" * 9 + b"\x02", b"\xfe" + b"\xff" * 8 + b"\x01"]),
            )
        )
    return bytes(data)
