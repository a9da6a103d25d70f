"""The broker of this repository, as the other servers are seen: by its Kafka listener."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.child import Broker
from bench.peers.peer import KafkaServer
from goqueue.client.rest import RestClient


class Ours:
    name = "goqueue"
    title = "GoQueue"
    is_broker = True

    @contextmanager
    def start(self, folder: Path) -> Iterator[KafkaServer]:
        with Broker(folder) as broker:
            yield _Running(broker)


class _Running:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._url = f"http://127.0.0.1:{broker.ports['http']}"
        self.address = f"127.0.0.1:{broker.ports['kafka']}"

    @property
    def pid(self) -> int:
        return self._broker.pid

    def create_topic(self, name: str, *, partition_count: int, is_synced: bool = False) -> None:
        with RestClient(self._url) as client:
            client.create_topic(name, partition_count=partition_count)

    def delete_topic(self, name: str) -> None:
        with RestClient(self._url) as client:
            client.delete_topic(name)
