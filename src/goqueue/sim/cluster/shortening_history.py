"""What the clients of topics that get shorter did and were told: facts only. `shortening_checkers.py` judges.

A record is one text everywhere: its value, and where it has a key `key=value`; a tombstone is a key with nothing behind it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from goqueue.sim.cluster.history import ClusterHistory
from goqueue.sim.kafka.history import Part

_EQUALS = "="


def text_of(key: bytes | None, value: bytes | None) -> str:
    text = (value or b"").decode()
    return text if key is None else f"{key.decode()}{_EQUALS}{text}"


def key_of(text: str) -> str | None:
    key, equals, _ = text.partition(_EQUALS)
    return key if equals else None


def is_tombstone(text: str) -> bool:
    return text.endswith(_EQUALS)


@dataclass(frozen=True, slots=True)
class Look:
    """An answer to a fetch from a leader: what there is from `start` up to `next_offset`."""

    reader: str
    host: str
    part: Part
    start: int
    next_offset: int
    values: dict[int, str]
    epoch: int
    asked_s: float
    answered_s: float


@dataclass(frozen=True, slots=True)
class Begun:
    """Where a partition begins, as a client was told by its leader."""

    reader: str
    host: str
    part: Part
    offset: int
    epoch: int  # of that leader
    asked_s: float
    answered_s: float


@dataclass(frozen=True, slots=True)
class Deleted:
    """Somebody was told by the leader that nothing before `offset` is there any more."""

    host: str
    part: Part
    offset: int
    epoch: int
    answered_s: float


class Stored(NamedTuple):
    """A batch on a disk."""

    base_offset: int
    end: int
    epoch: int
    data: bytes
    values: dict[int, str]


@dataclass(slots=True)
class Replica:
    """What is on a disk for sure. `log_start` is where the replica says that it begins."""

    log_start: int
    end: int
    batches: list[Stored]

    def values(self) -> dict[int, str]:
        return {offset: value for batch in self.batches for offset, value in batch.values.items()}


@dataclass(slots=True)
class Final:
    """A partition when all is over: as a client reads it from its leader, and as every replica has it."""

    leader: str
    log_start: int
    end: int
    read: dict[int, str]
    replicas: dict[str, Replica]


@dataclass(slots=True)
class ShorteningHistory:
    cluster: ClusterHistory
    compacted: str  # the topic
    acked: dict[Part, dict[int, str]] = field(default_factory=dict)  # what stands where
    sent_s: dict[str, float] = field(default_factory=dict)  # when a record was sent first
    looks: list[Look] = field(default_factory=list)
    begun: list[Begun] = field(default_factory=list)
    deleted: list[Deleted] = field(default_factory=list)
    final: dict[Part, Final] = field(default_factory=dict)

    def violate(self, what: str) -> None:
        self.cluster.violate(what)

    def is_compacted(self, part: Part) -> bool:
        return part.topic == self.compacted
