"""What a node shows of its cluster at `/metrics`; a broker alone has none of it.

All of it is read when somebody scrapes, from what is counted and known anyway. Only the lag looks at every partition that this node
leads. What a node cannot know is left out: of the voters only the controller knows who counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from goqueue.core.cluster.liveness import Status
from goqueue.node.cluster.controller import Controller
from goqueue.node.cluster.health import Health
from goqueue.node.cluster.ports import PeerLinks
from goqueue.node.cluster.quorum import Quorum
from goqueue.node.cluster.service import Service
from goqueue.node.metadata import Metadata
from goqueue.node.replication.replication import Replication


class ClusterMetrics(Collector):
    def __init__(
        self,
        metadata: Metadata,
        quorum: Quorum,
        controller: Controller,
        health: Health,
        service: Service,
        replication: Replication,
        links: PeerLinks,
    ) -> None:
        self._metadata = metadata
        self._quorum = quorum
        self._controller = controller
        self._health = health
        self._service = service
        self._replication = replication
        self._links = links

    def collect(self) -> Iterable[Metric]:
        if not self._replication.has_joined:  # it knows neither the cluster nor which node it is
            return
        yield from self._quorum_told()
        yield from self._health_told()
        yield from self._partitions_told()
        yield from self._replication_told()
        yield _counter(
            "forwarded_requests",
            "Requests of REST clients, whole or in parts, that were carried to other nodes.",
            self._links.forwarded_count,
        )

    def _quorum_told(self) -> Iterable[Metric]:
        quorum = self._quorum
        yield _gauge("is_controller", "1 on the node that is the controller.", quorum.is_active)
        yield _gauge("term", "The term of the quorum; it grows with every election.", quorum.raft.term)
        yield _gauge(
            "metadata_committed_index",
            "Up to which entry of the metadata log this node knows that it is committed.",
            quorum.raft.commit_index,
        )
        yield _gauge(
            "metadata_applied_index",
            "Up to which entry of the metadata log this node has applied it.",
            quorum.applied_index,
        )
        yield _counter(
            "elections_won", "Elections of the quorum that made this node its leader.", quorum.won_count
        )

    def _health_told(self) -> Iterable[Metric]:
        statuses = Counter(node.status for node in self._service.nodes())
        nodes = GaugeMetricFamily(
            "goqueue_cluster_nodes",
            "Nodes by their status as this node sees them; only the controller hears heartbeats.",
            labels=["status"],
        )
        for status in Status:
            nodes.add_metric([status.value], statuses[status.value])
        yield nodes
        health = self._health.here()
        if health.voters_not_counting is not None:
            yield _gauge(
                "voters_not_counting",
                "Voters that would not confirm what is decided; told by the controller alone.",
                len(health.voters_not_counting),
            )
        yield _gauge(
            "partitions_without_leader", "Partitions that nobody leads.", health.partitions_without_leader
        )
        yield _gauge(
            "partitions_short_of_replicas",
            "Partitions of which a replica is not in sync.",
            health.partitions_short_of_replicas,
        )
        yield _counter(
            "nodes_fenced",
            "Nodes that this one, as the controller, has not heard of for so long that it took their leaderships away.",
            self._controller.fenced_count,
        )

    def _partitions_told(self) -> Iterable[Metric]:
        catalog, number = self._metadata.catalog, self._replication.number
        led_count = catalog.partitions.leader_count(number)
        yield _gauge("led_partitions", "Partitions that this node leads.", led_count)
        yield _gauge(
            "followed_partitions",
            "Partitions that this node has and does not lead.",
            catalog.partitions.replica_count(number) - led_count,
        )
        yield _gauge(
            "moving_partitions",
            "Partitions that are on their way to other nodes, by a plan or by a tool.",
            catalog.partitions.moving_count,
        )
        yield _gauge("waiting_moves", "Moves of a plan that have not begun yet.", catalog.plans.waiting_count)

    def _replication_told(self) -> Iterable[Metric]:
        counts = self._replication.counts()
        yield _gauge(
            "replica_lag_seconds",
            "For how long the follower furthest behind has not had everything that this node leads.",
            self._replication.lag_ms() / 1_000,
        )
        yield _counter(
            "in_sync_shrinks",
            "In-sync sets that a replica has left, of partitions that this node goes on leading.",
            counts.shrunk,
        )
        yield _counter(
            "in_sync_expands",
            "In-sync sets that a replica has joined, of partitions that this node goes on leading.",
            counts.expanded,
        )
        yield _counter(
            "replication_sent_bytes", "Bytes of batches that followers have fetched here.", counts.sent_bytes
        )
        yield _counter(
            "replication_taken_bytes", "Bytes of batches that this node has fetched.", counts.taken_bytes
        )


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"goqueue_cluster_{name}", text, value=float(value))


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(f"goqueue_cluster_{name}", text, value=float(value))
