"""What dead letters tell, and that the way back undoes it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.core.dead_letter import MISSING, dead_letter, origin_of, redrive_count, sent_back
from goqueue.core.lease.events import Letter, Moving, Target
from goqueue.model.record import NewRecord, StoredRecord

LETTER = Letter(7, 4, 1_000, 61_500, "ann")
MOVE = Moving(1, 1, [LETTER], Target("orders.dlq", 2), 0, 70_000, "boom", "rejected", "workers")
HEADERS = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=4).map(tuple)


def stored(record: NewRecord) -> StoredRecord:
    return StoredRecord(0, 80_000, record.key, record.value, record.headers)


def test_times_are_instants_and_counts_are_digits() -> None:
    letter = dead_letter("orders", 2, StoredRecord(7, 500, None, b"v"), LETTER, MOVE)
    assert dict(letter.headers) == {
        "gq-dlq-topic": b"orders",
        "gq-dlq-partition": b"2",
        "gq-dlq-offset": b"7",
        "gq-dlq-timestamp": b"1970-01-01T00:00:00.500Z",
        "gq-dlq-attempts": b"4",
        "gq-dlq-first-delivery": b"1970-01-01T00:00:01.000Z",
        "gq-dlq-last-delivery": b"1970-01-01T00:01:01.500Z",
        "gq-dlq-group": b"workers",
        "gq-dlq-consumer": b"ann",
        "gq-dlq-reason": b"rejected",
        "gq-dlq-error": b"boom",
    }


@given(st.none() | st.binary(max_size=9), st.none() | st.binary(max_size=9), HEADERS, st.integers(1, 4))
def test_as_many_ways_back_as_deaths_give_the_record_as_it_was(
    key: bytes | None, value: bytes | None, headers: tuple[tuple[str, bytes | None], ...], deaths: int
) -> None:
    record = StoredRecord(7, 500, key, value, headers)
    for depth in range(deaths):
        record = stored(dead_letter(f"topic-{depth}", depth, record, LETTER, MOVE))
    for depth in reversed(range(deaths)):
        origin = origin_of(record)
        assert origin is not None
        assert (origin.topic, origin.partition, origin.offset) == (f"topic-{depth}", depth, 7)
        assert (origin.group, origin.reason, origin.error) == ("workers", "rejected", "boom")
        record = stored(sent_back(record))
    assert (record.key, record.value) == (key, value)
    assert record.headers == (*headers, ("gq-redrive-count", b"%d" % deaths))
    assert redrive_count(record) == deaths


def test_a_letter_without_its_record_cannot_go_back() -> None:
    letter = dead_letter("orders", 2, None, LETTER, MOVE)
    assert (letter.key, letter.value, dict(letter.headers)[MISSING] is None) == (None, b"", False)
    assert origin_of(stored(letter)) is None


@pytest.mark.parametrize("number", [b"", b"-1", b"x", b"1" * 30, "٣".encode(), None])
def test_headers_that_make_no_sense_make_no_dead_letter(number: bytes | None) -> None:
    headers = (("gq-dlq-topic", b"orders"), ("gq-dlq-partition", number), ("gq-dlq-offset", b"1"))
    assert origin_of(StoredRecord(0, 0, None, None, headers)) is None
    assert redrive_count(StoredRecord(0, 0, None, None, (("gq-redrive-count", number),))) == 0
