"""What the clients of a keyed topic sent and processed: facts only. `keyed_checkers.py` judges."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from goqueue.sim.cluster.history import ClusterHistory
from goqueue.sim.kafka.history import NEVER, Part, now_s


class Place(NamedTuple):
    part: Part
    offset: int


class Way(NamedTuple):
    """What a producer believes when it queues a record: in which partition the key lives, and of how many."""

    producer: str
    partition: int
    partition_count: int
    known_s: float  # when the partition has last acknowledged something of the producer; NEVER if it has not


@dataclass(slots=True)
class Sent:
    """A record as its producer knows it; `number` counts those of its key."""

    key: str
    number: int
    way: Way
    queued_s: float
    acked_s: float = NEVER

    @property
    def value(self) -> str:
        return f"{self.key}#{self.number}"


class Growth(NamedTuple):
    """It may have begun when it was ordered."""

    ordered_s: float
    partition_count: int


@dataclass(slots=True)
class Shrinking:
    """It may have begun when it was ordered, and is over for sure when the topic is steady."""

    ordered_s: float
    over_s: float = NEVER


@dataclass(slots=True)
class KeyedHistory:
    cluster: ClusterHistory
    sent: dict[str, Sent] = field(default_factory=dict)  # by value
    processed: dict[str, dict[str, float]] = field(default_factory=dict)  # by group and value: when first
    places: dict[str, dict[Place, None]] = field(
        default_factory=dict
    )  # by value: wherever anybody has seen it

    shrinkings: list[Shrinking] = field(default_factory=list)
    growths: list[Growth] = field(default_factory=list)

    def send(self, key: str, number: int, way: Way) -> Sent:
        sent = Sent(key, number, way, now_s())
        self.sent[sent.value] = sent
        return sent

    def grow(self, partition_count: int) -> None:
        self.growths.append(Growth(now_s(), partition_count))

    def shrink(self) -> None:
        self.shrinkings.append(Shrinking(now_s()))

    def be_steady(self, since_s: float) -> None:
        """It was so at some moment after that."""
        for shrinking in self.shrinkings:
            if shrinking.ordered_s < since_s:
                shrinking.over_s = min(shrinking.over_s, now_s())

    def see(self, value: str, place: Place) -> None:
        self.places.setdefault(value, {})[place] = None

    def process(self, group: str, value: str, place: Place) -> None:
        self.see(value, place)
        self.processed.setdefault(group, {}).setdefault(value, now_s())

    def unprocessed(self, group: str) -> list[str]:
        """Of what was acknowledged."""
        done = self.processed.get(group, {})
        return [value for value, sent in self.sent.items() if sent.acked_s != NEVER and value not in done]
