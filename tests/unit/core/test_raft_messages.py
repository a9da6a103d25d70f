"""Messages on the wire, and members that get nonsense."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.raft_members import LATE, active_leader, append, command, leader, member, work

from goqueue.core.raft.messages import (
    AnswerVote,
    Append,
    Appended,
    AskVote,
    Entry,
    EntryKind,
    Message,
    SendSnapshot,
    Snapshot,
    TimeoutNow,
    decode_message,
    decode_voters,
    encode_message,
    encode_voters,
    is_sound,
)
from goqueue.core.raft.raft import Raft

names = st.sampled_from(["n1", "n2", "n3", "n9", ""])
small = st.integers(0, 6)
payloads = st.sampled_from([b"", b"x", b"[]", b'["n1","n2"]', b'["n1","n1"]', b"\xff", b'["\xff"]', b"7"])
entries = st.builds(Entry, small, small, st.sampled_from(EntryKind), payloads)
snapshots = st.builds(Snapshot, small, small, st.lists(names, max_size=3).map(tuple), payloads)
messages: st.SearchStrategy[Message] = st.one_of(
    st.builds(AskVote, names, names, small, small, small, st.booleans(), st.booleans()),
    st.builds(AnswerVote, names, names, small, st.booleans(), st.booleans()),
    st.builds(
        Append,
        names,
        names,
        small,
        small,
        small,
        st.lists(entries, max_size=3).map(tuple),
        small,
        small,
        small,
    ),
    st.builds(Appended, names, names, small, st.booleans(), small, small, small, st.booleans()),
    st.builds(SendSnapshot, names, names, small, snapshots),
    st.builds(TimeoutNow, names, names, small),
)


@given(messages)
def test_message_comes_back_as_it_went(message: Message) -> None:
    assert decode_message(encode_message(message)) == message


@given(messages, st.data())
def test_damaged_message_is_refused_or_is_a_message(message: Message, data: st.DataObject) -> None:
    encoded = bytearray(encode_message(message))
    place = data.draw(st.integers(0, len(encoded) - 1))
    if data.draw(st.booleans()):
        del encoded[place:]
    else:
        encoded[place] ^= 1 << data.draw(st.integers(0, 7))
    try:
        decoded = decode_message(bytes(encoded))
    except msgspec.DecodeError:
        return
    assert isinstance(decoded, Message)


def test_message_is_json_that_says_its_kind() -> None:
    encoded = encode_message(TimeoutNow("n1", "n2", 3))
    assert encoded == b'{"kind":"TimeoutNow","source":"n1","target":"n2","term":3}'


@pytest.mark.parametrize("term", ["-1", "2147483648", "1e3", "null"])
def test_term_that_cannot_be_stored_is_refused(term: str) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_message(b'{"kind":"TimeoutNow","source":"a","target":"b","term":%s}' % term.encode())


def test_voters_come_back_or_are_none() -> None:
    assert decode_voters(encode_voters(["b", "a"])) == ("b", "a")
    for payload in (b"", b"[]", b"{}", b'["a","a"]', b'[""]', b"\xff", b'["a","b","c","d","e","f"]'):
        assert decode_voters(payload) is None


def test_append_that_no_leader_can_have_sent_is_not_sound() -> None:
    assert is_sound(append("n1", "n2", 2, command(4, 1), command(5, 2), prev=(3, 1)))
    assert not is_sound(append("n1", "n2", 2, command(5, 1), prev=(3, 1)))  # a gap
    assert not is_sound(append("n1", "n2", 2, command(4, 1), prev=(3, 2)))  # the term falls
    assert not is_sound(append("n1", "n2", 2, command(4, 3), prev=(3, 1)))  # of a later term
    assert not is_sound(append("n1", "n2", 2, Entry(1, 1, EntryKind.VOTERS, b"[]")))
    assert not is_sound(append("n1", "n2", 0))


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(messages, st.sampled_from([0, 1_000, LATE])), max_size=12),
    st.sampled_from([member, leader, active_leader]),
)
def test_no_message_whatever_it_says_breaks_a_member(
    sent: list[tuple[Message, int]], make: Callable[[], Raft]
) -> None:
    raft = make()
    now_ms = term = commit_index = 0
    for message, later_ms in sent:
        now_ms += later_ms
        raft.step(msgspec.structs.replace(message, target="n1"), now_ms)
        raft.tick(now_ms)
        assert raft.term >= term
        assert raft.commit_index >= commit_index
        assert raft.commit_index <= raft.last_index
        term, commit_index = raft.term, raft.commit_index
        work(raft)


def test_message_for_another_or_from_itself_is_ignored() -> None:
    raft = member()
    raft.step(append("n2", "n3", 9), 0)
    raft.step(append("n1", "n1", 9), 0)
    assert raft.term == 0
    assert raft.ready() is None


def test_second_leader_of_a_term_is_ignored() -> None:
    raft = member()
    raft.step(append("n2", "n1", 1), 0)
    raft.step(append("n3", "n1", 1, command(1, 1)), 0)
    assert raft.leader == "n2"
    assert raft.last_index == 0
