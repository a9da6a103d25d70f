"""Records as property tests draw them: every corner of the format, few bytes."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from goqueue.log.batch import MAGIC, NO_PRODUCER, BatchHeader, assemble
from goqueue.log.records import Row
from goqueue.model.record import Header, NewRecord

INT64 = st.integers(-(2**63), 2**63 - 1)
TIMESTAMPS = st.integers(0, 4_102_444_800_000)  # up to the year 2100
# 63, 64 and 8191, 8192 are where the varint of a length grows, and where the table of varints ends.
BLOCKS = st.one_of(
    st.none(),
    st.binary(max_size=12),
    st.sampled_from([0, 63, 64, 8_191, 8_192]).map(lambda size: b"x" * size),
)
HEADERS: st.SearchStrategy[tuple[Header, ...]] = st.lists(
    st.tuples(st.one_of(st.sampled_from(["", "h", "ü"]), st.text(max_size=4)), BLOCKS), max_size=3
).map(tuple)
NEW_RECORDS: st.SearchStrategy[list[NewRecord]] = st.lists(
    st.builds(NewRecord, BLOCKS, BLOCKS, HEADERS), min_size=1, max_size=5
)


@st.composite
def rows(draw: st.DrawFn, timestamp_deltas: st.SearchStrategy[int] = INT64) -> list[Row]:
    """Rows with rising offset deltas, gaps among them, as compaction leaves them."""
    steps = draw(st.lists(st.one_of(st.just(1), st.integers(1, 9_000)), min_size=1, max_size=5))
    found: list[Row] = []
    at = -1
    for step in steps:
        at += step
        found.append((at, draw(timestamp_deltas), draw(BLOCKS), draw(BLOCKS), draw(HEADERS)))
    return found


def assemble_new(
    payload: bytes,
    record_count: int,
    *,
    last_offset_delta: int | None = None,
    attributes: int = 0,
    timestamp_ms: int = 1_000,
) -> bytes:
    """A new batch with this payload, right or wrong, behind a header with a right checksum."""
    return assemble(
        BatchHeader(
            base_offset=0,
            length=0,
            leader_epoch=-1,
            magic=MAGIC,
            crc=0,
            attributes=attributes,
            last_offset_delta=record_count - 1 if last_offset_delta is None else last_offset_delta,
            base_timestamp=timestamp_ms,
            max_timestamp=timestamp_ms,
            producer_id=NO_PRODUCER,
            producer_epoch=-1,
            base_sequence=-1,
            record_count=record_count,
        ),
        payload,
    )


def rows_of(records: Sequence[NewRecord]) -> list[Row]:
    """What encoding these and decoding them again must give."""
    return [(at, 0, record.key, record.value, record.headers) for at, record in enumerate(records)]
