"""The nodes there are, by number: for protocols that tell their clients whom to ask."""

from __future__ import annotations

from typing import Final, NamedTuple

from goqueue.core.cluster.nodes import NodeEntry, NodeState
from goqueue.node.config import NodeConfig
from goqueue.node.metadata import Metadata

SOLO_NUMBER: Final = 1


class Broker(NamedTuple):
    """Where Kafka clients, and where REST clients, find a node."""

    number: int
    name: str
    kafka: str
    http: str
    rack: str


class Directory:
    def __init__(self, config: NodeConfig, metadata: Metadata) -> None:
        self._config = config
        self._metadata = metadata

    @property
    def is_solo(self) -> bool:
        return self._config.is_solo

    @property
    def rack(self) -> str:
        """Of this node."""
        return self._config.cluster.rack

    @property
    def allows_follower_reads(self) -> bool:
        return self._config.cluster.follower_reads

    @property
    def cluster_id(self) -> str:
        return self._metadata.catalog.cluster_id or f"goqueue-{self._config.node_id}"

    @property
    def number(self) -> int:
        """Of this node; 1 if it is alone, -1 until it has joined a cluster."""
        if self.is_solo:
            return SOLO_NUMBER
        node = self._metadata.catalog.node(self._config.node_id)
        return -1 if node is None else node.number

    @property
    def controller(self) -> int:
        """The controller's number; -1 if there is none for now."""
        if self.is_solo:
            return SOLO_NUMBER
        leader = self._metadata.quorum.leader
        node = None if leader is None else self._metadata.catalog.node(leader)
        return -1 if node is None else node.number

    def name_of(self, number: int) -> str:
        if self.is_solo and number == SOLO_NUMBER:
            return self._config.node_id
        node = self._metadata.catalog.node_by_number(number)
        return "" if node is None else node.name

    def number_of(self, name: str) -> int | None:
        node = self._metadata.catalog.node(name)
        return None if node is None else node.number

    def incarnation_of(self, name: str) -> str | None:
        """Which of its processes has joined last."""
        node = self._metadata.catalog.node(name)
        return None if node is None else node.incarnation

    def cluster_address(self, name: str) -> tuple[str, int] | None:
        """Where a node that has joined listens for others."""
        node = self._metadata.catalog.node(name)
        return None if node is None else split_address(node.endpoints.cluster)

    def brokers(self) -> list[Broker]:
        """Those that clients may ask; none where this node is alone, for then clients know it already."""
        return [
            _broker(node) for node in self._metadata.catalog.nodes() if node.state is not NodeState.FENCED
        ]

    def members(self) -> list[Broker]:
        """Those that nobody hears of for now, too."""
        return [_broker(node) for node in self._metadata.catalog.nodes()]

    def broker(self, number: int) -> Broker | None:
        return next((one for one in self.brokers() if one.number == number), None)


def _broker(node: NodeEntry) -> Broker:
    return Broker(node.number, node.name, node.endpoints.kafka, node.endpoints.http, node.rack)


def split_address(text: str) -> tuple[str, int]:
    """Of "host:port" as a node has registered it; an IPv6 host is in brackets."""
    host, _, port = text.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)
