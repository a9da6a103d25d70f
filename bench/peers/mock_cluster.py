"""librdkafka's mock cluster as a peer: what the client reaches against a server that does next to nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import libversion

from bench.child import Server
from bench.line import require
from bench.peers.peer import KafkaServer


class MockCluster:
    name = "mock"
    is_broker = False

    @property
    def title(self) -> str:
        return f"librdkafka {libversion()[0]} mock cluster"

    @contextmanager
    def start(self, folder: Path) -> Iterator[KafkaServer]:
        with Server("bench.peers.mock_server") as server:
            yield _Running(server)


class _Running:
    def __init__(self, server: Server) -> None:
        self._server = server
        self.address = f"127.0.0.1:{server.ports['kafka']}"

    @property
    def pid(self) -> int:
        return self._server.pid

    def create_topic(self, name: str, *, partition_count: int, is_synced: bool = False) -> None:
        self._server.tell(f"{name} {partition_count}".encode())
        code = int(self._server.line())
        require(code == 0, f"the mock cluster did not create a topic: error {code}")

    def delete_topic(self, name: str) -> None:
        """It cannot; a topic of it takes 5 MB of memory per partition at most."""
