"""Who counts: the newest voters in the log, committed or not. Since a change adds or removes exactly one, majorities of
two that follow each other always have a member in common. What is cut off the log takes its voters with it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from goqueue.core.raft.messages import (
    VOTER_COUNT_MAX,
    Entry,
    EntryKind,
    Snapshot,
    are_sound_voters,
    decode_voters,
)
from goqueue.core.raft.refusals import InvalidVoters


class VoterHistory:
    def __init__(
        self, configured: tuple[str, ...], snapshot: Snapshot | None, entries: Iterable[Entry]
    ) -> None:
        self._configured = configured
        self._changes: list[tuple[int, tuple[str, ...]]] = []
        self.begin(snapshot)
        self.add(entries)

    @property
    def newest(self) -> tuple[str, ...]:
        return self._changes[-1][1]

    @property
    def newest_index(self) -> int:
        return self._changes[-1][0]

    @property
    def previous(self) -> tuple[str, ...]:
        """Those before the newest; none if that is not known any more."""
        return self._changes[-2][1] if len(self._changes) > 1 else ()

    def at(self, index: int) -> tuple[str, ...]:
        return next(voters for start, voters in reversed(self._changes) if start <= index)

    def begin(self, snapshot: Snapshot | None) -> None:
        """Anew from a snapshot, or from what is configured."""
        voters = snapshot.voters if snapshot and snapshot.voters else self._configured
        self._changes = [(snapshot.index if snapshot else 0, voters)]

    def add(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            voters = decode_voters(entry.payload) if entry.kind is EntryKind.VOTERS else None
            if voters is not None:
                self._changes.append((entry.index, voters))

    def cut(self, index: int) -> None:
        """The log ends before `index` now."""
        while len(self._changes) > 1 and self._changes[-1][0] >= index:
            self._changes.pop()

    def forget(self, index: int) -> None:
        """The log begins after `index` now."""
        self._changes = [(index, self.at(index)), *(one for one in self._changes if one[0] > index)]


def check_change(before: Sequence[str], after: Sequence[str]) -> None:
    if not are_sound_voters(after):
        raise InvalidVoters(
            f"{list(after)} are no voters: there must be 1 to {VOTER_COUNT_MAX}, each with a name of its own"
        )
    added = [name for name in after if name not in before]
    removed = [name for name in before if name not in after]
    if len(added) + len(removed) != 1:
        raise InvalidVoters(
            f"from {list(before)} to {list(after)} adds {added} and removes {removed}; one voter may be added or removed at a time"
        )


def quorum(voters: Sequence[str]) -> int:
    return len(voters) // 2 + 1


def reached(values: Iterable[int], voters: Sequence[str]) -> int:
    """What a majority has reached, of one value per voter."""
    return sorted(values, reverse=True)[quorum(voters) - 1]
