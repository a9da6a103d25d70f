"""Events of groups as keyed records: a round trip for each, one key for what replaces another, and damage is named."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.core.group.consumer_events import ConsumerGroupAdvanced, ConsumerGroupForgotten, MemberRemoved
from goqueue.core.group.events import (
    Event,
    GroupCodec,
    GroupForgotten,
    GroupSaved,
    OffsetCommitted,
    OffsetForgotten,
    OffsetPended,
    PendedForgotten,
    SavedMember,
    TransactionCompleted,
    TransactionForgotten,
)
from goqueue.model.errors import StorageError

CODEC = GroupCodec()
names = st.text(max_size=20)
counts = st.integers(0, 2**31 - 1)
longs = st.integers(0, 2**63 - 1)

members = st.builds(
    SavedMember,
    member_id=names,
    instance_id=st.none() | names,
    client_id=names,
    client_host=names,
    session_timeout_ms=counts,
    rebalance_timeout_ms=counts,
    protocols=st.lists(st.tuples(names, st.binary(max_size=20)), max_size=3).map(tuple),
    assignment=st.binary(max_size=20),
)
events = st.one_of(
    st.builds(
        GroupSaved,
        group_id=names,
        generation=counts,
        protocol_type=names,
        protocol_name=st.none() | names,
        leader_id=st.none() | names,
        since_ms=longs,
        members=st.lists(members, max_size=3).map(tuple),
    ),
    st.builds(GroupForgotten, names),
    st.builds(
        OffsetCommitted,
        group_id=names,
        topic=names,
        partition=counts,
        offset=longs,
        leader_epoch=st.integers(-1, 9),
        metadata=names,
        committed_ms=longs,
        expires_ms=st.none() | longs,
        rank=counts,
        topic_id=counts,
    ),
    st.builds(OffsetForgotten, names, names, counts),
    st.builds(
        OffsetPended,
        producer_id=longs,
        producer_epoch=counts,
        group_id=names,
        topic=names,
        partition=counts,
        offset=longs,
        leader_epoch=st.integers(-1, 9),
        metadata=names,
        pended_ms=longs,
        rank=counts,
        topic_id=counts,
    ),
    st.builds(PendedForgotten, longs, names, names, counts),
    st.builds(TransactionCompleted, longs, counts, longs),
    st.builds(TransactionForgotten, longs),
    st.builds(ConsumerGroupAdvanced, names, counts, counts, names),
    st.builds(ConsumerGroupForgotten, names),
    st.builds(MemberRemoved, names, names),
)


@given(events)
def test_every_event_comes_back_as_it_was_written(event: Event) -> None:
    assert CODEC.decode(*CODEC.encode(event)) == event


@given(events)
def test_tombstone_has_no_value_and_takes_the_key_of_what_it_removes(event: Event) -> None:
    key, value = CODEC.encode(event)
    gone = CODEC.decode(key, None)
    assert CODEC.encode(gone) == (key, None)
    assert (value is None) == (gone == event)


@given(events, st.data())
def test_damaged_event_is_a_storage_error_and_never_another_kind(event: Event, data: st.DataObject) -> None:
    key, value = CODEC.encode(event)
    if value is None:
        return
    cut = data.draw(st.integers(0, len(value) - 1))
    with pytest.raises(StorageError):
        CODEC.decode(key, value[:cut])


@pytest.mark.parametrize(
    "key",
    [
        b"",
        b"x",
        b"[]",
        b"{}",
        b'["nothing", "g"]',
        b'["group"]',
        b'["group", 1]',
        b'["offset", "g", "t"]',
        b'["offset", "g", "t", "0"]',
        b'["pending", "1", "g", "t", 0]',
        b'["producer", null]',
        b'["member", "g"]',
    ],
)
@pytest.mark.parametrize("value", [None, b"{}"])
def test_key_that_no_event_has_is_a_storage_error(key: bytes, value: bytes | None) -> None:
    with pytest.raises(StorageError):
        CODEC.decode(key, value)


def test_keys_and_values_are_those_of_the_format() -> None:
    """They are on disk: whoever changes them must read the old ones."""
    committed = OffsetCommitted("g", "t", 3, 7, -1, "note", 1_000, None, 2)
    key, value = CODEC.encode(committed)
    assert key == b'["offset","g","t",3]'
    assert value is not None
    assert msgspec.json.decode(value) == {
        "group_id": "g",
        "topic": "t",
        "partition": 3,
        "offset": 7,
        "leader_epoch": -1,
        "metadata": "note",
        "committed_ms": 1_000,
        "expires_ms": None,
        "rank": 2,
    }
    of_topic = OffsetCommitted("g", "t", 3, 7, -1, "note", 1_000, None, 2, 5)
    assert CODEC.encode(of_topic) == (key, value[:-1] + b',"topic_id":5}')
    assert CODEC.encode(OffsetPended(9, 0, "g", "t", 3, 7, -1, "", 1, 1))[0] == b'["pending",9,"g","t",3]'
    assert CODEC.encode(TransactionCompleted(9, 0, 1))[0] == b'["producer",9]'
    assert CODEC.encode(GroupForgotten("g"))[0] == b'["group","g"]'
