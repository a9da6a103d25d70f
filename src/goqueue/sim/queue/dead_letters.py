"""The invariants of what leaves a group's sight: finished in one way, and dead letters at the limit and once."""

from __future__ import annotations

from goqueue.core.dead_letter import ATTEMPTS, GROUP, MISSING, OFFSET, PARTITION, REASON, TOPIC
from goqueue.sim.queue.clock import ShownTime
from goqueue.sim.queue.history import Action, Delivery, Fate, Place, QueueHistory

_REJECTED = "rejected"


class DeadAtTheLimit:
    """A dead letter comes after the last retry or a rejection, not before and not later, and once for each group. (One
    that is sent to and fro may lose a record again and again.)"""

    def check(self, history: QueueHistory, clock: ShownTime) -> None:
        letters = letters_of(history)
        by_record = _by_group(history)
        for (group, place), found in letters.items():
            if group not in history.groups or history.damage.is_doubted(group, place):
                continue
            if len(found) > 1:
                history.violate(f"{place} is {len(found)} times among the dead letters of {group}")
            for headers in found:
                self._check(history, group, place, headers, by_record.get((group, place), []))
        for (group, place), deliveries in by_record.items():
            if group not in history.groups:
                continue
            is_dead = any(
                what.fate is Fate.DONE and (what.action is Action.REJECT or what.is_dead)
                for one in deliveries
                for what in one.asked
            )
            if is_dead and (group, place) not in letters:
                history.violate(f"{place} died in {group} and is not among the dead letters")
            if deliveries[-1].count > history.retries_max + 1:
                history.violate(f"{place} was given to {group} for the {deliveries[-1].count}th time")

    def _check(
        self, history: QueueHistory, group: str, place: Place, headers: dict[str, str], seen: list[Delivery]
    ) -> None:
        attempts = int(headers[ATTEMPTS])
        if MISSING in headers and not self._may_be_gone(history, place, seen):
            history.violate(f"the dead letter of {place} has no body")
        if any(one.fate_of(Action.ACK) is Fate.DONE for one in seen):
            history.violate(f"{place} was acknowledged by {group} and is a dead letter")
        if headers[REASON] == _REJECTED:
            if not any(one.fate_of(Action.REJECT) in (Fate.DONE, Fate.UNKNOWN) for one in seen):
                history.violate(f"{place} is rejected, which nobody in {group} did")
        elif attempts != history.retries_max + 1:
            history.violate(
                f"{place} died in {group} after {attempts} deliveries, not {history.retries_max + 1}"
            )
        if seen and attempts < seen[-1].count:
            history.violate(f"{place} died in {group} after {attempts} deliveries and had {seen[-1].count}")

    def _may_be_gone(self, history: QueueHistory, place: Place, seen: list[Delivery]) -> bool:
        is_damaged = place not in history.final and bool(history.damage.values)
        return (
            place.topic in history.fading
            or is_damaged
            or any(one.value in history.damage.values for one in seen)
        )


class Conservation:
    """At the end every record of a topic is finished in each of its groups: acknowledged or dead, not both, and not
    left out."""

    def check(self, history: QueueHistory, clock: ShownTime) -> None:
        letters = letters_of(history)
        by_record: dict[tuple[str, Place], list[Delivery]] = {}
        for one in history.deliveries:  # damage is no excuse
            by_record.setdefault((one.group, one.place), []).append(one)
        for group, topics in history.groups.items():
            for place in history.final:
                if place.topic not in topics or (group, place) in letters:
                    continue
                if place.offset < history.deleted.get((place.topic, place.partition), 0):
                    continue  # it was gone, and came back with a power cut
                seen = by_record.get((group, place), [])
                fates = {one.fate_of(Action.ACK) for one in seen}
                if not fates & {Fate.DONE, Fate.UNKNOWN}:
                    history.violate(
                        f"{place} was never finished by {group}; deliveries {[one.count for one in seen]}"
                    )


def letters_of(history: QueueHistory) -> dict[tuple[str, Place], list[dict[str, str]]]:
    """The headers of all dead letters, by group and origin."""
    found: dict[tuple[str, Place], list[dict[str, str]]] = {}
    for record in history.final.values():
        headers = record.headers
        if TOPIC in headers:
            place = Place(headers[TOPIC], int(headers[PARTITION]), int(headers[OFFSET]))
            found.setdefault((headers[GROUP], place), []).append(headers)
    return found


def _by_group(history: QueueHistory) -> dict[tuple[str, Place], list[Delivery]]:
    return {(group, place): found for (group, _, place), found in history.by_record().items()}
