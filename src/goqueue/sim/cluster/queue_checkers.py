"""The invariants of queues in a cluster: those of a broker alone, which hold whoever leads, and what is different here.

An answer between two nodes may be lost without the member hearing of it, so a delivery may have been counted that nobody
saw; and each node counts what a member holds by what it has heard.
"""

from __future__ import annotations

from itertools import pairwise

from goqueue.sim.queue.checkers import (
    CommittedNeverGoesBack,
    DeliveredIsStored,
    KeyOrder,
    NeverAfterAck,
    NeverEarly,
    NeverTwoHolders,
    QueueChecker,
    ReceiptsCountOnce,
    StoredOnce,
)
from goqueue.sim.queue.clock import ShownTime
from goqueue.sim.queue.dead_letters import Conservation, DeadAtTheLimit
from goqueue.sim.queue.history import Action, Fate, QueueHistory


class CountsNeverRepeat:
    """No count of a record comes twice, and none comes before a smaller one: a new leader knows what its predecessor gave."""

    def check(self, history: QueueHistory, clock: ShownTime) -> None:
        for deliveries in history.by_record().values():
            for one, other in pairwise(deliveries):
                if one.count == other.count:
                    history.violate(
                        f"{one.place} came to {one.member} and to {other.member} of {one.group} as delivery {one.count}"
                    )
                elif other.answered_s < one.sent_s:
                    history.violate(
                        f"delivery {other.count} of {one.place} to {one.group} came at {other.answered_s:.3f} s, before "
                        f"{one.count} was asked for"
                    )


class NackedComesAgainOrDies:
    """What was given back with an answer is given again with a larger count, or is a dead letter."""

    def check(self, history: QueueHistory, clock: ShownTime) -> None:
        for deliveries in history.by_record().values():
            for one in deliveries:
                for what in one.asked:
                    if what.action is not Action.NACK or what.fate is not Fate.DONE:
                        continue
                    late = [
                        after
                        for after in deliveries
                        if after.sent_s > what.answered_s and after.count <= one.count
                    ]
                    if late:
                        history.violate(
                            f"delivery {one.count} of {one.place} was given back by {one.member} of {one.group} at "
                            f"{what.answered_s:.3f} s; after that it came as {late[0].count}"
                        )


def queue_checkers(keyed_topic: str) -> tuple[QueueChecker, ...]:
    return (
        NeverTwoHolders(),
        NeverAfterAck(),
        ReceiptsCountOnce(),
        CountsNeverRepeat(),
        NackedComesAgainOrDies(),
        CommittedNeverGoesBack(),
        NeverEarly(),
        DeliveredIsStored(),
        StoredOnce(),
        KeyOrder(keyed_topic),
        DeadAtTheLimit(),
        Conservation(),
    )
