"""The client: everything bulk work asks of a cluster, in plain tuples, bytes and small dataclasses.

Of one thread, and never carried to another process: open one where it is needed. What may heal (a leader that moves, a broker
that restarts) is tried again inside, for `timeout_s` without progress at most.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import Self

from goqueue.client.kafka import admin, groups, joint
from goqueue.client.kafka.brokers import Brokers, Place
from goqueue.client.kafka.fetching import BYTES_MAX, Fetched, SpanReader
from goqueue.client.kafka.joint import AlreadyCommitted, Enrolled, Outcome
from goqueue.client.kafka.offsets import find_offsets
from goqueue.client.kafka.producer_ids import ProducerIdentity, init_producer
from goqueue.client.kafka.security import Security

_PLAINTEXT = Security()
_TRANSACTION_TIMEOUT_MS = 60_000


class KafkaCluster:
    """`bootstrap` is `host:port,host:port`. Nothing is dialled before the first call."""

    def __init__(
        self,
        bootstrap: str,
        *,
        security: Security = _PLAINTEXT,
        client_id: str = "goqueue-bulk",
        timeout_s: float = 30.0,
    ) -> None:
        if timeout_s <= 0:
            raise ValueError(f"timeout_s is {timeout_s}; it must be more than 0")
        self.brokers = Brokers(bootstrap, security, client_id=client_id, timeout_s=timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.brokers.close()

    # ---------------------------------------------------------------- topics

    def topics(self) -> dict[str, int]:
        """Names to partition counts, without the broker's own."""
        return admin.list_topics(self.brokers)

    def topic_settings(self, topic: str) -> dict[str, str]:
        """All of them, defaults included."""
        return admin.describe_topic(self.brokers, topic)

    def topic_overrides(self, topic: str) -> dict[str, str]:
        """Its own settings: another topic that is created with them is set as this one is."""
        return admin.describe_topic(self.brokers, topic, is_own=True)

    def create_topic(self, name: str, partitions: int, config: Mapping[str, str] | None = None) -> None:
        admin.create_topic(self.brokers, name, partitions, config or {})

    # ---------------------------------------------------------------- reading

    def offsets(self, places: Iterable[Place], at: int, *, committed: bool) -> dict[Place, int]:
        """`at`: EARLIEST, LATEST (the high watermark, or the last stable offset for committed readers), or a timestamp in ms:
        the first offset that is at least that new, -1 where there is none."""
        return find_offsets(self.brokers, places, at, committed=committed)

    def fetch(
        self, topic: str, partition: int, start: int, end: int, *, committed: bool, bytes_max: int = BYTES_MAX
    ) -> Iterator[Fetched]:
        """Every batch that has offsets of [start, end), and perhaps some that lie before and behind it."""
        if not 0 <= start <= end:
            raise ValueError(f"[{start}, {end}) is no span of offsets")
        if bytes_max < 1:
            raise ValueError(f"bytes_max is {bytes_max}; it must be at least 1")
        reader = SpanReader(
            self.brokers, topic, partition, start, end, committed=committed, bytes_max=bytes_max
        )
        return reader.chunks()

    # ---------------------------------------------------------------- writing

    def init_producer(
        self, transactional_id: str | None = None, *, timeout_ms: int = _TRANSACTION_TIMEOUT_MS
    ) -> ProducerIdentity:
        """For a `BatchSender`. `timeout_ms` is how long a transaction may stay open."""
        return init_producer(self.brokers, transactional_id, timeout_ms=timeout_ms)

    def enrol(
        self, joint_id: str, batch_id: int, member: str, timeout_ms: int
    ) -> Enrolled | AlreadyCommitted:
        """Take part in a batch of a joint transaction."""
        return joint.enrol(self.brokers, joint_id, batch_id, member, timeout_ms)

    def commit_joint(self, joint_id: str, batch_id: int, winners: Iterable[Enrolled]) -> Outcome:
        """One decision for all: what the winners wrote counts, what others wrote does not."""
        return joint.commit_joint(self.brokers, joint_id, batch_id, winners)

    def abort_joint(self, joint_id: str, batch_id: int) -> None:
        """Nothing of the batch counts, unless it was committed before."""
        joint.abort_joint(self.brokers, joint_id, batch_id)

    # ---------------------------------------------------------------- groups

    def commit_group(self, group_id: str, offsets: Mapping[Place, int]) -> None:
        """How far a group has come, for lag to be seen. It must have no members."""
        groups.commit_offsets(self.brokers, group_id, offsets)

    def group_offsets(self, group_id: str) -> dict[Place, int]:
        """Of every partition for which one is committed."""
        return groups.committed_offsets(self.brokers, group_id)
