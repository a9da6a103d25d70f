"""What the Kafka load generator is told to do, and what it answers."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class Target(Struct, frozen=True):
    address: str
    pids: tuple[int, ...]  # of the server, for its processor time; of every node if it is a cluster
    topic: str
    partition_count: int


class Spreading(StrEnum):
    """Which partition a message goes to."""

    BY_CLIENT = "by_client"  # as the client does it by default
    ROUND_ROBIN = (
        "round_robin"  # one after the other, every message in a request of its own; the first of each
    )
    # partition is sent before the measurement: it may cost more, as ours begins a leader epoch with it
    IN_BLOCKS = "in_blocks"  # the same share to each


class Produce(Struct, frozen=True, tag=True):
    """Send `count` messages as fast as the client can, until all of them are acknowledged."""

    target: Target
    count: int
    value_bytes: int
    acks: str
    spreading: Spreading = Spreading.BY_CLIENT
    producer_count: int = 1  # each with connections of its own, and an equal share


class Consume(Struct, frozen=True, tag=True):
    """Read what `Produce` sent, from the first that is kept to the last."""

    target: Target
    count: int
    value_bytes: int
    is_everything_kept: bool
    producer_count: int = 1  # only what one of them sent is in order


class Pace(Struct, frozen=True, tag=True):
    """Send at a steady rate and read at the same time: how long a message takes from when it was due."""

    target: Target
    value_bytes: int
    acks: str
    per_s: int
    seconds: float
    consumer_count: int = 1  # each of them reads everything


Plan = Produce | Consume | Pace


class Produced(Struct, frozen=True, tag=True):
    seconds: float
    server_cpu_s: float
    client_cpu_s: float
    request_count: int | None  # known where every message has a request of its own


class Consumed(Struct, frozen=True, tag=True):
    message_count: int
    seconds: float
    server_cpu_s: float
    client_cpu_s: float


class Paced(Struct, frozen=True, tag=True):
    p50_ms: float
    p99_ms: float
    p999_ms: float
    lateness_p99_ms: float  # of the sender: what the client itself adds
    server_cpu_share: float  # of one core
    fetches_per_s: float


class Failed(Struct, frozen=True, tag=True):
    reason: str


Answer = Produced | Consumed | Paced | Failed
