"""What must hold of a log that several nodes keep: the anomalies of Jepsen's Kafka workload, by their names."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator

from tests.chaos.facts import Facts, Slot
from tests.chaos.history import Event, Op, Phase


class LostWrite:
    """Acknowledged, and at the end not where it was said to be, though the log goes further."""

    name = "lost-write"

    def check(self, facts: Facts) -> Iterator[str]:
        for slot, value in _acknowledged(facts):
            end = facts.end_of(slot[:2])
            if end is not None and slot[2] < end and slot[2] not in facts.stored[slot[:2]]:
                yield f"{value} was acknowledged at {_at(slot)}, and is not there at the end ({end})"
        for topic, value in _acknowledged_somewhere(facts):
            if facts.has_final and value not in facts.stored_values(topic):
                yield f"{value} was acknowledged without an offset, and is not in {topic} at the end"
        for attempt in facts.tries(Op.TRANSACT):
            topic = attempt.invoked.topic
            if attempt.is_ok and facts.has_final:
                found = facts.stored_values(topic)
                missing = [value for value in attempt.invoked.values if value not in found]
                if missing and len(missing) == len(attempt.invoked.values):
                    yield f"a transaction was committed, and none of {missing[:5]} is in {topic}"


class Unseen:
    """Acknowledged, and after everything has healed the log does not even reach there."""

    name = "unseen"

    def check(self, facts: Facts) -> Iterator[str]:
        for slot, value in _acknowledged(facts):
            end = facts.end_of(slot[:2])
            if end is not None and slot[2] >= end:
                yield f"{value} was acknowledged at {_at(slot)}, and the log ends at {end}"


class Duplicate:
    """One value at two places, though it was published once."""

    name = "duplicate"

    def check(self, facts: Facts) -> Iterator[str]:
        delayed = {one.invoked.value for one in facts.tries(Op.PUBLISH) if one.invoked.due_ms}
        found: dict[tuple[str, str], set[Slot]] = defaultdict(set)
        for slot, value in facts.seen():
            found[slot[0], value].add(slot)
        for (_, value), slots in found.items():
            if len(slots) > 1 and value not in delayed:
                yield f"{value} is at {', '.join(map(_at, sorted(slots)))}"


class InconsistentOffsets:
    """One place with two values."""

    name = "inconsistent-offsets"

    def check(self, facts: Facts) -> Iterator[str]:
        found: dict[Slot, set[str]] = defaultdict(set)
        for slot, value in facts.seen():
            found[slot].add(value)
        for slot, values in found.items():
            if len(values) > 1:
                yield f"{_at(slot)} is {' and '.join(sorted(values))}"


class NonmonotonicSend:
    """What one producer sent to a partition is there in another order. (What its program sends once more is a new record.)"""

    name = "nonmonotonic-send"

    def check(self, facts: Facts) -> Iterator[str]:
        last: dict[tuple[str, str, str, int], tuple[Slot, str]] = {}
        for by, slot, value in _sent(facts):
            of = (by.load, by.process, *slot[:2])
            before, earlier = last.get(of, (slot, value))
            if slot[2] < before[2]:
                yield f"{by.process} sent {value} after {earlier}; they are at {_at(slot)} and {_at(before)}"
            last[of] = slot, value


class NonmonotonicPoll:
    """A reader that did not seek was given an offset again, or an earlier one."""

    name = "nonmonotonic-poll"

    def check(self, facts: Facts) -> Iterator[str]:
        for process, slot, last in _steps(facts):
            if slot[2] <= last:
                yield f"{process} was given {_at(slot)} after {last}"


class PollSkip:
    """A reader was given a later record and never one before it that is there."""

    name = "poll-skip"

    def check(self, facts: Facts) -> Iterator[str]:
        known = {where: sorted(records) for where, records in facts.stored.items()}
        for process, slot, last in _steps(facts):
            offsets = known.get(slot[:2], [])
            skipped = offsets[bisect_right(offsets, last) : bisect_left(offsets, slot[2])]
            if skipped:
                yield f"{process} was given {_at(slot)} after {last}, without {skipped[:5]}"


class Phantom:
    """Somebody read what nobody wrote, or what was refused."""

    name = "phantom"

    def check(self, facts: Facts) -> Iterator[str]:
        written: set[tuple[str, str]] = set()
        for attempt in facts.tries(Op.PUBLISH, Op.TRANSACT):
            topic = attempt.invoked.topic
            if not attempt.is_failed and attempt.invoked.op is Op.PUBLISH:
                written |= {(topic, attempt.invoked.value), (f"{topic}.dlq", attempt.invoked.value)}
            written |= {(topic, value) for value in attempt.invoked.values}
        reported: set[tuple[str, str]] = set()
        for slot, value in facts.seen():
            if (slot[0], value) not in written and (slot[0], value) not in reported:
                reported.add((slot[0], value))
                yield f"{value} is at {_at(slot)}, and nobody wrote it there"


def _acknowledged(facts: Facts) -> Iterator[tuple[Slot, str]]:
    for attempt in facts.tries(Op.PUBLISH):
        invoked, ended = attempt
        if ended is not None and attempt.is_ok and not invoked.due_ms and ended.offset >= 0:
            yield (invoked.topic, ended.partition, ended.offset), invoked.value


def _acknowledged_somewhere(facts: Facts) -> Iterator[tuple[str, str]]:
    """Where exactly the client was not told."""
    for attempt in facts.tries(Op.PUBLISH):
        invoked, ended = attempt
        if ended is not None and attempt.is_ok and not invoked.due_ms and ended.offset < 0:
            yield invoked.topic, invoked.value


def _sent(facts: Facts) -> Iterator[tuple[Event, Slot, str]]:
    """What was confirmed, in the order in which it was sent: by the operation that sent it, and where it is, as the client was told or,
    where it was not, as it was found at the end."""
    for attempt in facts.tries(Op.PUBLISH, Op.TRANSACT):
        invoked, ended = attempt
        if ended is None or not attempt.is_ok or invoked.due_ms:
            continue
        if ended.offset >= 0:
            yield invoked, (invoked.topic, ended.partition, ended.offset), invoked.value
            continue
        for value in invoked.values or (invoked.value,):
            for slot in facts.stored_values(invoked.topic).get(value, [])[:1]:
                yield invoked, slot, value


def _steps(facts: Facts) -> Iterator[tuple[str, Slot, int]]:
    """Every record that a reader of partitions was given, with the offset of the one before it."""
    last: dict[tuple[str, str, int], int] = {}
    for event in facts.of(Op.POLL, Op.ASSIGN):
        if event.group or event.phase is not Phase.OK:
            continue
        for place in event.places:
            at = (event.process, event.topic, place.partition)
            if event.op is Op.ASSIGN:
                last[at] = place.offset - 1
                continue
            if at in last:
                yield event.process, (event.topic, place.partition, place.offset), last[at]
            last[at] = place.offset


def _at(slot: Slot) -> str:
    return f"{slot[0]}/{slot[1]}@{slot[2]}"
