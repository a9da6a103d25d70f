"""Records gathered into columns: what the columns say is what the records say, and the twins agree to the byte."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from collections.abc import Callable
from typing import Any, Literal

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.column_rows import INSTANTS, PRIORITIES, RawRecord, damaged, raw_records
from tests.support.records import INT64

from goqueue.log import gathering as module
from goqueue.log.batch import HEADER_BYTES, BatchHeader, assemble, read_header
from goqueue.log.columns import IS_COMPILED
from goqueue.log.gathering import GATHERED, Gatherer, GathererInPython, Parts, instant_us
from goqueue.log.records import decode_records_in_python
from goqueue.model.priority import lane_of

needs_the_compiled_twin = pytest.mark.skipif(
    not IS_COMPILED, reason="goqueue.log._columns was not compiled, or GOQUEUE_PURE_PYTHON is set"
)
Make = Callable[[tuple[str, ...], int], Gatherer]
Added = tuple[bytes, int, int, int, int, int, int | None, int, int]
ALL = 2**63 - 1


def in_python(names: tuple[str, ...], bytes_max: int = 2**20) -> Gatherer:
    return GathererInPython(names, bytes_max, instant_us)


def chosen(names: tuple[str, ...], bytes_max: int = 2**20) -> Gatherer:
    return module.gatherer(names, bytes_max)


TWINS = pytest.mark.parametrize("make", [chosen, in_python])


def add(
    gatherer: Gatherer, records: list[RawRecord], *, base_offset: int = 0, base_timestamp: int = 0
) -> int:
    payload = b"".join(record.encoded() for record in records)
    last = records[-1].offset_delta if records else 0
    return gatherer.add(payload, 0, len(records), last, base_offset, base_timestamp, None, 0, ALL)


def numbers(part: Any, code: Literal["i", "q"]) -> list[int]:
    return list(memoryview(part).cast("B").cast(code))


def taken(gatherer: Gatherer) -> tuple[int, dict[str, tuple[bytes | None, ...]]]:
    count, found = gatherer.take()
    return count, {name: plain(parts) for name, parts in found.items()}


def plain(parts: Parts) -> tuple[bytes | None, ...]:
    return tuple(None if part is None else bytes(part) for part in parts)


# ---------------------------------------------------------------- what the columns say


@TWINS
def test_numbers_and_blocks_are_as_arrow_lays_them_down(make: Make) -> None:
    gatherer = make(GATHERED, 2**20)
    add(
        gatherer,
        [RawRecord(0, 1, b"k", b"one"), RawRecord(2, -2, None, b"")],
        base_offset=7,
        base_timestamp=10,
    )
    count, found = taken(gatherer)
    assert count == 2
    assert numbers(found["offset"][0], "q") == [7, 9]
    assert numbers(found["timestamp"][0], "q") == [11_000, 8_000]
    assert numbers(found["timestampType"][0], "i") == [0, 0]
    assert found["key"] == (b"\x01", struct.pack("3i", 0, 1, 1), b"k")
    assert found["value"] == (None, struct.pack("3i", 0, 3, 3), b"one")
    assert found["headers"] == (b"\0", struct.pack("3i", 0, 0, 0), bytes(4), b"", None, bytes(4), b"")
    assert found["priority"] == (b"\x02\x02",)
    assert found["deliver_at"] == (b"\x00", bytes(16))
    assert found["traceparent"] == (b"\x00", bytes(12), b"")
    assert found["schema_id"] == (b"\x00", bytes(8))


@TWINS
def test_batches_are_gathered_one_behind_the_other_and_then_anew(make: Make) -> None:
    gatherer = make(("offset", "value"), 2**20)
    for base in (0, 100):
        assert (
            add(gatherer, [RawRecord(0, 0, None, b"x"), RawRecord(1, 0, None, None)], base_offset=base) == 2
        )
    assert gatherer.rows == 4
    assert (
        gatherer.size_bytes
        == sum(len(r.encoded()) for r in (RawRecord(0, 0, None, b"x"), RawRecord(1, 0, None, None))) * 2
    )
    count, found = taken(gatherer)
    assert (count, numbers(found["offset"][0], "q")) == (4, [0, 1, 100, 101])
    assert found["value"] == (b"\x05", struct.pack("5i", 0, 1, 1, 2, 2), b"xx")
    assert (gatherer.rows, gatherer.size_bytes) == (0, 0)
    assert taken(gatherer) == (0, {"value": (None, bytes(4), b""), "offset": (b"",)})


@TWINS
def test_only_offsets_of_the_range_are_taken(make: Make) -> None:
    gatherer = make(("offset",), 2**20)
    payload = b"".join(RawRecord(at, 0, None, None).encoded() for at in range(5))
    assert gatherer.add(payload, 0, 5, 4, 10, 0, None, 11, 13) == 2
    assert numbers(taken(gatherer)[1]["offset"][0], "q") == [11, 12]


@TWINS
def test_log_append_time_is_that_of_every_record(make: Make) -> None:
    gatherer = make(("timestamp", "timestampType"), 2**20)
    payload = RawRecord(0, 99, None, None).encoded()
    gatherer.add(payload, 0, 1, 0, 0, 5, 77, 0, ALL)
    gatherer.add(payload, 0, 1, 0, 1, 5, None, 0, ALL)
    _, found = taken(gatherer)
    assert numbers(found["timestamp"][0], "q") == [77_000, 104_000]
    assert numbers(found["timestampType"][0], "i") == [1, 0]


@TWINS
@pytest.mark.parametrize(
    ("base", "delta", "microseconds"),
    [
        (2**63 - 1, 2**63 - 1, 9_223_372_036_854_775_000),
        (-(2**63), -(2**63), -9_223_372_036_854_775_000),
        (2**63 - 1, -(2**63), -1_000),
        (-1, 0, -1_000),
    ],
)
def test_time_beyond_what_microseconds_can_say_is_the_nearest_that_they_can(
    make: Make, base: int, delta: int, microseconds: int
) -> None:
    gatherer = make(("timestamp",), 2**20)
    add(gatherer, [RawRecord(0, delta, None, None)], base_timestamp=base)
    assert numbers(taken(gatherer)[1]["timestamp"][0], "q") == [microseconds]


@TWINS
@pytest.mark.parametrize("value", PRIORITIES)
def test_priority_is_the_lane_that_the_first_header_of_the_name_says(make: Make, value: bytes | None) -> None:
    gatherer = make(("priority",), 2**20)
    headers = [(b"gq-priority2", b"1"), (b"gq-priority", value), (b"gq-priority", b"0")]
    add(gatherer, [RawRecord(0, 0, None, None, headers)])
    assert taken(gatherer)[1]["priority"] == (bytes([lane_of(value)]),)


@TWINS
@pytest.mark.parametrize("value", INSTANTS)
def test_due_time_is_what_the_first_header_says_and_null_where_that_is_malformed(
    make: Make, value: bytes | None
) -> None:
    gatherer = make(("deliver_at",), 2**20)
    add(gatherer, [RawRecord(0, 0, None, None, [(b"gq-deliver-at", value), (b"gq-deliver-at", b"5")])])
    validity, due = taken(gatherer)[1]["deliver_at"]
    expected = instant_us(value or b"")
    assert (validity, numbers(due, "q")) == ((b"\x00", [0]) if expected is None else (None, [expected]))


def test_instants_that_are_understood_are_whole_milliseconds_rounded_up() -> None:
    assert instant_us(b"2026-01-31T12:00:00.0001Z") == 1_769_860_800_001_000
    assert instant_us(b" 12 ") == 12_000
    assert instant_us(b"soon") is None


@TWINS
def test_text_that_is_no_utf8_is_replaced_as_everywhere(make: Make) -> None:
    gatherer = make(("headers", "traceparent"), 2**20)
    record = RawRecord(0, 0, None, None, [(b"\xff\xfe", None), (b"traceparent", b"\xe2\x82x")])
    add(gatherer, [record])
    _, found = taken(gatherer)
    assert found["headers"][3] == "\ufffd\ufffdtraceparent".encode()
    assert found["traceparent"][2] == "\ufffdx".encode()
    ((_, _, _, _, headers),) = decode_records_in_python(record.encoded(), 0, 1, 0)
    assert headers[0][0] == "\ufffd\ufffd"


@TWINS
def test_schema_id_is_read_of_values_in_a_registrys_framing_alone(make: Make) -> None:
    gatherer = make(("schema_id",), 2**20)
    values = [
        b"\x00\x00\x01\x02\x03",
        b"\x00\x00\x01\x02",
        b"\x01\x00\x00\x00\x05",
        None,
        b"\x00\xff\xff\xff\xffx",
    ]
    add(gatherer, [RawRecord(at, 0, None, value) for at, value in enumerate(values)])
    validity, ids = taken(gatherer)[1]["schema_id"]
    assert (validity, numbers(ids, "i")) == (b"\x11", [66_051, 0, 0, 0, -1])


# ---------------------------------------------------------------- refusals


@TWINS
def test_malformed_payload_is_refused_and_leaves_nothing_behind(make: Make) -> None:
    gatherer = make(GATHERED, 2**20)
    first = [RawRecord(0, 0, b"k", b"v", [(b"h", None), (b"traceparent", b"t")])]
    add(gatherer, first)
    nulls = [RawRecord(at, 0, None, None, [(b"h", None)] * 3) for at in range(40)]
    payload = b"".join(record.encoded() for record in nulls)
    with pytest.raises(ValueError, match="bytes are left over after 40 records"):
        gatherer.add(payload + b"\x00", 0, 40, 39, 1, 0, None, 0, ALL)
    with pytest.raises(ValueError, match="record 40: its length does not fit the batch"):
        gatherer.add(payload, 0, 41, 40, 1, 0, None, 0, ALL)
    with pytest.raises(ValueError, match="record 40: its length does not fit the batch"):
        gatherer.add(payload, 0, 2**31 - 1, 2**31 - 1, 1, 0, None, 0, ALL)
    assert gatherer.rows == 1
    again = make(GATHERED, 2**20)
    add(again, first)
    for each in (gatherer, again):
        add(each, [RawRecord(0, 0, b"k2", b"v2", [(b"h2", b"x")])], base_offset=50)
    assert taken(gatherer) == taken(again)


@TWINS
@pytest.mark.parametrize(
    ("start", "base_offset", "last", "reason"),
    [
        (-1, 0, 0, "the batch has no payload"),
        (4, 0, 0, "the batch has no payload"),
        (0, -1, 0, "offsets from -1 to 0 behind it cannot be"),
        (0, 2**63 - 1, 1, "offsets from 9223372036854775807 to 1 behind it cannot be"),
    ],
)
def test_batch_that_cannot_be_is_refused(
    make: Make, start: int, base_offset: int, last: int, reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        make(("offset",), 2**20).add(b"abc", start, 1, last, base_offset, 0, None, 0, ALL)


@TWINS
def test_more_bytes_than_one_gathering_takes_are_refused(make: Make) -> None:
    gatherer = make(("value",), 20)
    add(gatherer, [RawRecord(0, 0, None, b"12345")])
    with pytest.raises(ValueError, match="24 bytes of records are more than the 20 of one gathering"):
        add(gatherer, [RawRecord(0, 0, None, b"12345")])
    gatherer.take()
    assert add(gatherer, [RawRecord(0, 0, None, b"12345")]) == 1


@TWINS
def test_columns_and_limits_that_are_none_are_refused(make: Make) -> None:
    with pytest.raises(ValueError, match="records have no column 'topic'"):
        make(("key", "topic"), 2**20)
    for bytes_max in (0, -1, 2**29 + 1):
        with pytest.raises(
            ValueError, match=f"{bytes_max} bytes cannot be gathered; it must be 1 to 536870912"
        ):
            make(("key",), bytes_max)


@needs_the_compiled_twin
def test_gatherer_refuses_to_be_used_while_it_works() -> None:
    from goqueue.log import _columns

    def parse(text: bytes) -> int | None:
        with pytest.raises(RuntimeError, match="one thing at a time"):
            gatherer.take()
        with pytest.raises(RuntimeError, match="one thing at a time"):
            add(gatherer, [RawRecord(0, 0, None, None)])
        return 5

    gatherer = _columns.Gatherer(("deliver_at",), 2**20, parse)
    assert add(gatherer, [RawRecord(0, 0, None, None, [(b"gq-deliver-at", b"soon")])]) == 1
    assert numbers(taken(gatherer)[1]["deliver_at"][1], "q") == [5]


@needs_the_compiled_twin
def test_error_of_the_parser_comes_through_and_leaves_nothing_behind() -> None:
    from goqueue.log import _columns

    def parse(text: bytes) -> int | None:
        raise LookupError(text)

    gatherer = _columns.Gatherer(("deliver_at", "key"), 2**20, parse)
    with pytest.raises(LookupError):
        add(gatherer, [RawRecord(0, 0, None, None, [(b"gq-deliver-at", b"soon")])])
    assert gatherer.rows == 0
    assert add(gatherer, [RawRecord(0, 0, b"k", None)]) == 1
    assert taken(gatherer)[1]["key"] == (None, struct.pack("2i", 0, 1), b"k")


# ---------------------------------------------------------------- the twins


def outcome(gatherer: Gatherer, added: Added) -> int | str:
    try:
        return gatherer.add(*added)
    except ValueError as error:
        return str(error)


@st.composite
def additions(draw: st.DrawFn) -> Added:
    found = draw(raw_records())
    payload = draw(damaged(b"".join(record.encoded() for record in found)))
    start = draw(st.sampled_from([0, 0, 0, 3, len(payload) + 1]))
    last = (found[-1].offset_delta if found else 0) + draw(st.sampled_from([0, 0, 0, 5, -1]))
    base_offset = draw(st.one_of(st.integers(0, 300), INT64))
    stamp = draw(st.one_of(st.none(), st.none(), INT64))
    lower = draw(st.one_of(st.just(0), st.integers(0, 600)))
    upper = draw(st.one_of(st.just(ALL), st.integers(0, 600)))
    count = len(found) + draw(st.sampled_from([0, 0, 0, 0, 1, -1, 2**31]))
    return (
        bytes(start) + payload if start == 3 else payload,
        start,
        count,
        last,
        base_offset,
        draw(INT64),
        stamp,
        lower,
        upper,
    )


@needs_the_compiled_twin
@given(st.lists(additions(), max_size=4), st.sets(st.sampled_from(GATHERED)), st.integers(0, 3))
@settings(max_examples=400, deadline=None)
def test_twins_gather_the_same_columns_and_refuse_the_same_payloads(
    batches: list[Added], names: set[str], taken_after: int
) -> None:
    compiled, written = chosen(tuple(sorted(names))), in_python(tuple(sorted(names)))
    for index, batch in enumerate(batches):
        assert outcome(compiled, batch) == outcome(written, batch)
        assert (compiled.rows, compiled.size_bytes) == (written.rows, written.size_bytes)
        if index == taken_after:
            assert taken(compiled) == taken(written)
    assert taken(compiled) == taken(written)


@TWINS
@given(data=st.binary(max_size=80), count=st.integers(-1, 5), last=st.integers(-1, 5))
@settings(max_examples=200, deadline=None)
def test_random_bytes_are_judged_as_the_decoder_of_records_judges_them(
    make: Make, data: bytes, count: int, last: int
) -> None:
    try:
        expected: int | str = len(decode_records_in_python(data, 0, count, last))
    except ValueError as error:
        expected = str(error)
    assert outcome(make(GATHERED, 2**20), (data, 0, count, last, 0, 0, None, 0, ALL)) == expected


def test_environment_variable_turns_the_compiled_twin_off() -> None:
    program = "from goqueue.log import columns; print(columns.IS_COMPILED, columns.encode_columns.__name__)"
    environment = {**os.environ, "GOQUEUE_PURE_PYTHON": "1"}
    printed = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert printed.stdout == "False encode_columns_in_python\n"


# ---------------------------------------------------------------- runs of batches


@st.composite
def batches(draw: st.DrawFn) -> list[bytes]:
    """One behind the other, some empty, some with attributes, some damaged."""
    offset = draw(st.integers(0, 5))
    found = []
    for _ in range(draw(st.integers(0, 6))):
        records = draw(raw_records())
        last = max([record.offset_delta for record in records], default=draw(st.integers(0, 3)))
        header = BatchHeader(
            base_offset=offset,
            length=0,
            leader_epoch=0,
            magic=2,
            crc=0,
            attributes=draw(st.sampled_from([0, 0, 0, 0x08, 0x10, 0x20, 0x01, 0x40])),
            last_offset_delta=last,
            base_timestamp=draw(INT64),
            max_timestamp=draw(INT64),
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            record_count=len(records),
        )
        batch = assemble(header, b"".join(record.encoded() for record in records))
        if draw(st.integers(0, 7)) == 0:
            at = draw(st.integers(0, len(batch) - 1))
            batch = batch[:at] + bytes([batch[at] ^ draw(st.integers(1, 255))]) + batch[at + 1 :]
        found.append(batch)
        offset += last + 1
    return found


@needs_the_compiled_twin
@given(
    found=batches(),
    lower=st.integers(0, 12),
    upper=st.integers(0, 40),
    rows_max=st.integers(1, 12),
    bytes_max=st.integers(1, 2_000),
    left_bits=st.sampled_from([0x27, 0x37, 0]),
    is_checked=st.booleans(),
    tail=st.binary(max_size=70),
)
@settings(max_examples=300, deadline=None)
def test_twins_take_the_same_run(
    found: list[bytes],
    lower: int,
    upper: int,
    rows_max: int,
    bytes_max: int,
    left_bits: int,
    is_checked: bool,
    tail: bytes,
) -> None:
    data = b"".join(found) + tail
    crc = None if is_checked else crc32c
    results = []
    for make in (chosen, in_python):
        gatherer = make(GATHERED, 3_000)
        ends = gatherer.add_run(data, 0, lower, upper, rows_max, bytes_max, left_bits, crc)
        results.append((ends, gatherer.size_bytes, taken(gatherer)))
    assert results[0] == results[1]


@TWINS
@given(found=batches(), lower=st.integers(0, 12), upper=st.integers(0, 40))
@settings(max_examples=100, deadline=None)
def test_a_run_is_what_its_batches_are_one_by_one(
    make: Make, found: list[bytes], lower: int, upper: int
) -> None:
    run, single = make(GATHERED, 2**20), make(GATHERED, 2**20)
    end, behind = run.add_run(b"".join(found), 0, lower, upper, 10**6, 2**20, 0x27, crc32c)
    position, expected = 0, lower
    for batch in found:
        if position == end:
            break
        header = read_header(batch)
        if header.record_count and header.end_offset > lower:
            stamp = header.max_timestamp if header.attributes & 0x08 else None
            single.add(
                batch,
                HEADER_BYTES,
                header.record_count,
                header.last_offset_delta,
                header.base_offset,
                header.base_timestamp,
                stamp,
                lower,
                upper,
            )
        position += len(batch)
        expected = max(expected, header.end_offset)
    assert (end, behind) == (position, expected)
    assert taken(run) == taken(single)


@TWINS
def test_a_run_must_begin_within_the_bytes(make: Make) -> None:
    for position in (-1, 4):
        with pytest.raises(ValueError, match="outside of the bytes"):
            make(GATHERED, 2**20).add_run(b"abc", position, 0, 9, 9, 9, 0, None)


@TWINS
def test_a_checksum_that_fails_to_be_computed_is_an_error(make: Make) -> None:
    header = BatchHeader(0, 0, 0, 2, 0, 0, 0, 0, 0, -1, -1, -1, 0)

    def broken(_: memoryview) -> int:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        make(GATHERED, 2**20).add_run(assemble(header, b""), 0, 0, 9, 9, 9, 0, broken)
