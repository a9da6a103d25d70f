"""Producer ids that members of joints left behind, for the members that come.

A query enrols its tasks anew with every batch. Were each given a producer id of its own, the metadata log and the
producer tables of the partitions would grow with every batch; so those whose transactions are over are used again, as a
long-lived producer would use its own: one epoch later.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable

from goqueue.core.txn import transitions
from goqueue.core.txn.events import (
    Event,
    ProducerEpoch,
    ProducerSpared,
    SpareTaken,
    TransactionForgotten,
    TransactionSaved,
)

SPARE_COUNT_MAX = 1_000  # per shard; those above it are let go


class Spares:
    def __init__(self) -> None:
        self._epochs: dict[int, int] = {}
        self._ids: list[int] = []  # sorted

    def first(self) -> ProducerEpoch | None:
        """Always the smallest, so that few ids do most of the work."""
        if not self._ids:
            return None
        return ProducerEpoch(self._ids[0], self._epochs[self._ids[0]])

    def forgotten(self, members: Iterable[TransactionSaved]) -> list[Event]:
        """The members are over; their producers are spared as far as there is room."""
        events: list[Event] = []
        room = SPARE_COUNT_MAX - len(self._ids)
        for saved in members:
            events.append(TransactionForgotten(saved.transactional_id))
            left = transitions.spared(saved)
            if left is not None and room > 0:
                events.append(ProducerSpared(*left))
                room -= 1
        return events

    def apply(self, event: ProducerSpared | SpareTaken) -> None:
        id = event.producer_id
        if isinstance(event, ProducerSpared):
            if id not in self._epochs:
                insort(self._ids, id)
            self._epochs[id] = event.epoch
        elif self._epochs.pop(id, None) is not None:
            del self._ids[bisect_left(self._ids, id)]
