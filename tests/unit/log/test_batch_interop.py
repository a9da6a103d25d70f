"""Batches of other implementations decode here, and ours decode there. librdkafka's, which has no builder to
call, are captured off the wire in tests/integration/test_librdkafka_batches.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import aiokafka.codec
import aiokafka.record.default_records
import pytest
from tests.support import kafka_python
from tests.support.logs import Timed, timed_batch

from goqueue.log.batch import (
    build_batch,
    decode_batch,
    decode_rows,
    empty_batch,
    read_header,
    rebuild_batch,
    stamped,
    validate_new,
)
from goqueue.log.compression import Codec, codec_of
from goqueue.model.record import NewRecord, Producer

BYTES_MAX = 1024 * 1024
RECORDS: list[Timed] = [
    (1_700_000_000_000, b"key", b"a value that repeats itself " * 30, (("h", b"1"), ("h", None), ("ü", b""))),
    (1_700_000_000_500, None, b"", ()),
    (1_699_999_999_000, b"", None, ()),
    (1_700_000_000_001, b"k" * 100, b"v" * 9_000, ()),
]
# The libraries come without types, so what is taken from them is Any.
CODEC_MODULES: dict[str, Any] = {"aiokafka": aiokafka.codec, "kafka-python": kafka_python.codec}
RECORD_MODULES: dict[str, Any] = {
    "aiokafka": aiokafka.record.default_records,
    "kafka-python": kafka_python.records,
}
EACH_PAIR = pytest.mark.parametrize(
    ("library", "codec"),
    [(library, codec) for library in RECORD_MODULES for codec in Codec],
    ids=lambda value: value.name.lower() if isinstance(value, Codec) else value,
)


def require(library: str, codec: Codec) -> None:
    if codec is Codec.NONE:
        return
    has_codec: Callable[[], bool] = getattr(CODEC_MODULES[library], f"has_{codec.name.lower()}")
    if not has_codec():
        assert codec is not Codec.GZIP, "gzip is in the standard library"
        pytest.skip(f"{library}: Libraries for {codec.name.lower()} compression codec not found")


def decode_there(library: str, batch: bytes) -> list[Timed]:
    """The records as the library reads them, once it has found the checksum right."""
    there = RECORD_MODULES[library].DefaultRecordBatch(bytearray(batch))
    assert there.validate_crc()
    return [
        (record.timestamp, record.key, record.value, tuple((name, value) for name, value in record.headers))
        for record in there
    ]


def decode_here(batch: bytes) -> list[Timed]:
    found = decode_batch(batch, validate_new(batch, BYTES_MAX))
    return [(record.timestamp_ms, record.key, record.value, record.headers) for record in found]


@EACH_PAIR
def test_batch_of_the_library_is_accepted_and_decodes(library: str, codec: Codec) -> None:
    require(library, codec)
    builder = RECORD_MODULES[library].DefaultRecordBatchBuilder(
        magic=2,
        compression_type=int(codec),
        is_transactional=False,
        producer_id=77,
        producer_epoch=3,
        base_sequence=5,
        batch_size=BYTES_MAX,
    )
    for offset, (timestamp, key, value, headers) in enumerate(RECORDS):
        assert builder.append(offset, timestamp=timestamp, key=key, value=value, headers=list(headers))
    batch = bytes(builder.build())
    header = validate_new(batch, BYTES_MAX)
    assert codec_of(header.attributes) is codec
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (77, 3, 5)
    assert (header.base_timestamp, header.max_timestamp) == (RECORDS[0][0], RECORDS[1][0])
    assert decode_here(batch) == RECORDS


@EACH_PAIR
def test_batch_of_ours_decodes_in_the_library(library: str, codec: Codec) -> None:
    require(library, codec)
    new = [NewRecord(key, value, headers) for _, key, value, headers in RECORDS]
    batch = build_batch(new, 1_700_000_000_000, codec=codec, producer=Producer(77, 3, 5))
    assert decode_there(library, batch) == [(1_700_000_000_000, *record[1:]) for record in RECORDS]
    assert decode_there(library, timed_batch(RECORDS, codec=codec)) == RECORDS


@EACH_PAIR
def test_rewritten_batch_of_ours_decodes_in_the_library(library: str, codec: Codec) -> None:
    require(library, codec)
    batch = timed_batch(RECORDS, codec=codec)
    assert decode_there(library, stamped(batch, 9_000)) == [(9_000, *record[1:]) for record in RECORDS]
    rows = decode_rows(batch, read_header(batch))
    kept = rebuild_batch(read_header(batch), rows[1:], delete_horizon_ms=1_700_000_100_000)
    assert decode_there(library, kept) == RECORDS[1:]


@pytest.mark.parametrize("library", RECORD_MODULES)
def test_empty_batch_of_ours_is_no_record_in_the_library(library: str) -> None:
    assert decode_there(library, empty_batch(5, 9, leader_epoch=1, timestamp_ms=3)) == []
