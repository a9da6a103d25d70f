"""What the members of a quorum say to each other, as JSON.

All messages are one-way; an answer is a message of its own. Whatever arrives may be old, doubled or from a peer that is
wrong: `is_sound` says whether a message can mean anything at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Final, assert_never

import msgspec
from msgspec import Meta, Struct

VOTER_COUNT_MAX: Final = 5

Term = Annotated[int, Meta(ge=0, le=2**31 - 1)]  # it is stored as a leader epoch
Index = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class EntryKind(StrEnum):
    NOOP = "noop"  # begins a leadership
    COMMAND = "command"
    VOTERS = "voters"  # who counts, from here on


class Entry(Struct, frozen=True):
    index: Index
    term: Term
    kind: EntryKind
    payload: bytes


class Snapshot(Struct, frozen=True):
    """Everything up to `index`, which was written in `term`."""

    index: Index
    term: Term
    voters: tuple[str, ...]
    payload: bytes


class AskVote(Struct, frozen=True, tag=True, tag_field="kind"):
    source: str
    target: str
    term: Term  # for which it stands; if `is_pre`, for which it would
    last_index: Index
    last_term: Term
    is_pre: bool
    is_transfer: bool  # on behalf of the leader, so it counts although that one is heard


class AnswerVote(Struct, frozen=True, tag=True, tag_field="kind"):
    source: str
    target: str
    term: Term  # granted: that of the question; refused: its own
    is_granted: bool
    is_pre: bool


class Append(Struct, frozen=True, tag=True, tag_field="kind"):
    """Without entries it is a heartbeat."""

    source: str
    target: str
    term: Term
    prev_index: Index
    prev_term: Term
    entries: tuple[Entry, ...]
    commit_index: Index
    context: Index  # the leader's round: an answer proves that the leader was followed when the round began
    recovered_index: Index = 0  # a recovering voter that has everything up to here counts again; 0: not yet


class Appended(Struct, frozen=True, tag=True, tag_field="kind"):
    source: str
    target: str
    term: Term
    is_accepted: bool
    index: Index  # accepted: everything up to it matches; refused: the next one to try as the previous index
    hint_term: Term  # refused: the term there
    context: Index
    is_recovering: bool


class SendSnapshot(Struct, frozen=True, tag=True, tag_field="kind"):
    source: str
    target: str
    term: Term
    snapshot: Snapshot


class TimeoutNow(Struct, frozen=True, tag=True, tag_field="kind"):
    """The leader asks the target to become the next one."""

    source: str
    target: str
    term: Term


Message = AskVote | AnswerVote | Append | Appended | SendSnapshot | TimeoutNow

_ENCODER: Final = msgspec.json.Encoder()
_MESSAGES: Final[msgspec.json.Decoder[Message]] = msgspec.json.Decoder(Message)
_VOTERS: Final = msgspec.json.Decoder(tuple[str, ...])


def encode_message(message: Message) -> bytes:
    return _ENCODER.encode(message)


def decode_message(data: bytes) -> Message:
    """Raises `msgspec.DecodeError`."""
    try:
        return _MESSAGES.decode(data)
    except UnicodeDecodeError as error:
        raise msgspec.DecodeError(str(error)) from error


def encode_voters(voters: Sequence[str]) -> bytes:
    return _ENCODER.encode(tuple(voters))


def decode_voters(payload: bytes) -> tuple[str, ...] | None:
    """None unless they can be voters: one to five names, each once."""
    try:
        voters = _VOTERS.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return voters if are_sound_voters(voters) else None


def are_sound_voters(voters: Sequence[str]) -> bool:
    return 1 <= len(voters) <= VOTER_COUNT_MAX and len(set(voters)) == len(voters) and all(voters)


def is_sound(message: Message) -> bool:
    """Whether an honest peer could have sent it."""
    if message.term < 1:
        return False
    match message:
        case AskVote():
            return 0 <= message.last_term <= message.term and message.last_index >= 0
        case Append():
            return _is_sound_append(message)
        case Appended():
            return message.index >= 0 and message.hint_term >= 0
        case SendSnapshot(snapshot=snapshot):
            return (
                snapshot.index >= 1
                and 1 <= snapshot.term <= message.term
                and are_sound_voters(snapshot.voters)
            )
        case AnswerVote() | TimeoutNow():
            return True
        case _:
            assert_never(message)


def _is_sound_append(message: Append) -> bool:
    index, term = message.prev_index, message.prev_term
    if index < 0 or not 0 <= term <= message.term or message.commit_index < 0 or message.context < 0:
        return False
    for entry in message.entries:
        if entry.index != index + 1 or not max(term, 1) <= entry.term <= message.term:
            return False
        if entry.kind is EntryKind.VOTERS and decode_voters(entry.payload) is None:
            return False
        index, term = entry.index, entry.term
    return True


def is_hypothetical(message: Message) -> bool:
    """A pre-vote speaks of a term that has not begun."""
    if isinstance(message, AskVote):
        return message.is_pre
    return isinstance(message, AnswerVote) and message.is_pre and message.is_granted
