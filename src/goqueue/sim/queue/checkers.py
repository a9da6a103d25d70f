"""One class per invariant of the queue. Each looks at the whole history when a run has healed and everything is done."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Protocol

from goqueue.sim.queue.clock import ShownTime
from goqueue.sim.queue.history import (
    Action,
    Asked,
    Delivery,
    Fate,
    QueueHistory,
    Sent,
)


class QueueChecker(Protocol):
    def check(self, history: QueueHistory, clock: ShownTime) -> None: ...


class NeverTwoHolders:
    """Nobody is given what another still has, by a lease that is not over and that nobody gave up."""

    def check(self, history: QueueHistory, clock: ShownTime) -> None:
        for deliveries in history.by_record().values():
            for one, other in pairwise(deliveries):
                if other.leased_ms >= _deadline_ms(one, other.answered_s):
                    continue
                if clock.latest_ms(one.sent_s, other.answered_s) >= _deadline_ms(one, other.answered_s):
                    continue  # it was over, and then the clock was set back
                if _may_be_given_up(history, one, other.answered_s):
                    continue
                history.violate(
                    f"{other.member} got {other.place} of {other.group} at {other.leased_ms} while {one.member} had it "
                    f"until {one.deadline_ms}"
                )


class NeverAfterAck:
    """What a group has acknowledged or rejected does not come again."""

    def check(self, history: QueueHistory, clock: ShownTime) -> None:
        for deliveries in history.by_record().values():
            for index, one in enumerate(deliveries):
                is_done = Fate.DONE in (one.fate_of(Action.ACK), one.fate_of(Action.REJECT))
                if is_done and index + 1 < len(deliveries):
                    again = deliveries[index + 1]
                    history.violate(
                        f"{one.place} was finished in {one.group} on delivery {one.count} and came again as {again.count}"
                    )


class NeverTooMany:
    """Nobody is given more than it may hold at once, counted without what it may have given up or lost in time."""

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max

    def check(self, history: QueueHistory, clock: ShownTime) -> None:
        by_member: dict[tuple[str, str], list[Delivery]] = {}
        for one in history.deliveries:
            # Who is sent elsewhere, or whose records are deleted, holds nothing any more.
            if one.group in history.groups and one.place.topic not in history.fading:
                by_member.setdefault((one.group, one.member), []).append(one)
        for (group, member), deliveries in by_member.items():
            for one in deliveries:
                held = {
                    before.place
                    for before in deliveries
                    if before.answered_s <= one.answered_s
                    and self._is_held(history, clock, before, one.answered_s)
                }
                if len(held) > self._count_max:
                    history.violate(f"{member} of {group} held {len(held)} records at once")

    def _is_held(self, history: QueueHistory, clock: ShownTime, one: Delivery, at_s: float) -> bool:
        if clock.latest_ms(one.sent_s, at_s) >= one.deadline_ms or _may_have_left(history, one, at_s):
            return False
        return not any(what.sent_s <= at_s for what in one.asked) and not history.damage.is_doubted(
            one.group, one.place
        )


class ReceiptsCountOnce:
    """Of all that is said about one delivery only one thing ends it; an ack of an older delivery is refused."""

    def check(self, history: QueueHistory, clock: ShownTime) -> None:
        for deliveries in history.by_record().values():
            for one in deliveries:
                ends = [
                    what for what in one.asked if what.fate is Fate.DONE and what.action is not Action.EXTEND
                ]
                if len(ends) > 1:
                    history.violate(
                        f"delivery {one.count} of {one.place} to {one.group} was ended {len(ends)} times"
                    )
            for one, other in pairwise(deliveries):
                for what in one.asked:
                    if what.fate is Fate.DONE and what.sent_s > other.answered_s:
                        history.violate(
                            f"{one.member} could {what.action.value} delivery {one.count} of {one.place} after "
                            f"{other.member} had got it again"
                        )


class NeverEarly:
    """A delayed message is not given before its time."""

    def check(self, history: QueueHistory, clock: ShownTime) -> None:
        for one in history.deliveries:
            sent = history.sent.get(one.value)
            if sent is None or sent.due_ms is None:
                continue
            if clock.latest_ms(0.0, one.answered_s) < sent.due_ms:
                history.violate(f"{one.value} was due at {sent.due_ms} and given at {one.leased_ms}")


class CountsGrowByOne:
    """No count comes twice, and one that nobody saw went with a poll that got no answer."""

    def check(self, history: QueueHistory, clock: ShownTime) -> None:
        for deliveries in history.by_record().values():
            counts = [one.count for one in deliveries]
            if len(set(counts)) < len(counts):
                history.violate(f"{deliveries[0].place} was given twice with one count: {counts}")
                continue
            for seen_count, one in enumerate(deliveries):
                lost_count = sum(
                    lost.group == one.group and lost.sent_s <= one.answered_s for lost in history.lost_polls
                )
                if one.count > 1 + seen_count + lost_count:
                    history.violate(f"{one.place} came to {one.group} as delivery {one.count} out of nowhere")
            for one, other in pairwise(deliveries):
                if other.answered_s < one.sent_s:
                    history.violate(
                        f"deliveries {one.count} and {other.count} of {one.place} came in wrong order"
                    )


class DeliveredIsStored:
    """What was given is in the log, at its place, with its content, in its lane; and was sent by somebody."""

    def check(self, history: QueueHistory, clock: ShownTime) -> None:
        for one in history.deliveries:
            final = history.final.get(one.place)
            if one.value in history.damage.values or (final is None and one.place.topic in history.fading):
                continue
            if final is None:
                history.violate(
                    f"{one.place} was given to {one.group} as {one.value!r} and is not in the log"
                )
            elif final.value != one.value:
                history.violate(f"{one.place} was given as {one.value!r} and is {final.value!r}")
            sent = history.sent.get(one.value)
            if sent is None:
                history.violate(f"{one.place} {one.value!r} was given, which nobody sent")
            elif sent.lane != one.lane:
                history.violate(f"{one.value} of lane {sent.lane} was given in lane {one.lane}")


class StoredOnce:
    """An acknowledged publish is in its topic once, one that is not known at most once, a cancelled one never."""

    def check(self, history: QueueHistory, clock: ShownTime) -> None:
        counts: dict[tuple[str, str], int] = {}
        for place, record in history.final.items():
            counts[place.topic, record.value] = counts.get((place.topic, record.value), 0) + 1
        for sent in history.sent.values():
            count = counts.get((sent.topic, sent.value), 0)
            if count > 1:
                history.violate(f"{sent.value} is {count} times in {sent.topic}")
            elif count and (sent.cancel is Fate.DONE or sent.fate is Fate.REFUSED):
                history.violate(f"{sent.value} is in {sent.topic} though it was cancelled or refused")
            elif not count and self._must_be_there(history, sent):
                history.violate(f"{sent.value} is not in {sent.topic}; it was acknowledged")

    def _must_be_there(self, history: QueueHistory, sent: Sent) -> bool:
        if sent.topic in history.fading or sent.value in history.damage.values:
            return False
        return sent.fate is Fate.DONE and sent.is_durable and sent.cancel in (None, Fate.REFUSED)


class CommittedNeverGoesBack:
    """Nor is anything before it given again."""

    def check(self, history: QueueHistory, clock: ShownTime) -> None:
        facts: dict[tuple[str, str, str, int], list[tuple[float, float, int]]] = {}
        for one in history.committed:
            part = (one.group, one.era, one.topic, one.partition)
            facts.setdefault(part, []).append((one.sent_s, one.answered_s, one.offset))
        for part, seen in facts.items():
            group, _, topic, partition = part
            if (group, topic, partition) in history.damage.touched:
                continue
            for _, answered_s, offset in seen:
                later = [after for sent_s, _, after in seen if sent_s >= answered_s]
                if later and min(later) < offset:
                    history.violate(f"the committed offset of {part} went from {offset} to {min(later)}")
        for delivery in history.deliveries:
            group, era, place = delivery.record
            if history.damage.is_doubted(group, place):
                continue
            for _, answered_s, offset in facts.get((group, era, place.topic, place.partition), []):
                if answered_s <= delivery.sent_s and place.offset < offset:
                    history.violate(f"{place} was given to {group}, which had committed {offset}")


class KeyOrder:
    """In a topic that keeps the order of keys: nothing is given while one before it with its key is not finished."""

    def __init__(self, topic: str) -> None:
        self._topic = topic

    def check(self, history: QueueHistory, clock: ShownTime) -> None:
        by_record = history.by_record()
        for key, deliveries in self._by_key(history).items():
            for one in deliveries:
                for earlier in {two.record for two in deliveries if two.place.offset < one.place.offset}:
                    self._check(history, one, by_record[earlier], key)

    def _by_key(self, history: QueueHistory) -> dict[tuple[str, str, int, str], list[Delivery]]:
        found: dict[tuple[str, str, int, str], list[Delivery]] = {}
        for one in history.deliveries:
            is_doubted = history.damage.is_doubted(one.group, one.place)
            if one.place.topic == self._topic and one.key is not None and not is_doubted:
                found.setdefault((one.group, one.era, one.place.partition, one.key), []).append(one)
        return found

    def _check(
        self, history: QueueHistory, one: Delivery, before: list[Delivery], key: tuple[str, str, int, str]
    ) -> None:
        after = [earlier for earlier in before if earlier.sent_s > one.answered_s]
        if after:
            history.violate(f"{after[0].place} was given to {key} after {one.place}")
            return
        is_over = any(
            what.sent_s <= one.answered_s and what.action is not Action.EXTEND
            for earlier in before
            for what in earlier.asked
        )
        is_last = max(earlier.count for earlier in before) > history.retries_max
        may_be_lost = any(lost.group == one.group for lost in history.lost_polls)
        if not is_over and not is_last and not may_be_lost:
            history.violate(f"{one.place} was given to {key} while {before[0].place} was not finished")


def queue_checkers(keyed_topic: str, in_flight_count_max: int) -> tuple[QueueChecker, ...]:
    return (
        NeverTwoHolders(),
        NeverTooMany(in_flight_count_max),
        NeverAfterAck(),
        ReceiptsCountOnce(),
        NeverEarly(),
        CountsGrowByOne(),
        DeliveredIsStored(),
        StoredOnce(),
        CommittedNeverGoesBack(),
        KeyOrder(keyed_topic),
    )


def _deadline_ms(one: Delivery, before_s: float) -> int:
    """When the lease ends at the earliest, with the extensions that were asked for until then."""
    deadline_ms = one.deadline_ms
    for what in _asked(one, Action.EXTEND, before_s):
        if what.fate is Fate.DONE and what.deadline_ms is not None:
            deadline_ms = what.deadline_ms
    return deadline_ms


def _may_be_given_up(history: QueueHistory, one: Delivery, before_s: float) -> bool:
    """Somebody asked for its end, or for an end that is not known."""
    if any(_asked(one, Action.NACK, before_s)) or any(_asked(one, Action.ACK, before_s)):
        return True
    if any(what.fate is not Fate.DONE for what in _asked(one, Action.EXTEND, before_s)):
        return True
    return _may_have_left(history, one, before_s)


def _may_have_left(history: QueueHistory, one: Delivery, before_s: float) -> bool:
    return any(
        (left.group, left.member) == (one.group, one.member) and left.sent_s <= before_s
        for left in history.left
    )


def _asked(one: Delivery, action: Action, before_s: float) -> Iterator[Asked]:
    return (what for what in one.asked if what.action is action and what.sent_s <= before_s)
