"""What the use cases take and give: the same values for every protocol."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from goqueue.core.cluster.partitions import NO_LEADER as NO_LEADER
from goqueue.model.errors import GoQueueError
from goqueue.model.record import NewRecord, StoredRecord


class NewMessage(Struct, frozen=True, gc=False):
    """A record and, where the publisher insists, its partition."""

    record: NewRecord
    partition: int | None = None


class Outcome(Struct, frozen=True):
    """What became of one message: where it is stored, or why it is not. With `deliver_at_ms` it waits, and the offset is
    its id among the delayed messages of the partition."""

    partition: int | None
    offset: int | None
    error: GoQueueError | None = None
    deliver_at_ms: int | None = None


class Isolation(StrEnum):
    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


class ReadQuery(Struct, frozen=True):
    """Which records to read: from an offset, or from the first record at or after a timestamp (neither: from the start of
    the log), up to exclusive bounds. With `wait_ms` an empty answer is delayed until data arrives."""

    offset: int | None = None
    timestamp_ms: int | None = None
    to_offset: int | None = None
    to_timestamp_ms: int | None = None
    limit: int = 100
    wait_ms: int = 0
    isolation: Isolation = Isolation.READ_COMMITTED


class ReadResult(Struct, frozen=True):
    records: list[StoredRecord]
    next_offset: int
    high_watermark: int
    last_stable_offset: int


class PartitionFacts(Struct, frozen=True):
    """Nodes are known by their numbers; a leader of -1 is none. What only a replica knows is -1 on other nodes."""

    partition: int
    leader: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    eligible: tuple[int, ...]
    leader_epoch: int
    earliest: int
    latest: int
    high_watermark: int
    size_bytes: int
    failure: str | None  # why it takes no writes, if it does not
    damage: list[str]  # what recovery found damaged and kept


class TopicFacts(Struct, frozen=True):
    name: str
    partition_count: int
    created_ms: int
    overrides: dict[str, str]  # what was set on the topic itself
    settings: dict[str, str]  # everything in force
    id: int  # never given twice
    replication_factor: int = 1


class Health(Struct, frozen=True):
    """`checks` maps a name to "ok" or to what is wrong."""

    is_live: bool
    is_ready: bool
    state: str  # starting, ready, draining, stopped
    uptime_ms: int
    checks: dict[str, str]
