"""Transactions that a coordinator elsewhere has been asked about, and that must not end before the answer is used.

While the answer is on its way the transaction may end and its marker be written here. A batch appended after that would
begin a transaction that nobody ends. So whoever asks watches for markers of the producer meanwhile (KIP-890).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from goqueue.core.txn.events import TopicPartition
from goqueue.node.transactions.whereabouts import Whereabouts


class Pledge:
    __slots__ = ("epoch", "is_broken")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.is_broken = False


class Pledges:
    def __init__(self, whereabouts: Whereabouts) -> None:
        self._whereabouts = whereabouts
        self._made: dict[tuple[TopicPartition, int], list[Pledge]] = {}

    @contextmanager
    def made(self, part: TopicPartition, producer_id: int) -> Iterator[Pledge]:
        pledge = Pledge(self._whereabouts.epoch(*part))
        under_way = self._made.setdefault((part, producer_id), [])
        under_way.append(pledge)
        try:
            yield pledge
        finally:
            under_way.remove(pledge)
            if not under_way:
                self._made.pop((part, producer_id), None)

    def holds(self, pledge: Pledge, part: TopicPartition) -> bool:
        """No marker has come since, neither here nor, maybe, at a node that led in between."""
        return not pledge.is_broken and self._whereabouts.epoch(*part) == pledge.epoch

    def marked(self, part: TopicPartition, producer_id: int) -> None:
        """A marker of the producer is written."""
        for pledge in self._made.get((part, producer_id), ()):
            pledge.is_broken = True
