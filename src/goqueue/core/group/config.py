"""What a group may ask for. Defaults are Kafka's, but for the initial delay: one consumer alone starts at once."""

from __future__ import annotations

from msgspec import Struct

from goqueue.model.errors import InvalidSessionTimeout

DAY_MS = 24 * 3_600_000


class GroupConfig(Struct, frozen=True):
    session_ms_min: int = 1_000
    session_ms_max: int = 30 * 60_000
    initial_rebalance_delay_ms: int = 0
    member_count_max: int = 10_000
    group_count_max: int = 100_000  # per shard
    offset_count_max: int = 1_000_000  # per shard
    offset_metadata_chars_max: int = 4_096
    offset_retention_ms: int = 7 * DAY_MS
    consumer_session_ms: int = 45_000
    consumer_heartbeat_ms: int = 3_000  # Kafka: 5 s; this product promises 3 s
    share_session_ms: int = 45_000
    share_heartbeat_ms: int = 3_000
    share_topic_count_max: int = 1_000  # per member
    consumer_rebalance_ms_max: int = 60_000  # to give up a partition before it is taken
    gate_wait_ms: int = (
        60_000  # for a group that commits nothing, before it gets a partition that came by growth
    )


def check_session_timeout(timeout_ms: int | None, config: GroupConfig) -> None:
    """Of a member that may choose it; None is as the group is configured."""
    least_ms, most_ms = config.session_ms_min, config.session_ms_max
    if timeout_ms is not None and not least_ms <= timeout_ms <= most_ms:
        raise InvalidSessionTimeout(
            f"a session of {timeout_ms} ms is not possible; it must be {least_ms} to {most_ms} ms",
            session_timeout_ms=timeout_ms,
        )
