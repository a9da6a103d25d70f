"""Nodes on the loopback interface, for machines that do not give us networks of our own.

All nodes share one network, so it is not the network that is broken: what nodes and clients say goes through links that are ours. Nodes
that make up themselves where they are (`supervised.py`) have none: they can be killed and paused, and that is all.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Final

from tests.chaos.links import Links
from tests.chaos.node_process import NodeProcesses
from tests.chaos.world import Addresses, Nodes, NotPossible, name_of
from tests.support.broker import clean_environment
from tests.support.ports import port_of_ours

_NO_LINKS: Final = "nodes of goqueue serve --nodes find each other by themselves; use --world loopback"
_OF_LINKS: Final = ("isolate", "one-way", "halves", "bridge", "ring", "slow", "reset")
_LINKED: Mapping[str, str] = {
    "narrow": "links carry what they are given; use --world namespaces, as root",
    "full-disk": "all nodes share one disk; use --world namespaces, as root",
}


class LoopbackWorld:
    """Whoever starts the nodes; with their links, if they have some."""

    def __init__(
        self, nodes: Nodes, node_count: int, addresses: Addresses, links: Links | None = None
    ) -> None:
        self.node_count = node_count
        self.refusals = _LINKED if links is not None else {**dict.fromkeys(_OF_LINKS, _NO_LINKS), **_LINKED}
        self.nodes = nodes
        self._addresses = addresses
        self._links = links

    def addresses(self) -> Addresses:
        return self._addresses

    def cut(self, source: int, target: int) -> None:
        self._linked().cut(source, target)

    def isolate(self, node: int) -> None:
        self._linked().isolate(node)

    def slow(self, node: int, delay_ms: int) -> None:
        self._linked().slow(node, delay_ms)

    def reset(self, node: int) -> None:
        self._linked().reset(node)

    def _linked(self) -> Links:
        if self._links is None:
            raise NotPossible(_NO_LINKS)
        return self._links

    def narrow(self, node: int, kilobits: int) -> None:
        raise NotPossible(_LINKED["narrow"])

    def fill_disk(self, node: int) -> None:
        raise NotPossible(_LINKED["full-disk"])

    def heal(self) -> None:
        if self._links is not None:
            self._links.heal()

    def client(self, command: Sequence[str], errors: IO[bytes]) -> subprocess.Popen[bytes]:
        return start_client(command, errors)

    def close(self) -> None:
        try:
            self.nodes.close()
        finally:
            if self._links is not None:
                self._links.close()


def loopback_world(folder: Path, node_count: int, older: Path | None = None) -> LoopbackWorld:
    """Each node a process of its own."""
    addresses = free_addresses(node_count)
    links = Links(addresses)
    nodes = NodeProcesses(
        folder,
        addresses,
        data=lambda number: folder / name_of(number),
        outlook=links.outlook,
        older=older,
    )
    return LoopbackWorld(nodes, node_count, links.addresses, links)


def start_client(command: Sequence[str], errors: IO[bytes]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        env=clean_environment(),
        start_new_session=True,
    )


def free_addresses(node_count: int) -> Addresses:
    """On the loopback interface."""
    ports: dict[int, None] = {}
    while len(ports) < 3 * node_count:
        ports[port_of_ours()] = None
    texts = [f"127.0.0.1:{port}" for port in ports]
    kafka, http, cluster = (texts[at : at + node_count] for at in range(0, 3 * node_count, node_count))
    return Addresses(kafka=kafka, http=http, cluster=cluster)
