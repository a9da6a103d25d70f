"""Rows of Arrow columns as batches: what is written decodes to the same, from every type that people have."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.records import BLOCKS

from goqueue.log.batch import decode_batch, read_header, validate_new
from goqueue.log.compression import Codec
from goqueue.model.partitioner import Partitioner, partition_for_key
from goqueue.model.record import Header, Producer, StoredRecord
from goqueue.pipeline.arrow.decode import SpanDecoder
from goqueue.pipeline.arrow.encode import (
    BATCH_OVERHEAD_BYTES,
    SinkRows,
    encode_rows,
    partition_of_keys,
    record_sizes,
)
from goqueue.pipeline.columns import HEADERS
from goqueue.pipeline.errors import BadRow, PipelineError
from goqueue.pipeline.span import Chunk, Span

NOW_MS = 1_700_000_000_000


def encoded(rows: SinkRows, picked: list[int] | None = None, *, codec: Codec = Codec.NONE) -> bytes:
    indices = np.arange(rows.count) if picked is None else np.array(picked, np.int64)
    return encode_rows(rows, indices, codec=codec, producer=None, is_transactional=False, timestamp_ms=NOW_MS)


def written(
    table: pa.RecordBatch | pa.Table, picked: list[int] | None = None, **options: Any
) -> list[StoredRecord]:
    batch = encoded(SinkRows.of(table, **options), picked)
    return list(decode_batch(batch, validate_new(batch, 2**30)))


def headers_of(table: pa.RecordBatch | pa.Table) -> list[tuple[Header, ...]]:
    return [record.headers for record in written(table)]


# ---------------------------------------------------------------- types


@pytest.mark.parametrize(
    "kind",
    [
        pa.binary(),
        pa.string(),
        pa.large_binary(),
        pa.large_string(),
        pa.binary_view(),
        pa.string_view(),
        pa.dictionary(pa.int32(), pa.string()),
        pa.binary(2),
    ],
    ids=str,
)
def test_keys_and_values_are_taken_from_any_column_of_bytes_or_text(kind: pa.DataType) -> None:
    column = pa.array(["aa", None, "bb", "cc"]).cast(kind)
    for table, expected in (
        (pa.record_batch({"key": column, "value": column}), [b"aa", None, b"bb", b"cc"]),
        (pa.record_batch({"key": column, "value": column}).slice(1, 2), [None, b"bb"]),
        (pa.table({"key": column, "value": column}).slice(2), [b"bb", b"cc"]),
    ):
        found = written(table)
        assert [record.key for record in found] == expected
        assert [record.value for record in found] == expected


def test_columns_in_chunks_are_taken_as_one() -> None:
    half = pa.table(
        {
            "key": ["a", None],
            "headers": pa.array([[{"key": "h", "value": b"1"}], None], HEADERS),
            "priority": [1, None],
            "deliver_at": pa.array([5, None], pa.timestamp("ms")),
            "timestamp": pa.array([7, None]),
        }
    )
    whole = pa.concat_tables([half, half.slice(1), half])
    assert whole.column(0).num_chunks == 3
    first = StoredRecord(0, 7, b"a", None, (("h", b"1"), ("gq-priority", b"1"), ("gq-deliver-at", b"5")))
    none = StoredRecord(0, NOW_MS, None, None)
    expected = [first, none, none, first, none]
    found = written(whole)
    assert [(record.timestamp_ms, record.key, record.headers) for record in found] == [
        (record.timestamp_ms, record.key, record.headers) for record in expected
    ]


@pytest.mark.parametrize(
    "kind",
    [
        HEADERS,
        pa.large_list(pa.struct([("key", pa.large_string()), ("value", pa.large_binary())])),
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())])),
        pa.list_(pa.struct([("value", pa.binary()), ("key", pa.string())])),
        pa.map_(pa.string(), pa.binary()),
        pa.map_(pa.string(), pa.string()),
    ],
    ids=str,
)
def test_headers_are_taken_from_lists_of_structs_and_from_maps(kind: pa.DataType) -> None:
    rows: list[Any] = [[("a", b"1"), ("b", None)], None, [], [("c", b"")]]
    if not pa.types.is_map(kind):
        rows = [row and [{"key": name, "value": value} for name, value in row] for row in rows]
    column = pa.array(rows, kind)
    expected = [(("a", b"1"), ("b", None)), (), (), (("c", b""),)]
    assert headers_of(pa.record_batch({"headers": column})) == expected
    assert headers_of(pa.record_batch({"headers": column}).slice(1)) == expected[1:]


def test_columns_of_nothing_but_null_are_taken_as_such() -> None:
    names = ["key", "value", "headers", "priority", "deliver_at", "timestamp"]
    found = written(pa.record_batch({name: pa.nulls(2) for name in names}))
    assert found == [StoredRecord(at, NOW_MS, None, None) for at in range(2)]


def test_columns_that_are_not_the_sinks_are_passed_by() -> None:
    found = written(pa.record_batch({"value": ["x"], "topic": ["t"], "price": [1.5]}))
    assert found == [StoredRecord(0, NOW_MS, None, b"x")]


@pytest.mark.parametrize(
    ("column", "kind", "right"),
    [
        ("key", pa.int32(), "binary or a string"),
        ("value", pa.float64(), "binary or a string"),
        ("headers", pa.string(), "array<struct<key: string, value: binary>> or map<string, binary>"),
        (
            "headers",
            pa.list_(pa.string()),
            "array<struct<key: string, value: binary>> or map<string, binary>",
        ),
        ("headers", pa.list_(pa.struct([("name", pa.string())])), "array<struct<key: string"),
        ("headers", pa.map_(pa.string(), pa.int32()), "array<struct<key: string"),
        ("priority", pa.string(), "an integer, 0 to 4"),
        ("deliver_at", pa.float64(), "a timestamp, RFC 3339 text or milliseconds"),
        ("timestamp", pa.string(), "a timestamp or milliseconds"),
    ],
    ids=str,
)
def test_column_of_a_wrong_type_is_refused_by_name(column: str, kind: pa.DataType, right: str) -> None:
    with pytest.raises(PipelineError) as caught:
        SinkRows.of(pa.record_batch({column: pa.nulls(1, kind)}))
    assert f"column {column} is of type {kind}; it must be {right}" in str(caught.value)


# ---------------------------------------------------------------- priorities, times, prefixes


@pytest.mark.parametrize("kind", [pa.int8(), pa.int32(), pa.int64(), pa.uint64()], ids=str)
def test_priority_becomes_a_header_behind_the_rows_own(kind: pa.DataType) -> None:
    own = pa.array([[{"key": "gq-priority", "value": b"9"}], [], []], HEADERS)
    found = headers_of(pa.record_batch({"headers": own, "priority": pa.array([0, 4, None], kind)}))
    assert found == [(("gq-priority", b"9"), ("gq-priority", b"0")), (("gq-priority", b"4"),), ()]


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([1_500, None]), b"1500"),
        (pa.array([1_500, None], pa.int32()), b"1500"),
        (pa.array([2, None], pa.timestamp("s")), b"2000"),
        (pa.array([1_500, None], pa.timestamp("ms", "Europe/Berlin")), b"1500"),
        (pa.array([1_500_001, None], pa.timestamp("us", "UTC")), b"1501"),
        (pa.array([1_500_000_000, None], pa.timestamp("ns")), b"1500"),
        (pa.array(["1970-01-01T01:00:01.5+01:00", None]), b"1500"),
        (pa.array(["1500", None], pa.large_string()), b"1500"),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
def test_due_time_becomes_a_header_in_milliseconds_rounded_up(column: pa.Array, expected: bytes) -> None:
    assert headers_of(pa.record_batch({"deliver_at": column})) == [(("gq-deliver-at", expected),), ()]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1_500, None]),
        pa.array([1_500_999, None], pa.timestamp("us", "UTC")),
        pa.array([1_500_999_999, None], pa.timestamp("ns")),
    ],
    ids=lambda column: str(column.type),
)
def test_record_keeps_its_own_timestamp_and_the_others_get_the_moment(column: pa.Array) -> None:
    table = pa.record_batch({"timestamp": column})
    assert [record.timestamp_ms for record in written(table)] == [1_500, NOW_MS]
    header = read_header(encoded(SinkRows.of(table)))
    assert (header.base_timestamp, header.max_timestamp) == (1_500, NOW_MS)


def test_schema_id_stands_before_every_value_that_is_not_null() -> None:
    found = written(pa.record_batch({"value": ["x", None]}), schema_id=258)
    assert [record.value for record in found] == [b"\x00\x00\x00\x01\x02x", None]
    for wrong in (-1, 2**31):
        with pytest.raises(PipelineError, match=f"schema id is {wrong}; it must be 0 to 2147483647"):
            SinkRows.of(pa.record_batch({"value": ["x"]}), schema_id=wrong)


# ---------------------------------------------------------------- rows that are wrong


@pytest.mark.parametrize(
    ("name", "column", "problem"),
    [
        ("priority", pa.array([5, 1]), "priority is 5; it must be 0 to 4"),
        ("priority", pa.array([-1, 1]), "priority is -1; it must be 0 to 4"),
        ("deliver_at", pa.array(["soon", "5"]), "the time of delivery is wrong"),
        ("deliver_at", pa.array(["1960-01-01T00:00:00Z", "5"]), "it must be 1970 or later"),
        ("deliver_at", pa.array([-1, 5]), "deliver_at is -1 ms; it must be 0 to 999999999999999 since 1970"),
        ("deliver_at", pa.array([10**15, 5]), "deliver_at is 1000000000000000 ms"),
        ("deliver_at", pa.array([-1, 5], pa.timestamp("ms")), "deliver_at is -1 ms"),
        ("timestamp", pa.array([2**63 - 1, 5]), "timestamp is 9223372036854775807 ms"),
        ("timestamp", pa.array([-(2**63), 5]), "timestamp is -9223372036854775808 ms"),
        ("headers", pa.array([[{"key": None, "value": b"1"}], []], HEADERS), "a header has no name"),
        ("headers", pa.array([[{"key": "a", "value": b"1"}, None], []], HEADERS), "a header has no name"),
    ],
    ids=str,
)
def test_problem_of_a_row_is_noted_and_the_other_rows_can_be_written(
    name: str, column: pa.Array, problem: str
) -> None:
    for table, bad in (
        (pa.record_batch({name: column}), 0),
        (pa.record_batch({name: column}).slice(0, 1), 0),
    ):
        rows = SinkRows.of(table)
        assert list(rows.problems) == [bad]
        assert problem in rows.problems[bad]
        assert len(record_sizes(rows)) == rows.count
        with pytest.raises(BadRow, match="row 0: "):
            encoded(rows)
    rows = SinkRows.of(pa.record_batch({name: column}))
    batch = encoded(rows, [1])
    assert read_header(batch).record_count == 1
    assert SinkRows.of(pa.record_batch({name: column}).slice(1)).problems == {}


def test_row_whose_header_name_claims_to_be_text_and_is_none_is_noted() -> None:
    names = pa.array([b"\xff", b"name", b"\xfe"]).view(pa.string())
    structs = pa.StructArray.from_arrays([names, pa.array([b"1", b"2", b"3"])], ["key", "value"])
    rows = SinkRows.of(
        pa.record_batch({"headers": pa.ListArray.from_arrays([0, 1, 2, 2, 3], structs)}).slice(1)
    )
    assert rows.problems == {2: "a header's name is not UTF-8"}
    assert read_header(encoded(rows, [0, 1])).record_count == 2


def test_rows_that_are_not_there_and_batches_of_none_are_refused() -> None:
    rows = SinkRows.of(pa.record_batch({"value": ["x"], "timestamp": [5]}))
    for row in (1, -1):
        with pytest.raises(BadRow, match=f"there is no row {row}; there are 1"):
            encoded(rows, [0, row])
    with pytest.raises(ValueError, match="a batch has one record at least"):
        encoded(rows, [])


# ---------------------------------------------------------------- batches


@pytest.mark.parametrize("codec", list(Codec))
def test_batch_is_one_that_the_broker_takes(codec: Codec) -> None:
    rows = SinkRows.of(pa.record_batch({"key": ["a", "b", "c"], "value": ["x" * 500] * 3}))
    batch = encode_rows(
        rows,
        np.array([2, 0], np.int32),
        codec=codec,
        producer=Producer(9, 1, 40),
        is_transactional=True,
        timestamp_ms=NOW_MS,
    )
    header = validate_new(batch, 2**20)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 1, 40)
    assert (header.is_transactional, header.record_count, header.max_timestamp) == (True, 2, NOW_MS)
    assert [record.key for record in decode_batch(batch, header)] == [b"c", b"a"]


def test_sizes_are_the_most_that_a_record_takes() -> None:
    table = pa.record_batch({"value": [b"x" * size for size in (0, 1, 63, 64, 8_191, 8_192, 100_000)]})
    rows = SinkRows.of(table)
    for row, size in enumerate(record_sizes(rows).tolist()):
        taken = len(encoded(rows, [row])) - BATCH_OVERHEAD_BYTES
        assert taken <= size <= taken + 20
    assert record_sizes(SinkRows.of(table.slice(3, 2))).tolist() == record_sizes(rows).tolist()[3:5]
    assert len(record_sizes(SinkRows.of(table.slice(0, 0)))) == 0


TEXTS = st.one_of(st.none(), st.binary(max_size=20), BLOCKS)
HEADER_ROWS = st.one_of(
    st.none(), st.lists(st.fixed_dictionaries({"key": st.text(max_size=5), "value": BLOCKS}), max_size=3)
)
INSTANTS = st.one_of(st.none(), st.integers(0, 4_102_444_800_000))


@st.composite
def tables(draw: st.DrawFn) -> pa.RecordBatch:
    length = draw(st.integers(1, 8))

    def column(one: st.SearchStrategy[Any], kind: pa.DataType) -> pa.Array:
        return pa.array(draw(st.lists(one, min_size=length, max_size=length)), kind)

    sizes = st.sampled_from([pa.binary(), pa.large_binary()])
    return pa.record_batch(
        {
            "key": column(TEXTS, draw(sizes)),
            "value": column(TEXTS, draw(sizes)),
            "headers": column(HEADER_ROWS, HEADERS),
            "priority": column(st.one_of(st.none(), st.integers(0, 4)), pa.int8()),
            "deliver_at": column(INSTANTS, pa.timestamp("ms", "UTC")),
            "timestamp": column(INSTANTS, pa.timestamp("ms", "UTC")),
        }
    )


@given(tables(), st.sampled_from(list(Codec)), st.data())
@settings(max_examples=120, deadline=None)
def test_what_is_written_is_read_back_as_it_was(
    table: pa.RecordBatch, codec: Codec, data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, table.num_rows - 1))
    table = table.slice(start, data.draw(st.integers(1, table.num_rows - start)))
    picked = data.draw(st.lists(st.integers(0, table.num_rows - 1), min_size=1, max_size=10))
    rows = SinkRows.of(table)
    batch = encoded(rows, picked, codec=codec)
    if codec is Codec.NONE:
        assert len(batch) <= record_sizes(rows)[picked].sum() + BATCH_OVERHEAD_BYTES
    columns = ("key", "value", "headers", "priority", "deliver_at", "timestamp", "offset")
    (found,) = SpanDecoder(Span("t", 0, 0, len(picked)), columns, committed=True).decode([Chunk(batch)])
    given_rows = table.to_pylist()
    assert found.to_pylist() == [expected(given_rows[row], at) for at, row in enumerate(picked)]


def expected(row: dict[str, Any], offset: int) -> dict[str, Any]:
    headers = list(row["headers"] or [])
    if row["priority"] is not None:
        headers.append({"key": "gq-priority", "value": b"%d" % row["priority"]})
    if row["deliver_at"] is not None:
        at_ms = row["deliver_at"].timestamp() * 1_000
        headers.append({"key": "gq-deliver-at", "value": b"%d" % round(at_ms)})
    moment = datetime.fromtimestamp(NOW_MS / 1_000, UTC)
    return {
        **row,
        "headers": headers or None,
        "priority": 2 if row["priority"] is None else row["priority"],
        "timestamp": row["timestamp"] or moment,
        "offset": offset,
    }


# ---------------------------------------------------------------- partitions


@pytest.mark.parametrize("partitioner", list(Partitioner))
def test_partitions_of_keys_are_those_that_every_producer_finds(partitioner: Partitioner) -> None:
    keys = ["user-1", None, "", "a", "user-22"]
    expected_ = [-1 if key is None else partition_for_key(partitioner, key.encode(), 12) for key in keys]
    column = pa.array(keys)
    for given_ in (column, column.cast(pa.large_binary()), pa.chunked_array([column])):
        found = partition_of_keys(given_, partitioner, 12)
        assert (str(found.dtype), found.tolist()) == ("int32", expected_)
    assert partition_of_keys(column.slice(2), partitioner, 12).tolist() == expected_[2:]
    assert len(partition_of_keys(column.slice(5), partitioner, 12)) == 0
