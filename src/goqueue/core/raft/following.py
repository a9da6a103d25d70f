"""What a follower does with what its leader sends: its log becomes the leader's, and nothing that is committed changes."""

from __future__ import annotations

from msgspec import Struct

from goqueue.core.raft.log import RaftLog
from goqueue.core.raft.messages import Append, Snapshot
from goqueue.core.raft.voters import VoterHistory


class Taken(Struct, frozen=True):
    is_accepted: bool
    index: int  # accepted: the logs are equal up to it; refused: they may be


def take_entries(log: RaftLog, voters: VoterHistory, message: Append) -> Taken | None:
    """None for what no leader can have sent: it lacks or contradicts what is committed."""
    prev_term = log.term_at(message.prev_index)
    is_decided = message.prev_index <= log.commit_index
    is_forgotten = is_decided and prev_term is None
    if prev_term != message.prev_term and not is_forgotten:
        if is_decided:
            return None
        return Taken(False, log.floor(min(message.prev_index - 1, log.last_index), message.prev_term))
    new_index = log.first_new(message.entries)
    if new_index is not None:
        if new_index <= log.commit_index:
            return None
        entries = [entry for entry in message.entries if entry.index >= new_index]
        log.append(entries)
        voters.cut(new_index)
        voters.add(entries)
    last_index = message.prev_index + len(message.entries)
    log.commit(min(message.commit_index, last_index))
    return Taken(True, max(last_index, log.commit_index))


def take_snapshot(log: RaftLog, voters: VoterHistory, snapshot: Snapshot) -> int:
    """How far the logs are equal now. A snapshot of what the log has anyway only says that it is committed."""
    if log.term_at(snapshot.index) == snapshot.term:
        log.commit(snapshot.index)
    elif snapshot.index > log.commit_index:
        log.replace(snapshot)
        voters.begin(snapshot)
    return log.commit_index
