"""What a node is told when it starts. Defaults live here; `goqueue.cli.config` fills it from file,
environment and flags."""

from __future__ import annotations

from msgspec import Struct, field

from goqueue.core.cluster.levels import LEVEL_NEWEST
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


class Peer(Struct, frozen=True):
    """A node of the cluster, and where its cluster listener is."""

    name: str
    host: str
    port: int


class ClusterConfig(Struct, frozen=True):
    """With whom the node forms a cluster, and how patient they are with each other."""

    peers: tuple[Peer, ...] = ()  # all of them, this one too; the first five vote. None: the node is alone
    rack: str = ""
    follower_reads: bool = False  # clients that say in which rack they are read there
    heartbeat_ms: int = 3_000
    suspect_ms: int = 6_000
    dead_ms: int = 9_000  # its leaderships move after this
    lease_ms: int = 15_000  # a controller that a majority has not answered for so long steps down
    lease_renew_ms: int = 5_000
    quorum_wait_ms: int = 60_000
    leave_ms: int = 30_000  # for its leaderships to be taken over when it stops
    command_timeout_ms: int = 30_000
    replica_lag_ms_max: int = 10_000  # who has not caught up for so long is not in sync
    replica_wait_ms: int = 500  # of a fetch that finds nothing
    replica_bytes_max: int = 8 * 1024 * 1024
    balance_ms: int = 300_000  # between looks whether partitions are led by their preferred replicas
    feature_level_max: int = LEVEL_NEWEST  # that this node says it understands


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
    cluster: ClusterConfig = field(default_factory=ClusterConfig)

    @property
    def is_solo(self) -> bool:
        return not self.cluster.peers
