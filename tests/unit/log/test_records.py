"""The payload of a batch: what is encoded comes back, what is damaged is refused, and the twins agree."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.records import INT64, NEW_RECORDS, rows, rows_of

from goqueue.log import records as module
from goqueue.log.records import (
    Row,
    check_records,
    check_records_in_python,
    decode_records,
    decode_records_in_python,
    encode_records,
    encode_row,
    encode_varint,
)
from goqueue.model.record import NewRecord

needs_the_compiled_twin = pytest.mark.skipif(
    not module.IS_COMPILED, reason="goqueue.log._kernel was not compiled, or GOQUEUE_PURE_PYTHON is set"
)
SAMPLE = [
    NewRecord(None, b"value"),
    NewRecord(b"", b"", (("name", b"1"), ("name", None), ("", b""))),
    NewRecord(b"key", None),
    NewRecord(b"k" * 70, b"v" * 200),
]
DECODERS = pytest.mark.parametrize("decode", [decode_records, decode_records_in_python])
Decode = Callable[[bytes, int, int, int], list[Row]]


@pytest.mark.parametrize(
    ("number", "encoded"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (300, "d804"),
        (-(2**63), "ffffffffffffffffff01"),
        (2**63 - 1, "feffffffffffffffff01"),
    ],
)
def test_varint_is_zigzag_with_low_bits_first(number: int, encoded: str) -> None:
    assert encode_varint(number).hex() == encoded


@given(NEW_RECORDS)
@settings(max_examples=120, deadline=None)
def test_encoded_records_decode_to_the_same(records: list[NewRecord]) -> None:
    payload = encode_records(records)
    for decode in (decode_records, decode_records_in_python):
        assert decode(payload, 0, len(records), len(records) - 1) == rows_of(records)
    assert check_records(payload, 0, len(records), len(records) - 1) == 0


@given(rows())
@settings(max_examples=120, deadline=None)
def test_encoded_rows_decode_to_the_same_with_gaps_and_any_timestamp_delta(found: list[Row]) -> None:
    payload = b"".join(map(encode_row, found))
    for decode in (decode_records, decode_records_in_python):
        assert decode(b"before" + payload, 6, len(found), found[-1][0]) == found


@given(rows(), st.data())
@settings(max_examples=120, deadline=None)
def test_only_the_wanted_of_the_records_are_decoded(found: list[Row], data: st.DataObject) -> None:
    """Some that are asked for may not be there."""
    payload = b"".join(map(encode_row, found))
    last = found[-1][0]
    deltas = st.one_of(st.sampled_from([row[0] for row in found]), st.integers(-1, last + 1))
    wanted = sorted(data.draw(st.sets(deltas)))
    for decode in (decode_records, decode_records_in_python):
        assert decode(payload, 0, len(found), last, wanted) == [row for row in found if row[0] in wanted]
        with pytest.raises(ValueError, match="bytes are left over"):
            decode(payload + b"\x00", 0, len(found), last, wanted)


def test_records_beyond_the_table_of_varints_decode_to_the_same() -> None:
    records = [NewRecord(None, b"%d" % at) for at in range(8_200)]
    assert decode_records(encode_records(records), 0, 8_200, 8_199) == rows_of(records)


@DECODERS
def test_payload_cut_at_any_byte_is_refused(decode: Decode) -> None:
    payload = encode_records(SAMPLE)
    for end in range(len(payload)):
        with pytest.raises(ValueError, match=r"record \d: its length does not fit the batch"):
            decode(payload[:end], 0, len(SAMPLE), len(SAMPLE) - 1)


@DECODERS
def test_bytes_after_the_last_record_are_refused(decode: Decode) -> None:
    with pytest.raises(ValueError, match="bytes are left over after 4 records"):
        decode(encode_records(SAMPLE) + b"\x00", 0, 4, 3)


@DECODERS
@pytest.mark.parametrize("start", [-1, 4])
def test_payload_that_would_start_outside_the_bytes_is_refused(decode: Decode, start: int) -> None:
    with pytest.raises(ValueError, match="the batch has no payload"):
        decode(b"abc", start, 0, 0)


def framed(body: bytes) -> bytes:
    return encode_varint(len(body)) + body


# What follows the attributes byte of the second record, and why it is refused.
MALFORMED = [
    (b"", "bad timestamp delta"),
    (b"\x80", "bad timestamp delta"),
    (b"\x80" * 9 + b"\x02", "bad timestamp delta"),  # a 65th bit
    (b"\x00", "bad offset delta"),
    (b"\x00\x00", "its offset delta is out of order or beyond the batch's last"),  # the same again
    (b"\x00\x01", "its offset delta is out of order or beyond the batch's last"),  # -1
    (b"\x00\x04", "its offset delta is out of order or beyond the batch's last"),  # 2 of a batch up to 1
    (b"\x00\x02", "bad key length"),
    (b"\x00\x02\x03", "bad key length"),  # -2
    (b"\x00\x02\x04k", "bad key length"),
    (b"\x00\x02\x01", "bad value length"),
    (b"\x00\x02\x01\x03", "bad value length"),
    (b"\x00\x02\x01\x02", "bad value length"),
    (b"\x00\x02\x01\x01", "bad header count"),
    (b"\x00\x02\x01\x01\x01", "bad header count"),
    (b"\x00\x02\x01\x01\x02", "bad header name"),
    (b"\x00\x02\x01\x01\x02\x01", "bad header name"),  # a name is never null
    (b"\x00\x02\x01\x01\x02\x02n", "bad header value"),
    (b"\x00\x02\x01\x01\x02\x02n\x03", "bad header value"),
    (b"\x00\x02\x01\x01\x00\x00", "its length does not match its content"),
    (b"\x00\x02\x01\x01\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", "bad header name"),  # 2**63 - 1 headers
]


@DECODERS
@pytest.mark.parametrize(("rest", "reason"), MALFORMED)
def test_malformed_record_is_refused_with_its_number_and_the_reason(
    decode: Decode, rest: bytes, reason: str
) -> None:
    payload = encode_row((0, 0, None, None, ())) + framed(b"\x00" + rest)
    with pytest.raises(ValueError) as caught:
        decode(payload, 0, 2, 1)
    assert str(caught.value) == f"record 1: {reason}"


@DECODERS
@pytest.mark.parametrize("length", [0, -1, 1_000, 2**63 - 1, -(2**63)])
def test_record_length_that_cannot_be_is_refused(decode: Decode, length: int) -> None:
    with pytest.raises(ValueError, match="record 0: its length does not fit the batch"):
        decode(encode_varint(length) + b"\x00" * 8, 0, 1, 0)


@DECODERS
def test_varint_longer_than_it_needs_to_be_is_read(decode: Decode) -> None:
    body = b"\x00" + b"\x80" * 8 + b"\x00" + b"\x80\x00" + b"\x01\x01\x00"
    assert decode(framed(body), 0, 1, 0) == [(0, 0, None, None, ())]


@DECODERS
def test_header_name_that_is_no_utf8_is_replaced_and_not_refused(decode: Decode) -> None:
    body = b"\x00\x00\x00\x01\x01\x02" + b"\x04\xff\xfe" + b"\x01"
    assert decode(framed(body), 0, 1, 0) == [(0, 0, None, None, (("\ufffd\ufffd", None),))]


CHECKERS = pytest.mark.parametrize("check", [check_records, check_records_in_python])
Check = Callable[[bytes, int, int, int], int | None]


@CHECKERS
@given(found=rows())
@settings(max_examples=80, deadline=None)
def test_check_returns_the_largest_timestamp_delta(check: Check, found: list[Row]) -> None:
    payload = b"".join(map(encode_row, found))
    assert check(payload, 0, len(found), found[-1][0]) == max(row[1] for row in found)


@CHECKERS
@pytest.mark.parametrize(
    "deltas", [[-5], [-5, -9], [3, 7, 1], [-(2**63)], [2**63 - 1, -(2**63)], [0, 0, 0], [-(2**63), -1]]
)
def test_timestamp_deltas_below_zero_and_at_the_edge_are_compared_as_they_are(
    check: Check, deltas: list[int]
) -> None:
    payload = b"".join(encode_row((at, delta, None, None, ())) for at, delta in enumerate(deltas))
    assert check(payload, 0, len(deltas), len(deltas) - 1) == max(deltas)


@CHECKERS
@pytest.mark.parametrize("count", [0, -1])
def test_no_records_have_no_timestamp(check: Check, count: int) -> None:
    assert check(b"", 0, count, 5) is None


@CHECKERS
@given(deltas=st.lists(st.integers(-2, 6), min_size=1, max_size=5))
@settings(max_examples=150, deadline=None)
def test_records_of_a_new_batch_have_exactly_the_offset_deltas_from_zero_up(
    check: Check, deltas: list[int]
) -> None:
    """A new batch states as many records as offsets, which leaves no room for a gap or a repetition."""
    payload = b"".join(encode_row((delta, 0, None, None, ())) for delta in deltas)
    is_accepted = outcome(check, payload, 0, len(deltas), len(deltas) - 1)[0] == "returned"
    assert is_accepted is (deltas == list(range(len(deltas))))


# ---------------------------------------------------------------- the twins


Outcome = tuple[str, list[Row] | int | str | None]


def outcome(twin: Callable[[bytes, int, int, int], list[Row] | int | None], *given_: object) -> Outcome:
    try:
        return "returned", twin(*given_)  # type: ignore[arg-type] # the same four for each twin
    except ValueError as error:
        return "refused", str(error)


def assert_twins_agree(data: bytes | memoryview, start: int, count: int, last: int) -> Outcome:
    decoded = outcome(decode_records, data, start, count, last)
    assert decoded == outcome(decode_records_in_python, data, start, count, last)
    checked = outcome(check_records, data, start, count, last)
    assert checked == outcome(check_records_in_python, data, start, count, last)
    if isinstance(decoded[1], list):
        assert checked == ("returned", max((row[1] for row in decoded[1]), default=None))
    else:
        assert checked == decoded
    return decoded


def mutated(payload: bytes, random: Random) -> bytes:
    data = bytearray(payload)
    for _ in range(random.randint(1, 3)):
        at = random.randrange(len(data) + 1)
        match random.randrange(4):
            case 0 if at < len(data):
                data[at] ^= 1 << random.randrange(8)
            case 1 if at < len(data):
                data[at] = random.choice((0, 1, 2, 127, 128, 255))
            case 2:
                data[at:at] = random.randbytes(random.randint(1, 3))
            case _:
                del data[at : at + random.randint(1, 3)]
    return bytes(data)


@needs_the_compiled_twin
@given(rows(), st.randoms(use_true_random=False), st.integers(-1, 1), st.integers(-1, 1))
@settings(max_examples=150, deadline=None)
def test_twins_agree_on_valid_and_on_mutated_payloads(
    found: list[Row], random: Random, count_off: int, last_off: int
) -> None:
    payload = b"".join(map(encode_row, found))
    assert assert_twins_agree(payload, 0, len(found), found[-1][0]) == ("returned", found)
    assert_twins_agree(payload, 0, len(found) + count_off, found[-1][0] + last_off)
    for _ in range(8):
        assert_twins_agree(mutated(payload, random), 0, len(found), found[-1][0])


@needs_the_compiled_twin
def test_twins_agree_on_every_flipped_bit_and_every_cut() -> None:
    payload = encode_records(SAMPLE[:3])
    refused = 0
    for bit in range(8 * len(payload)):
        data = bytearray(payload)
        data[bit // 8] ^= 1 << bit % 8
        refused += assert_twins_agree(bytes(data), 0, 3, 2)[0] == "refused"
    for end in range(len(payload)):
        assert_twins_agree(memoryview(payload)[:end], 0, 3, 2)
    assert 0 < refused < 8 * len(payload)


@needs_the_compiled_twin
@given(st.binary(max_size=60), st.integers(-2, 62), st.integers(-2, 5), st.one_of(st.integers(-2, 6), INT64))
@example(b"", 0, 0, 0)
@settings(max_examples=300, deadline=None)
def test_twins_agree_on_random_bytes(data: bytes, start: int, count: int, last: int) -> None:
    assert_twins_agree(data, start, count, last)


@needs_the_compiled_twin
@pytest.mark.parametrize(("rest", "_reason"), MALFORMED)
def test_twins_agree_on_each_malformed_record(rest: bytes, _reason: str) -> None:
    payload = encode_row((0, 0, None, None, ())) + framed(b"\x00" + rest)
    assert assert_twins_agree(payload, 0, 2, 1)[0] == "refused"


ROUND_TRIP = """
from goqueue.log import records
from goqueue.log.batch import build_batch, decode_batch, validate_new
from goqueue.log.compression import Codec
from goqueue.model.record import NewRecord
from goqueue.model.errors import InvalidBatch

assert records.decode_records is records.decode_records_in_python
for codec in Codec:
    batch = build_batch([NewRecord(b"k", b"v" * 100, (("h", None),))], 5, codec=codec)
    (found,) = decode_batch(batch, validate_new(batch, 1_000))
    assert (found.key, found.value, found.headers, found.timestamp_ms) == (b"k", b"v" * 100, (("h", None),), 5)
print(records.IS_COMPILED)
"""


def test_pure_python_works_alone_when_it_is_asked_for() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ROUND_TRIP],
        env={**os.environ, "GOQUEUE_PURE_PYTHON": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout.strip(), done.stderr) == ("False", "")


@given(st.binary(max_size=60), st.binary(max_size=5), st.binary(max_size=30))
@example(b"", b"", b"")
@example(b"aab", b"ab", b"")
def test_a_mark_is_found_where_python_finds_it(before: bytes, mark: bytes, after: bytes) -> None:
    for data in (before + mark + after, before + after, memoryview(before + after)):
        assert module.contains(data, mark) == module.contains_in_python(data, mark) == (mark in bytes(data))
