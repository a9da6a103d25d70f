"""What must hold of transactions that read, transform and write: all of it counts, or nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from tests.chaos.facts import Attempt, Facts
from tests.chaos.history import Op

SEPARATOR = ">"  # an output is its input's value, this, and which transaction wrote it


def output_of(value: str, transaction: str) -> str:
    return f"{value}{SEPARATOR}{transaction}"


def input_of(output: str) -> str:
    return output.rpartition(SEPARATOR)[0]


class AbortedRead:
    """Somebody who reads only what is committed was given what was aborted."""

    name = "aborted-read"

    def check(self, facts: Facts) -> Iterator[str]:
        aborted = {
            (one.invoked.topic, value)
            for one in facts.tries(Op.TRANSACT)
            if one.is_failed
            for value in one.invoked.values
        }
        for event in facts.of(Op.POLL, Op.FINAL):
            if event.is_committed_only:
                for place in event.places:
                    if (event.topic, place.value) in aborted:
                        yield f"{event.process} was given {place.value}, which was aborted"


class OpenTransaction:
    """Nobody has ended it, though everybody who could have begun one is gone: readers of committed records wait for ever."""

    name = "open-transaction"

    def check(self, facts: Facts) -> Iterator[str]:
        for event in facts.of(Op.OPEN):
            yield f"a transaction in {event.topic}/{event.partition} is open from {event.offset} on"


class TornTransaction:
    """Some of the outputs count and others do not; or the outputs do and the offsets do not, or the other way."""

    name = "torn-transaction"

    def check(self, facts: Facts) -> Iterator[str]:
        by_topic: dict[str, list[Attempt]] = defaultdict(list)
        for attempt in facts.tries(Op.TRANSACT):
            by_topic[attempt.invoked.topic].append(attempt)
        for topic, attempts in by_topic.items():
            if facts.has_final:
                found = facts.stored_values(topic)
                yield from _torn_outputs(attempts, set(found))
                yield from _doubled_inputs(found)
                yield from _skipped_inputs(facts, attempts, set(map(input_of, found)))


def _torn_outputs(attempts: list[Attempt], found: set[str]) -> Iterator[str]:
    for attempt in attempts:
        values = attempt.invoked.values
        seen = [value for value in values if value in found]
        if 0 < len(seen) < len(values):
            missing = [value for value in values if value not in found]
            yield f"of one transaction {seen[:5]} can be read and {missing[:5]} cannot"


def _doubled_inputs(found: dict[str, list[tuple[str, int, int]]]) -> Iterator[str]:
    outputs: dict[str, list[str]] = defaultdict(list)
    for value in found:
        outputs[input_of(value)].append(value)
    for values in outputs.values():
        if len(values) > 1:
            yield f"{sorted(values)} both count: the offsets of the first did not"


def _skipped_inputs(facts: Facts, attempts: list[Attempt], transformed: set[str]) -> Iterator[str]:
    """What the group says it has done, and has not written."""
    groups = {attempt.invoked.group for attempt in attempts}
    ends: dict[tuple[str, int], int] = {}
    for event in facts.of(Op.COMMITTED):
        if event.group in groups and event.note == "last":
            ends |= {(event.topic, place.partition): place.offset for place in event.places}
    for where, end in ends.items():
        for offset, value in sorted(facts.stored.get(where, {}).items()):
            if offset < end and value not in transformed:
                yield f"the group has committed {where[0]}/{where[1]}@{end}, and nothing came of {value} at {offset}"
