"""What a history says, looked up instead of searched for: every checker asks these tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tests.chaos.history import Event, History, Op, Phase, Place

Where = tuple[str, int]  # topic and partition
Slot = tuple[str, int, int]  # topic, partition and offset


class Attempt(NamedTuple):
    """An operation: how it began, and what became of it; None where the client never heard."""

    invoked: Event
    ended: Event | None

    @property
    def is_ok(self) -> bool:
        return self.ended is not None and self.ended.phase is Phase.OK

    @property
    def is_failed(self) -> bool:
        return self.ended is not None and self.ended.phase is Phase.FAIL


class Facts:
    def __init__(self, history: History) -> None:
        self.history = history
        self.attempts = _attempts(history)
        self.stored, self.ends = _final(history)
        self._stored_values = _by_value(self.stored)

    def of(self, *ops: Op) -> Iterator[Event]:
        return (event for event in self.history if event.op in ops)

    def tries(self, *ops: Op) -> Iterator[Attempt]:
        return (attempt for attempt in self.attempts.values() if attempt.invoked.op in ops)

    def invoked_at(self, event: Event) -> int:
        attempt = self.attempts.get((event.load, event.process, event.number))
        return event.at_us if attempt is None else attempt.invoked.at_us

    def seen(self) -> Iterator[tuple[Slot, str]]:
        """Every record that anybody was ever given or told of, with its value."""
        for event in self.of(Op.POLL, Op.TAKE, Op.FINAL):
            for place in event.places:
                yield (event.topic, place.partition, place.offset), place.value
        for attempt in self.tries(Op.PUBLISH):
            if attempt.is_ok and attempt.ended is not None and not attempt.invoked.due_ms:
                ended = attempt.ended
                if ended.offset >= 0:
                    yield (attempt.invoked.topic, ended.partition, ended.offset), attempt.invoked.value

    def stored_values(self, topic: str) -> dict[str, list[Slot]]:
        """Where each value of a topic was found at the end."""
        return self._stored_values.get(topic, {})

    def end_of(self, where: Where) -> int | None:
        """Where a partition ends; a run that looked at all of them and did not find this one has lost all of it. None where
        nobody has looked."""
        return self.ends.get(where, 0 if self.ends else None)

    @property
    def has_final(self) -> bool:
        """Whether anybody has looked at what is left."""
        return bool(self.ends)


def _attempts(history: Iterable[Event]) -> dict[tuple[str, str, int], Attempt]:
    found: dict[tuple[str, str, int], Attempt] = {}
    for event in history:
        key = (event.load, event.process, event.number)
        if event.phase is Phase.INVOKE:
            found[key] = Attempt(event, None)
        elif key in found:
            found[key] = found[key]._replace(ended=event)
    return found


def _final(history: Iterable[Event]) -> tuple[dict[Where, dict[int, str]], dict[Where, int]]:
    stored: dict[Where, dict[int, str]] = defaultdict(dict)
    ends: dict[Where, int] = {}
    for event in history:
        if event.op is Op.FINAL:
            where = (event.topic, event.partition)
            ends[where] = max(event.offset, ends.get(where, 0))
            stored[where] |= {place.offset: place.value for place in event.places}
    return stored, ends


def _by_value(stored: dict[Where, dict[int, str]]) -> dict[str, dict[str, list[Slot]]]:
    found: dict[str, dict[str, list[Slot]]] = defaultdict(dict)
    for (topic, partition), records in stored.items():
        for offset, value in records.items():
            found[topic].setdefault(value, []).append((topic, partition, offset))
    return found


def slots(event: Event, places: Iterable[Place] | None = None) -> Iterator[Slot]:
    for place in event.places if places is None else places:
        yield event.topic, place.partition, place.offset
