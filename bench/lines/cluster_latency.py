"""From when a message was due to when a consumer has it, at a steady pace, acks=all, on three nodes.

A consumer gets a message when it is committed, so an fsync of leader and followers and two of their round trips are in it, and
the client's linger of 5 ms.
"""

from __future__ import annotations

from bench.cluster_bench import ClusterSide, with_synced
from bench.kafka_lines import compare
from bench.kafka_load import KafkaLoad
from bench.kafka_plans import Pace, Paced
from bench.line import Line
from bench.peers.clusters import Timing
from bench.scale import Run
from bench.sides import interleave

_VALUE_BYTES = 1_024
_PARTITION_COUNT = 3


def run(run: Run) -> list[Line]:
    scale = run.scale.cluster

    def measure(side: ClusterSide) -> Paced:
        with run.cluster.topic(side, partition_count=_PARTITION_COUNT) as target:
            return load.pace(Pace(target, _VALUE_BYTES, "all", scale.pace_per_s, scale.pace_s))

    with run.cluster.sides(Timing.DEFAULT) as clusters, KafkaLoad() as load:
        run.cluster.warm_up(load, clusters, scale.warm_count)
        sides = with_synced(clusters)
        taken = interleave(sides, scale.round_count, measure)
    return compare(
        sides,
        taken,
        name="cluster.latency.acks_all",
        title=f"end to end on three nodes, {scale.pace_per_s:,} x 1 KB per second, acks=all, p99",
        unit="ms",
        value=lambda paced: paced.p99_ms,
        figures={
            "p50_ms": lambda paced: paced.p50_ms,
            "p99.9_ms": lambda paced: paced.p999_ms,
            "all_nodes_cpu_share": lambda paced: paced.server_cpu_share,
            "sender_lateness_p99_ms": lambda paced: paced.lateness_p99_ms,
        },
    )
