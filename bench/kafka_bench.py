"""The servers of the Kafka lines: ours and its peers, started when the first line needs them, measured in turn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Self

from bench.kafka_load import KafkaLoad
from bench.kafka_plans import Consume, Consumed, Produce, Produced, Spreading, Target
from bench.peers.known import APACHE_KAFKA, OURS, PEERS
from bench.peers.peer import KafkaServer, Peer
from bench.sides import Sides

SYNCED = "synced_kafka"
_WARM_BYTES = 100
_WARM_PARTITIONS = 3


@dataclass(frozen=True, slots=True)
class Side:
    """One server in one role."""

    name: str
    title: str
    server: KafkaServer
    is_broker: bool
    is_synced: bool = False


@dataclass(frozen=True, slots=True)
class Warmth:
    """What a server gets before it is measured."""

    message_count: int
    request_count: int  # of one message each


class KafkaBench:
    def __init__(
        self, folder: Path, warmth: Warmth, *, ours: Peer = OURS, peers: Sequence[Peer] = PEERS
    ) -> None:
        self._sides = Sides(folder, ours=[ours], peers=peers, start=_start, warm_up=self._warm_up)
        self._warmth = warmth
        self._load: KafkaLoad | None = None
        self._serials = count()

    @property
    def absent(self) -> dict[str, str]:
        return self._sides.absent

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._sides.stack.close()

    def sides(self) -> list[Side]:
        """Ours first, then every peer that can be had here."""
        return self._sides.all()

    def brokers(self) -> list[Side]:
        return [side for side in self.sides() if side.is_broker]

    def sides_for_durable(self) -> list[Side]:
        """Those that `acks=all` is measured on: Apache Kafka twice, as it is and as durable as ours."""
        synced = [
            Side(SYNCED, f"{side.title} with flush.messages=1", side.server, side.is_broker, is_synced=True)
            for side in self.sides()
            if side.name == APACHE_KAFKA.name
        ]
        return self.sides() + synced

    @property
    def load(self) -> KafkaLoad:
        if self._load is None:
            self._load = self._sides.stack.enter_context(KafkaLoad())
        return self._load

    @contextmanager
    def topic(self, side: Side, *, partition_count: int) -> Iterator[Target]:
        """A new one, gone afterwards."""
        name = f"bench-{next(self._serials)}"
        server = side.server
        server.create_topic(name, partition_count=partition_count, is_synced=side.is_synced)
        yield Target(server.address, (server.pid,), name, partition_count)
        server.delete_topic(name)

    def burst(self, side: Side, plan: Produce) -> tuple[Produced, Consumed]:
        """Write, then read back and verify all that the server keeps."""
        produced = self.load.produce(plan)
        consumed = self.load.consume(Consume(plan.target, plan.count, plan.value_bytes, side.is_broker))
        return produced, consumed

    def _warm_up(self, side: Side) -> None:
        with self.topic(side, partition_count=_WARM_PARTITIONS) as target:
            self.burst(side, Produce(target, self._warmth.message_count, _WARM_BYTES, "1"))
        with self.topic(side, partition_count=_WARM_PARTITIONS) as target:
            singly = Spreading.ROUND_ROBIN
            self.burst(side, Produce(target, self._warmth.request_count, _WARM_BYTES, "1", singly))


def _start(peer: Peer, folder: Path, stack: ExitStack) -> Side:
    return Side(peer.name, peer.title, stack.enter_context(peer.start(folder)), peer.is_broker)
