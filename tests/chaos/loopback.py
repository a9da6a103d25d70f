"""Nodes on the loopback interface, for machines that do not give us networks of our own.

All nodes share one network, so there is nothing to cut: a process can be killed, paused and started again, and that is all.
"""

from __future__ import annotations

import secrets
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from tests.chaos.node_process import NodeProcess
from tests.chaos.world import Addresses, NotPossible, name_of
from tests.support.broker import clean_environment
from tests.support.ports import port_of_ours

_SHARED = "all nodes share one network; use --world namespaces, as root"
REFUSALS: Mapping[str, str] = {
    "isolate": _SHARED,
    "one-way": _SHARED,
    "halves": _SHARED,
    "bridge": _SHARED,
    "ring": _SHARED,
    "slow": _SHARED,
    "full-disk": "all nodes share one disk; use --world namespaces, as root",
}


class LoopbackWorld:
    def __init__(self, folder: Path, node_count: int) -> None:
        self.node_count = node_count
        self.refusals = REFUSALS
        ports = _distinct_ports(3 * node_count)
        texts = [f"127.0.0.1:{port}" for port in ports]
        self._addresses = Addresses(
            kafka=texts[:node_count], http=texts[node_count : 2 * node_count], cluster=texts[2 * node_count :]
        )
        secret = secrets.token_hex(16)
        self._nodes = [
            NodeProcess(
                number,
                folder=folder,
                data=folder / name_of(number),
                addresses=self._addresses,
                secret=secret,
            )
            for number in range(1, node_count + 1)
        ]

    def addresses(self) -> Addresses:
        return self._addresses

    def start(self, node: int) -> None:
        self._nodes[node - 1].start()

    def stop(self, node: int) -> None:
        self._nodes[node - 1].stop()

    def kill(self, node: int) -> None:
        self._nodes[node - 1].kill()

    def pause(self, node: int) -> None:
        self._nodes[node - 1].pause()

    def resume(self, node: int) -> None:
        self._nodes[node - 1].resume()

    def is_running(self, node: int) -> bool:
        return self._nodes[node - 1].is_running

    def cut(self, source: int, target: int) -> None:
        raise NotPossible(_SHARED)

    def isolate(self, node: int) -> None:
        raise NotPossible(_SHARED)

    def slow(self, node: int, delay_ms: int) -> None:
        raise NotPossible(_SHARED)

    def fill_disk(self, node: int) -> None:
        raise NotPossible(REFUSALS["full-disk"])

    def heal(self) -> None:
        """Nothing can be broken here."""

    def client(self, command: Sequence[str], errors: IO[bytes]) -> subprocess.Popen[bytes]:
        return start_client(command, errors)

    def close(self) -> None:
        for node in self._nodes:
            node.kill()


def start_client(command: Sequence[str], errors: IO[bytes]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        env=clean_environment(),
        start_new_session=True,
    )


def _distinct_ports(count: int) -> list[int]:
    ports: dict[int, None] = {}
    while len(ports) < count:
        ports[port_of_ours()] = None
    return list(ports)
