"""The log in memory: everything after the newest snapshot, how much of it is durable here, committed, and given out.

`stable_index`: what the disk has for sure. `commit_index`: what the quorum has decided. `given_index`: what the state
machine got. Terms never fall along the log, which is what makes searching for a term a bisection.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from goqueue.core.raft.messages import Entry, Snapshot
from goqueue.model.errors import invariant


class RaftLog:
    def __init__(self, snapshot: Snapshot | None, entries: Iterable[Entry]) -> None:
        self.snapshot = snapshot
        self._entries = _following(snapshot, tuple(entries))
        self.stable_index = self.last_index
        self.commit_index = self.start_index
        self.given_index = self.start_index
        self.unsaved_snapshot: Snapshot | None = None  # to be persisted
        self.ungiven_snapshot = snapshot  # for the state machine

    @property
    def start_index(self) -> int:
        """The last index that is only in the snapshot; 0 without one."""
        return self.snapshot.index if self.snapshot else 0

    @property
    def last_index(self) -> int:
        return self.start_index + len(self._entries)

    @property
    def last_term(self) -> int:
        if self._entries:
            return self._entries[-1].term
        return self.snapshot.term if self.snapshot else 0

    def term_at(self, index: int) -> int | None:
        """None where the log knows nothing: after its end or before the snapshot's."""
        place = index - self.start_index
        if place == 0:
            return self.snapshot.term if self.snapshot else 0
        return self._entries[place - 1].term if 0 < place <= len(self._entries) else None

    def between(self, start: int, end: int) -> tuple[Entry, ...]:
        first = start - self.start_index - 1
        invariant(first >= 0, f"entry {start} is behind the snapshot at {self.start_index}")
        return tuple(self._entries[first : max(first, end - self.start_index - 1)])

    def chunk(self, start: int, *, count_max: int, bytes_max: int) -> tuple[Entry, ...]:
        """From `start` on, at least one if there is one."""
        entries = self.between(start, min(self.last_index + 1, start + count_max))
        size = 0
        for position, entry in enumerate(entries):
            size += len(entry.payload)
            if size > bytes_max and position > 0:
                return entries[:position]
        return entries

    def floor(self, index: int, term: int) -> int:
        """The last index up to `index` with a term up to `term`: whoever has another log differs behind it."""
        count = max(0, min(index - self.start_index, len(self._entries)))
        found = bisect_right(self._entries, term, 0, count, key=lambda entry: entry.term)
        return min(index, self.start_index + found)

    def first_new(self, entries: Sequence[Entry]) -> int | None:
        """The index of the first of these that is missing here or differs; None if all are here."""
        for entry in entries:
            if entry.index > self.start_index and self.term_at(entry.index) != entry.term:
                return entry.index
        return None

    def append(self, entries: Sequence[Entry]) -> None:
        """From the first one's index on they are the log."""
        index = entries[0].index
        invariant(self.commit_index < index <= self.last_index + 1, f"entry {index} would replace a decision")
        del self._entries[index - self.start_index - 1 :]
        self._entries.extend(entries)
        self.stable_index = min(self.stable_index, index - 1)

    def commit(self, index: int) -> None:
        self.commit_index = max(self.commit_index, min(index, self.last_index))

    def replace(self, snapshot: Snapshot) -> None:
        """By what a leader has sent: nothing of what was here stays."""
        self.snapshot = self.unsaved_snapshot = self.ungiven_snapshot = snapshot
        self._entries = []
        self.stable_index = self.commit_index = self.given_index = snapshot.index

    def compact(self, snapshot: Snapshot) -> None:
        """Forget what the snapshot of the state machine holds; it got everything that is in it."""
        invariant(
            self.start_index <= snapshot.index <= self.given_index, f"{snapshot.index} cannot be forgotten"
        )
        del self._entries[: snapshot.index - self.start_index]
        self.snapshot = snapshot

    def unstable(self) -> tuple[Entry, ...]:
        return self.between(self.stable_index + 1, self.last_index + 1)

    def saved(self, snapshot: Snapshot | None, entries: Sequence[Entry]) -> None:
        """They are durable. What was replaced since is not what the log has now."""
        if snapshot is self.unsaved_snapshot:
            self.unsaved_snapshot = None
        for entry in reversed(entries):
            if self.term_at(entry.index) == entry.term:
                self.stable_index = max(self.stable_index, entry.index)
                return

    def give(self) -> tuple[Entry, ...]:
        """What is committed and durable here, each once."""
        end = min(self.commit_index, self.stable_index)
        if end <= self.given_index:
            return ()
        entries = self.between(self.given_index + 1, end + 1)
        self.given_index = end
        return entries


def _following(snapshot: Snapshot | None, entries: tuple[Entry, ...]) -> list[Entry]:
    """Of what the disk had: what goes on from the snapshot. A crash between writing a snapshot and cutting the log
    leaves entries that the snapshot holds, or that differ from it and go nowhere."""
    start, term = (snapshot.index, snapshot.term) if snapshot else (0, 0)
    if any(entry.index == start and entry.term != term for entry in entries):
        return []
    kept: list[Entry] = []
    for entry in entries:
        if entry.index <= start:
            continue
        invariant(entry.index == start + len(kept) + 1, f"the log has a gap before entry {entry.index}")
        if entry.term < term:
            break
        term = entry.term
        kept.append(entry)
    return kept
