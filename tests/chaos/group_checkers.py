"""What must hold of a consumer group: its positions are never lost and never ahead, and a partition has one owner."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from itertools import accumulate

from tests.chaos.facts import Facts
from tests.chaos.history import Event, Op, Phase

Of = tuple[str, str, int]  # group, topic and partition


class LostCommit:
    """The broker tells an older position than one that it had confirmed before."""

    name = "lost-commit"

    def check(self, facts: Facts) -> Iterator[str]:
        confirmed = _commits(facts, Phase.OK)
        for of, offset, event in _told(facts):
            highest = confirmed[of].highest_before(facts.invoked_at(event))
            if offset < highest:
                yield f"{_of(of)} is told to be at {offset}, and {highest} was confirmed"


class CommitAhead:
    """The broker tells a position that nobody had asked for yet."""

    name = "commit-ahead"

    def check(self, facts: Facts) -> Iterator[str]:
        asked = _commits(facts, Phase.INVOKE)
        for of, offset, event in _told(facts):
            highest = asked[of].highest_before(event.at_us)
            if offset > highest:
                yield f"{_of(of)} is told to be at {offset}, and the highest commit so far was {highest}"


class Unprocessed:
    """The group has gone past a record that none of its members was ever given."""

    name = "unprocessed"

    def check(self, facts: Facts) -> Iterator[str]:
        given: dict[Of, set[int]] = defaultdict(set)
        for event in facts.of(Op.POLL):
            if event.group:
                for place in event.places:
                    given[event.group, event.topic, place.partition].add(place.offset)
        for of, offset, event in _told(facts):
            if event.note == "last":
                stored = facts.stored.get(of[1:], {})
                missing = sorted(one for one in stored if one < offset and one not in given[of])
                if missing:
                    yield f"{_of(of)} is at {offset}, and nobody was given {missing[:5]}"


class TwoOwners:
    """A member's commit was confirmed though the partition had been given to another before it asked."""

    name = "two-owners"

    def check(self, facts: Facts) -> Iterator[str]:
        owner: dict[Of, str] = {}
        for event in self._order(facts):
            for place in event.places:
                of = (event.group, event.topic, place.partition)
                if event.op is Op.ASSIGN:
                    owner[of] = event.process
                elif event.op is Op.REVOKE:
                    if owner.get(of) == event.process:
                        del owner[of]
                elif of in owner and owner[of] != event.process:
                    yield f"{event.process} committed {place.offset} of {_of(of)}, which {owner[of]} owned"

    def _order(self, facts: Facts) -> Iterator[Event]:
        """Assignments when the member learned of them, commits that were confirmed when they were asked for."""
        asked = [
            attempt.invoked for attempt in facts.tries(Op.COMMIT) if attempt.is_ok and attempt.invoked.group
        ]
        changed = [event for event in facts.of(Op.ASSIGN, Op.REVOKE) if event.group]
        return iter(sorted([*asked, *changed], key=lambda one: one.at_us))


class _Highest:
    """The highest position that had been committed at any time."""

    def __init__(self, steps: list[tuple[int, int]]) -> None:
        steps.sort()
        self._times = [at_us for at_us, _ in steps]
        self._highest = list(accumulate((offset for _, offset in steps), max))

    def highest_before(self, at_us: int) -> int:
        index = bisect_left(self._times, at_us)
        return self._highest[index - 1] if index else 0


def _commits(facts: Facts, phase: Phase) -> defaultdict[Of, _Highest]:
    steps: dict[Of, list[tuple[int, int]]] = defaultdict(list)
    for attempt in facts.tries(Op.COMMIT, Op.TRANSACT):
        event = attempt.invoked if phase is Phase.INVOKE else attempt.ended
        if event is None or event.phase is not phase:
            continue
        topic = attempt.invoked.note if attempt.invoked.op is Op.TRANSACT else attempt.invoked.topic
        for place in attempt.invoked.places:
            steps[attempt.invoked.group, topic, place.partition].append((event.at_us, place.offset))
    found: defaultdict[Of, _Highest] = defaultdict(lambda: _Highest([]))
    found.update({of: _Highest(ones) for of, ones in steps.items()})
    return found


def _told(facts: Facts) -> Iterator[tuple[Of, int, Event]]:
    for event in facts.of(Op.COMMITTED):
        if event.phase is Phase.OK:
            for place in event.places:
                yield (event.group, event.topic, place.partition), place.offset, event


def _of(of: Of) -> str:
    return f"{of[0]} in {of[1]}/{of[2]}"
