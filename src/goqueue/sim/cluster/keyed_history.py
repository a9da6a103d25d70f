"""What the clients of a keyed topic sent and processed: facts only. `keyed_checkers.py` judges."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from goqueue.sim.cluster.history import ClusterHistory
from goqueue.sim.kafka.history import NEVER, Part, now_s


class Place(NamedTuple):
    part: Part
    offset: int


@dataclass(slots=True)
class Sent:
    """A record as its producer knows it; `number` counts those of its key."""

    key: str
    number: int
    queued_s: float
    acked_s: float = NEVER

    @property
    def value(self) -> str:
        return f"{self.key}#{self.number}"


@dataclass(slots=True)
class KeyedHistory:
    cluster: ClusterHistory
    sent: dict[str, Sent] = field(default_factory=dict)  # by value
    processed: dict[str, dict[str, float]] = field(default_factory=dict)  # by group and value: when first
    places: dict[str, dict[Place, None]] = field(
        default_factory=dict
    )  # by value: wherever anybody has seen it

    def send(self, key: str, number: int) -> Sent:
        sent = Sent(key, number, now_s())
        self.sent[sent.value] = sent
        return sent

    def see(self, value: str, place: Place) -> None:
        self.places.setdefault(value, {})[place] = None

    def process(self, group: str, value: str, place: Place) -> None:
        self.see(value, place)
        self.processed.setdefault(group, {}).setdefault(value, now_s())

    def unprocessed(self, group: str) -> list[str]:
        """Of what was acknowledged."""
        done = self.processed.get(group, {})
        return [value for value, sent in self.sent.items() if sent.acked_s != NEVER and value not in done]
