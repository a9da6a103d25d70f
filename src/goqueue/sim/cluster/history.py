"""What the clients of a simulated cluster did and were told, and who led what when: facts only. `checkers.py` judges."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from goqueue.core.raft.messages import Entry
from goqueue.sim.kafka.history import Part


class Life(NamedTuple):
    """One life of the node on a host."""

    host: str
    number: int


@dataclass(frozen=True, slots=True)
class Acked:
    """A batch that was acknowledged with `all`; `holders` had it on their disks when the producer heard of it."""

    part: Part
    base_offset: int
    values: tuple[str, ...]
    host: str
    holders: tuple[str, ...]
    needed_count: int
    sent_s: float
    answered_s: float


@dataclass(frozen=True, slots=True)
class Read:
    """An answer to a fetch."""

    reader: str
    host: str
    part: Part
    start: int
    values: dict[int, str]
    high_watermark: int
    answered_s: float
    epoch: int = -1  # of the leader that was asked; -1 where it was any replica


@dataclass(frozen=True, slots=True)
class Latest:
    """The end of a partition, as a client was told by its leader."""

    reader: str
    part: Part
    offset: int
    epoch: int  # of that leader
    asked_s: float
    answered_s: float


@dataclass(frozen=True, slots=True)
class Led:
    """A node has begun to lead a partition."""

    part: Part
    epoch: int
    by: Life
    at_s: float


@dataclass(frozen=True, slots=True)
class Ruled:
    """A node has begun to lead the quorum."""

    term: int
    by: Life
    at_s: float


@dataclass(frozen=True, slots=True)
class Applied:
    entry: Entry
    by: Life


class FinalBatch(NamedTuple):
    epoch: int
    data: bytes
    values: dict[int, str]


@dataclass(slots=True)
class FinalLog:
    """A partition when all is over: everything before the high watermark, as each replica has it on its disk."""

    high_watermark: int
    replicas: dict[str, dict[int, FinalBatch]] = field(default_factory=dict)  # by host, then base offset
    read: dict[int, str] = field(default_factory=dict)  # by a client


@dataclass(slots=True)
class ClusterHistory:
    sent: dict[str, Part] = field(default_factory=dict)  # by value
    acked: list[Acked] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    latest: list[Latest] = field(default_factory=list)
    led: list[Led] = field(default_factory=list)
    ruled: list[Ruled] = field(default_factory=list)
    applied: list[Applied] = field(default_factory=list)
    final: dict[Part, FinalLog] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)

    def violate(self, what: str) -> None:
        if what not in self.violations:
            self.violations.append(what)
