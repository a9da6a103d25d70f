"""Record batches: round trips, what is refused and why, and the three ways in which a batch is rewritten."""

from __future__ import annotations

import struct

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.logs import timed_batch
from tests.support.records import INT64, NEW_RECORDS, TIMESTAMPS, assemble_new, rows, rows_of

from goqueue.log.batch import (
    ATTRIBUTE_DELETE_HORIZON,
    ATTRIBUTE_LOG_APPEND_TIME,
    CHECKED_FROM,
    HEADER_BYTES,
    NO_PRODUCER,
    BatchHeader,
    assemble,
    build_batch,
    check_payload,
    crc_matches,
    decode_batch,
    decode_rows,
    empty_batch,
    frame_problem,
    read_header,
    rebuild_batch,
    stamped,
    validate_new,
)
from goqueue.log.compression import Codec, compress
from goqueue.log.records import Row, encode_records, encode_row
from goqueue.model.errors import (
    CorruptBatch,
    InvalidBatch,
    MessageTooLarge,
    UnsupportedCompression,
)
from goqueue.model.record import NewRecord, Producer, StoredRecord

BYTES_MAX = 1024 * 1024
CODECS = st.sampled_from(list(Codec))
EACH_CODEC = pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name.lower())
SAMPLE = [
    NewRecord(b"key", b"value", (("name", b"1"), ("name", None))),
    NewRecord(None, b""),
    NewRecord(b"", None),
]
PRODUCERS = st.one_of(
    st.none(),
    st.builds(Producer, st.integers(0, 2**63 - 1), st.integers(0, 2**15 - 1), st.integers(0, 2**31 - 1)),
)


def flipped(batch: bytes, bit: int) -> bytes:
    data = bytearray(batch)
    data[bit // 8] ^= 0x80 >> bit % 8
    return bytes(data)


# ---------------------------------------------------------------- round trips


@given(NEW_RECORDS, TIMESTAMPS, PRODUCERS, CODECS)
@settings(max_examples=150, deadline=None)
def test_built_batch_is_valid_and_decodes_to_its_records(
    records: list[NewRecord], timestamp_ms: int, producer: Producer | None, codec: Codec
) -> None:
    batch = build_batch(records, timestamp_ms, producer=producer, codec=codec)
    header = validate_new(memoryview(batch), BYTES_MAX)
    assert list(decode_batch(batch, header)) == [
        StoredRecord(at, timestamp_ms, record.key, record.value, record.headers)
        for at, record in enumerate(records)
    ]
    assert (header.size, header.record_count, header.end_offset) == (len(batch), len(records), len(records))
    assert header.attributes == codec
    assert (header.base_timestamp, header.max_timestamp) == (timestamp_ms, timestamp_ms)
    sent = (producer.id, producer.epoch, producer.sequence) if producer else (NO_PRODUCER, -1, -1)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == sent


@given(NEW_RECORDS, CODECS, st.integers(0, 2**62), st.binary(max_size=40))
@settings(max_examples=60, deadline=None)
def test_stored_batch_decodes_at_its_offset_whatever_follows_it(
    records: list[NewRecord], codec: Codec, base_offset: int, following: bytes
) -> None:
    batch = build_batch(records, 7, codec=codec)
    header = read_header(batch)._replace(base_offset=base_offset)
    found = list(decode_batch(memoryview(batch + following), header))
    assert [record.offset for record in found] == list(range(base_offset, header.end_offset))
    assert [(r.key, r.value, r.headers) for r in found] == [(r.key, r.value, r.headers) for r in records]
    assert header.last_offset == found[-1].offset


@given(st.integers(0, 20), NEW_RECORDS)
@settings(max_examples=30, deadline=None)
def test_header_is_read_at_a_position(position: int, records: list[NewRecord]) -> None:
    batch = build_batch(records, 7)
    data = bytes(position) + batch
    assert read_header(data, position) == read_header(batch)
    assert crc_matches(data, position, read_header(data, position))


@given(st.lists(st.tuples(TIMESTAMPS, NEW_RECORDS), min_size=1, max_size=4), CODECS)
@settings(max_examples=40, deadline=None)
def test_records_with_a_timestamp_each_keep_it(
    drawn: list[tuple[int, list[NewRecord]]], codec: Codec
) -> None:
    timed = [(stamp, new[0].key, new[0].value, new[0].headers) for stamp, new in drawn]
    batch = timed_batch(timed, codec=codec)
    found = decode_batch(batch, validate_new(batch, BYTES_MAX))
    assert [(r.timestamp_ms, r.key, r.value, r.headers) for r in found] == timed


# ---------------------------------------------------------------- damage


@EACH_CODEC
def test_batch_cut_at_any_byte_is_refused(codec: Codec) -> None:
    batch = build_batch(SAMPLE, 7, codec=codec)
    for end in range(len(batch)):
        reason = "a batch has at least 61 bytes" if end < HEADER_BYTES else f"{len(batch)} bytes; {end} came"
        with pytest.raises(InvalidBatch, match=reason):
            validate_new(batch[:end], BYTES_MAX)


@EACH_CODEC
def test_flip_of_any_bit_that_the_checksum_covers_is_refused(codec: Codec) -> None:
    """Those of the checksum itself too. Deltas and counts that cannot be are refused before it is computed."""
    batch = build_batch(SAMPLE, 7, codec=codec, producer=Producer(1, 2, 3))
    for bit in range(8 * (CHECKED_FROM - 4), 8 * len(batch)):
        with pytest.raises((CorruptBatch, InvalidBatch)) as caught:
            validate_new(flipped(batch, bit), BYTES_MAX)
        byte = bit // 8
        if not (23 <= byte < 27 or 57 <= byte < 61):
            assert caught.type is CorruptBatch


def test_flip_of_a_bit_of_the_prefix_is_refused_or_does_not_matter() -> None:
    """The base offset and the leader epoch of a new batch mean nothing: the log assigns both when it appends.
    Of the base offset only the sign is looked at."""
    batch = build_batch(SAMPLE, 7)
    header = read_header(batch)
    for bit in range(8 * (CHECKED_FROM - 4)):
        damaged, byte = flipped(batch, bit), bit // 8
        if byte < 8 and bit > 0:
            accepted = validate_new(damaged, BYTES_MAX)
            assert accepted == header._replace(base_offset=1 << 63 - bit)
        elif 12 <= byte < 16:
            accepted = validate_new(damaged, BYTES_MAX)
            assert accepted == header._replace(leader_epoch=accepted.leader_epoch)
        else:
            reason = (
                "base offset is -" if byte == 0 else "magic is" if byte == 16 else "the batch says it has"
            )
            with pytest.raises(InvalidBatch, match=reason):
                validate_new(damaged, BYTES_MAX)
            continue
        assert decode_rows(damaged, accepted) == rows_of(SAMPLE)


@given(NEW_RECORDS, CODECS, st.data())
@settings(max_examples=150, deadline=None)
def test_damage_under_a_right_checksum_is_refused_or_decodes(
    records: list[NewRecord], codec: Codec, data: st.DataObject
) -> None:
    """A client can hash nonsense. Whatever passes validation can be read back, and nothing but an error that
    a client may see comes out of the rest."""
    payload = bytearray(compress(codec, encode_records(records)))
    for _ in range(data.draw(st.integers(1, 3))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    batch = assemble_new(bytes(payload), len(records), attributes=codec)
    try:
        header = validate_new(batch, BYTES_MAX)
    except InvalidBatch:
        with pytest.raises(InvalidBatch):
            decode_rows(batch, read_header(batch))
    else:
        assert [row[0] for row in decode_rows(batch, header)] == list(range(len(records)))


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("count", "last", "reason"),
    [
        (0, 2, "a new batch of 0 records cannot have a last offset delta of 2"),
        (2, 2, "a new batch of 2 records cannot have a last offset delta of 2"),
        (4, 2, "4 records do not fit a last offset delta of 2"),
        (-1, 2, "-1 records do not fit a last offset delta of 2"),
        (0, -1, "0 records do not fit a last offset delta of -1"),
        (2, 1, "the batch is malformed: bytes are left over after 2 records"),
        (4, 3, "the batch is malformed: record 3: its length does not fit the batch"),
        (2**31 - 1, 2**31 - 2, "the batch is malformed: record 3: its length does not fit the batch"),
    ],
)
@EACH_CODEC
def test_wrong_record_count_is_refused(codec: Codec, count: int, last: int, reason: str) -> None:
    payload = compress(codec, encode_records(SAMPLE))
    batch = assemble_new(payload, count, last_offset_delta=last, attributes=codec)
    with pytest.raises(InvalidBatch) as caught:
        validate_new(batch, BYTES_MAX)
    assert caught.value.sentence == reason


def test_batch_of_no_records_is_refused() -> None:
    with pytest.raises(InvalidBatch, match="0 records do not fit"):
        validate_new(build_batch([], 7), BYTES_MAX)


def test_batch_over_the_limit_is_refused_and_one_at_the_limit_is_not() -> None:
    batch = build_batch(SAMPLE, 7)
    assert validate_new(batch, len(batch)).size == len(batch)
    with pytest.raises(MessageTooLarge) as caught:
        validate_new(batch, len(batch) - 1)
    assert caught.value.details == {"size_bytes": len(batch), "bytes_max": len(batch) - 1}


def test_bytes_after_the_batch_are_refused() -> None:
    batch = build_batch(SAMPLE, 7)
    with pytest.raises(InvalidBatch) as caught:
        validate_new(batch + b"\x00", BYTES_MAX)
    assert caught.value.details == {"stated": len(batch), "actual": len(batch) + 1}


@EACH_CODEC
def test_bytes_after_the_records_are_refused(codec: Codec) -> None:
    payload = compress(codec, encode_records(SAMPLE) + b"\x00")
    with pytest.raises(InvalidBatch, match="bytes are left over after 3 records"):
        validate_new(assemble_new(payload, 3, attributes=codec), BYTES_MAX)


@pytest.mark.parametrize(
    "deltas", [(0, 0, 1), (1, 0, 2), (0, 2, 1), (0, 1, 3), (-1, 0, 1), (0, 2**31, 2**31 + 1)]
)
@EACH_CODEC
def test_offset_deltas_that_do_not_rise_by_one_are_refused(codec: Codec, deltas: tuple[int, ...]) -> None:
    payload = b"".join(encode_row((delta, 0, None, b"v", ())) for delta in deltas)
    batch = assemble_new(compress(codec, payload), 3, attributes=codec)
    with pytest.raises(InvalidBatch, match="its offset delta is out of order or beyond the batch's last"):
        validate_new(batch, BYTES_MAX)


@pytest.mark.parametrize("number", [5, 6, 7])
def test_unknown_codec_is_refused_with_those_that_are_known(number: int) -> None:
    batch = assemble_new(encode_records(SAMPLE), 3, attributes=number)
    with pytest.raises(UnsupportedCompression, match="0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd") as caught:
        validate_new(batch, BYTES_MAX)
    assert caught.value.details == {"codec": number}
    with pytest.raises(UnsupportedCompression):
        decode_rows(batch, read_header(batch))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"magic": 1}, "magic is 1, not 2"),
        ({"length": 48}, "length 48 is below the 49 bytes of a header"),
        ({"length": -1}, "length -1 is below the 49 bytes of a header"),
        ({"base_offset": -1}, "base offset is -1"),
        ({"last_offset_delta": -1}, "3 records do not fit a last offset delta of -1"),
        ({"record_count": 4}, "4 records do not fit a last offset delta of 2"),
        ({"record_count": 1}, None),  # as compaction leaves it
        ({"record_count": 0}, None),
    ],
)
def test_frame_problem_says_what_is_impossible(change: dict[str, int], problem: str | None) -> None:
    assert frame_problem(read_header(build_batch(SAMPLE, 7))._replace(**change)) == problem


def test_header_of_too_few_bytes_is_refused() -> None:
    with pytest.raises(InvalidBatch, match="a batch has at least 61 bytes; 60 are there"):
        read_header(bytes(70), 10)


# ---------------------------------------------------------------- rewriting


def test_assemble_computes_length_and_checksum_and_leaves_the_rest() -> None:
    before = BatchHeader(5, 0, 6, 2, 0, 0x10, 1, -3, 4, 8, 9, 10, 2)
    batch = assemble(before, b"payload")
    header = read_header(batch)
    assert header == before._replace(length=len(batch) - 12, crc=crc32c(batch[21:]))


@given(rows(st.integers(-(10**6), 10**6)), CODECS, TIMESTAMPS)
@settings(max_examples=60, deadline=None)
def test_stamped_batch_has_one_timestamp_whatever_its_records_carry(
    found: list[Row], codec: Codec, timestamp_ms: int
) -> None:
    dense = [(at, *row[1:]) for at, row in enumerate(found)]
    payload = compress(codec, b"".join(map(encode_row, dense)))
    before = assemble_new(payload, len(dense), attributes=codec, timestamp_ms=5)
    batch = stamped(before, timestamp_ms)
    header = validate_new(batch, BYTES_MAX)
    assert header.attributes == codec | ATTRIBUTE_LOG_APPEND_TIME
    assert header.max_timestamp == timestamp_ms
    decoded = list(decode_batch(batch, header))
    assert {record.timestamp_ms for record in decoded} == {timestamp_ms}
    assert [(r.key, r.value, r.headers) for r in decoded] == [tuple(row[2:]) for row in dense]
    assert stamped(batch, 9) == stamped(before, 9)


@given(rows(st.integers(-(10**6), 10**6)), CODECS, TIMESTAMPS, st.one_of(st.none(), TIMESTAMPS), st.data())
@settings(max_examples=100, deadline=None)
def test_rebuilt_batch_keeps_offsets_and_timestamps_of_the_rows_that_stay(
    found: list[Row], codec: Codec, base_timestamp: int, horizon: int | None, data: st.DataObject
) -> None:
    header = read_header(
        assemble_new(
            compress(codec, b"".join(map(encode_row, found))),
            len(found),
            last_offset_delta=found[-1][0],
            attributes=codec | 0x10,
            timestamp_ms=base_timestamp,
        )
    )._replace(base_offset=40, leader_epoch=3, producer_id=8, producer_epoch=1, base_sequence=17)
    kept = [row for row in found if data.draw(st.booleans())]
    batch = rebuild_batch(header, kept, delete_horizon_ms=horizon)
    rebuilt = read_header(batch)
    assert frame_problem(rebuilt) is None
    assert crc_matches(batch, 0, rebuilt)
    check_payload(batch, rebuilt)
    assert list(decode_batch(batch, rebuilt)) == [
        StoredRecord(40 + row[0], base_timestamp + row[1], *row[2:]) for row in kept
    ]
    assert rebuilt == header._replace(
        length=rebuilt.length,
        crc=rebuilt.crc,
        attributes=(codec if kept else 0) | 0x10 | (ATTRIBUTE_DELETE_HORIZON if horizon is not None else 0),
        base_timestamp=base_timestamp if horizon is None else horizon,
        record_count=len(kept),
    )


def test_rebuilt_batch_with_log_append_time_keeps_that_time() -> None:
    batch = stamped(timed_batch([(5, b"a", b"1", ()), (3, b"b", b"2", ())]), 900)
    header = read_header(batch)
    again = rebuild_batch(header, decode_rows(batch, header)[1:], delete_horizon_ms=10_000)
    assert list(decode_batch(again, read_header(again))) == [StoredRecord(1, 900, b"b", b"2")]


@given(st.lists(INT64, min_size=1, max_size=3), INT64, TIMESTAMPS)
@settings(max_examples=100, deadline=None)
def test_rebuilt_batch_can_be_read_whatever_timestamps_a_client_wrote(
    deltas: list[int], base_timestamp: int, horizon: int
) -> None:
    """A shifted delta must not leave 64 bits. A timestamp that can be written as one is kept exactly."""
    found: list[Row] = [(at, delta, None, None, ()) for at, delta in enumerate(deltas)]
    batch = assemble_new(b"".join(map(encode_row, found)), len(found), timestamp_ms=base_timestamp)
    header = validate_new(batch, BYTES_MAX)
    again = rebuild_batch(header, found, delete_horizon_ms=horizon)
    for row, record in zip(found, decode_batch(again, read_header(again)), strict=True):
        wanted = base_timestamp + row[1]
        if -(2**63) <= wanted - horizon < 2**63:
            assert record.timestamp_ms == wanted


def test_empty_batch_keeps_offsets_and_holds_no_record() -> None:
    batch = empty_batch(100, 250, leader_epoch=4, timestamp_ms=77)
    header = read_header(batch)
    assert len(batch) == header.size == HEADER_BYTES
    assert (header.base_offset, header.last_offset, header.end_offset) == (100, 250, 251)
    assert (header.leader_epoch, header.max_timestamp, header.record_count) == (4, 77, 0)
    assert header.producer_id == NO_PRODUCER
    assert frame_problem(header) is None
    assert crc_matches(batch, 0, header)
    check_payload(batch, header)
    assert list(decode_batch(batch, header)) == []
    with pytest.raises(InvalidBatch, match="a new batch of 0 records"):
        validate_new(batch, BYTES_MAX)


def test_control_bit_is_seen() -> None:
    batch = build_batch(SAMPLE, 7, attributes=0x20)
    assert read_header(batch).is_control
    assert not read_header(build_batch(SAMPLE, 7, attributes=0x10)).is_control
    assert struct.unpack_from(">h", batch, 21) == (0x20,)
