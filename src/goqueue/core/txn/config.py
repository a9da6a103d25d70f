"""What a transaction may take."""

from __future__ import annotations

from msgspec import Struct

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


class TxnConfig(Struct, frozen=True):
    timeout_ms_max: int = 15 * 60_000
    id_expiration_ms: int = 7 * DAY_MS
    partition_count_max: int = 10_000  # of one transaction
    id_count_max: int = 100_000  # per shard
    member_timeout_ms_max: int = 24 * HOUR_MS  # a member waits for the slowest of its joint
    member_count_max: int = 10_000  # open in one joint
    joint_expiration_ms: int = 90 * DAY_MS
    joint_count_max: int = 100_000  # per shard
