"""Queues to be measured: a server in a process of its own, how it is spoken to, and what it promises."""

from __future__ import annotations

import shutil
import socket
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bench.child import Child
from bench.line import BenchFailed
from bench.queue_plans import Dialect

_START_TIMEOUT_S = 60.0
_RETRY_S = 0.05


@dataclass(frozen=True, slots=True)
class QueueServer:
    title: str
    durability: str  # what is on the disk when a publish is confirmed
    dialect: Dialect
    port: int
    child: Child
    admin_port: int = 0  # ours by Kafka: of its REST API

    @property
    def pid(self) -> int:
        return self.child.pid


class QueuePeer(Protocol):
    @property
    def name(self) -> str:
        """One word, the end of a line's name."""

    def start(self, folder: Path) -> AbstractContextManager[QueueServer]:
        """Install it if need be (`PeerAbsent` if that is impossible) and start it; it ends with the context."""


def guarded(*command: str) -> list[str]:
    """The kernel ends the server with us, even if nothing of ours runs any more."""
    return ["setpriv", "--pdeathsig", "KILL", *command] if shutil.which("setpriv") else list(command)


def free_ports(count: int) -> list[int]:
    """Held all at once, so that they differ."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def await_port(child: Child, port: int, name: str) -> None:
    deadline = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < deadline:
        child.require_running()
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(_RETRY_S)
        else:
            return
    raise BenchFailed(f"{name} does not listen after {_START_TIMEOUT_S:g} s")
