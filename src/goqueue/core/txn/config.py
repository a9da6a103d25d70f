"""What a transaction may take."""

from __future__ import annotations

from msgspec import Struct

DAY_MS = 24 * 3_600_000


class TxnConfig(Struct, frozen=True):
    timeout_ms_max: int = 15 * 60_000
    id_expiration_ms: int = 7 * DAY_MS
    partition_count_max: int = 10_000  # of one transaction
    id_count_max: int = 100_000  # per shard
