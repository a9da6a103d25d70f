"""What must hold of a queue: one holder at a time, nothing again after its ack, nothing lost, nothing before it is due."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from tests.chaos.facts import Attempt, Facts, Slot, slots
from tests.chaos.history import Event, Op, Phase

Held = tuple[str, Slot]  # group and record


class AckedAgain:
    """Given to somebody who asked after its ack had been confirmed."""

    name = "acked-again"

    def check(self, facts: Facts) -> Iterator[str]:
        acked: dict[Held, int] = {}
        for event in facts.of(Op.ACK):
            if event.phase is Phase.OK:
                for slot in slots(event):
                    acked.setdefault((event.group, slot), event.at_us)
        for event in _taken(facts):
            asked_us = facts.invoked_at(event)
            for slot in slots(event):
                acked_us = acked.get((event.group, slot))
                if acked_us is not None and acked_us < asked_us:
                    late_ms = (asked_us - acked_us) // 1_000
                    yield f"{_at(slot)} was given to {event.process}, who asked {late_ms} ms after its ack"


class TwoHolders:
    """Given to a second member while the first one's lease certainly lasted."""

    name = "two-holders"

    def check(self, facts: Facts) -> Iterator[str]:
        given_up = _given_up(facts)
        holds: dict[Held, list[_Hold]] = defaultdict(list)
        for event in _taken(facts):
            asked_us = facts.invoked_at(event)
            for slot in slots(event):
                held = (event.group, slot)
                for hold in holds[held]:
                    if hold.from_us < asked_us and event.at_us < hold.until_us:
                        yield f"{_at(slot)} was given to {event.process} while {hold.process} had it"
                if event.lease_ms:
                    until_us = asked_us + event.lease_ms * 1_000
                    until_us = min([until_us, *(at for at in given_up[held] if at > asked_us)])
                    holds[held].append(_Hold(event.process, event.at_us, until_us))


class QueueLost:
    """Accepted, and at the end neither acknowledged nor dead, though the queue was emptied."""

    name = "queue-lost"

    def check(self, facts: Facts) -> Iterator[str]:
        topics = {event.topic for event in facts.of(Op.TAKE)}
        done: set[tuple[str, str]] = set()
        refused: dict[tuple[str, str], str] = {}
        for attempt in facts.tries(Op.ACK):
            values = [(attempt.invoked.topic, place.value) for place in attempt.invoked.places]
            if attempt.is_failed and attempt.ended is not None:
                refused |= dict.fromkeys(values, f"; its ack was refused: {attempt.ended.note}")
            else:
                done.update(values)
        for topic in topics:
            done |= {(topic, value) for value in facts.stored_values(f"{topic}.dlq")}
        for attempt in facts.tries(Op.PUBLISH):
            topic, value = attempt.invoked.topic, attempt.invoked.value
            if topic in topics and attempt.is_ok and (topic, value) not in done:
                why = refused.get((topic, value), "")
                yield f"{value} of {topic} was accepted and is neither acknowledged nor dead{why}"


class DeadDoubled:
    """Two dead letters of one record."""

    name = "dead-doubled"

    def check(self, facts: Facts) -> Iterator[str]:
        for topic in {topic for topic, _ in facts.ends if topic.endswith(".dlq")}:
            for value, found in facts.stored_values(topic).items():
                if len(found) > 1:
                    yield f"{value} is dead at {', '.join(map(_at, sorted(found)))}"


class BeforeDue:
    """Given to somebody before its time."""

    name = "before-due"

    def check(self, facts: Facts) -> Iterator[str]:
        due = {one.invoked.value: one.invoked.due_ms for one in _delayed(facts)}
        for event in facts.of(Op.POLL, Op.TAKE):
            for place in event.places:
                early_ms = due.get(place.value, 0) - event.wall_ms
                if event.wall_ms and early_ms > 0:
                    yield f"{place.value} was given to {event.process} {early_ms} ms before it was due"


class DelayLost:
    """Accepted to be delivered later, and never delivered."""

    name = "delay-lost"

    def check(self, facts: Facts) -> Iterator[str]:
        for attempt in _delayed(facts):
            topic, value = attempt.invoked.topic, attempt.invoked.value
            if attempt.is_ok and facts.has_final and value not in facts.stored_values(topic):
                yield f"{value} was to come into {topic}, and did not"


class DelayDoubled:
    name = "delay-doubled"

    def check(self, facts: Facts) -> Iterator[str]:
        for attempt in _delayed(facts):
            found = facts.stored_values(attempt.invoked.topic).get(attempt.invoked.value, [])
            if len(found) > 1:
                yield f"{attempt.invoked.value} came at {', '.join(map(_at, sorted(found)))}"


class _Hold(NamedTuple):
    process: str
    from_us: int
    until_us: int


def _delayed(facts: Facts) -> list[Attempt]:
    return [one for one in facts.tries(Op.PUBLISH) if one.invoked.due_ms]


def _taken(facts: Facts) -> Iterator[Event]:
    return (event for event in facts.of(Op.TAKE) if event.phase is Phase.OK)


def _given_up(facts: Facts) -> defaultdict[Held, list[int]]:
    """When a holder began to give a record back, in any way."""
    found: defaultdict[Held, list[int]] = defaultdict(list)
    for attempt in facts.tries(Op.ACK, Op.NACK):
        for slot in slots(attempt.invoked):
            found[attempt.invoked.group, slot].append(attempt.invoked.at_us)
    return found


def _at(slot: Slot) -> str:
    return f"{slot[0]}/{slot[1]}@{slot[2]}"
