"""What simulated members and publishers did and were told: plain facts, with the moments of asking and of the answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from math import inf
from typing import NamedTuple


class Place(NamedTuple):
    topic: str
    partition: int
    offset: int


class Fate(Enum):
    """Of something that was asked for."""

    UNKNOWN = "no answer came"
    DONE = "done"
    REFUSED = "refused"


@dataclass(slots=True)
class Sent:
    """A message with a value that never comes again."""

    value: str
    topic: str
    key: str | None
    lane: int
    due_ms: int | None
    is_durable: bool  # published with acks=all, or delayed
    fate: Fate = Fate.UNKNOWN
    place: Place | None = None  # with an id for an offset, if it is delayed
    cancel: Fate | None = None  # if somebody asked for it


class Action(Enum):
    ACK = "ack"
    NACK = "nack"
    REJECT = "reject"
    EXTEND = "extend"


@dataclass(slots=True)
class Asked:
    """What a member said about a delivery."""

    action: Action
    sent_s: float
    answered_s: float = inf
    fate: Fate = Fate.UNKNOWN
    code: str = ""
    is_dead: bool = False
    deadline_ms: int | None = None  # a new one that was asked for


class Told(NamedTuple):
    """What the broker says to it."""

    committed_offset: int | None = None
    is_dead: bool = False
    deadline_ms: int | None = None


@dataclass(slots=True)
class Delivery:
    group: str
    era: str  # the window's number and how often it was sent elsewhere
    member: str
    place: Place
    value: str
    key: str | None
    lane: int
    count: int
    leased_ms: int
    deadline_ms: int
    sent_s: float  # the poll
    answered_s: float
    receipt: str
    asked: list[Asked] = field(default_factory=list)

    @property
    def record(self) -> tuple[str, str, Place]:
        return self.group, self.era, self.place

    def fate_of(self, action: Action) -> Fate | None:
        """The best that came of it."""
        fates = [one.fate for one in self.asked if one.action is action]
        for fate in (Fate.DONE, Fate.UNKNOWN, Fate.REFUSED):
            if fate in fates:
                return fate
        return None


class LostPoll(NamedTuple):
    """What it leased nobody knows."""

    group: str
    sent_s: float


class Left(NamedTuple):
    group: str
    member: str
    sent_s: float


class Committed(NamedTuple):
    """How far a group was said to have come."""

    group: str
    era: str
    topic: str
    partition: int
    offset: int
    sent_s: float
    answered_s: float


class FinalRecord(NamedTuple):
    value: str
    key: str | None
    headers: dict[str, str]


@dataclass(slots=True)
class Damage:
    """What turned bits have hit."""

    doubted: set[tuple[str, Place]] = field(default_factory=set)  # by group: its ledger may have forgotten
    touched: set[tuple[str, str, int]] = field(default_factory=set)  # groups with such records in a partition
    lost_places: set[tuple[str, str, int]] = field(default_factory=set)  # where a group was, or had begun
    values: set[str] = field(default_factory=set)  # of messages that may be gone from their topic

    def is_doubted(self, group: str, place: Place) -> bool:
        part = (group, place.topic, place.partition)
        return (group, place) in self.doubted or part in self.lost_places


@dataclass(slots=True)
class QueueHistory:
    sent: dict[str, Sent] = field(default_factory=dict)
    deliveries: list[Delivery] = field(default_factory=list)
    lost_polls: list[LostPoll] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)
    committed: list[Committed] = field(default_factory=list)
    final: dict[Place, FinalRecord] = field(default_factory=dict)  # everything in every topic at the end
    groups: dict[str, tuple[str, ...]] = field(default_factory=dict)  # the topics that each reads to the end
    retries_max: int = 0
    fading: set[str] = field(default_factory=set)  # topics that retention or compaction takes records from
    deleted: dict[tuple[str, int], int] = field(default_factory=dict)  # to where somebody asked for it
    damage: Damage = field(default_factory=Damage)
    violations: list[str] = field(default_factory=list)

    def violate(self, what: str) -> None:
        if what not in self.violations:
            self.violations.append(what)

    def by_record(self) -> dict[tuple[str, str, Place], list[Delivery]]:
        """The deliveries of each record to each group, in the order of their counts; without those that damage has
        touched."""
        found: dict[tuple[str, str, Place], list[Delivery]] = {}
        for one in self.deliveries:
            if not self.damage.is_doubted(one.group, one.place):
                found.setdefault(one.record, []).append(one)
        for deliveries in found.values():
            deliveries.sort(key=lambda one: one.count)
        return found
