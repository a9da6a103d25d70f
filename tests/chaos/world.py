"""Where a cluster runs: real processes, and whatever can be done to them from outside."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from typing import IO, Protocol


class Nodes(Protocol):
    """The processes, numbered from 1."""

    def start(self, node: int) -> None:
        """Returns when it says that it is ready."""

    def stop(self, node: int) -> None:
        """As an operator does, and wait for its end."""

    def kill(self, node: int) -> None: ...

    def pause(self, node: int) -> None: ...

    def resume(self, node: int) -> None: ...

    def upgrade(self, node: int) -> None:
        """From its next start on it is of this version."""

    def is_older(self, node: int) -> bool:
        """It runs the version that the world began with, and that is not this one."""

    def is_running(self, node: int) -> bool:
        """False also for one that ended by itself and was started again by somebody else since."""

    def close(self) -> None:
        """End them all."""


class World(Protocol):
    """Everything that is done here is undone by `heal` or by starting the node again."""

    node_count: int

    @property
    def nodes(self) -> Nodes: ...

    @property
    def refusals(self) -> Mapping[str, str]:
        """Faults that are not possible here, and why."""

    def addresses(self) -> Addresses: ...

    def cut(self, source: int, target: int) -> None:
        """Nothing of what one node sends reaches the other. The other way stays open."""

    def isolate(self, node: int) -> None:
        """As if its cable were pulled: neither nodes nor clients reach it."""

    def slow(self, node: int, delay_ms: int) -> None: ...

    def reset(self, node: int) -> None:
        """Every connection that it has with nodes and clients breaks in the middle of what is sent next; new ones work."""

    def narrow(self, node: int, kilobits: int) -> None:
        """So much goes through its cable in a second, either way; what is more waits, and too much of it is lost."""

    def fill_disk(self, node: int) -> None: ...

    def heal(self) -> None:
        """Every link is whole and fast and every disk has room again. Processes stay as they are."""

    def client(self, command: Sequence[str], errors: IO[bytes]) -> subprocess.Popen[bytes]:
        """A process where the clients are, with pipes for its input and output."""

    def close(self) -> None:
        """Ends all that was started and removes all that was made."""


class Addresses:
    """Where clients find the nodes."""

    def __init__(self, *, kafka: Sequence[str], http: Sequence[str], cluster: Sequence[str]) -> None:
        self.kafka = kafka
        self.http = http
        self.cluster = cluster

    @property
    def bootstrap(self) -> str:
        return ",".join(self.kafka)

    @property
    def peers(self) -> str:
        return ",".join(f"{name_of(at)}@{address}" for at, address in enumerate(self.cluster, start=1))


class NotPossible(Exception):
    """This machine does not allow such a world; the sentence says why."""


def name_of(node: int) -> str:
    return f"node-{node}"


def number_of(name: str) -> int:
    return int(name.removeprefix("node-"))
