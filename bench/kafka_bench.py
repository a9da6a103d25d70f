"""The servers of the Kafka lines: ours and its peers, started when the first line needs them, measured in turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self, TypeVar

from bench.kafka_load import KafkaLoad
from bench.kafka_plans import Consume, Consumed, Produce, Produced, Spreading, Target
from bench.peers.known import APACHE_KAFKA, OURS, PEERS
from bench.peers.peer import KafkaServer, Peer, PeerAbsent
from bench.workspace import fresh_folder

T = TypeVar("T")
S = TypeVar("S", bound="Named")
SYNCED = "synced_kafka"
_WARM_BYTES = 100
_WARM_PARTITIONS = 3


class Named(Protocol):
    """What is measured in turn with others."""

    @property
    def name(self) -> str: ...

    @property
    def title(self) -> str: ...


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
        self._folder = folder
        self._warmth = warmth
        self._ours = ours
        self._peers = peers
        self._stack = ExitStack()
        self._sides: list[Side] = []
        self._load: KafkaLoad | None = None
        self._serials = count()
        self.absent: dict[str, str] = {}  # peer to reason

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def sides(self) -> list[Side]:
        """Ours first, then every peer that can be had here."""
        if not self._sides:
            self._sides = [self._start(self._ours)]
            for peer in self._peers:
                try:
                    self._sides.append(self._start(peer))
                except PeerAbsent as absent:
                    self.absent[peer.name] = str(absent)
            for side in self._sides:
                self._warm_up(side)
        return list(self._sides)

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
            self._load = self._stack.enter_context(KafkaLoad())
        return self._load

    @contextmanager
    def topic(self, side: Side, *, partition_count: int) -> Iterator[Target]:
        """A new one, gone afterwards."""
        name = f"bench-{next(self._serials)}"
        server = side.server
        server.create_topic(name, partition_count=partition_count, is_synced=side.is_synced)
        yield Target(server.address, server.pid, name, partition_count)
        server.delete_topic(name)

    def burst(self, side: Side, plan: Produce) -> tuple[Produced, Consumed]:
        """Write, then read back and verify all that the server keeps."""
        produced = self.load.produce(plan)
        consumed = self.load.consume(Consume(plan.target, plan.count, plan.value_bytes, side.is_broker))
        return produced, consumed

    def _start(self, peer: Peer) -> Side:
        folder = self._stack.enter_context(fresh_folder(self._folder))
        server = self._stack.enter_context(peer.start(folder))
        return Side(peer.name, peer.title, server, peer.is_broker)

    def _warm_up(self, side: Side) -> None:
        with self.topic(side, partition_count=_WARM_PARTITIONS) as target:
            self.burst(side, Produce(target, self._warmth.message_count, _WARM_BYTES, "1"))
        with self.topic(side, partition_count=_WARM_PARTITIONS) as target:
            singly = Spreading.ROUND_ROBIN
            self.burst(side, Produce(target, self._warmth.request_count, _WARM_BYTES, "1", singly))


def interleave(sides: Sequence[S], round_count: int, measure: Callable[[S], T]) -> dict[str, list[T]]:
    """One side after the other, every round beginning with another one. Side to what it gave, by round."""
    taken: dict[str, list[T]] = {side.name: [] for side in sides}
    for turn in range(round_count):
        at = turn % len(sides)
        for side in [*sides[at:], *sides[:at]]:
            taken[side.name].append(measure(side))
    return taken
