"""The timing and the bounds of a quorum."""

from __future__ import annotations

from msgspec import Struct


class RaftConfig(Struct, frozen=True):
    name: str
    heartbeat_ms: int = 3_000
    election_ms_min: int = 9_000  # who has not heard a leader for so long may vote for another
    election_ms_max: int = 18_000
    lease_ms: int = 15_000  # a leader that has not heard a majority for so long gives up
    entries_per_append_max: int = 1_000
    bytes_per_append_max: int = 1024 * 1024  # of payloads; a single entry may have more
    uncommitted_count_max: int = 10_000  # of a leader's proposals
