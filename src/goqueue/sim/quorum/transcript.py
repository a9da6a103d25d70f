"""What a quorum did, a line per event, to be read by a person."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from goqueue.core.raft.messages import (
    AnswerVote,
    Append,
    Appended,
    AskVote,
    Entry,
    EntryKind,
    Message,
    SendSnapshot,
    TimeoutNow,
)
from goqueue.core.raft.raft import Raft, Ready


class Transcript:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self._roles: dict[str, str] = {}

    def note(self, now_ms: int, text: str) -> None:
        self.lines.append(f"{now_ms:>6} {text}")

    def ready(self, now_ms: int, raft: Raft, ready: Ready) -> None:
        role = f"{raft.role} term={raft.term}"
        if self._roles.get(raft.name) != role:
            self._roles[raft.name] = role
            self.note(now_ms, f"{raft.name} is {role}")
        saved = [
            *([f"snapshot {ready.snapshot.index}/{ready.snapshot.term}"] if ready.snapshot else []),
            *([_entries(ready.entries)] if ready.entries else []),
            *(
                [
                    f"term={ready.state.term} vote={ready.state.vote or '-'}"
                    + " recovering" * ready.state.is_recovering
                ]
                if ready.state
                else []
            ),
        ]
        if saved:
            self.note(now_ms, f"{raft.name} persists {', '.join(saved)}")
        for message in ready.messages:
            self.note(now_ms, describe(message))
        if ready.restored is not None:
            self.note(now_ms, f"{raft.name} begins from snapshot {ready.restored.index}")
        if ready.committed:
            self.note(now_ms, f"{raft.name} applies {_entries(ready.committed)}")


def describe(message: Message) -> str:
    head = f"{message.source} -> {message.target} {type(message).__name__} term={message.term}"
    match message:
        case AskVote():
            return (
                f"{head} last={message.last_index}/{message.last_term}"
                + " pre" * message.is_pre
                + " transfer" * message.is_transfer
            )
        case AnswerVote():
            return f"{head} {'granted' if message.is_granted else 'refused'}" + " pre" * message.is_pre
        case Append():
            text = f"{head} prev={message.prev_index}/{message.prev_term} commit={message.commit_index} round={message.context}"
            recovered = f" recovered={message.recovered_index}" if message.recovered_index else ""
            return text + recovered + (f" {_entries(message.entries)}" if message.entries else "")
        case Appended():
            result = "accepted" if message.is_accepted else f"refused hint={message.hint_term}"
            return (
                f"{head} {result} index={message.index} round={message.context}"
                + " recovering" * message.is_recovering
            )
        case SendSnapshot():
            return f"{head} snapshot {message.snapshot.index}/{message.snapshot.term} voters={','.join(message.snapshot.voters)}"
        case TimeoutNow():
            return head
        case _:
            assert_never(message)


def _entries(entries: Sequence[Entry]) -> str:
    """Index/term, and what it says."""
    return "[" + " ".join(f"{one.index}/{one.term}:{_content(one)}" for one in entries) + "]"


def _content(entry: Entry) -> str:
    return entry.payload.decode() if entry.kind is not EntryKind.NOOP else "noop"
