"""Clusters of three nodes as processes of a run: started together, killed, stopped and started again one by one.

Ours and Apache Kafka differ in how a node is started and in who says which of them is the controller; all else is the same
for both and goes through Kafka's protocol. Nodes have the numbers 1 to 3, which are their broker ids.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from enum import StrEnum
from pathlib import Path
from random import SystemRandom
from typing import Protocol

from confluent_kafka import ElectionType, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._metadata import PartitionMetadata
from confluent_kafka.cimpl import NewTopic

from bench.child import Child
from bench.line import BenchFailed, require

NODES = (1, 2, 3)
MIN_IN_SYNC = 2
ADMIN_TIMEOUT_S = 120.0
_START_TIMEOUT_S = 90.0
_ANSWER_TIMEOUT_S = 10.0
_RETRY_S = 0.05
_CLIENT: dict[str, str | int | float] = {"log_level": 0, "metadata.recovery.strategy": "none"}
# Below what the kernel gives to whoever connects, so that a node which is started again finds its own ports still free.
_PORTS = range(10_000, 32_768)
_TRIES = 1_000


class Timing(StrEnum):
    """How soon a silent node is given up."""

    DEFAULT = "default"  # both after 9 s
    FAST = "fast"  # ours after 0.7 s (`--profile fast`), Kafka after 2 s (`broker.session.timeout.ms`)


class Spawn(Protocol):
    """How a side starts one of its nodes."""

    def __call__(self, node: int) -> Child: ...


class Cluster:
    """Running nodes. `ports` are those on which each listens, `logs` the folders in which each keeps its partitions;
    `find_controller` says who decides."""

    def __init__(
        self,
        addresses: Mapping[int, str],
        ports: Mapping[int, Sequence[int]],
        logs: Mapping[int, Path],
        spawn: Spawn,
        find_controller: Callable[[Cluster], int],
    ) -> None:
        self.addresses = addresses
        self.ports = ports
        self.logs = logs
        self._spawn = spawn
        self._find_controller = find_controller
        self._children: dict[int, Child] = {}

    @property
    def address(self) -> str:
        """For clients: all nodes, also those that are down."""
        return ",".join(self.addresses.values())

    @property
    def pids(self) -> tuple[int, ...]:
        return tuple(child.pid for child in self._children.values())

    def pid(self, node: int) -> int:
        return self._children[node].pid

    def controller(self) -> int:
        return self._find_controller(self)

    # ---------------------------------------------------------------- nodes

    def start(self, node: int) -> float:
        """Begin its process; when that was, on the monotonic clock."""
        self._children[node] = self._spawn(node)
        return time.monotonic()

    def until_listening(self, node: int) -> float:
        """When it first was seen to, on the monotonic clock."""
        host, _, port = self.addresses[node].partition(":")
        deadline = time.monotonic() + _START_TIMEOUT_S
        while time.monotonic() < deadline:
            self._children[node].require_running()
            try:
                socket.create_connection((host, int(port)), timeout=1).close()
            except OSError:
                time.sleep(_RETRY_S)
            else:
                return time.monotonic()
        raise BenchFailed(f"node {node} does not listen after {_START_TIMEOUT_S:g} s")

    def kill(self, node: int) -> None:
        """As kill -9."""
        self._children.pop(node).kill()

    def stop(self, node: int) -> None:
        """In good order: it hands over first."""
        self._children[node].end()
        del self._children[node]

    def end(self) -> None:
        for node in list(self._children):
            self.kill(node)

    # ---------------------------------------------------------------- topics

    def create_topic(self, name: str, *, partition_count: int, is_synced: bool = False) -> None:
        """On all nodes; back when it is led and in sync everywhere."""
        config = {"min.insync.replicas": str(MIN_IN_SYNC)}
        if is_synced:
            config["flush.messages"] = "1"
        topic = NewTopic(name, num_partitions=partition_count, replication_factor=len(NODES), config=config)
        admin = self.admin()  # its requests end with it
        try:
            admin.create_topics([topic], request_timeout=ADMIN_TIMEOUT_S)[name].result(ADMIN_TIMEOUT_S)
        except KafkaException as error:
            raise BenchFailed(f"a topic was not created: {error}") from error
        self.until_in_sync([name])

    def delete_topic(self, name: str) -> None:
        admin = self.admin()
        admin.delete_topics([name])[name].result(ADMIN_TIMEOUT_S)

    def partitions(self, topic: str) -> dict[int, PartitionMetadata]:
        """As the cluster tells it now; empty while it cannot."""
        try:
            found = self.admin().list_topics(topic, timeout=_ANSWER_TIMEOUT_S).topics[topic]
        except KafkaException:
            return {}
        return {} if found.error is not None else dict(found.partitions)

    def until_in_sync(self, topics: Sequence[str], *, timeout_s: float = ADMIN_TIMEOUT_S) -> float:
        """Every partition has a leader and all its replicas; when that was first seen, on the monotonic clock."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if all(_is_whole(self.partitions(topic)) for topic in topics):
                return time.monotonic()
            time.sleep(_RETRY_S)
        raise BenchFailed(f"not all partitions are led and in sync after {timeout_s:g} s")

    def until_given_up(self, node: int, topic: str) -> None:
        """A node that was killed is in no in-sync set any more."""
        deadline = time.monotonic() + ADMIN_TIMEOUT_S
        while time.monotonic() < deadline:
            partitions = self.partitions(topic)
            if partitions and not any(node in one.isrs for one in partitions.values()):
                return
            time.sleep(_RETRY_S)
        raise BenchFailed(f"node {node} still counts as in sync after {ADMIN_TIMEOUT_S:g} s")

    def elect_preferred(self, topic: str) -> None:
        """Every partition led by the first of its replicas again, so that leaders are spread over the nodes."""
        places = [TopicPartition(topic, index) for index in self.partitions(topic)]
        admin = self.admin()
        admin.elect_leaders(ElectionType.PREFERRED, places).result(ADMIN_TIMEOUT_S)

    def admin(self) -> AdminClient:
        """A new one every time: one that has seen a node die, or a topic without leaders, goes on saying so for a while, and one that was
        told of a controller that is dead waits for that to come back."""
        alive = ",".join(address for node, address in self.addresses.items() if node in self._children)
        return AdminClient({"bootstrap.servers": alive, **_CLIENT})


class ClusterPeer(Protocol):
    @property
    def name(self) -> str:
        """One word, the end of a line's name."""

    @property
    def title(self) -> str: ...

    def start(self, folder: Path, timing: Timing) -> AbstractContextManager[Cluster]:
        """Install it if need be (`PeerAbsent` if that is impossible) and start all nodes; they end with the context."""


def free_ports(count: int) -> list[int]:
    """That stay free for a node which is started again."""
    chance = SystemRandom()
    found: dict[int, None] = {}
    for _ in range(_TRIES):
        port = chance.choice(_PORTS)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        found[port] = None
        if len(found) == count:
            return list(found)
    raise BenchFailed(f"{count} free ports were not found")


def start_all(cluster: Cluster) -> None:
    """Back when all of them listen."""
    for node in NODES:
        cluster.start(node)
    for node in NODES:
        cluster.until_listening(node)
    require(cluster.controller() in NODES, "there is no controller")


def _is_whole(partitions: Mapping[int, PartitionMetadata]) -> bool:
    return bool(partitions) and all(
        one.leader in NODES and len(one.isrs) == len(one.replicas) for one in partitions.values()
    )
