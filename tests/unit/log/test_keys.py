"""The map of keys: its compiled form and its Python twin give the same bytes, and only what must go goes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goqueue.log.keys import KeyMap, KeyMapInPython, new_key_map
from goqueue.log.records import IS_COMPILED, Row, decode_records, encode_row, encode_varint

INT64 = st.integers(-(2**63), 2**63 - 1)
KEYS = st.one_of(st.none(), st.sampled_from([b"", b"a", b"b", b"k" * 15, b"k" * 16, b"k" * 40]))
HEADERS = st.lists(
    st.tuples(st.sampled_from(["", "h"]), st.one_of(st.none(), st.binary(max_size=3))), max_size=2
)
Batch = tuple[list[Row], int]


@st.composite
def batches(draw: st.DrawFn) -> list[Batch]:
    """Rows with rising offset deltas and gaps, and the base offset of each batch."""
    found: list[Batch] = []
    base = draw(st.integers(0, 2**40))
    for _ in range(draw(st.integers(1, 4))):
        deltas = sorted(draw(st.sets(st.integers(0, 300), max_size=40)))
        value = st.one_of(st.none(), st.binary(max_size=130))
        rows: list[Row] = [
            (delta, draw(INT64), draw(KEYS), draw(value), tuple(draw(HEADERS))) for delta in deltas
        ]
        found.append((rows, base))
        base += 301
    return found


def maps() -> list[KeyMap]:
    return [new_key_map(), KeyMapInPython()]


def payload_of(rows: list[Row]) -> bytes:
    return b"".join(map(encode_row, rows))


@given(batches(), st.booleans(), INT64, st.one_of(st.none(), st.integers(0, 2**63 - 1)))
@settings(max_examples=200, deadline=None)
def test_both_forms_keep_the_same_bytes(
    found: list[Batch], drops_tombstones: bool, base_timestamp: int, horizon: int | None
) -> None:
    compiled, plain = maps()
    noted = found[: len(found) // 2 + 1]
    for rows, base in noted:
        for one in (compiled, plain):
            one.note(payload_of(rows), 0, len(rows), 300, base)
    assert len(compiled) == len(plain)
    for rows, base in found:
        arguments = (len(rows), 300, base, drops_tombstones, base_timestamp, horizon)
        picked = compiled.pick(b"head" + payload_of(rows), 4, *arguments)
        assert picked == plain.pick(b"head" + payload_of(rows), 4, *arguments)


@given(batches())
@settings(max_examples=100, deadline=None)
def test_a_record_stays_unless_a_later_one_has_its_key(found: list[Batch]) -> None:
    last = {key: base + delta for rows, base in found for delta, _, key, _, _ in rows if key is not None}
    for one in maps():
        for rows, base in found:
            one.note(payload_of(rows), 0, len(rows), 300, base)
        for rows, base in found:
            count, _, payload = one.pick(payload_of(rows), 0, len(rows), 300, base, False, 0, None)
            kept = decode_records(payload_of(rows) if payload is None else payload, 0, count, 300)
            assert kept == [row for row in rows if row[2] is None or last[row[2]] == base + row[0]]


def test_tombstones_go_when_they_are_due_and_bring_a_horizon_when_they_are_not() -> None:
    rows: list[Row] = [(0, 5, b"a", None, ()), (1, 7, b"b", b"x", ()), (2, 0, None, None, ())]
    for one in maps():
        assert one.pick(payload_of(rows), 0, 3, 2, 10, True, 0, None) == (2, True, payload_of(rows[1:]))
        shifted: list[Row] = [(delta, stamp - 900, *rest) for delta, stamp, *rest in rows]  # type: ignore[misc]  # a row again
        assert one.pick(payload_of(rows), 0, 3, 2, 10, False, 100, 1_000) == (3, True, payload_of(shifted))
        assert one.pick(payload_of(rows[1:]), 0, 2, 2, 10, False, 100, 1_000) == (2, False, None)


def test_many_keys_are_all_remembered() -> None:
    rows: list[Row] = [(at, 0, b"%d" % (at % 5_000), b"", ()) for at in range(20_000)]
    payload = payload_of(rows)
    for one in maps():
        one.note(payload, 0, 20_000, 19_999, 0)
        assert len(one) == 5_000
        count, _, kept = one.pick(payload, 0, 20_000, 19_999, 0, False, 0, None)
        assert (count, kept) == (5_000, payload_of(rows[15_000:]))


@given(st.binary(max_size=60), st.integers(0, 2**31 - 1))
@settings(max_examples=300, deadline=None)
def test_both_forms_refuse_the_same_payloads_in_the_same_words(payload: bytes, count: int) -> None:
    outcomes = []
    for one in maps():
        try:
            one.note(payload, 0, count, 1_000, 0)
            one.pick(payload, 0, count, 1_000, 0, False, 0, None)
            outcomes.append("")
        except ValueError as error:
            outcomes.append(str(error))
    assert outcomes[0] == outcomes[1]


def test_a_payload_cut_at_any_byte_is_refused() -> None:
    payload = payload_of([(0, 1, b"key", b"value", (("h", b"1"),)), (1, 1, b"key", None, ())])
    for one in maps():
        for end in range(len(payload)):
            with pytest.raises(ValueError, match=r"record \d: its length does not fit the batch"):
                one.pick(payload[:end], 0, 2, 1, 0, False, 0, None)
        with pytest.raises(ValueError, match="bytes are left over after 2 records"):
            one.note(payload + b"\x00", 0, 2, 1, 0)
        with pytest.raises(ValueError, match="the batch has no payload"):
            one.note(payload, len(payload) + 1, 0, 1, 0)


def test_a_length_that_is_written_longer_than_it_need_be_is_kept_as_it_is() -> None:
    body = encode_row((0, 0, b"k", b"v", ()))[1:]
    payload = bytes([len(body) * 2 | 128, 0]) + body
    assert encode_varint(len(body)) != payload[:2]
    for one in maps():
        other = encode_row((1, 0, b"z", b"v", ()))
        one.note(encode_row((2, 0, b"z", b"v", ())), 0, 1, 2, 0)
        assert one.pick(payload + other, 0, 2, 1, 0, False, 0, None) == (1, False, payload)


@pytest.mark.skipif(not IS_COMPILED, reason="of the compiled form")
def test_keys_are_told_apart_by_siphash_2_4_of_128_bits() -> None:
    """The vectors are those of its reference implementation."""
    from goqueue.log import _kernel

    one = _kernel.KeyMap(bytes(range(16)))
    assert one.digest(b"").hex() == "a3817f04ba25a8e66df67214c7550293"
    assert one.digest(bytes(range(15))).hex() == "5493e99933b0a8117e08ec0f97cfc3d9"
    with pytest.raises(ValueError, match="a seed has 16 bytes"):
        _kernel.KeyMap(b"short")
