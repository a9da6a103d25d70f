"""What the Kafka clients of one run did and were told, with the moments at which they did: facts only.

Nothing here judges. `goqueue.sim.kafka.checkers` does, when the run is over.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from goqueue.sim.broker import EPOCH_MS

NEVER = math.inf


class Part(NamedTuple):
    topic: str
    partition: int


class Epoch(NamedTuple):
    """Who a producer says it is."""

    producer_id: int
    epoch: int


class Outcome(Enum):
    UNKNOWN = "unknown"  # all or nothing
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass(slots=True)
class Txn:
    name: str
    producer: Epoch
    values: dict[str, Part] = field(default_factory=dict)
    commit_asked_s: float = NEVER  # before that it cannot count
    answered_s: float = NEVER
    outcome: Outcome = Outcome.UNKNOWN

    def may_count(self, at_s: float) -> bool:
        return self.outcome is not Outcome.ABORTED and self.commit_asked_s <= at_s


@dataclass(frozen=True, slots=True)
class Write:
    """A batch that was acknowledged with `all`."""

    part: Part
    base_offset: int
    values: tuple[str, ...]
    producer: Epoch
    sent_s: float
    answered_s: float


@dataclass(frozen=True, slots=True)
class EpochGiven:
    """From then on the producer's older epochs are fenced."""

    producer: Epoch
    at_s: float


@dataclass(slots=True)
class OffsetCommit:
    """One partition's. Its id is stored as the offset's metadata, so whoever reads it knows which commit it was."""

    id: str
    group: str
    part: Part
    offset: int
    member_id: str
    generation: int
    sent_s: float
    txn: Txn | None = None
    producer: Epoch | None = None
    answered_s: float = NEVER
    is_refused: bool = False  # for sure: without an answer, or with one that says "try again", it may count


@dataclass(frozen=True, slots=True)
class OffsetRead:
    group: str
    part: Part
    offset: int
    commit_id: str  # "" if there is none
    sent_s: float
    answered_s: float


@dataclass(slots=True)
class Hold:
    """A member believes that a partition is its own."""

    group: str
    part: Part
    member_id: str
    generation: int
    start_s: float
    is_classic: bool
    end_s: float = NEVER


@dataclass(frozen=True, slots=True)
class Beat:
    """A heartbeat of a member that was told that all is well."""

    group: str
    member_id: str
    sent_s: float


@dataclass(frozen=True, slots=True)
class Told:
    """What a member of KIP-848's group has by the answer to a heartbeat. Whoever has to join again begins another stint."""

    group: str
    member_id: str
    stint: int
    epoch: int
    parts: tuple[Part, ...]
    at_s: float


@dataclass(frozen=True, slots=True)
class Read:
    """An answer to a fetch. `cuts` is how often the power had failed by then: ends may go back only then."""

    reader: str
    part: Part
    start: int
    values: dict[int, str]
    high_watermark: int
    last_stable_offset: int
    is_committed: bool
    sent_s: float
    answered_s: float
    cuts: int


class JointBatch(NamedTuple):
    joint: str
    batch: int


class Row(NamedTuple):
    """What has to be written for a batch, by whomever. Each task that tries writes it as a value of its own."""

    of: JointBatch
    number: int

    def value(self, task: str) -> str:
        return f"{self.of.joint}/{self.of.batch}/{self.number}#{task}"

    @classmethod
    def read(cls, value: str) -> Row | None:
        """Of values that are rows of a joint."""
        row, hash, _ = value.partition("#")
        if not hash:
            return None
        joint, batch, number = row.split("/")
        return cls(JointBatch(joint, int(batch)), int(number))


@dataclass(frozen=True, slots=True)
class Enrolment:
    """A task was told to write, or that its batch is committed."""

    of: JointBatch
    task: str
    is_committed: bool
    sent_s: float


class Judged(Enum):
    UNKNOWN = "not answered"
    COMMITTED = "committed"
    BEFORE = "committed before"
    REFUSED = "refused"


@dataclass(slots=True)
class Verdict:
    """A driver asks for a batch to be committed as what these tasks wrote."""

    of: JointBatch
    winners: list[Txn]
    asked_s: float
    answered_s: float = NEVER
    judged: Judged = Judged.UNKNOWN

    @property
    def is_heard(self) -> bool:
        """The driver knows that the batch counts."""
        return self.judged in (Judged.COMMITTED, Judged.BEFORE)


@dataclass(slots=True)
class FinalLog:
    """Everything one partition serves when all is over."""

    uncommitted: dict[int, str] = field(default_factory=dict)
    committed: dict[int, str] = field(default_factory=dict)


@dataclass(slots=True)
class KafkaHistory:
    txns: list[Txn] = field(default_factory=list)
    txn_of: dict[str, Txn] = field(default_factory=dict)  # by value
    sent: dict[str, Part] = field(default_factory=dict)  # by value
    writes: list[Write] = field(default_factory=list)
    epochs: list[EpochGiven] = field(default_factory=list)
    commits: dict[str, OffsetCommit] = field(default_factory=dict)  # by id
    offset_reads: list[OffsetRead] = field(default_factory=list)
    holds: list[Hold] = field(default_factory=list)
    beats: list[Beat] = field(default_factory=list)
    told: list[Told] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    processed: dict[str, set[str]] = field(default_factory=dict)  # by group
    rows: dict[JointBatch, int] = field(default_factory=dict)  # how many each batch has
    enrolments: list[Enrolment] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    final: dict[Part, FinalLog] = field(default_factory=dict)
    cuts: int = 0
    violations: list[str] = field(default_factory=list)

    def note_cut(self) -> None:
        self.cuts += 1

    def violate(self, what: str) -> None:
        if what not in self.violations:
            self.violations.append(what)

    def begin(self, name: str, producer: Epoch) -> Txn:
        txn = Txn(name, producer)
        self.txns.append(txn)
        return txn

    def send(self, values: list[str], part: Part, txn: Txn | None) -> None:
        for value in values:
            self.sent[value] = part
            if txn is not None:
                self.txn_of[value] = txn
                txn.values[value] = part

    def commit(self, commit: OffsetCommit) -> None:
        self.commits[commit.id] = commit

    def new_commit_id(self) -> str:
        return f"c{len(self.commits)}"


def now_s() -> float:
    return asyncio.get_running_loop().time()


def now_ms() -> int:
    """As the clock on the wall has it: what is older than the retention would be deleted."""
    return EPOCH_MS + int(now_s() * 1_000)
