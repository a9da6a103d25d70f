"""What the clients of one simulated run know: what they sent, what was acknowledged, what they read.

The history outlives the broker's lives. After each restart the whole log is read back and compared with it;
what a power cut was allowed to take is then forgotten, so that its offsets may be used again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from goqueue.model.acks import Acks


class Place(NamedTuple):
    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Sent:
    """One message. Values are unique, so a value tells where it came from."""

    value: str
    key: str | None
    acks: Acks
    is_idempotent: bool


@dataclass(frozen=True, slots=True)
class Known:
    """A value at a place, as somebody was told."""

    value: str
    at_s: float
    acks: Acks | None  # None: only read, never acknowledged


@dataclass(slots=True)
class History:
    sent: dict[str, Sent] = field(default_factory=dict)
    known: dict[Place, Known] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)  # definitely not stored
    violations: list[str] = field(default_factory=list)
    acked_count: int = 0
    read_count: int = 0

    def send(self, message: Sent) -> None:
        self.sent[message.value] = message

    def acknowledged(self, place: Place, value: str, acks: Acks, at_s: float) -> None:
        self.acked_count += 1
        self._learn(place, Known(value, at_s, acks))

    def observed(self, place: Place, value: str, at_s: float) -> None:
        self.read_count += 1
        if value not in self.sent:
            self.violate(f"{place} holds {value!r}, which nobody sent")
        if value in self.refused:
            self.violate(f"{place} holds {value!r}, which was refused")
        self._learn(place, Known(value, at_s, None))

    def violate(self, what: str) -> None:
        if what not in self.violations:
            self.violations.append(what)

    def _learn(self, place: Place, new: Known) -> None:
        before = self.known.get(place)
        if before is None or (before.acks is None and before.value == new.value):
            self.known[place] = new
        elif before.value != new.value:
            self.violate(f"{place} was {before.value!r} and is {new.value!r}")
        elif new.acks is Acks.ALL:
            self.known[place] = new
