"""How much of everything: the default run ends within forty minutes, the quick one within four."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bench.cluster_bench import ClusterBench
from bench.kafka_bench import KafkaBench
from bench.queue_bench import QueueBench
from bench.spark_bench import SparkBench
from goqueue.log.compression import Codec


@dataclass(frozen=True, slots=True)
class Scale:
    round_count: int
    round_s: float  # of one side of one round
    log_round_count: int  # these are short, so there are many
    log_chunk_count: int  # batches of 1 MB per side and round
    batch_requests_max: int  # of 1,000 messages, per round
    recovery_bytes: int
    start_count: int
    kafka: KafkaScale
    queue: QueueScale
    spark: SparkScale
    cluster: ClusterScale


@dataclass(frozen=True, slots=True)
class KafkaScale:
    """Of the lines with other brokers beside ours."""

    round_count: int
    warm_count: int  # messages of 100 B that each server gets before it is measured: a JVM has to compile,
    warm_request_count: int  # and requests of one message
    burst_partition_counts: tuple[int, ...]
    small_count: int  # messages of 100 B in a burst
    large_count: int  # messages of 1 KB in a burst
    latency_s: float
    request_count: int
    partition_count: int  # that the requests go round
    consumers_s: float
    consumer_count: int


@dataclass(frozen=True, slots=True)
class QueueScale:
    """Of the lines of the queue, most of them with other brokers beside ours."""

    round_count: int
    work_count: int  # messages of a round
    warm_count: int  # that each server gets before it is measured
    wake_count: int  # messages that wake a waiting consumer, one by one
    lane_round_count: int
    leased_count: int  # messages that are leased at once
    delayed_count: int  # messages that are pending
    fired_count: int  # messages whose lateness is measured
    due_count: int  # messages that become due one after the other,
    due_s: float  # over this time


@dataclass(frozen=True, slots=True)
class SparkScale:
    """Of the lines of the pipeline."""

    round_count: int
    small_row_count: int  # of 100 B that are read in a round
    large_row_count: int  # of 1 KB
    codecs: tuple[Codec, ...]  # none is one of them
    sink_row_count: int
    trigger_warm_count: int
    trigger_count: int
    job_bytes: tuple[int, ...]  # of the folders that jobs work on
    job_round_count: int


@dataclass(frozen=True, slots=True)
class ClusterScale:
    """Of the lines with three nodes, and three of Apache Kafka beside them."""

    round_count: int
    warm_count: int  # messages that each cluster gets before it is measured
    small_count: int  # messages of 100 B in a burst
    large_count: int  # messages of 1 KB in a burst
    pace_per_s: int
    pace_s: float
    kill_count: int  # of nodes with fast timings,
    slow_kill_count: int  # and with those that are the default
    copy_round_count: int
    copy_count: int  # messages of 1 KB that come while a node is away
    rebalance_count: int
    start_partition_count: int
    start_count: int
    idle_partition_counts: tuple[int, ...]
    idle_s: float


FULL = Scale(
    round_count=7,
    round_s=1.0,
    log_round_count=24,
    log_chunk_count=64,
    batch_requests_max=100,
    recovery_bytes=1024**3,
    start_count=4,
    kafka=KafkaScale(
        round_count=3,
        warm_count=1_000_000,
        warm_request_count=20_000,
        burst_partition_counts=(3, 1),
        small_count=500_000,
        large_count=200_000,
        latency_s=10.0,
        request_count=20_000,
        partition_count=1_000,
        consumers_s=8.0,
        consumer_count=200,
    ),
    queue=QueueScale(
        round_count=3,
        work_count=50_000,
        warm_count=5_000,
        wake_count=1_000,
        lane_round_count=5,
        leased_count=1_000_000,
        delayed_count=10_000_000,
        fired_count=10_000,
        due_count=1_000_000,
        due_s=100.0,
    ),
    spark=SparkScale(
        round_count=3,
        small_row_count=4_000_000,
        large_row_count=800_000,
        codecs=(Codec.NONE, Codec.LZ4, Codec.ZSTD),
        sink_row_count=2_000_000,
        trigger_warm_count=20,
        trigger_count=30,
        job_bytes=(250_000_000, 1_000_000_000, 4_000_000_000),
        job_round_count=2,
    ),
    cluster=ClusterScale(
        round_count=3,
        warm_count=200_000,
        small_count=200_000,
        large_count=60_000,
        pace_per_s=2_000,
        pace_s=8.0,
        kill_count=5,
        slow_kill_count=2,
        copy_round_count=2,
        copy_count=300_000,
        rebalance_count=3,
        start_partition_count=1_000,
        start_count=2,
        idle_partition_counts=(1_000, 3_000, 10_000),
        idle_s=10.0,
    ),
)
QUICK = Scale(
    round_count=3,
    round_s=0.3,
    log_round_count=6,
    log_chunk_count=32,
    batch_requests_max=30,
    recovery_bytes=96 * 1024**2,
    start_count=1,
    kafka=KafkaScale(
        round_count=1,
        warm_count=20_000,
        warm_request_count=500,
        burst_partition_counts=(3,),
        small_count=50_000,
        large_count=20_000,
        latency_s=1.5,
        request_count=2_000,
        partition_count=100,
        consumers_s=2.0,
        consumer_count=50,
    ),
    queue=QueueScale(
        round_count=1,
        work_count=4_000,
        warm_count=1_000,
        wake_count=50,
        lane_round_count=1,
        leased_count=10_000,
        delayed_count=20_000,
        fired_count=500,
        due_count=20_000,
        due_s=20.0,
    ),
    spark=SparkScale(
        round_count=1,
        small_row_count=200_000,
        large_row_count=40_000,
        codecs=(Codec.NONE, Codec.ZSTD),
        sink_row_count=100_000,
        trigger_warm_count=5,
        trigger_count=5,
        job_bytes=(16_000_000, 64_000_000),
        job_round_count=1,
    ),
    cluster=ClusterScale(
        round_count=1,
        warm_count=5_000,
        small_count=20_000,
        large_count=5_000,
        pace_per_s=500,
        pace_s=2.0,
        kill_count=1,
        slow_kill_count=1,
        copy_round_count=1,
        copy_count=20_000,
        rebalance_count=1,
        start_partition_count=100,
        start_count=1,
        idle_partition_counts=(100, 300),
        idle_s=3.0,
    ),
)


@dataclass(frozen=True, slots=True)
class Run:
    """What every group of lines gets."""

    folder: Path
    scale: Scale
    kafka: KafkaBench
    queue: QueueBench
    spark: SparkBench
    cluster: ClusterBench
