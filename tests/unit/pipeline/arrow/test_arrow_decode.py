"""The rows of a span: what a reader may see comes out, once and in order, whatever shape the batches have."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.records import NEW_RECORDS, TIMESTAMPS, assemble_new, rows

from goqueue.log.batch import (
    ATTRIBUTE_TRANSACTIONAL,
    PREFIX,
    build_batch,
    decode_batch,
    empty_batch,
    read_header,
    rebuild_batch,
    stamped,
)
from goqueue.log.compression import Codec, compress
from goqueue.log.control import encode_marker
from goqueue.log.records import Row, encode_row
from goqueue.model.record import NewRecord, Producer, StoredRecord
from goqueue.pipeline.arrow import decode as module
from goqueue.pipeline.arrow.decode import SpanDecoder
from goqueue.pipeline.columns import ALL_COLUMNS, KAFKA_COLUMNS, arrow_schema
from goqueue.pipeline.errors import DataLoss
from goqueue.pipeline.span import Aborted, Chunk, Span

CODECS = list(Codec)
RECORDS = [NewRecord(b"k%d" % at, b"v%d" % at) for at in range(3)]
WITH_HEADERS = (*KAFKA_COLUMNS, "headers")


def placed(batch: bytes, base_offset: int) -> bytes:
    """The batch as the leader has it."""
    return PREFIX.pack(base_offset, len(batch) - 12, 0) + batch[PREFIX.size :]


class Log:
    """Batches one behind the other."""

    def __init__(self) -> None:
        self.data = b""
        self.end = 0

    def append(self, batch: bytes) -> int:
        base, self.end = self.end, self.end + read_header(batch).last_offset_delta + 1
        self.data += placed(batch, base)
        return base

    def write(self, *values: bytes, producer_id: int | None = None) -> int:
        records = [NewRecord(None, value) for value in values]
        if producer_id is None:
            return self.append(build_batch(records, 1_000))
        producer = Producer(producer_id, 0, 0)
        return self.append(build_batch(records, 1_000, producer=producer, attributes=ATTRIBUTE_TRANSACTIONAL))

    def mark(self, producer_id: int, *, is_commit: bool) -> int:
        _, batch = encode_marker(producer_id, 0, is_commit=is_commit, coordinator_epoch=0, timestamp_ms=1_000)
        return self.append(batch)

    def span(self) -> Span:
        return Span("orders", 3, 0, self.end)


def decoded(
    chunks: Iterable[Chunk],
    span: Span,
    columns: tuple[str, ...] = ALL_COLUMNS,
    *,
    committed: bool = True,
    rows_max: int = 32_768,
) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for batch in SpanDecoder(span, columns, committed=committed, rows_max=rows_max).decode(chunks):
        batch.validate(full=True)
        assert batch.schema == arrow_schema(columns)
        assert 0 < batch.num_rows <= rows_max
        found += batch.to_pylist()
    return found


def values(log: Log, *aborted: Aborted, committed: bool = True) -> list[bytes]:
    rows_ = decoded([Chunk(log.data, aborted)], log.span(), ("value",), committed=committed)
    return [row["value"] for row in rows_]


def as_stored(row: dict[str, Any]) -> StoredRecord:
    headers = tuple((header["key"], header["value"]) for header in row["headers"] or ())
    return StoredRecord(row["offset"], row["timestamp"], row["key"], row["value"], headers)


def stored(rows_: pa.RecordBatch) -> list[StoredRecord]:
    """With timestamps as numbers: not all of them are in the calendar."""
    at = rows_.schema.get_field_index("timestamp")
    numbers = rows_.column(at).cast(pa.int64())
    plain = rows_.set_column(at, "timestamp", pa.array([us // 1_000 for us in numbers.to_pylist()]))
    return [as_stored(row) for row in plain.to_pylist()]


# ---------------------------------------------------------------- rows


@pytest.mark.parametrize("codec", CODECS)
def test_every_column_of_a_record_comes_out(codec: Codec) -> None:
    headers = (
        ("gq-priority", b"high"),
        ("gq-deliver-at", b"1700000000000"),
        ("traceparent", b"00-1"),
        ("x", None),
    )
    log = Log()
    log.write(b"before")
    log.append(build_batch([NewRecord(b"k", b"\x00\x00\x00\x00\x07!", headers)], 1_500, codec=codec))
    row = decoded([Chunk(log.data)], Span("orders", 3, 1, 2))[0]
    assert row["timestamp"].timestamp() == 1.5
    assert row["deliver_at"].timestamp() == 1_700_000_000
    assert {name: row[name] for name in ALL_COLUMNS if name not in ("timestamp", "deliver_at")} == {
        "key": b"k",
        "value": b"\x00\x00\x00\x00\x07!",
        "topic": "orders",
        "partition": 3,
        "offset": 1,
        "timestampType": 0,
        "headers": [{"key": name, "value": value} for name, value in headers],
        "priority": 1,
        "traceparent": "00-1",
        "schema_id": 7,
    }


@pytest.mark.parametrize(
    "columns", [("value",), ("topic", "partition"), ("headers", "key"), KAFKA_COLUMNS, ("offset", "topic")]
)
def test_columns_come_as_they_were_asked_for(columns: tuple[str, ...]) -> None:
    log = Log()
    log.write(b"a", b"b")
    assert [list(row) for row in decoded([Chunk(log.data)], log.span(), columns)] == [list(columns)] * 2


def test_log_append_time_is_the_time_and_is_said_so() -> None:
    log = Log()
    log.append(stamped(build_batch(RECORDS, 1_000), 9_000))
    log.append(build_batch(RECORDS[:1], 1_000))
    found = decoded([Chunk(log.data)], log.span())
    assert [(row["timestamp"].timestamp(), row["timestampType"]) for row in found] == [(9, 1)] * 3 + [(1, 0)]


@pytest.mark.parametrize("start", range(8))
@pytest.mark.parametrize("end", range(8))
def test_only_offsets_of_the_span_come_out(start: int, end: int) -> None:
    log = Log()
    for text in (b"ab", b"cde", b"fg"):
        log.write(*(bytes([byte]) for byte in text))
    found = decoded([Chunk(log.data)], Span("orders", 3, start, end), ("value",))
    assert b"".join(row["value"] for row in found) == b"abcdefg"[start:end]


def test_batches_that_come_again_give_their_rows_once() -> None:
    log = Log()
    for text in (b"a", b"b", b"c"):
        log.write(text)
    size = len(log.data) // 3
    chunks = [Chunk(log.data[: 2 * size]), Chunk(log.data[size:]), Chunk(b"")]
    assert [row["value"] for row in decoded(chunks, log.span(), ("value",))] == [b"a", b"b", b"c"]


def test_nothing_is_read_behind_the_span() -> None:
    log = Log()
    log.write(b"a")
    chunk = Chunk(log.data + placed(build_batch(RECORDS, 1_000), 1) + b"damage")

    def chunks() -> Iterable[Chunk]:
        yield chunk
        raise AssertionError("a second chunk was asked for")

    assert len(decoded(chunks(), Span("orders", 3, 0, 1))) == 1


def test_empty_spans_batches_and_chunks_give_no_record_batch() -> None:
    assert decoded([], Span("orders", 3, 0, 5)) == []
    assert decoded([Chunk(b"")], Span("orders", 3, 0, 5)) == []
    gap = empty_batch(0, 9, leader_epoch=0, timestamp_ms=5)
    assert decoded([Chunk(gap)], Span("orders", 3, 0, 10)) == []
    rest = placed(build_batch(RECORDS, 1_000), 10)
    assert [row["offset"] for row in decoded([Chunk(gap + rest)], Span("orders", 3, 0, 13))] == [10, 11, 12]


def test_rows_are_cut_into_record_batches_of_the_size_asked_for() -> None:
    log = Log()
    for count in (1, 2, 9, 1):
        log.write(*(b"%d" % at for at in range(count)))
    decoder = SpanDecoder(log.span(), ("offset", "value"), committed=True, rows_max=4)
    batches = list(decoder.decode([Chunk(log.data)]))
    assert [batch.num_rows for batch in batches] == [3, 4, 4, 1, 1]
    assert [row["offset"] for batch in batches for row in batch.to_pylist()] == list(range(13))


def test_record_batches_hold_about_as_many_bytes_as_they_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DATA_BYTES_MAX", 1_000)
    log = Log()
    for size in (300, 300, 300, 300):
        log.write(b"x" * size)
    records = [NewRecord(b"k" * 300, b"v" * 300, (("n" * 100, b"w" * 100),)) for _ in range(4)]
    log.append(build_batch([*records, NewRecord(None, b"x" * 5_000), *records[:1]], 1_000, codec=Codec.ZSTD))
    decoder = SpanDecoder(log.span(), WITH_HEADERS, committed=True)
    batches = list(decoder.decode([Chunk(log.data)]))
    assert [batch.num_rows for batch in batches] == [3, 1, 1, 1, 1, 1, 1, 1]
    assert [row["offset"] for batch in batches for row in batch.to_pylist()] == list(range(10))


@pytest.mark.parametrize("rows_max", [0, -1, 1_000_001])
def test_limit_of_rows_that_cannot_be_is_refused(rows_max: int) -> None:
    with pytest.raises(ValueError, match=f"rows_max is {rows_max}; it must be 1 to 1000000"):
        SpanDecoder(Span("orders", 3, 0, 1), ("key",), committed=True, rows_max=rows_max)


@st.composite
def batches_of(draw: st.DrawFn) -> list[bytes]:
    """New ones, compacted ones and empty ones, at rising offsets."""
    found: list[bytes] = []
    base = draw(st.integers(0, 50))
    for _ in range(draw(st.integers(0, 4))):
        codec = draw(st.sampled_from(CODECS))
        kind = draw(st.sampled_from(["new", "gaps", "compacted", "empty"]))
        if kind == "new":
            batch = build_batch(draw(NEW_RECORDS), draw(TIMESTAMPS), codec=codec)
        elif kind == "empty":
            batch = empty_batch(0, draw(st.integers(0, 9)), leader_epoch=0, timestamp_ms=5)
        else:
            kept = draw(rows(st.integers(-1_000, 1_000)))
            payload = compress(codec, b"".join(map(encode_row, kept)))
            last = kept[-1][0] + draw(st.integers(0, 3))
            batch = assemble_new(
                payload, len(kept), last_offset_delta=last, attributes=codec, timestamp_ms=draw(TIMESTAMPS)
            )
            if kind == "compacted":
                picked: list[Row] = [row for row in kept if draw(st.booleans())]
                batch = rebuild_batch(
                    read_header(batch), picked, delete_horizon_ms=draw(st.sampled_from([None, 5]))
                )
        if draw(st.booleans()) and kind == "new":
            batch = stamped(batch, draw(TIMESTAMPS))
        found.append(placed(batch, base))
        base = read_header(found[-1]).end_offset
    return found


@given(batches_of(), st.data())
@settings(max_examples=150, deadline=None)
def test_rows_are_those_that_the_logs_own_decoder_gives(batches: list[bytes], data: st.DataObject) -> None:
    end = read_header(batches[-1]).end_offset if batches else 10
    span = Span("t", 0, data.draw(st.integers(0, end)), data.draw(st.integers(0, end + 2)))
    cut = data.draw(st.integers(0, len(batches)))
    chunks = [Chunk(b"".join(batches[:cut])), Chunk(memoryview(b"".join(batches[cut:])))]
    decoder = SpanDecoder(
        span, WITH_HEADERS, committed=data.draw(st.booleans()), rows_max=data.draw(st.integers(1, 9))
    )
    found = [record for batch in decoder.decode(chunks) for record in stored(batch)]
    expected = [record for batch in batches for record in decode_batch(batch, read_header(batch))]
    assert found == [record for record in expected if span.start <= record.offset < span.end]


# ---------------------------------------------------------------- transactions


def test_aborted_transactions_are_left_out_and_markers_never_come_out() -> None:
    log = Log()
    log.write(b"plain")
    first = log.write(b"lost", producer_id=7)
    log.write(b"other", producer_id=8)
    log.write(b"idempotent only")
    log.write(b"lost, too", producer_id=7)
    log.mark(7, is_commit=False)
    log.write(b"kept", producer_id=7)
    log.mark(8, is_commit=True)
    log.mark(7, is_commit=True)
    seen = [b"plain", b"other", b"idempotent only", b"kept"]
    assert values(log, Aborted(7, first)) == seen
    everything = [b"plain", b"lost", b"other", b"idempotent only", b"lost, too", b"kept"]
    assert values(log, Aborted(7, first), committed=False) == everything


def test_producer_that_aborts_again_is_left_out_again() -> None:
    log = Log()
    aborted = []
    for round_ in range(4):
        first = log.write(b"%d" % round_, producer_id=7)
        log.mark(7, is_commit=round_ % 2 == 1)
        if round_ % 2 == 0:
            aborted.append(Aborted(7, first))
    assert values(log, *reversed(aborted)) == [b"1", b"3"]


def test_transaction_over_several_chunks_is_left_out_of_each() -> None:
    log = Log()
    first = log.write(b"a", producer_id=7)
    cut = len(log.data)
    log.write(b"b", producer_id=7)
    log.mark(7, is_commit=False)
    log.write(b"c", producer_id=7)
    log.mark(7, is_commit=True)
    entry = (Aborted(7, first),)
    for told in ((entry, entry), (entry, ())):  # each chunk says it, or only the first
        chunks = [Chunk(log.data[:cut], told[0]), Chunk(log.data[cut:], told[1])]
        assert [row["value"] for row in decoded(chunks, log.span(), ("value",))] == [b"c"]


def test_span_that_starts_inside_an_aborted_transaction_leaves_out_its_rest() -> None:
    log = Log()
    first = log.write(b"a", producer_id=7)
    cut = len(log.data)
    start = log.write(b"b", producer_id=7)
    log.mark(7, is_commit=False)
    log.write(b"c", producer_id=7)
    chunk = Chunk(log.data[cut:], (Aborted(7, first),))
    assert [row["value"] for row in decoded([chunk], Span("t", 0, start, log.end), ("value",))] == [b"c"]


def test_marker_before_the_span_still_ends_its_transaction() -> None:
    log = Log()
    first = log.write(b"a", producer_id=7)
    log.mark(7, is_commit=False)
    start = log.write(b"b", producer_id=7)
    chunk = Chunk(log.data, (Aborted(7, first),))
    assert [row["value"] for row in decoded([chunk], Span("t", 0, start, log.end), ("value",))] == [b"b"]


# ---------------------------------------------------------------- damage


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda batch: flipped(batch, 70), "checksum is not the stated"),
        (lambda batch: flipped(batch, 16), "magic is 3, not 2"),
        (lambda batch: batch[:-1], "bytes; [0-9]+ are there"),
        (lambda batch: batch[:30], "a batch has at least 61 bytes; 30 are there"),
        (lambda batch: batch[:8] + bytes(4) + batch[12:], "length 0 is below"),
    ],
)
def test_damaged_batch_is_named(damage: Any, reason: str) -> None:
    log = Log()
    log.write(b"a", b"b")
    bad = damage(placed(build_batch(RECORDS, 1_000), 2))
    with pytest.raises(DataLoss, match=f"orders-3 is damaged in the batch at offset 2: .*{reason}"):
        decoded([Chunk(log.data + bad)], Span("orders", 3, 0, 5))


@pytest.mark.parametrize(
    ("payload", "attributes", "reason"),
    [
        (b"\x02\x00", 0, "record 0: bad timestamp delta"),
        (b"nonsense", Codec.ZSTD, "does not decompress as zstd"),
        (b"", 6, "compression codec 6 is unknown"),
        (compress(Codec.SNAPPY, b"\x02\x00"), Codec.SNAPPY, "record 0: bad timestamp delta"),
    ],
)
def test_batch_that_nobody_can_read_is_named(payload: bytes, attributes: int, reason: str) -> None:
    batch = assemble_new(payload, 1, attributes=attributes)
    with pytest.raises(DataLoss, match=f"orders-3 is damaged in the batch at offset 0: .*{reason}"):
        decoded([Chunk(batch)], Span("orders", 3, 0, 1))


def test_damage_outside_of_the_span_is_nobodys_concern() -> None:
    good = build_batch(RECORDS, 1_000)
    data = flipped(good, 70) + placed(good, 3) + flipped(placed(good, 6), 70)
    assert [row["offset"] for row in decoded([Chunk(data)], Span("orders", 3, 3, 6))] == [3, 4, 5]


@given(batches_of(), st.data())
@settings(max_examples=150, deadline=None)
def test_flipped_bit_is_found_or_does_not_matter(batches: list[bytes], data: st.DataObject) -> None:
    """The base offset and the epoch lie outside of the checksum."""
    whole = b"".join(batches)
    if not whole:
        return
    at = data.draw(st.integers(0, len(whole) - 1))
    bad = bytearray(whole)
    bad[at] ^= 1 << data.draw(st.integers(0, 7))
    span = Span("t", 0, 0, 2**40)
    try:
        found = decoded([Chunk(bytes(bad))], span, ("key", "value", "headers"))
    except DataLoss:
        return
    expected = decoded([Chunk(whole)], span, ("key", "value", "headers"))
    assert all(row in expected for row in found)
