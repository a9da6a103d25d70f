"""Transaction markers: the bytes that Kafka's clients read, and nothing that a client may write."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.logs import timed_batch
from tests.support.records import assemble_new

from goqueue.log.batch import (
    ATTRIBUTE_CONTROL,
    ATTRIBUTE_TRANSACTIONAL,
    build_batch,
    crc_matches,
    decode_rows,
    read_header,
    rebuild_batch,
    validate_new,
)
from goqueue.log.control import Marker, encode_gap, encode_marker, read_marker
from goqueue.log.records import encode_row
from goqueue.model.errors import InvalidBatch
from goqueue.model.record import NewRecord, Producer

ATTRIBUTES = ATTRIBUTE_CONTROL | ATTRIBUTE_TRANSACTIONAL


def control_batch(key: bytes | None, value: bytes | None, *, producer_id: int = 7) -> bytes:
    return build_batch(
        [NewRecord(key, value)], 1_000, producer=Producer(producer_id, 0, -1), attributes=ATTRIBUTES
    )


@given(
    producer_id=st.integers(0, 2**63 - 1),
    epoch=st.integers(0, 2**15 - 1),
    is_commit=st.booleans(),
    coordinator_epoch=st.integers(-1, 2**31 - 1),
    timestamp_ms=st.integers(0, 2**53),
)
def test_marker_reads_as_it_was_written(
    producer_id: int, epoch: int, is_commit: bool, coordinator_epoch: int, timestamp_ms: int
) -> None:
    header, batch = encode_marker(
        producer_id,
        epoch,
        is_commit=is_commit,
        coordinator_epoch=coordinator_epoch,
        timestamp_ms=timestamp_ms,
    )
    assert read_header(batch) == header
    assert (header.is_control, header.is_transactional) == (True, True)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (producer_id, epoch, -1)
    assert (header.record_count, header.last_offset_delta) == (1, 0)
    assert (header.base_timestamp, header.max_timestamp) == (timestamp_ms, timestamp_ms)
    assert read_marker(batch, header) == Marker(is_commit, coordinator_epoch)


@pytest.mark.parametrize("is_commit", [True, False])
def test_marker_is_byte_for_byte_what_kafka_writes(is_commit: bool) -> None:
    _, batch = encode_marker(7, 3, is_commit=is_commit, coordinator_epoch=5, timestamp_ms=1_000)
    [(_, _, key, value, headers)] = decode_rows(batch, read_header(batch))
    assert key == struct.pack(">hh", 0, 1 if is_commit else 0)
    assert value == struct.pack(">hi", 0, 5)
    assert headers == ()


def test_marker_with_a_delete_horizon_reads_the_same() -> None:
    header, batch = encode_marker(7, 3, is_commit=False, coordinator_epoch=5, timestamp_ms=1_000)
    dated = rebuild_batch(header, decode_rows(batch, header), delete_horizon_ms=9_000)
    assert read_marker(dated, read_header(dated)) == Marker(is_commit=False, coordinator_epoch=5)


def test_marker_of_a_newer_version_with_more_fields_is_understood() -> None:
    batch = control_batch(struct.pack(">hhq", 1, 1, 99), struct.pack(">hiq", 1, 5, 99))
    assert read_marker(batch, read_header(batch)) == Marker(is_commit=True, coordinator_epoch=5)


@pytest.mark.parametrize("kind", [2, 3, 4, 100, -1])
def test_control_batch_of_another_kind_is_no_marker(kind: int) -> None:
    batch = control_batch(struct.pack(">hh", 0, kind), b"anything")
    assert read_marker(batch, read_header(batch)) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, struct.pack(">hi", 0, 5)),
        (b"", struct.pack(">hi", 0, 5)),
        (b"\x00\x00\x00", struct.pack(">hi", 0, 5)),
        (struct.pack(">hh", 0, 1), None),
        (struct.pack(">hh", 0, 1), b"\x00\x00\x00"),
        (struct.pack(">hh", -1, 1), struct.pack(">hi", 0, 5)),
    ],
)
def test_control_batch_that_makes_no_sense_is_refused(key: bytes | None, value: bytes | None) -> None:
    batch = control_batch(key, value)
    with pytest.raises(InvalidBatch):
        read_marker(batch, read_header(batch))


def test_marker_without_a_producer_or_with_two_records_is_refused() -> None:
    key, value = struct.pack(">hh", 0, 1), struct.pack(">hi", 0, 5)
    nobody = assemble_new(encode_row((0, 0, key, value, ())), 1, attributes=ATTRIBUTES)
    two = assemble_new(
        b"".join(encode_row((at, 0, key, value, ())) for at in (0, 1)), 2, attributes=ATTRIBUTES
    )
    for batch in (nobody, two):
        with pytest.raises(InvalidBatch):
            read_marker(batch, read_header(batch))


def test_client_may_not_write_a_marker() -> None:
    _, batch = encode_marker(7, 3, is_commit=True, coordinator_epoch=5, timestamp_ms=1_000)
    with pytest.raises(InvalidBatch, match="the broker's to write"):
        validate_new(batch, 1_000)


def test_transactional_batch_without_a_producer_is_refused() -> None:
    with pytest.raises(InvalidBatch, match="a transactional batch needs a producer"):
        validate_new(timed_batch([(1_000, None, b"v", ())], is_transactional=True), 1_000)


@given(start=st.integers(0, 2**62), count=st.integers(1, 2**33), epoch=st.integers(-1, 2**31 - 1))
def test_a_gap_is_a_control_record_about_nothing_at_the_last_of_its_offsets(
    start: int, count: int, epoch: int
) -> None:
    batch = encode_gap(start, start + count, leader_epoch=epoch, timestamp_ms=5)
    header = read_header(batch)
    assert crc_matches(batch, 0, header)
    assert header.is_control
    assert not header.is_transactional
    assert header.leader_epoch == epoch
    assert header.base_offset == start
    assert header.end_offset == start + min(count, 2**31)  # a longer one takes more than one answer
    assert [row[0] for row in decode_rows(batch, header)] == [header.last_offset_delta]
    assert read_marker(batch, header) is None
