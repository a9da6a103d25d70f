"""The invariants of delayed messages in a cluster: one class each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from goqueue.sim.kafka.history import Part
from goqueue.sim.queue import checkers
from goqueue.sim.queue.clock import ShownTime
from goqueue.sim.queue.history import Fate, QueueHistory


class Seen(NamedTuple):
    """A message that its topic had, as a reader was told."""

    part: Part
    offset: int
    value: str
    at_s: float


@dataclass(slots=True)
class Sightings:
    history: QueueHistory  # what was sent, and all there is in the end
    clocks: ShownTime
    seen: list[Seen] = field(default_factory=list)


class DelayChecker(Protocol):
    def check(self, sightings: Sightings) -> None: ...


class NeverBeforeDue:
    """Nobody sees it before some clock of the cluster has shown its time."""

    def check(self, sightings: Sightings) -> None:
        for one in sightings.seen:
            sent = sightings.history.sent.get(one.value)
            if sent is None or sent.due_ms is None:
                continue
            shown_ms = sightings.clocks.latest_ms(0.0, one.at_s)
            if shown_ms < sent.due_ms:
                sightings.history.violate(
                    f"{one.value} was due at {sent.due_ms} and read at {one.at_s:.3f} s, when no clock had "
                    f"shown more than {shown_ms}"
                )


class FiresOnce:
    """What was acknowledged is in its topic once when all is over, what is not known at most once; cancelled, never."""

    def check(self, sightings: Sightings) -> None:
        checkers.StoredOnce().check(sightings.history, sightings.clocks)


class CancelledIsNeverSeen:
    """Not even for a while."""

    def check(self, sightings: Sightings) -> None:
        for one in sightings.seen:
            sent = sightings.history.sent.get(one.value)
            if sent is None:
                sightings.history.violate(f"{one.value!r} was read, which nobody sent")
            elif sent.cancel is Fate.DONE:
                sightings.history.violate(f"{one.value} was cancelled and read at {one.at_s:.3f} s")


class StaysWhereItFired:
    """Whoever has seen it has seen it at one place, where it is in the end."""

    def check(self, sightings: Sightings) -> None:
        places = {
            record.value: (Part(place.topic, place.partition), place.offset)
            for place, record in sightings.history.final.items()
        }
        for one in sightings.seen:
            if places.get(one.value) != (one.part, one.offset):
                sightings.history.violate(
                    f"{one.value} was read at {one.offset} of {one.part}; in the end it is at {places.get(one.value)}"
                )


DELAY_CHECKERS: tuple[DelayChecker, ...] = (
    NeverBeforeDue(),
    FiresOnce(),
    CancelledIsNeverSeen(),
    StaysWhereItFired(),
)
