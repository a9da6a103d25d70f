"""What the log of a schedule holds, there and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.core.schedule.events import (
    Fired,
    Firing,
    Message,
    Removed,
    Scheduled,
    Taken,
    TakenBatch,
    decode,
    decode_message,
    encode,
    encode_message,
)
from goqueue.model.record import NewRecord

_BYTES = st.none() | st.binary(max_size=20)
_LONG = st.integers(-(2**63), 2**63 - 1)


@given(_LONG, _LONG, st.integers(0, 4), _BYTES, _BYTES)
def test_a_delayed_record_keeps_everything(
    id: int, due_ms: int, lane: int, key: bytes | None, value: bytes | None
) -> None:
    message = Message(due_ms, lane, NewRecord(key, value, (("a", b"1"), ("b", None))))
    stored = encode_message(id, message)
    assert stored.value is not None
    assert decode_message(stored.value, stored.headers) == message
    assert decode(stored.key, stored.value) == Scheduled(id, due_ms, lane)


@pytest.mark.parametrize(
    "event",
    [
        Removed(7),
        Firing([1, 5, 9], 1_700, 3, 0, 2_147_483_647),
        Fired(3, 0, 5),
        Taken(9, 1, [TakenBatch(0, 4, 100, [1, 3])]),
    ],
)
def test_events_keep_everything(event: Removed | Firing | Fired | Taken) -> None:
    stored = encode(event)
    assert decode(stored.key, stored.value) == event


def test_a_forgotten_producer_is_a_tombstone() -> None:
    stored = encode(Taken(9, -1, []))
    assert stored.value is None
    assert decode(stored.key, stored.value) == Taken(9, -1, [])


def test_firing_and_fired_have_one_key_and_so_the_newest_counts() -> None:
    assert encode(Firing([1], 0, 1, 0, 0)).key == encode(Fired(1, 0, 1)).key


@pytest.mark.parametrize(
    ("key", "value"), [(None, b""), (b"\x00" * 8, b"\x09" + b"\x00" * 20), (b"firing", b"\xc1")]
)
def test_what_is_no_event_is_refused(key: bytes | None, value: bytes) -> None:
    with pytest.raises(ValueError):
        decode(key, value)
