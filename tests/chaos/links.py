"""Nodes of one machine, joined by links that can be broken: for worlds without networks of their own.

A node finds each of the others at an address that only it is told (its list of peers goes before what the cluster has noted),
so what one node sends another has a link of its own. Everything between nodes goes over that one port. Clients find each node through
a link too, and are told so (`kafka_advertised`, `http_advertised`); all clients are one place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from tests.chaos.world import Addresses
from tests.support.faulty_network import FaultyNetwork

_CLIENTS: Final = 0  # a place beside the nodes, which count from 1


class Outlook(NamedTuple):
    """How a node finds others, and what clients are told where it is not what the node listens on."""

    peers: str
    advertised: Mapping[str, str] = {}  # variables of the environment


class Links:
    def __init__(self, listening: Addresses) -> None:
        self._listening = listening
        self._network = FaultyNetwork()
        self._nodes = range(1, len(listening.cluster) + 1)
        self.addresses = Addresses(
            kafka=[self._from_clients(node, listening.kafka) for node in self._nodes],
            http=[self._from_clients(node, listening.http) for node in self._nodes],
            cluster=listening.cluster,
        )

    def outlook(self, node: int) -> Outlook:
        """Each call makes links of its own."""
        cluster = list(self._listening.cluster)
        for other in self._nodes:
            if other != node:
                cluster[other - 1] = self._network.link(node, other, cluster[other - 1])
        advertised = {
            "GOQUEUE_KAFKA_ADVERTISED": self.addresses.kafka[node - 1],
            "GOQUEUE_HTTP_ADVERTISED": self.addresses.http[node - 1],
        }
        return Outlook(Addresses(kafka=(), http=(), cluster=cluster).peers, advertised)

    def cut(self, source: int, target: int) -> None:
        self._network.cut(source, target)

    def isolate(self, node: int) -> None:
        for way in self._ways(node):
            self._network.cut(*way)

    def slow(self, node: int, delay_ms: int) -> None:
        for way in self._ways(node):
            self._network.slow(*way, delay_ms)

    def reset(self, node: int) -> None:
        for way in self._ways(node):
            self._network.reset(*way)

    def heal(self) -> None:
        self._network.heal()

    def close(self) -> None:
        self._network.close()

    def _from_clients(self, node: int, addresses: Sequence[str]) -> str:
        return self._network.link(_CLIENTS, node, addresses[node - 1])

    def _ways(self, node: int) -> Iterator[tuple[int, int]]:
        """All from and to a node."""
        for other in (_CLIENTS, *self._nodes):
            if other != node:
                yield node, other
                yield other, node
