"""What the sink needs of a cluster. `live.py` has it from the Kafka client; the unit tests have one in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Batch:
    """What is committed as one: the joint that writes, and which of its batches."""

    joint_id: str
    batch_id: int


@dataclass(frozen=True)
class Member:
    """A producer that writes a part of a batch in a transaction."""

    transactional_id: str
    producer_id: int
    epoch: int


class TopicSource(Protocol):
    """Topics by name: how many partitions, and their settings as text."""

    def topics(self) -> dict[str, int]: ...

    def topic_settings(self, topic: str) -> Mapping[str, str]: ...

    def create_topic(self, name: str) -> None:
        """With as many partitions as the broker gives by default; no error where it exists by now."""


class Sender(Protocol):
    """Batches of one producer, on their way while the next are made."""

    @property
    def producer(self) -> tuple[int, int] | None:
        """Id and epoch, for batches that the broker is to store once."""

    def sequence(self, topic: str, partition: int) -> int:
        """Of the first record of the next batch."""

    def send(self, topic: str, partition: int, batch: bytes) -> None: ...

    def flush(self) -> None:
        """Return when every batch was acknowledged, as `acks` says."""

    def close(self) -> None: ...


class Cluster(TopicSource, Protocol):
    def enrol(self, batch: Batch, name: str, *, timeout_ms: int) -> Member | None:
        """None where the batch was committed before."""

    def sender(self, member: Member | None, acks: str) -> Sender:
        """Without a member: outside of any transaction; with acks=all still each batch once."""

    def commit(self, batch: Batch, winners: Sequence[Member]) -> bool:
        """Whether that was done now; False where the batch was committed before. What others wrote is aborted."""

    def is_committed(self, batch: Batch) -> bool:
        """Asked of a batch whose predecessor is committed: what is open before it is aborted by the question."""

    def abort(self, batch: Batch) -> None:
        """Nothing happens where the batch was committed before."""

    def give_up(self, batch: Batch, name: str) -> None:
        """One attempt's part, and nothing else of its batch."""

    def close(self) -> None: ...
