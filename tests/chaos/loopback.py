"""Nodes on the loopback interface, for machines that do not give us networks of our own.

All nodes share one network, so there is nothing to cut: a process can be killed, paused and started again, and that is all.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from tests.chaos.node_process import NodeProcesses
from tests.chaos.world import Addresses, Nodes, NotPossible, name_of
from tests.support.broker import clean_environment
from tests.support.ports import port_of_ours

SHARED = "all nodes share one network; use --world namespaces, as root"
REFUSALS: Mapping[str, str] = {
    "isolate": SHARED,
    "one-way": SHARED,
    "halves": SHARED,
    "bridge": SHARED,
    "ring": SHARED,
    "slow": SHARED,
    "narrow": SHARED,
    "full-disk": "all nodes share one disk; use --world namespaces, as root",
}


class LoopbackWorld:
    """Whoever starts the nodes."""

    def __init__(self, nodes: Nodes, node_count: int, addresses: Addresses) -> None:
        self.node_count = node_count
        self.refusals = REFUSALS
        self.nodes = nodes
        self._addresses = addresses

    def addresses(self) -> Addresses:
        return self._addresses

    def cut(self, source: int, target: int) -> None:
        raise NotPossible(SHARED)

    def isolate(self, node: int) -> None:
        raise NotPossible(SHARED)

    def slow(self, node: int, delay_ms: int) -> None:
        raise NotPossible(SHARED)

    def narrow(self, node: int, kilobits: int) -> None:
        raise NotPossible(SHARED)

    def fill_disk(self, node: int) -> None:
        raise NotPossible(REFUSALS["full-disk"])

    def heal(self) -> None:
        """Nothing can be broken here."""

    def client(self, command: Sequence[str], errors: IO[bytes]) -> subprocess.Popen[bytes]:
        return start_client(command, errors)

    def close(self) -> None:
        self.nodes.close()


def loopback_world(folder: Path, node_count: int) -> LoopbackWorld:
    """Each node a process of its own."""
    addresses = free_addresses(node_count)
    nodes = NodeProcesses(folder, addresses, data=lambda number: folder / name_of(number))
    return LoopbackWorld(nodes, node_count, addresses)


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
