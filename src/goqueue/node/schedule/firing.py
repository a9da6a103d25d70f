"""Fires what is due: into the topic's partition, each record once, whatever happens in between.

The decision is durable first; then the batch goes to the partition under the name of the schedule's own producer, always
the same batch with the same sequence; only then tombstones say that it is done. See `core/schedule`.
"""

from __future__ import annotations

import logging
from typing import Final, Protocol

from goqueue.core.producer import last_sequence
from goqueue.core.schedule.events import Firing, Message
from goqueue.log.batch import ATTRIBUTE_LOG_APPEND_TIME, BatchHeader, encode_batch
from goqueue.log.compression import CODEC_OF_SETTING, Codec
from goqueue.model.errors import OutOfOrderSequence, ProducerFenced, TimedOut
from goqueue.model.record import NewRecord, Producer
from goqueue.model.settings import TimestampType
from goqueue.node.clock import Clock
from goqueue.node.partition import Partition, Stored
from goqueue.node.producers import Producers
from goqueue.node.schedule.metrics import ScheduleMetrics
from goqueue.node.schedule.nearby import size_of
from goqueue.node.schedule.shard import OwnedSchedule
from goqueue.node.schedule.succession import Succession
from goqueue.node.topic_table import TopicTable

logger = logging.getLogger(__name__)
_BATCH_BYTES_MAX: Final = 1024 * 1024
_BATCH_OVERHEAD_BYTES: Final = 64


class Onward(Protocol):
    """Of topics whose partitions go away while messages wait there (ADR 35)."""

    def home_of(self, topic: str, index: int) -> int:
        """Where something without a key goes that was meant for a partition; there, if that is not decided."""

    def sends_all_on(self, partition: Partition) -> bool:
        """It takes nothing any more."""

    async def send_on(self, partition: Partition, batch: bytes, header: BatchHeader, now_ms: int) -> Stored:
        """Have a batch appended where its records live now, durably, and what is left of it here."""


class Firer:
    def __init__(
        self,
        table: TopicTable,
        producers: Producers,
        succession: Succession,
        metrics: ScheduleMetrics,
        clock: Clock,
    ) -> None:
        self._table = table
        self._producers = producers
        self._succession = succession
        self._metrics = metrics
        self._clock = clock
        self.onward: Onward | None = None

    async def run(self, schedule: OwnedSchedule) -> None:
        """Until nothing is due, or the topic is deleted. One at a time for each schedule."""
        messages: dict[int, Message] = {}
        await schedule.log.lead()
        while not schedule.is_gone:
            firing = schedule.state.firing
            if firing is not None:
                await self._deliver(schedule, firing, messages)
                continue
            await schedule.ripen(self._clock.now_ms())
            if not schedule.state.ripe:
                return
            messages = await self._read(schedule)
            if not await self._decide(schedule, messages):
                return

    async def _read(self, schedule: OwnedSchedule) -> dict[int, Message]:
        """Of what is ripe, from the first on, about as much as goes into one batch."""
        found: dict[int, Message] = {}
        ids = [one.id for one in schedule.state.ripe]
        size = start = 0
        count = 1
        while start < len(ids) and size < _BATCH_BYTES_MAX:
            part = await schedule.read(ids[start : start + count])
            self._drop_lost(schedule, [id for id in ids[start : start + count] if id not in part])
            size += sum(size_of(one.record) for one in part.values())
            found.update(part)
            start, count = start + count, 2 * count
        return found

    def _drop_lost(self, schedule: OwnedSchedule, ids: list[int]) -> None:
        lost = [id for id in ids if schedule.state.states.is_pending(id)]
        if lost:
            self._report_lost(schedule, lost)
            schedule.carry_out(schedule.state.give_up(lost))

    def _report_lost(self, schedule: OwnedSchedule, ids: list[int]) -> None:
        self._metrics.lost.inc(len(ids))
        logger.error(
            "delayed messages cannot be read and are given up topic=%s partition=%d offsets=%s",
            schedule.source.topic,
            schedule.source.index,
            ids[:10],
        )

    async def _decide(self, schedule: OwnedSchedule, messages: dict[int, Message]) -> bool:
        producer = schedule.state.producer() or await self._new_producer()
        settings = self._table.get(schedule.source.topic).settings
        firing = schedule.state.fire(
            {id: size_of(one.record) for id, one in messages.items()},
            bytes_max=min(settings.max_message_bytes, _BATCH_BYTES_MAX) - _BATCH_OVERHEAD_BYTES,
            producer=producer,
            now_ms=self._clock.now_ms(),
        )
        if firing is not None:
            schedule.carry_out([firing])
        return firing is not None

    async def _new_producer(self) -> Producer:
        id, epoch = await self._producers.init()
        return Producer(id, epoch, 0)

    async def _deliver(self, schedule: OwnedSchedule, firing: Firing, known: dict[int, Message]) -> None:
        log, source = schedule.log, schedule.source
        await log.settled_at_last(log.end)  # nothing comes of a decision that a power cut could take back
        if not all(id in known for id in firing.ids):  # it was decided in an earlier life
            known = await schedule.read(firing.ids)
            if len(known) < len(firing.ids):
                await self._go_on_without(schedule, firing, known)
                return
        await source.lead()
        schedule.tenure.check()
        try:
            end = await self._append(schedule, firing, [known[id].record for id in firing.ids])
        except (OutOfOrderSequence, ProducerFenced) as error:
            # The partition has lost batches of this producer, so it does not have this one either.
            logger.warning("a schedule begins a new sequence error=%r", error.sentence)
            id, epoch = await self._producers.init()
            schedule.carry_out([Firing(firing.ids, firing.now_ms, id, epoch, 0)])
            return
        now_ms = self._clock.now_ms()
        for id in firing.ids:
            self._metrics.lateness.observe((now_ms - known[id].due_ms) / 1_000)
        await self._settled(schedule, end)
        await self._finish(schedule, firing, known)
        schedule.fired_count += len(firing.ids)
        self._metrics.fired.inc(len(firing.ids))

    async def _finish(self, schedule: OwnedSchedule, firing: Firing, messages: dict[int, Message]) -> None:
        """The batch of a firing is durable. What recurs waits again from here on, or not at all."""
        messages_next, events = await self._succession.after(schedule, firing, messages)
        schedule.add_together(messages_next, [*schedule.state.fired(firing), *events])
        self._metrics.scheduled.inc(len(messages_next))

    async def _append(self, schedule: OwnedSchedule, firing: Firing, records: list[NewRecord]) -> int:
        """The offset that must be durable."""
        if not records:
            return 0
        settings = self._table.get(schedule.source.topic).settings
        is_stamped = settings.message_timestamp_type is TimestampType.LOG_APPEND_TIME
        header, batch = encode_batch(
            records,
            firing.now_ms,
            producer=Producer(firing.producer_id, firing.epoch, firing.sequence),
            codec=CODEC_OF_SETTING.get(settings.compression_type, Codec.NONE),
            attributes=ATTRIBUTE_LOG_APPEND_TIME if is_stamped else 0,
        )
        source, now_ms = schedule.source, self._clock.now_ms()
        if self.onward is not None and self.onward.sends_all_on(source):
            return (await self.onward.send_on(source, batch, header, now_ms)).end
        return source.append(batch, header, now_ms=now_ms).end

    async def _settled(self, schedule: OwnedSchedule, end: int) -> None:
        while True:
            try:
                return await schedule.source.settled(end, under=schedule.tenure.leadership)
            except TimedOut as error:
                logger.warning("delayed messages reach the disk slowly error=%r", error.sentence)

    async def _go_on_without(
        self, schedule: OwnedSchedule, firing: Firing, messages: dict[int, Message]
    ) -> None:
        """Some of the batch cannot be read any more. If the partition has it, that does not matter."""
        last = last_sequence(firing.sequence, len(firing.ids))
        if schedule.source.newest_sequence(firing.producer_id, firing.epoch) == last:
            await self._finish(schedule, firing, messages)
            return
        lost = [id for id in firing.ids if id not in messages]
        self._report_lost(schedule, lost)
        kept = [id for id in firing.ids if id in messages]
        rest = Firing(kept, firing.now_ms, firing.producer_id, firing.epoch, firing.sequence)
        schedule.carry_out([rest, *schedule.state.give_up(lost)])
