"""One member of a quorum, to be asked by hand."""

from __future__ import annotations

from collections.abc import Sequence

from goqueue.core.raft.config import RaftConfig
from goqueue.core.raft.messages import (
    AnswerVote,
    Append,
    Appended,
    AskVote,
    Entry,
    EntryKind,
    Message,
    Snapshot,
    encode_voters,
)
from goqueue.core.raft.raft import HardState, Raft, Restored

THREE = ("n1", "n2", "n3")
LATE = 100_000  # nobody has heard a leader for long


def command(index: int, term: int, payload: bytes = b"x") -> Entry:
    return Entry(index, term, EntryKind.COMMAND, payload)


def voters_entry(index: int, term: int, *voters: str) -> Entry:
    return Entry(index, term, EntryKind.VOTERS, encode_voters(voters))


def member(
    name: str = "n1",
    voters: tuple[str, ...] = THREE,
    *,
    state: HardState | None = None,
    entries: Sequence[Entry] = (),
    snapshot: Snapshot | None = None,
    config: RaftConfig | None = None,
) -> Raft:
    term = entries[-1].term if entries else snapshot.term if snapshot else 0
    restored = Restored(state or HardState(term, None), snapshot, tuple(entries), voters)
    return Raft(config or RaftConfig(name), restored, now_ms=0, chance=lambda count: 0)


def work(raft: Raft) -> tuple[Message, ...]:
    """Do all that it says; what it sends meanwhile."""
    messages: list[Message] = []
    while (ready := raft.ready()) is not None:
        messages += ready.messages
        raft.advance(ready)
    return tuple(messages)


def committed(raft: Raft) -> list[int]:
    indexes: list[int] = []
    while (ready := raft.ready()) is not None:
        indexes += [entry.index for entry in ready.committed]
        raft.advance(ready)
    return indexes


def leader(
    voters: tuple[str, ...] = THREE,
    *,
    entries: Sequence[Entry] = (),
    snapshot: Snapshot | None = None,
    state: HardState | None = None,
    config: RaftConfig | None = None,
) -> Raft:
    """`n1`, just elected, with nothing of its own committed yet."""
    raft = member("n1", voters, state=state, entries=entries, snapshot=snapshot, config=config)
    raft.campaign(0)
    for is_pre in (True, False):
        term = raft.term + 1 if is_pre else raft.term
        work(raft)
        for name in voters:
            if name != "n1":
                raft.step(AnswerVote(name, "n1", term, True, is_pre), 0)
    assert raft.is_leader
    return raft


def accepted(
    raft: Raft, source: str, index: int, now_ms: int = 0, *, context: int = 1, is_recovering: bool = False
) -> None:
    raft.step(Appended(source, raft.name, raft.term, True, index, 0, context, is_recovering), now_ms)


def refused(raft: Raft, source: str, index: int, hint_term: int = 0, *, is_recovering: bool = False) -> None:
    raft.step(Appended(source, raft.name, raft.term, False, index, hint_term, 1, is_recovering), 0)


def active_leader(voters: tuple[str, ...] = THREE, config: RaftConfig | None = None) -> Raft:
    raft = leader(voters, config=config)
    work(raft)
    for name in voters:
        if name != "n1":
            accepted(raft, name, raft.last_index)
    work(raft)
    assert raft.is_active
    return raft


def ask(
    source: str,
    target: str,
    term: int,
    last_index: int = 0,
    last_term: int = 0,
    *,
    is_pre: bool = False,
    is_transfer: bool = False,
) -> AskVote:
    return AskVote(source, target, term, last_index, last_term, is_pre, is_transfer)


def append(
    source: str,
    target: str,
    term: int,
    *entries: Entry,
    prev: tuple[int, int] = (0, 0),
    commit: int = 0,
    recovered: int = 0,
) -> Append:
    return Append(source, target, term, prev[0], prev[1], entries, commit, 1, recovered)


def answers(messages: Sequence[Message]) -> list[tuple[bool, int]]:
    return [(one.is_accepted, one.index) for one in messages if isinstance(one, Appended)]


def votes(messages: Sequence[Message]) -> list[bool]:
    return [one.is_granted for one in messages if isinstance(one, AnswerVote)]


def appends(messages: Sequence[Message], target: str) -> list[Append]:
    return [one for one in messages if isinstance(one, Append) and one.target == target]
