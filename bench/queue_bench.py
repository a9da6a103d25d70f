"""The servers of the queue lines: ours by each of its protocols and the peers, started when the first line needs them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Self

from bench.child import Broker
from bench.peers.nats import JetStream
from bench.peers.rabbitmq import RabbitMq
from bench.peers.redis import RedisStreams
from bench.queue_load import QueueLoad
from bench.queue_peer import QueuePeer, QueueServer
from bench.queue_plans import Dialect, Queue, Work
from bench.sides import Sides

VALUE_BYTES = 100
BATCH_COUNT = 100
CONNECTION_COUNT = 4
OURS = "goqueue"
OURS_BY_KAFKA = "goqueue_share"
PEERS: tuple[QueuePeer, ...] = (
    RabbitMq("rabbitmq_quorum", Dialect.AMQP_QUORUM),
    RabbitMq("rabbitmq_classic", Dialect.AMQP_CLASSIC),
    JetStream("nats_synced", is_synced=True),
    JetStream("nats", is_synced=False),
    RedisStreams("redis_synced", "always"),
    RedisStreams("redis", "everysec"),
)


@dataclass(frozen=True, slots=True)
class OurQueue:
    name: str
    dialect: Dialect

    @contextmanager
    def start(self, folder: Path) -> Iterator[QueueServer]:
        by = "ShareConsumer" if self.dialect is Dialect.SHARE else "REST"
        with Broker(folder) as broker:
            port = broker.ports["kafka" if self.dialect is Dialect.SHARE else "http"]
            durability = "acks=all, synced before every answer; acks too"
            yield QueueServer(
                f"GoQueue by {by}", durability, self.dialect, port, broker, broker.ports["http"]
            )


OUR_QUEUES = (OurQueue(OURS, Dialect.REST), OurQueue(OURS_BY_KAFKA, Dialect.SHARE))


@dataclass(frozen=True, slots=True)
class QueueSide:
    name: str
    server: QueueServer

    @property
    def title(self) -> str:
        return self.server.title


class QueueBench:
    def __init__(
        self,
        folder: Path,
        warm_count: int,
        *,
        peers: Sequence[QueuePeer] = PEERS,
    ) -> None:
        self._sides = Sides(folder, ours=OUR_QUEUES, peers=peers, start=_start, warm_up=self._warm_up)
        self._warm_count = warm_count
        self._load: QueueLoad | None = None
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

    def sides(self) -> list[QueueSide]:
        """Ours by REST first, then ours by Kafka's protocol, then every peer that can be had here."""
        return self._sides.all()

    def ours(self) -> QueueSide:
        return self.sides()[0]

    @property
    def load(self) -> QueueLoad:
        if self._load is None:
            self._load = self._sides.stack.enter_context(QueueLoad())
        return self._load

    def queue(self, side: QueueSide) -> Queue:
        """A new one; the load generator makes and deletes it."""
        server = side.server
        return Queue(
            server.dialect, f"bench-{next(self._serials)}", server.port, server.pid, server.admin_port
        )

    def plan(self, side: QueueSide, count: int, priorities: tuple[int, ...] = ()) -> Work:
        return Work(self.queue(side), count, VALUE_BYTES, BATCH_COUNT, CONNECTION_COUNT, priorities)

    def _warm_up(self, side: QueueSide) -> None:
        self.load.work(self.plan(side, self._warm_count))


def _start(peer: QueuePeer, folder: Path, stack: ExitStack) -> QueueSide:
    return QueueSide(peer.name, stack.enter_context(peer.start(folder)))
