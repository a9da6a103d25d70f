"""Batches that other implementations build become the same rows, and they read what is written from rows."""

from __future__ import annotations

from typing import Any

import aiokafka.record.default_records
import numpy as np
import pyarrow as pa
import pytest
from tests.support import kafka_python

from goqueue.log.batch import read_header
from goqueue.log.compression import Codec
from goqueue.model.record import Producer
from goqueue.pipeline.arrow.decode import SpanDecoder
from goqueue.pipeline.arrow.encode import SinkRows, encode_rows
from goqueue.pipeline.columns import HEADERS
from goqueue.pipeline.span import Chunk, Span

# The libraries come without types, so what is taken from them is Any.
LIBRARIES: dict[str, Any] = {
    "aiokafka": aiokafka.record.default_records,
    "kafka-python": kafka_python.records,
}
EACH_PAIR = pytest.mark.parametrize(
    ("library", "codec"), [(library, codec) for library in LIBRARIES for codec in (Codec.NONE, Codec.GZIP)]
)
ROWS: list[dict[str, Any]] = [
    {
        "timestamp": 1_700_000_000_000,
        "key": b"key",
        "value": b"v" * 9_000,
        "headers": [("h", b"1"), ("h", None), ("ü", b"")],
    },
    {"timestamp": 1_700_000_000_500, "key": None, "value": b"", "headers": []},
    {"timestamp": 1_699_999_999_000, "key": b"", "value": None, "headers": []},
]


def table() -> pa.RecordBatch:
    pairs = [[{"key": name, "value": value} for name, value in row["headers"]] or None for row in ROWS]
    return pa.record_batch(
        {
            "key": [row["key"] for row in ROWS],
            "value": [row["value"] for row in ROWS],
            "headers": pa.array(pairs, HEADERS),
            "timestamp": [row["timestamp"] for row in ROWS],
        }
    )


@EACH_PAIR
def test_batch_of_another_implementation_becomes_the_same_rows(library: str, codec: Codec) -> None:
    builder = LIBRARIES[library].DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=2**20,
    )
    for offset, row in enumerate(ROWS):
        builder.append(offset, **row)
    chunk = Chunk(bytes(builder.build()))
    columns = ("timestamp", "key", "value", "headers")
    (found,) = SpanDecoder(Span("t", 0, 0, len(ROWS)), columns, committed=True).decode([chunk])
    given = table()
    assert found.column("timestamp").cast(pa.int64()).to_pylist() == [
        row["timestamp"] * 1_000 for row in ROWS
    ]
    for name in ("key", "value", "headers"):
        assert found.column(name).to_pylist() == given.column(name).to_pylist()


@EACH_PAIR
def test_other_implementations_read_the_batch_of_rows(library: str, codec: Codec) -> None:
    batch = encode_rows(
        SinkRows.of(table()),
        np.arange(len(ROWS)),
        codec=codec,
        producer=Producer(7, 1, 20),
        is_transactional=True,
        timestamp_ms=5,
    )
    there = LIBRARIES[library].DefaultRecordBatch(bytearray(batch))
    assert there.validate_crc()
    assert there.is_transactional
    assert there.producer_id == read_header(batch).producer_id == 7
    found = [
        {"timestamp": one.timestamp, "key": one.key, "value": one.value, "headers": list(one.headers)}
        for one in there
    ]
    assert found == ROWS
