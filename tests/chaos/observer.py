"""Who leads what, asked where the clients are: `python -m tests.chaos.observer HTTP,...`, a question a line, an answer a line.

The program that breaks things stands outside of the networks it breaks, so it has a process inside that looks.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeVar

import msgspec
from msgspec import Struct
from tests.chaos.world import World, number_of

from goqueue.client.rest import ApiError, RestClient, Unreachable

T = TypeVar("T")

_TIMEOUT_S: Final = 2.0


class Question(Struct, frozen=True):
    topic: str = ""  # whose leaders are wanted, if any


class Seen(Struct, frozen=True):
    """0 for whoever is not known."""

    controller: int = 0
    is_well: bool = False
    leaders: tuple[int, ...] = ()


class Observer:
    def __init__(self, world: World, folder: Path) -> None:
        addresses = ",".join(world.addresses().http)
        command = [sys.executable, "-m", "tests.chaos.observer", addresses]
        with (folder / "observer.log").open("ab") as errors:
            self._process = world.client(command, errors)

    def look(self, topic: str = "") -> Seen:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(msgspec.json.encode(Question(topic)) + b"\n")
        self._process.stdin.flush()
        return msgspec.json.decode(self._process.stdout.readline(), type=Seen)

    def close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _answer(clients: Sequence[RestClient], question: Question) -> Seen:
    health = _first(clients, lambda client: client.cluster_health())
    if health is None:
        return Seen()
    controller = number_of(health.controller) if health.controller else 0
    leaders: tuple[int, ...] = ()
    if question.topic:
        partitions = _first(clients, lambda client: client.partitions(question.topic)) or []
        leaders = tuple(number_of(one.leader) for one in partitions if one.leader.startswith("node-"))
    return Seen(controller, health.is_well, leaders)


def _first(clients: Sequence[RestClient], ask: Callable[[RestClient], T]) -> T | None:
    """Of whoever answers."""
    for client in clients:
        try:
            return ask(client)
        except (ApiError, Unreachable):
            client.close()
    return None


def main() -> None:
    clients = [RestClient(f"http://{one}", timeout_s=_TIMEOUT_S) for one in sys.argv[1].split(",")]
    for line in sys.stdin.buffer:
        question = msgspec.json.decode(line, type=Question)
        sys.stdout.buffer.write(msgspec.json.encode(_answer(clients, question)) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
