"""Votes: who has the newer log, and who has been granted what."""

from __future__ import annotations

from goqueue.core.raft.log import RaftLog
from goqueue.core.raft.messages import AskVote
from goqueue.core.raft.voters import quorum


def is_up_to_date(log: RaftLog, message: AskVote) -> bool:
    """Whether the candidate's log lacks nothing that is committed, as far as this log can tell."""
    return (message.last_term, message.last_index) >= (log.last_term, log.last_index)


class Tally:
    def __init__(self, voters: tuple[str, ...], name: str) -> None:
        self._voters = voters
        self._votes = {name: True}

    @property
    def is_won(self) -> bool:
        return self._count(True) >= quorum(self._voters)

    @property
    def is_lost(self) -> bool:
        """Whoever is left cannot make a majority any more."""
        return len(self._voters) - self._count(False) < quorum(self._voters)

    def count(self, name: str, is_granted: bool) -> None:
        self._votes.setdefault(name, is_granted)

    def _count(self, is_granted: bool) -> int:
        return sum(self._votes.get(name) is is_granted for name in self._voters)
