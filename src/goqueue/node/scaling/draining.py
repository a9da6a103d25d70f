"""Before a partition goes, nothing may wait in it that nobody would ever get.

Its records are for the groups, which the catalogue's gates are about, and for those that have yet to be created: they stay until
retention has taken them, unless whoever had the topic shrink said that what is read may go. Beside them there are delayed messages that
are not due yet, records that a queue group has not finished, or that have not arrived in the dead letter topic, transactions that
have not ended, and what other partitions are moving to this one. Its leader looks for them from time to time, and says so when there are none.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from goqueue.core.catalog import Event
from goqueue.core.cluster.commands import ReportDrained
from goqueue.core.cluster.events import ScalingChanged
from goqueue.core.cluster.scaling import Scaling
from goqueue.core.lease.events import Target
from goqueue.core.lease.ledger import Ledger
from goqueue.model.errors import GoQueueError
from goqueue.node.clock import Clock
from goqueue.node.dead_letters.open_moves import OpenMoves
from goqueue.node.metadata import Metadata
from goqueue.node.partition import Partition
from goqueue.node.queue.led_ledgers import lag_of
from goqueue.node.queue.ledgers import Ledgers
from goqueue.node.schedule.scheduler import Scheduler
from goqueue.node.topic_table import TopicTable

logger = logging.getLogger(__name__)
_LOOK_S: Final = 1.0


class Draining:
    def __init__(
        self,
        metadata: Metadata,
        table: TopicTable,
        clock: Clock,
        scheduler: Scheduler,
        ledgers: Ledgers,
        moves: OpenMoves,
    ) -> None:
        self._metadata = metadata
        self._table = table
        self._clock = clock
        self._scheduler = scheduler
        self._ledgers = ledgers
        self._moves = moves
        self._woken = asyncio.Event()
        metadata.when_applied(self._note)
        metadata.when_restored(self._woken.set)

    def _note(self, events: Sequence[Event]) -> None:
        if any(isinstance(event, ScalingChanged) for event in events):
            self._woken.set()

    def note_leadership(self, topic: str, index: int, is_leading: bool) -> None:
        if is_leading:
            self._woken.set()

    async def run(self) -> None:
        while True:
            self._woken.clear()
            places = self._undrained()
            for partition in places:
                try:
                    await self._look(partition)
                except GoQueueError as error:  # the next look may see more
                    logger.info(
                        "whether a partition is empty is not known topic=%s partition=%d error=%r",
                        *(partition.topic, partition.index, error.sentence),
                    )
            try:
                async with asyncio.timeout(_LOOK_S if places else None):
                    await self._woken.wait()
            except TimeoutError:
                pass

    def _undrained(self) -> list[Partition]:
        """That this node leads."""
        found: list[Partition] = []
        for name, scaling in self._metadata.catalog.scalings().items():
            topic = self._table.any_topic(name)
            if topic is None or scaling.stage != "draining":
                continue
            for index in scaling.undrained:
                partition = topic.local.get(index)
                if partition is not None and (partition.is_solo or partition.leadership is not None):
                    found.append(partition)
        return found

    async def _look(self, partition: Partition) -> None:
        topic, index = partition.topic, partition.index
        if not await self._is_empty(partition) or await self._moves.are_there(Target(topic, index)):
            return
        epoch = self._metadata.catalog.partition(topic, index).leader_epoch
        leadership = partition.leadership
        if leadership is not None and leadership.epoch != epoch:
            return
        await self._metadata.execute(
            ReportDrained(topic, self._metadata.catalog.topic(topic).id, index, epoch)
        )

    async def _is_empty(self, partition: Partition) -> bool:
        await partition.lead()
        scaling = self._metadata.catalog.scaling(partition.topic)
        end = _end_of(scaling, partition.index)
        if scaling is None or partition.open_transactions():
            return False
        if not scaling.discards_read and partition.log.log_start < end:
            self._let_expire(partition, end)
            return False
        schedule = await self._scheduler.find(partition, makes=False)
        if schedule is not None and (schedule.state.waiting_count or len(schedule.state.recurring)):
            return False
        ledger = await self._ledgers.find(partition.topic, partition.index)
        if ledger is None:
            return True
        if not _is_finished(ledger.state, end):
            return False
        await ledger.settled()
        return _is_finished(ledger.state, end)  # still: what was held then may be a dead letter by now

    def _let_expire(self, partition: Partition, end: int) -> None:
        """What is appended from now on, and would keep a segment young, goes into another one than the last records."""
        log = partition.log
        if log.failure is None and log.segments and log.segments[-1].base_offset < end:
            log.roll(self._clock.now_ms())


def _end_of(scaling: Scaling | None, index: int) -> int:
    """After it come only gaps where records were sent on."""
    gates = () if scaling is None else scaling.gates
    return max((gate.until for gate in gates if gate.behind == index), default=0)


def _is_finished(ledger: Ledger, end: int) -> bool:
    """Nor are dead letters, or what is sent back, on their way elsewhere."""
    return not ledger.moves and not any(lag_of(window, end) for window in ledger.windows.values())
