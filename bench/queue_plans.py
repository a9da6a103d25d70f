"""What the queue load generator is told to do, and what it answers."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class Dialect(StrEnum):
    """How a queue is spoken to."""

    REST = "rest"
    SHARE = "share"
    AMQP_QUORUM = "amqp_quorum"
    AMQP_CLASSIC = "amqp_classic"
    JETSTREAM = "jetstream"
    REDIS = "redis"


class Queue(Struct, frozen=True):
    """One that does not exist yet, on a running server."""

    dialect: Dialect
    name: str
    port: int
    pid: int
    admin_port: int = 0


class Work(Struct, frozen=True, tag=True):
    """Publish everything, then take and acknowledge everything, in batches, by several connections at once.
    With `priorities`, one message after the other gets the next of them; only ours knows them."""

    queue: Queue
    count: int
    value_bytes: int
    batch_count: int
    connection_count: int
    priorities: tuple[int, ...] = ()


class Wake(Struct, frozen=True, tag=True):
    """Publish one message at a time to a consumer that waits, again when that one has acknowledged and waits anew."""

    queue: Queue
    count: int
    value_bytes: int


Plan = Work | Wake


class Cost(Struct, frozen=True):
    seconds: float
    server_cpu_s: float
    client_cpu_s: float


class Worked(Struct, frozen=True, tag=True):
    count: int
    published: Cost
    drained: Cost  # taken and acknowledged

    @property
    def rate(self) -> float:
        return self.count / (self.published.seconds + self.drained.seconds)

    @property
    def rate_per_core(self) -> float:
        """Messages for each second of processor time of the server."""
        return self.count / (self.published.server_cpu_s + self.drained.server_cpu_s)

    @property
    def client_share(self) -> float:
        seconds = self.published.seconds + self.drained.seconds
        return (self.published.client_cpu_s + self.drained.client_cpu_s) / seconds


class Woken(Struct, frozen=True, tag=True):
    """From just before the publish until the waiting consumer has the message."""

    p50_ms: float
    p99_ms: float
    most_ms: float


class Failed(Struct, frozen=True, tag=True):
    reason: str


Answer = Worked | Woken | Failed
