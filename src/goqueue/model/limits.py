"""The limits of one node. Everything has one; each is a setting because operators size machines differently."""

from __future__ import annotations

from msgspec import Struct


class Limits(Struct, frozen=True):
    topic_count_max: int = 10_000
    partition_count_max: int = 100_000  # of all topics together
    partitions_per_topic_max: int = 10_000
    key_bytes_max: int = 64 * 1024
    header_count_max: int = 100
    header_bytes_max: int = 64 * 1024  # of all headers of one message
    messages_per_request_max: int = 10_000
    request_bytes_max: int = 32 * 1024 * 1024
    connection_count_max: int = 10_000
    parked_read_count_max: int = 10_000
    wait_ms_max: int = 60_000
    read_bytes_max: int = 8 * 1024 * 1024
