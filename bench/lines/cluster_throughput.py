"""Produce with acks=all to a topic on three nodes, as fast as librdkafka can, against three nodes of Apache Kafka.

Replication 3, `min.insync.replicas` 2. All six nodes and the client share the machine and its one disk, so three times the bytes
are written for every side; ours and the synced topics of Kafka are on the disks of all replicas before the answer. Every burst is
read back whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from bench.cluster_bench import ClusterSide, burst, with_synced
from bench.kafka_lines import compare
from bench.kafka_load import KafkaLoad
from bench.kafka_plans import Consumed, Produce, Produced
from bench.line import Line
from bench.peers.clusters import Timing
from bench.scale import Run
from bench.sides import interleave

_PARTITION_COUNT = 3
_SMALL_BYTES, _LARGE_BYTES = 100, 1_024
_PRODUCER_COUNTS = (1, 4)


@dataclass(frozen=True, slots=True)
class _Case:
    value_bytes: int
    count: int
    producer_count: int

    @property
    def name(self) -> str:
        size = "1k" if self.value_bytes == _LARGE_BYTES else f"{self.value_bytes}b"
        return f"cluster.produce.{size}.{self.producer_count}x"

    @property
    def title(self) -> str:
        who = "one producer" if self.producer_count == 1 else f"{self.producer_count} producers"
        return f"acks=all on three nodes, {self.value_bytes:,} B, {_PARTITION_COUNT} partitions, {who}"


@dataclass(frozen=True, slots=True)
class _Burst:
    case: _Case
    produced: Produced
    consumed: Consumed

    @property
    def rate(self) -> float:
        return self.case.count / self.produced.seconds

    @property
    def mb_per_s(self) -> float:
        return self.rate * self.case.value_bytes / 1e6

    @property
    def cpu_s_per_million(self) -> float:
        """Of all nodes together."""
        return self.produced.server_cpu_s / self.case.count * 1e6


def run(run: Run) -> list[Line]:
    scale = run.scale.cluster
    cases = [
        _Case(value_bytes, count, producer_count)
        for value_bytes, count in ((_SMALL_BYTES, scale.small_count), (_LARGE_BYTES, scale.large_count))
        for producer_count in _PRODUCER_COUNTS
    ]
    lines: list[Line] = []
    with run.cluster.sides(Timing.DEFAULT) as clusters, KafkaLoad() as load:
        sides = with_synced(clusters)
        run.cluster.warm_up(load, clusters, scale.warm_count)
        for case in cases:
            taken = interleave(sides, scale.round_count, partial(_measure, run, load, case=case))
            lines += _lines(sides, taken, case)
    return lines


def _measure(run: Run, load: KafkaLoad, side: ClusterSide, *, case: _Case) -> _Burst:
    with run.cluster.topic(side, partition_count=_PARTITION_COUNT) as target:
        plan = Produce(target, case.count, case.value_bytes, "all", producer_count=case.producer_count)
        return _Burst(case, *burst(load, plan))


def _lines(sides: Sequence[ClusterSide], taken: dict[str, list[_Burst]], case: _Case) -> list[Line]:
    return compare(
        sides,
        taken,
        name=case.name,
        title=case.title,
        unit="msg/s",
        value=lambda burst: burst.rate,
        figures={
            "mb_per_s": lambda burst: burst.mb_per_s,
            "all_nodes_cpu_s_per_million": lambda burst: burst.cpu_s_per_million,
            "consume_per_s": lambda burst: burst.consumed.message_count / burst.consumed.seconds,
        },
    )
