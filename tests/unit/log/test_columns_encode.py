"""Rows of columns written as records: the twins write the same bytes and refuse the same buffers."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.records import BLOCKS, INT64

from goqueue.log import columns as module
from goqueue.log.columns import (
    NO_TIMESTAMP,
    Lists,
    Rows,
    Strings,
    encode_columns,
    encode_columns_in_python,
    partitions_of,
    partitions_of_in_python,
    record_sizes,
    record_sizes_in_python,
)
from goqueue.log.records import decode_records, encode_records
from goqueue.model.partitioner import Partitioner, partition_for_key
from goqueue.model.record import NewRecord

needs_the_compiled_twin = pytest.mark.skipif(
    not module.IS_COMPILED, reason="goqueue.log._columns was not compiled, or GOQUEUE_PURE_PYTHON is set"
)
ENCODERS = pytest.mark.parametrize("encode", [encode_columns, encode_columns_in_python])
Encode = Callable[[Rows, bytes, int, int], bytes]


def strings(blocks: Sequence[bytes | None], *, before: Sequence[bytes | None] = ()) -> Strings:
    """The blocks as a slice of a longer column."""
    whole = [*before, *blocks]
    ends = [0]
    for block in whole:
        ends.append(ends[-1] + len(block or b""))
    return Strings(
        bitmap([block is not None for block in whole]),
        struct.pack(f"{len(ends)}q", *ends),
        b"".join(block or b"" for block in whole),
        len(before),
        len(blocks),
    )


def bitmap(flags: Sequence[bool]) -> bytes | None:
    if all(flags):
        return None
    bits = sum(flag << at for at, flag in enumerate(flags))
    return bits.to_bytes((len(flags) + 7) // 8, "little")


def lists(rows: Sequence[Sequence[tuple[bytes | None, bytes | None]] | None]) -> Lists:
    ends = [0]
    for row in rows:
        ends.append(ends[-1] + len(row or ()))
    headers = [header for row in rows for header in row or ()]
    return Lists(
        bitmap([row is not None for row in rows]),
        struct.pack(f"{len(ends)}q", *ends),
        0,
        strings([name for name, _ in headers]),
        strings([value for _, value in headers]),
    )


def longs(numbers: Sequence[int]) -> bytes:
    return struct.pack(f"{len(numbers)}q", *numbers)


def rows_of(length: int, **columns: Any) -> Rows:
    empty = Rows(length, None, None, None, None, None, None, b"")
    return empty._replace(**columns)


@ENCODERS
def test_rows_are_written_as_the_encoder_of_records_writes_them(encode: Encode) -> None:
    rows = rows_of(
        3,
        keys=strings([b"a", None, b""], before=[None, b"x"]),
        values=strings([None, b"1" * 70, b""]),
        headers=lists([[(b"h", None), (b"h", b"2")], None, []]),
    )
    records = [
        NewRecord(b"", b""),
        NewRecord(b"a", None, (("h", None), ("h", b"2"))),
        NewRecord(None, b"1" * 70),
        NewRecord(b"", b""),
    ]
    assert encode(rows, longs([2, 0, 1, 2]), 5, 5) == encode_records(records)


@ENCODERS
def test_priority_and_due_time_follow_the_rows_own_headers(encode: Encode) -> None:
    rows = rows_of(
        3,
        headers=lists([[(b"h", b"")], None, []]),
        priorities=struct.pack("3b", 4, -1, 0),
        deliver_ats=longs([-1, 1_700_000_000_123, 0]),
    )
    decoded = decode_records(encode(rows, longs([0, 1, 2]), 0, 0), 0, 3, 2)
    assert [headers for *_, headers in decoded] == [
        (("h", b""), ("gq-priority", b"4")),
        (("gq-deliver-at", b"1700000000123"),),
        (("gq-priority", b"0"), ("gq-deliver-at", b"0")),
    ]


@ENCODERS
def test_prefix_stands_before_every_value_that_is_not_null(encode: Encode) -> None:
    rows = rows_of(3, values=strings([b"x", None, b""]), prefix=b"\x00\x00\x00\x00\x07")
    decoded = decode_records(encode(rows, longs([0, 1, 2]), 0, 0), 0, 3, 2)
    assert [row[3] for row in decoded] == [b"\x00\x00\x00\x00\x07x", None, b"\x00\x00\x00\x00\x07"]


@ENCODERS
def test_timestamps_are_deltas_from_the_batchs_and_the_usual_one_where_a_row_has_none(encode: Encode) -> None:
    rows = rows_of(3, timestamps=longs([1_000, NO_TIMESTAMP, -5]))
    decoded = decode_records(encode(rows, longs([0, 1, 2]), 1_000, 1_700), 0, 3, 2)
    assert [row[1] for row in decoded] == [0, 700, -1_005]


@ENCODERS
def test_timestamp_too_far_from_the_batchs_is_refused(encode: Encode) -> None:
    rows = rows_of(2, timestamps=longs([2**63 - 1, 0]))
    with pytest.raises(ValueError, match="row 0: its timestamp is too far from that of its batch"):
        encode(rows, longs([1, 0]), -1, 0)


@needs_the_compiled_twin  # the other one would write two gigabytes before it knows
def test_rows_that_take_more_than_a_batch_can_have_are_refused() -> None:
    rows = rows_of(1, values=strings([bytes(2**20)]))
    with pytest.raises(ValueError, match="the rows take more than the 2147483519 bytes"):
        encode_columns(rows, longs([0] * 2_100), 0, 0)


SHORT = "a column is shorter than the rows"


@ENCODERS
@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        (rows_of(2, keys=strings([b"a"])), SHORT),
        (rows_of(2, values=strings([b"a"])), SHORT),
        (rows_of(2, headers=lists([None])), SHORT),
        (rows_of(2, priorities=b"\x00"), SHORT),
        (rows_of(2, deliver_ats=longs([1])), SHORT),
        (rows_of(2, timestamps=longs([1])), SHORT),
        (rows_of(1, keys=strings([b"a"])._replace(first=1)), SHORT),
        (rows_of(1, keys=strings([b"a"])._replace(first=-1)), SHORT),
        (rows_of(1, keys=strings([b"a"])._replace(first=2**62)), SHORT),
        (rows_of(1, keys=strings([b"a"])._replace(length=2**62)), SHORT),
        (rows_of(1, keys=strings([b"a"])._replace(length=-1)), SHORT),
        (rows_of(1, keys=strings([b"a"])._replace(validity=b"")), SHORT),
        (rows_of(1, keys=strings([b"a"])._replace(offsets=longs([0, 2]))), "row 0: its bytes lie outside"),
        (rows_of(1, keys=strings([b"a"])._replace(offsets=longs([-1, 1]))), "row 0: its bytes lie outside"),
        (rows_of(1, keys=strings([b"a"])._replace(offsets=longs([1, 0]))), "row 0: its bytes lie outside"),
        (rows_of(1, headers=lists([None])._replace(offsets=longs([0]))), SHORT),
        (rows_of(1, headers=lists([[]])._replace(offsets=longs([0, 1]))), "row 0: its headers lie outside"),
        (rows_of(1, headers=lists([[]])._replace(offsets=longs([-1, 0]))), "row 0: its headers lie outside"),
        (rows_of(1, headers=lists([[(None, b"x")]])), "row 0: a header has no name"),
        (rows_of(-1), SHORT),
    ],
)
def test_buffers_that_do_not_hold_what_they_should_are_refused(
    encode: Encode, rows: Rows, reason: str
) -> None:
    sizes = record_sizes if encode is encode_columns else record_sizes_in_python
    with pytest.raises(ValueError, match=reason):
        encode(rows, longs([0]), 0, 0)
    with pytest.raises(ValueError, match=reason):
        sizes(rows)


@ENCODERS
@pytest.mark.parametrize("index", [-1, 2, 2**62])
def test_row_that_is_not_there_is_refused(encode: Encode, index: int) -> None:
    with pytest.raises(ValueError, match=f"there is no row {index}; there are 2"):
        encode(rows_of(2), longs([0, index]), 0, 0)


# ---------------------------------------------------------------- the twins

NAMES = st.text(max_size=4).map(str.encode)
HEADER_LISTS = st.one_of(st.none(), st.lists(st.tuples(NAMES, BLOCKS), max_size=3))


@st.composite
def drawn_rows(draw: st.DrawFn) -> Rows:
    length = draw(st.integers(1, 6))

    def drawn(one: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(one, min_size=length, max_size=length))

    def maybe(column: Any) -> Any:
        return column if draw(st.booleans()) else None

    before = draw(st.lists(BLOCKS, max_size=9))
    return Rows(
        length,
        maybe(strings(drawn(BLOCKS), before=before)),
        maybe(strings(drawn(BLOCKS))),
        maybe(lists(drawn(HEADER_LISTS))),
        maybe(struct.pack(f"{length}b", *drawn(st.integers(-1, 4)))),
        maybe(longs(drawn(st.one_of(st.just(-1), st.integers(0, 10**15 - 1))))),
        maybe(longs(drawn(st.one_of(st.just(NO_TIMESTAMP), INT64, st.integers(0, 10**13))))),
        draw(st.sampled_from([b"", b"\x00\x00\x00\x00\x01"])),
    )


def outcome(work: Callable[..., Any], *given_: Any) -> Any:
    try:
        return bytes(work(*given_))
    except ValueError as error:
        return str(error)


@needs_the_compiled_twin
@given(drawn_rows(), st.data(), st.one_of(st.integers(0, 10**13), INT64), st.integers(0, 10**13))
@settings(max_examples=300, deadline=None)
def test_twins_write_the_same_bytes_within_the_sizes_that_they_say(
    rows: Rows, data: st.DataObject, base: int, usual: int
) -> None:
    picked = data.draw(st.lists(st.integers(0, rows.length - 1), max_size=8))
    encoded = outcome(encode_columns, rows, longs(picked), base, usual)
    assert encoded == outcome(encode_columns_in_python, rows, longs(picked), base, usual)
    sizes = record_sizes(rows)
    assert sizes == record_sizes_in_python(rows)
    if isinstance(encoded, bytes):
        largest = memoryview(sizes).cast("q")
        assert len(encoded) <= sum(largest[row] for row in picked)
        assert len(decode_records(encoded, 0, len(picked), len(picked) - 1)) == len(picked)


@needs_the_compiled_twin
@given(drawn_rows(), st.integers(-3, 12), st.binary(max_size=40), st.integers(0, 40), st.data())
@settings(max_examples=300, deadline=None)
def test_twins_refuse_the_same_broken_buffers(
    rows: Rows, moved: int, noise: bytes, at: int, data: st.DataObject
) -> None:
    column = data.draw(st.sampled_from(["keys", "values", "names", "header_values", "lists"]))
    field = data.draw(st.sampled_from(["offsets", "data", "validity", "first"]))

    def broken(part: Any) -> Any:
        if part is None or (field == "data" and isinstance(part, Lists)):
            return part
        old = getattr(part, field)
        if field == "first":
            return part._replace(first=moved)
        return part._replace(**{field: (old or b"")[:at] + noise})

    if column in ("keys", "values"):
        rows = rows._replace(**{column: broken(getattr(rows, column))})
    elif rows.headers is not None:
        headers = rows.headers
        if column == "lists":
            headers = broken(headers)
        else:
            name = column.removeprefix("header_")
            headers = headers._replace(**{name: broken(getattr(headers, name))})
        rows = rows._replace(headers=headers)
    picked = longs(list(range(rows.length)))
    expected = outcome(encode_columns_in_python, rows, picked, 0, 0)
    if isinstance(expected, str) and "codec can't decode" in expected:
        return  # the twin wants names to be text, which Arrow promises
    assert outcome(encode_columns, rows, picked, 0, 0) == expected


# ---------------------------------------------------------------- partitions

PARTITIONERS = pytest.mark.parametrize("partitions", [partitions_of, partitions_of_in_python])


@PARTITIONERS
@pytest.mark.parametrize("partitioner", list(Partitioner))
def test_partitions_are_those_of_the_partitioner_and_none_for_null(
    partitions: Callable[..., bytearray], partitioner: Partitioner
) -> None:
    keys = [None, b"", b"a", b"ab", b"abc", b"abcd", b"\xff" * 5, bytes(range(256)), None]
    for count in (1, 7, 2**31 - 1):
        found = list(memoryview(partitions(strings(keys, before=[b"x"]), str(partitioner), count)).cast("i"))
        assert found == [-1 if key is None else partition_for_key(partitioner, key, count) for key in keys]


@needs_the_compiled_twin
@given(
    st.lists(st.one_of(st.none(), st.binary(max_size=40))),
    st.sampled_from(list(Partitioner)),
    st.integers(1, 50),
)
@settings(max_examples=200, deadline=None)
def test_twins_find_the_same_partitions(
    keys: list[bytes | None], partitioner: Partitioner, count: int
) -> None:
    found = partitions_of(strings(keys), partitioner, count)
    assert found == partitions_of_in_python(strings(keys), partitioner, count)


@PARTITIONERS
def test_partitioners_and_counts_that_are_none_are_refused(partitions: Callable[..., bytearray]) -> None:
    with pytest.raises(ValueError, match="'md5' is not a valid Partitioner"):
        partitions(strings([b"a"]), "md5", 3)
    for count in (0, -1, 2**31):
        with pytest.raises(ValueError, match=f"a topic cannot have {count} partitions"):
            partitions(strings([b"a"]), "murmur2", count)
    with pytest.raises(ValueError, match="row 0: its bytes lie outside"):
        partitions(strings([b"a"])._replace(offsets=longs([0, 9])), "murmur2", 3)
