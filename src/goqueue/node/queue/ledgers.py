"""The ledgers of this node, found by topic and partition: opened when a group first reads a partition as a queue, and at
the start where there is one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

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
        self._opening = asyncio.Lock()

    async def start(self, when_open: Callable[[OwnedLedger], Awaitable[None]]) -> None:
        for topic, index in self._companions.existing(Companion.LEDGER):
            try:
                await when_open(await self.open(topic, index))
            except GoQueueError as error:  # its groups are not served; those of the others are
                logger.error(
                    "a ledger cannot be read topic=%s partition=%d error=%r", topic, index, error.sentence
                )

    def all(self) -> list[OwnedLedger]:
        return [ledger for ledger in self._ledgers.values() if not ledger.source.is_deleted]

    def known(self, topic: str, index: int) -> OwnedLedger | None:
        """If somebody has read the partition as a queue; of a partition that exists."""
        source = self._table.get(topic).partition(index)
        ledger = self._ledgers.get((topic, index))
        return ledger if ledger is not None and ledger.source is source else None

    async def open(self, topic: str, index: int) -> OwnedLedger:
        """Made if need be."""
        ledger = self.known(topic, index)
        if ledger is not None:
            return ledger
        async with self._opening:
            ledger = self.known(topic, index)
            if ledger is None:
                home = await self._companions.open(Companion.LEDGER, topic, index)
                source = self._table.get(topic).partition(index)
                ledger = OwnedLedger(source, home, self._postings_of(source), self._clock)
                await ledger.open()
                await mend(ledger, self._table, self._clock.now_ms())
                self._ledgers[topic, index] = ledger
        return ledger

    def forget(self, topic: str) -> None:
        """It is deleted."""
        for place in [place for place in self._ledgers if place[0] == topic]:
            self._ledgers.pop(place).wake()
