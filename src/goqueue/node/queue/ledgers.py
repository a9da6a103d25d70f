"""The ledgers of this node, found by topic and partition: opened when a group first reads a partition as a queue, and at
the start where there is one. In a cluster they are those of the partitions that this node leads, for as long as it does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from weakref import WeakKeyDictionary, WeakValueDictionary

from goqueue.model.errors import GoQueueError
from goqueue.node.clock import Clock
from goqueue.node.companions import Companion, Companions
from goqueue.node.partition import Partition
from goqueue.node.queue.feed import Postings
from goqueue.node.queue.ledger import OwnedLedger
from goqueue.node.queue.mending import mend
from goqueue.node.topic_table import TopicTable

logger = logging.getLogger(__name__)
Place = tuple[str, int]


def _nothing_more(ledger: OwnedLedger) -> None:
    """Until somebody wants to know."""


class Ledgers:
    def __init__(
        self,
        companions: Companions,
        table: TopicTable,
        clock: Clock,
        postings_of: Callable[[Partition], Postings],
    ) -> None:
        self._companions = companions
        self._table = table
        self._clock = clock
        self._postings_of = postings_of
        self._ledgers: dict[Place, OwnedLedger] = {}
        self._opening: WeakValueDictionary[Place, asyncio.Lock] = WeakValueDictionary()
        # One for each log, whoever leads it: they are files of this node, and may be written when a tenure is over.
        self._postings: WeakKeyDictionary[Partition, Postings] = WeakKeyDictionary()
        self.when_opened: Callable[[OwnedLedger], None] = _nothing_more

    async def start(self) -> None:
        """Where this node is alone; else ledgers are opened as it begins to lead."""
        if self._companions.are_replicated:
            return
        for topic, index in self._companions.existing(Companion.LEDGER):
            try:
                await self.open(topic, index)
            except GoQueueError as error:  # its groups are not served; those of the others are
                logger.error(
                    "a ledger cannot be read topic=%s partition=%d error=%r", topic, index, error.sentence
                )

    def all(self) -> list[OwnedLedger]:
        return [
            ledger
            for ledger in self._ledgers.values()
            if not ledger.source.is_deleted and not ledger.tenure.is_over
        ]

    def known(self, topic: str, index: int) -> OwnedLedger | None:
        """If somebody has read the partition as a queue, and it is open; of a partition that exists and that this node
        leads."""
        source = self._table.get(topic).partition(index)
        source.check_leads()
        ledger = self._ledgers.get((topic, index))
        if ledger is None or ledger.source is not source or ledger.tenure.is_over:
            return None
        return ledger

    async def find(self, topic: str, index: int) -> OwnedLedger | None:
        """The same; in a cluster it is opened if this node has not come to that yet."""
        ledger = self.known(topic, index)
        if ledger is not None or not self._companions.are_replicated:
            return ledger
        has_one = self._companions.has(Companion.LEDGER, topic, index)
        return await self.open(topic, index) if has_one else None

    async def open(self, topic: str, index: int) -> OwnedLedger:
        """Made if need be. NotLeader where another node has to be asked."""
        ledger = self.known(topic, index)
        if ledger is not None:
            return ledger
        turn = self._opening.setdefault((topic, index), asyncio.Lock())
        async with turn:
            ledger = self.known(topic, index)
            if ledger is None:
                home = await self._companions.open(Companion.LEDGER, topic, index)
                source = self._table.get(topic).partition(index)
                ledger = OwnedLedger(source, home, self._postings_for(source), self._clock)
                await ledger.open()
                await mend(ledger, self._table, self._clock.now_ms())
                ledger.tenure.check()
                self._ledgers[topic, index] = ledger
                self.when_opened(ledger)
        return ledger

    def _postings_for(self, source: Partition) -> Postings:
        postings = self._postings.get(source)
        if postings is None:
            postings = self._postings[source] = self._postings_of(source)
        return postings

    def drop(self, topic: str, index: int) -> None:
        """Another node leads the partition now: who waits has to ask there."""
        ledger = self._ledgers.pop((topic, index), None)
        if ledger is not None:
            ledger.wake()

    def forget(self, topic: str) -> None:
        """It is deleted."""
        for place in [place for place in self._ledgers if place[0] == topic]:
            self.drop(*place)
