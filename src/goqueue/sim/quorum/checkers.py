"""What must hold in every quorum at every moment, one class per rule."""

from __future__ import annotations

from collections.abc import Sequence

from goqueue.core.raft.messages import AnswerVote, AskVote, Entry, Message, Snapshot
from goqueue.core.raft.raft import Raft
from goqueue.model.errors import invariant


class OneLeaderPerTerm:
    def __init__(self) -> None:
        self._leaders: dict[int, str] = {}

    def look(self, raft: Raft) -> None:
        if raft.is_leader:
            first = self._leaders.setdefault(raft.term, raft.name)
            invariant(first == raft.name, f"two leaders in term {raft.term}: {first} and {raft.name}")


class OneVotePerTerm:
    """Over all lives of a voter; what it forgets with its log, it must not use."""

    def __init__(self) -> None:
        self._votes: dict[tuple[str, int], str] = {}

    def sent(self, message: Message) -> None:
        if isinstance(message, AnswerVote) and message.is_granted and not message.is_pre:
            self._count(message.source, message.term, message.target)
        elif isinstance(message, AskVote) and not message.is_pre:
            self._count(message.source, message.term, message.source)

    def lost(self, name: str) -> None:
        self._votes = {key: vote for key, vote in self._votes.items() if key[0] != name}

    def _count(self, voter: str, term: int, candidate: str) -> None:
        is_same = self._votes.setdefault((voter, term), candidate) == candidate
        invariant(is_same, f"{voter} voted twice in term {term}")


class OneHistory:
    """What is committed is the same everywhere, comes in order and once per life."""

    def __init__(self) -> None:
        self.entries: dict[int, Entry] = {}
        self._next: dict[str, int] = {}

    def started(self, name: str) -> None:
        self._next[name] = 1

    def committed(self, name: str, entry: Entry) -> None:
        expected = self._next[name]
        invariant(entry.index == expected, f"{name} got {entry.index} instead of {expected}")
        self._next[name] += 1
        invariant(
            self.entries.setdefault(entry.index, entry) == entry, f"{name} has another entry {entry.index}"
        )

    def restored(self, name: str, snapshot: Snapshot, payloads: Sequence[bytes]) -> None:
        is_ahead = snapshot.index >= self._next[name] or self._next[name] == 1
        invariant(is_ahead, f"{name} was set back to {snapshot.index}")
        self._next[name] = snapshot.index + 1
        decided = [self.entries[index + 1].payload for index in range(snapshot.index)]
        invariant(list(payloads) == decided, f"{name} got another history up to {snapshot.index}")


class LeadersHaveEverything:
    """Whoever is elected has all that was committed before."""

    def __init__(self, history: OneHistory) -> None:
        self._history = history
        self._seen: set[tuple[str, int]] = set()

    def look(self, raft: Raft) -> None:
        if not raft.is_leader or (raft.name, raft.term) in self._seen:
            return
        self._seen.add((raft.name, raft.term))
        log = raft._log
        for index, entry in self._history.entries.items():
            if index > log.start_index and entry.term < raft.term:
                is_there = log.term_at(index) == entry.term
                invariant(is_there, f"{raft.name} leads term {raft.term} without entry {index}")


class LeadersCommitTheirOwn:
    """By counting, a leader commits entries of its own term only; older ones go with them."""

    def __init__(self) -> None:
        self._committed: dict[tuple[str, int], int] = {}

    def look(self, raft: Raft) -> None:
        if not raft.is_leader:
            return
        before = self._committed.setdefault((raft.name, raft.term), raft.commit_index)
        if raft.commit_index > before:
            self._committed[raft.name, raft.term] = raft.commit_index
            is_own = raft._log.term_at(raft.commit_index) == raft.term
            invariant(is_own, f"{raft.name} committed an older term by counting")


class LogsMatch:
    """Two logs with the same term at an index are the same up to there."""

    def look(self, raft: Raft, others: Sequence[Raft]) -> None:
        log = raft._log
        for other in (one._log for one in others if one is not raft):
            start = max(log.start_index, other.start_index)
            last = min(log.last_index, other.last_index)
            while last > start and log.term_at(last) != other.term_at(last):
                last -= 1
            if last > start:
                is_same = log.between(start + 1, last + 1) == other.between(start + 1, last + 1)
                invariant(is_same, f"logs with the same term at {last} differ before it")


class RaftCheckers:
    """`harm_only`: what a cluster would notice (two leaders, a decision that is lost or differs), and not the mistake that leads to
    it. Where that is to be found, a checker that knows the mistake would prove little."""

    def __init__(self, *, harm_only: bool = False) -> None:
        self._is_strict = not harm_only
        self.history = OneHistory()
        self._leaders = OneLeaderPerTerm()
        self._votes = OneVotePerTerm()
        self._completeness = LeadersHaveEverything(self.history)
        self._own = LeadersCommitTheirOwn()
        self._logs = LogsMatch()

    def started(self, name: str) -> None:
        self.history.started(name)

    def lost(self, name: str) -> None:
        self._votes.lost(name)

    def sent(self, message: Message) -> None:
        if self._is_strict:
            self._votes.sent(message)

    def committed(self, name: str, entry: Entry) -> None:
        self.history.committed(name, entry)

    def restored(self, name: str, snapshot: Snapshot, payloads: Sequence[bytes]) -> None:
        self.history.restored(name, snapshot, payloads)

    def look(self, raft: Raft, running: Sequence[Raft]) -> None:
        self._leaders.look(raft)
        self._completeness.look(raft)
        if self._is_strict:
            self._own.look(raft)
            self._logs.look(raft, running)
