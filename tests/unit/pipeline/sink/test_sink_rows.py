"""Columns of a frame that is written."""

from __future__ import annotations

import pyarrow as pa
import pytest

from goqueue.pipeline.errors import PipelineError
from goqueue.pipeline.sink.rows import check_columns, column_of, joined

ALL = [
    ("key", "string"),
    ("value", "binary"),
    ("headers", "array<struct<key:string,value:binary>>"),
    ("topic", "string"),
    ("partition", "int"),
    ("priority", "tinyint"),
    ("deliver_at", "timestamp"),
    ("timestamp", "timestamp"),
]


def test_all_columns_are_taken_in_any_order_and_case() -> None:
    shouted = [(name.upper(), type) for name, type in reversed(ALL)]
    assert check_columns(shouted, has_topic_option=False) == tuple(name for name, _ in reversed(ALL))


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ([("value", "string"), ("offset", "bigint"), ("id", "int")], "columns 'offset', 'id' that a topic"),
        ([("valeu", "string")], "did you mean value"),
        ([("key", "string")], "no column 'value'"),
        ([("value", "int")], "'value' is of type int; it must be binary or string"),
        ([("value", "string"), ("Value", "string")], "'value' more than once"),
        ([("value", "string"), ("priority", "string")], "'priority' is of type string"),
        ([("value", "string"), ("headers", "map<string,int>")], "'headers' is of type map<string,int>"),
        ([("value", "string"), ("deliver_at", "timestamp_ntz")], "must be timestamp: cast it"),
    ],
)
def test_column_that_cannot_be_written_is_named(columns: list[tuple[str, str]], said: str) -> None:
    with pytest.raises(PipelineError, match=said):
        check_columns(columns, has_topic_option=True)


def test_rows_need_a_topic_from_somewhere() -> None:
    assert check_columns([("value", "string")], has_topic_option=True) == ("value",)
    with pytest.raises(PipelineError, match="where to"):
        check_columns([("value", "string")], has_topic_option=False)


def test_batches_are_joined_in_the_types_that_are_written() -> None:
    parts = [pa.record_batch({"K": ["a", None], "V": ["1", "2"]}), pa.record_batch({"K": ["b"], "V": ["3"]})]
    batch = joined(parts, ("key", "value"))
    assert batch.to_pydict() == {"key": [b"a", None, b"b"], "value": [b"1", b"2", b"3"]}
    assert batch.schema.types == [pa.binary(), pa.binary()]


@pytest.mark.parametrize("kind", ["binary", "string"])
def test_headers_may_be_a_map(kind: str) -> None:
    columns = [("value", "string"), ("headers", f"map<string,{kind}>")]
    names = check_columns(columns, has_topic_option=True)
    values = pa.binary() if kind == "binary" else pa.string()
    maps = pa.array([[("a", "1"), ("b", None)], None, []], pa.map_(pa.string(), values))
    batch = joined([pa.record_batch({"value": ["1", "2", "3"], "headers": maps})], names)
    assert batch.column(1).to_pylist() == [
        [{"key": "a", "value": b"1"}, {"key": "b", "value": None}],
        None,
        [],
    ]


def test_column_of_nulls_counts_as_none() -> None:
    batch = pa.record_batch({"key": pa.nulls(2, pa.binary()), "value": [b"1", b"2"]})
    assert column_of(batch, "key") is None
    assert column_of(batch, "topic") is None
    assert column_of(batch, "value") is not None
