"""What a quorum's member is, keeps, and asks its caller to do."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from goqueue.core.raft.messages import Entry, Message, Snapshot


class Role(StrEnum):
    FOLLOWER = "follower"
    PRE_CANDIDATE = "pre-candidate"  # asks whether it would be elected, and disturbs nobody
    CANDIDATE = "candidate"
    LEADER = "leader"


class HardState(Struct, frozen=True):
    """What must be durable before a message that depends on it goes out."""

    term: int
    vote: str | None  # who got it in this term
    is_recovering: bool = (
        False  # has lost (some of) its log: neither votes nor counts until a leader has refilled it
    )


class Restored(Struct, frozen=True):
    """What an earlier life has left on the disk."""

    state: HardState
    snapshot: Snapshot | None
    entries: tuple[Entry, ...]
    voters: tuple[str, ...]  # the configured ones, used while neither snapshot nor log says otherwise


class Standing(Struct, frozen=True):
    """A peer as its leader knows it."""

    silent_ms: int | None  # since its last answer to this leader; None: it has answered nothing yet
    lacking_count: int  # entries that it is not known to have
    is_recovering: bool


class Ready(Struct):
    """What the caller has to do. To persist, in this order: `snapshot` (nothing of the log before it stays, neither
    before nor after its index), `entries` (from the first one's index on they replace whatever the log has there), `state`.
    Then `messages` may go out. Then the state machine begins from `restored`, if there is one, and applies `committed`."""

    state: HardState | None
    snapshot: Snapshot | None
    entries: tuple[Entry, ...]
    messages: tuple[Message, ...]
    committed: tuple[Entry, ...]
    restored: Snapshot | None
