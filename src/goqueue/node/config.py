"""What a node is told when it starts. Defaults live here; `goqueue.cli.config` fills it from file,
environment and flags."""

from __future__ import annotations

from msgspec import Struct, field

from goqueue.core.group.config import GroupConfig
from goqueue.core.txn.config import TxnConfig
from goqueue.model.limits import Limits
from goqueue.model.settings import TopicSettings


class DiskConfig(Struct, frozen=True):
    """When a filling disk stops writes. Reads always go on."""

    refuse_percent: float = 90.0
    warn_percent: float = 85.0
    check_interval_ms: int = 1_000


class LogConfig(Struct, frozen=True):
    """How often the background work on logs runs."""

    flush_interval_ms: int = 1_000  # what `acks=leader` promises
    checkpoint_interval_ms: int = 30_000  # bounds what a restart after a crash has to scan
    cleanup_interval_ms: int = 30_000  # retention and compaction
    sync_timeout_ms: int = 30_000  # an fsync that takes longer is an error to the client
    io_thread_count: int = 8


class QueueConfig(Struct, frozen=True):
    """How much of a queue one member gets."""

    in_flight_count_max: int = 1_000  # of one member; it gets no more until it has finished some
    poll_count_max: int = 1_000  # in one answer


class NodeConfig(Struct, frozen=True):
    node_id: str = "node-1"
    default_partition_count: int = 3
    auto_create_topics: bool = True  # when a Kafka client asks for one that does not exist
    drain_timeout_ms: int = 10_000
    topic_defaults: TopicSettings = field(default_factory=TopicSettings)
    limits: Limits = field(default_factory=Limits)
    disk: DiskConfig = field(default_factory=DiskConfig)
    log: LogConfig = field(default_factory=LogConfig)
    groups: GroupConfig = field(default_factory=GroupConfig)
    transactions: TxnConfig = field(default_factory=TxnConfig)
    queue: QueueConfig = field(default_factory=QueueConfig)
