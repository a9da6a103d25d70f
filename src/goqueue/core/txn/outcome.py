"""What a decision about a transaction gives: events to write, markers to write after them, and the answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from goqueue.core.txn.events import Event, ProducerEpoch, TopicPartition

R = TypeVar("R")


class ProducerIdNeeded(Exception):
    """Not an error: the decision takes a fresh producer id, which costs a write elsewhere. Decide again with one."""


@dataclass(frozen=True, slots=True)
class MarkerWork:
    """A verdict and everybody who must hear it. To say it twice does no harm."""

    transactional_id: str
    serial: int
    producer: ProducerEpoch
    is_epoch_bumped: bool  # the producer's epoch is one above that of its records
    is_commit: bool
    partitions: tuple[TopicPartition, ...]
    groups: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Decision(Generic[R]):
    """The events go into the log in one batch; markers may be written once that is durable, and not before."""

    reply: R
    events: list[Event] = field(default_factory=list)
    markers: list[MarkerWork] = field(default_factory=list)
