"""The clusters of the cluster lines: three nodes of ours and three of each peer, started for a group of lines and ended with it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from bench.kafka_load import KafkaLoad
from bench.kafka_plans import Consume, Consumed, Produce, Produced, Target
from bench.peers.clusters import Cluster, ClusterPeer, Timing
from bench.peers.kafka_cluster import KafkaCluster
from bench.peers.our_cluster import OurCluster
from bench.peers.peer import PeerAbsent
from bench.workspace import fresh_folder

SYNCED = "synced_kafka"
_WARM_BYTES = 100
_WARM_PARTITIONS = 3


@dataclass(frozen=True, slots=True)
class ClusterSide:
    """One cluster in one role."""

    name: str
    title: str
    cluster: Cluster
    is_synced: bool = False


class ClusterBench:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._serials = count()
        self.absent: dict[str, str] = {}  # peer to reason

    @contextmanager
    def sides(
        self,
        timing: Timing,
        *,
        ours: ClusterPeer | None = None,
        peers: Sequence[ClusterPeer] | None = None,
    ) -> Iterator[list[ClusterSide]]:
        """Ours first, then every peer that can be had here; each in a folder of its own."""
        with ExitStack() as stack:
            started = [self._start(ours or OurCluster(), timing, stack)]
            for peer in (KafkaCluster(),) if peers is None else peers:
                try:
                    started.append(self._start(peer, timing, stack))
                except PeerAbsent as absent:
                    self.absent[f"{peer.name} cluster"] = str(absent)
            yield started

    def _start(self, peer: ClusterPeer, timing: Timing, stack: ExitStack) -> ClusterSide:
        folder = stack.enter_context(fresh_folder(self._folder))
        return ClusterSide(peer.name, peer.title, stack.enter_context(peer.start(folder, timing)))

    @contextmanager
    def topic(self, side: ClusterSide, *, partition_count: int) -> Iterator[Target]:
        """A new one on all nodes, gone afterwards."""
        name, cluster = self.fresh_name(), side.cluster
        cluster.create_topic(name, partition_count=partition_count, is_synced=side.is_synced)
        yield Target(cluster.address, cluster.pids, name, partition_count)
        cluster.delete_topic(name)

    def fresh_name(self) -> str:
        return f"bench-{next(self._serials)}"

    def warm_up(self, load: KafkaLoad, sides: Sequence[ClusterSide], message_count: int) -> None:
        """A JVM has to compile before it is measured."""
        for side in sides:
            with self.topic(side, partition_count=_WARM_PARTITIONS) as target:
                burst(load, Produce(target, message_count, _WARM_BYTES, "all"))


def with_synced(sides: Sequence[ClusterSide]) -> list[ClusterSide]:
    """Apache Kafka twice: as it is, and as durable as ours."""
    synced = [
        ClusterSide(SYNCED, f"{side.title} with flush.messages=1", side.cluster, is_synced=True)
        for side in sides
        if side.name == KafkaCluster.name
    ]
    return [*sides, *synced]


def burst(load: KafkaLoad, plan: Produce) -> tuple[Produced, Consumed]:
    """Write, then read back and verify all of it."""
    produced = load.produce(plan)
    wanted = Consume(
        plan.target,
        plan.count,
        plan.value_bytes,
        is_everything_kept=True,
        producer_count=plan.producer_count,
    )
    return produced, load.consume(wanted)
