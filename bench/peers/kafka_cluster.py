"""Apache Kafka: three nodes in KRaft mode, each broker and controller, with the flags of its start script but small heaps.

Its settings are its defaults. With `Timing.FAST` a broker is given up after 2 s, which is as soon as its own documentation goes.
"""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from bench.child import Child
from bench.peers.apache_kafka import PINS, java_flags, kafka_version, new_cluster_id, prepare
from bench.peers.clusters import NODES, Cluster, Timing, free_ports, start_all
from bench.peers.maven import cache_folder, fetch_jars, read_pins
from bench.peers.peer import PeerAbsent

with warnings.catch_warnings():  # it meets a deprecation of its own
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaAdminClient

_HEAP = ("-Xms512M", "-Xmx512M")
_PROPERTIES = """\
process.roles=broker,controller
node.id={node}
controller.quorum.voters={voters}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://{address},CONTROLLER://{controller}
log.dirs={folder}/data
group.initial.rebalance.delay.ms=0
group.consumer.heartbeat.interval.ms={heartbeat_ms}
group.consumer.min.heartbeat.interval.ms={heartbeat_ms}
"""
_TIMINGS: Mapping[Timing, str] = {
    Timing.DEFAULT: "",
    Timing.FAST: "broker.session.timeout.ms=2000\nbroker.heartbeat.interval.ms=500\n",
}


class KafkaCluster:
    name = "kafka"

    def __init__(self, *, group_heartbeat_ms: int = 5_000) -> None:
        self._group_heartbeat_ms = group_heartbeat_ms

    @property
    def title(self) -> str:
        return f"three nodes of Apache Kafka {kafka_version(read_pins(PINS))}"

    @contextmanager
    def start(self, folder: Path, timing: Timing) -> Iterator[Cluster]:
        java = shutil.which("java")
        if java is None:
            raise PeerAbsent("there is no java on this machine")
        jars = fetch_jars(read_pins(PINS), cache_folder())
        free = iter(free_ports(2 * len(NODES)))
        ports = {node: (next(free), next(free)) for node in NODES}
        addresses = {node: f"127.0.0.1:{ports[node][0]}" for node in NODES}
        controllers = {node: f"127.0.0.1:{ports[node][1]}" for node in NODES}
        cluster_id, programs = new_cluster_id(), {}
        for node in NODES:
            own = folder / f"node-{node}"
            own.mkdir()
            (own / "server.properties").write_text(
                _PROPERTIES.format(
                    node=node,
                    voters=",".join(f"{one}@{controllers[one]}" for one in NODES),
                    address=addresses[node],
                    controller=controllers[node],
                    folder=own,
                    heartbeat_ms=self._group_heartbeat_ms,
                )
                + _TIMINGS[timing],
                encoding="utf-8",
            )
            programs[node] = prepare(own, [java], java_flags(_HEAP), jars, cluster_id)

        def spawn(node: int) -> Child:
            properties = folder / f"node-{node}" / "server.properties"
            return Child("kafka.Kafka", str(properties), program=programs[node])

        logs = {node: folder / f"node-{node}" / "data" for node in NODES}
        cluster = Cluster(addresses, ports, logs, spawn, _controller)
        try:
            start_all(cluster)
            yield cluster
        finally:
            cluster.end()


def _controller(cluster: Cluster) -> int:
    """What brokers say of it in Metadata is made up in KRaft mode, so the quorum itself is asked."""
    admin = KafkaAdminClient(bootstrap_servers=cluster.address.split(","))
    try:
        (topic,) = admin.describe_metadata_quorum()["topics"]
        leader: int = topic["partitions"][0]["leader_id"]
    finally:
        admin.close()
    return leader
