"""What must hold of the end, when everything has healed: every client comes to its own, and nothing is left to be done."""

from __future__ import annotations

from collections.abc import Iterator

from tests.chaos.facts import Facts
from tests.chaos.history import Op, Phase


class DidNotFinish:
    """A client still waited when all was over, or ended by an error. What it waited for is said where it is known."""

    name = "did-not-finish"

    def check(self, facts: Facts) -> Iterator[str]:
        for attempt in facts.tries(Op.WORK):
            if not attempt.is_ok:
                why = "its process was ended" if attempt.ended is None else attempt.ended.note
                yield f"{attempt.invoked.process} of {attempt.invoked.load}: {why}"


class Undrained:
    """Whoever works off what others wrote has given up, or left before it had everything."""

    name = "undrained"

    def check(self, facts: Facts) -> Iterator[str]:
        for event in facts.of(Op.DRAIN):
            if event.phase is not Phase.OK:
                yield f"{event.process} of {event.load}: {event.note}"
        for event in facts.of(Op.COMMITTED):
            if event.phase is Phase.OK and event.note == "last":
                for place in event.places:
                    stored = facts.stored.get((event.topic, place.partition), {})
                    left_count = sum(offset >= place.offset for offset in stored)
                    if left_count:
                        where = f"{event.topic}/{place.partition}"
                        yield f"{event.group} ends at {place.offset} of {where}, and {left_count} records come after it"
