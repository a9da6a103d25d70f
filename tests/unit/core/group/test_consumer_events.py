"""Events of consumer groups: to a key and a value and back, a tombstone for each kind, and no guessing."""

from __future__ import annotations

import msgspec
import pytest

from goqueue.core.group.consumer_events import (
    ConsumerEvent,
    ConsumerGroupAdvanced,
    ConsumerGroupForgotten,
    CurrentRemoved,
    MemberReconciled,
    MemberRemoved,
    MemberState,
    MemberSubscribed,
    TargetAssigned,
    TargetRemoved,
    decode_consumer_event,
    encode_consumer_event,
    pack,
    unpack,
)
from goqueue.model.errors import StorageError

ASSIGNMENT = (("a", (0, 2)), ("b", (1,)))
EVENTS: list[tuple[ConsumerEvent, list[str]]] = [
    (ConsumerGroupAdvanced("g", 3, 2, "digest"), ["consumer", "g"]),
    (ConsumerGroupForgotten("g"), ["consumer", "g"]),
    (
        MemberSubscribed("g", "m", "i", None, "c", "h", 60_000, ("a", "b"), "x.*", "range"),
        ["member", "g", "m"],
    ),
    (MemberSubscribed("g", "ü\0", None, "r", "", "", 0, (), None, None), ["member", "g", "ü\0"]),
    (MemberRemoved("g", "m"), ["member", "g", "m"]),
    (TargetAssigned("g", "m", ASSIGNMENT), ["target", "g", "m"]),
    (TargetRemoved("g", "m"), ["target", "g", "m"]),
    (
        MemberReconciled("g", "m", 3, 2, MemberState.PENDING_REVOKE, ASSIGNMENT, (("c", (0,)),)),
        ["current", "g", "m"],
    ),
    (CurrentRemoved("g", "m"), ["current", "g", "m"]),
]


@pytest.mark.parametrize(("event", "key"), EVENTS)
def test_event_comes_back_from_its_key_and_value(event: ConsumerEvent, key: list[str]) -> None:
    stored_key, value = encode_consumer_event(event)
    parts: list[object] = msgspec.json.decode(stored_key)
    assert parts == key
    assert decode_consumer_event(parts, value) == event


@pytest.mark.parametrize(("event", "key"), EVENTS)
def test_what_takes_something_away_is_a_tombstone(event: ConsumerEvent, key: list[str]) -> None:
    takes_away = type(event).__name__.endswith(("Removed", "Forgotten"))
    assert (encode_consumer_event(event)[1] is None) is takes_away


@pytest.mark.parametrize("key", [[], ["consumer"], ["consumer", 1], ["member", "g"], ["offset", "g", "t", 0]])
def test_key_of_something_else_is_refused(key: list[object]) -> None:
    with pytest.raises(StorageError, match="not the key"):
        decode_consumer_event(key, b"{}")


@pytest.mark.parametrize(
    "value", [b"", b"{}", b"[]", b'{"group_id":"g","member_id":"m","partitions":[["a",[null]]]}']
)
def test_value_that_cannot_be_read_is_refused(value: bytes) -> None:
    with pytest.raises(StorageError, match="TargetAssigned"):
        decode_consumer_event(["target", "g", "m"], value)


def test_packing_sorts_and_unpacking_keeps_the_order() -> None:
    assert pack([("b", 1), ("a", 2), ("a", 0)]) == ASSIGNMENT
    assert unpack(ASSIGNMENT) == [("a", 0), ("a", 2), ("b", 1)]
    assert pack([]) == ()
