"""The schedule of one partition: which records wait, over the log that says so, with its index on disk.

`state` is asked and, through the writing methods, changed without an await in between: that is all the locking there is.
"""

from __future__ import annotations

import asyncio
import logging
from array import array
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from goqueue.core.schedule.events import Change, Event, Message, Removed, Scheduled
from goqueue.core.schedule.recurring import RecurringTable
from goqueue.core.schedule.schedule import Schedule
from goqueue.core.schedule.wheel import FAR, Due, Part, Source, bucket_of, soonest
from goqueue.log.disk import Disk
from goqueue.model.errors import GoQueueError
from goqueue.node.clock import Clock
from goqueue.node.partition import Partition
from goqueue.node.schedule.index import Capture, IndexFile
from goqueue.node.schedule.log import ScheduleLog, in_chunks
from goqueue.node.schedule.nearby import NEAR_MS, Nearby, Room
from goqueue.node.tenure import Tenure
from goqueue.node.threads import Threads

logger = logging.getLogger(__name__)
_SAVE_COUNT: Final = 500_000  # of events since: what a start reads in a few seconds
_SAVE_INTERVAL_MS: Final = 600_000
_STALE_COUNT_MIN: Final = 65_536
_AHEAD_COUNT_MAX: Final = 50_000


class OwnedSchedule:
    """`source` is the partition that gets the records when they are due. It counts for one tenure; `saving` is held by
    whoever works on the index, which outlives that."""

    def __init__(
        self,
        source: Partition,
        home: Partition,
        disk: Disk,
        threads: Threads,
        clock: Clock,
        room: Room,
        saving: asyncio.Lock,
    ) -> None:
        self.source = source
        self.tenure = Tenure(source, home)
        self.state = Schedule()
        self.log = ScheduleLog(home, clock, self.tenure)
        self.nearby = Nearby(room)
        self.is_busy = False  # somebody turns the wheel and fires
        self.is_reading_ahead = False
        self.has_moved = (
            True  # something came down to the first level of the wheel since it was last read ahead
        )
        self.has_failed = False
        self.fired_count = 0
        self.cancelled_count = 0
        self._clock = clock
        self._threads = threads
        self._index = IndexFile(disk, home.log.folder)
        self._saving = saving
        self._unsaved_count = 0
        self._saved_ms = clock.now_ms()
        self._indexed_end: int | None = None  # of what is on disk, at least; None: there is no index

    async def open(self) -> None:
        async with self._saving:
            capture = await self._threads.run(lambda: self._index.load(self._believes))
        start = 0 if capture is None else capture.end
        if capture is not None:
            self._indexed_end = start
            self._restore(capture)
        now_ms = self._clock.now_ms()
        self._unsaved_count = await self.log.replay(start, lambda event: self.state.apply(event, now_ms))
        self.tenure.check()
        lost = self.state.drop_stranded()
        if lost:
            logger.error(
                "recurring schedules are lost in a damaged log folder=%s names=%s",
                self.log.partition.log.folder,
                lost[:10],
            )

    def _believes(self, end: int, epoch: int | None) -> bool:
        """Whether an index that was saved when the log ended at `end`, with a batch of `epoch`, is one of this log: it may
        have been cut since, and others written in the place of what it had."""
        log = self.log.partition.log
        if epoch is None:
            return end <= log.end and (self.log.partition.is_solo or end == 0)
        known, epoch_end = log.epochs.end_of(epoch, log.end)
        return log.log_start <= end <= epoch_end and known == epoch

    @property
    def is_gone(self) -> bool:
        """Its topic is deleted, or another node leads it."""
        return self.source.is_deleted or self.tenure.is_over

    # ---------------------------------------------------------------- writing

    def add(self, messages: Sequence[Message]) -> tuple[list[int], GoQueueError | None]:
        """The ids of those that were written, from the first on, and why it is not all of them. Call `log.lead` first."""
        self.state.admit(len(messages))
        ids: list[int] = []
        for chunk in in_chunks(messages):
            first_id = self.log.end
            try:
                self.log.append(chunk, [])
            except GoQueueError as error:
                return ids, error
            ids += self._note(chunk, first_id)
        return ids, None

    def add_together(self, messages: Sequence[Message], events: Sequence[Change]) -> None:
        """All of it or nothing, also across a crash."""
        first_id = self.log.end
        self.log.append(messages, events)
        self._note(messages, first_id)
        self._apply(events)

    def carry_out(self, events: Sequence[Change]) -> None:
        self.log.append([], events)
        self._apply(events)

    def _note(self, messages: Sequence[Message], first_id: int) -> range:
        ids = range(first_id, first_id + len(messages))
        self._apply([Scheduled(id, one.due_ms, one.lane) for id, one in zip(ids, messages, strict=True)])
        near_ms = self._clock.now_ms() + NEAR_MS
        for id, message in zip(ids, messages, strict=True):
            if message.due_ms <= near_ms and not self.nearby.keep(id, message):
                break
        return ids

    def _apply(self, events: Sequence[Event]) -> None:
        now_ms = self._clock.now_ms()
        self._unsaved_count += len(events)
        for event in events:
            self.state.apply(event, now_ms)
            if isinstance(event, Removed):
                self.nearby.drop(event.id)

    # ---------------------------------------------------------------- reading

    async def read(self, ids: Sequence[int]) -> dict[int, Message]:
        """Those that can be read."""
        found = {id: message for id in ids if (message := self.nearby.get(id)) is not None}
        if len(found) < len(ids):
            found.update(await self.log.read([id for id in ids if id not in found]))
        return found

    async def read_ahead(self) -> None:
        """What will be due in the next seconds, in the order of the log: one after another is quick, here and there is not."""
        self.is_reading_ahead, self.has_moved = True, False
        try:
            is_pending = self.state.states.is_pending
            ids = [id for id in self.state.wheel.first_ids() if id not in self.nearby and is_pending(id)]
            async for part in self.log.read_in_parts(ids[:_AHEAD_COUNT_MAX]):
                for id, message in part.items():
                    if is_pending(id) and not self.nearby.keep(id, message):
                        return
        finally:
            self.is_reading_ahead = False

    # ---------------------------------------------------------------- time

    def next_ms(self) -> int | None:
        """When somebody has to look after it."""
        return None if self.is_busy or self.is_gone else self.state.next_ms()

    async def ripen(self, now_ms: int) -> None:
        """Turn the wheel, in small steps, and let what is due fall off."""
        wheel = self.state.wheel
        while True:
            bucket = wheel.wanted(now_ms)
            if bucket is not None:
                await self._unpark(bucket)
            if not wheel.advance(now_ms):
                break
            self.has_moved = True
            await asyncio.sleep(0)
        self.state.ripen(now_ms)

    async def _unpark(self, bucket: int) -> None:
        async with self._saving:
            if bucket in self.state.wheel.parked:
                self.state.wheel.unpark(bucket, await self._read_bucket(bucket))

    async def _read_bucket(self, bucket: int) -> list[array[int]]:
        blocks = await self._threads.run(lambda: self._index.read_bucket(bucket))
        if blocks is not None:
            return blocks
        logger.error("the index of a schedule is damaged folder=%s", self.log.partition.log.folder)
        found: dict[int, int] = {}

        def collect(event: Event) -> None:
            if isinstance(event, Scheduled) and bucket_of(event.due_ms) == bucket:
                found[event.id] = event.due_ms

        await self.log.replay(0, collect)
        for part in self.state.wheel.parts():  # those that came while the bucket was parked
            if (part.level, part.slot) == (FAR, bucket):
                for one in part.pairs():
                    found.pop(one.id, None)
        return [array("q", (number for id, due_ms in found.items() for number in (due_ms, id)))]

    # ---------------------------------------------------------------- the index

    @property
    def forgettable_end(self) -> int:
        """What was removed from there on has to be told by the log: a start that believes the index would not hear of it otherwise."""
        return self.log.end if self._indexed_end is None else self._indexed_end

    @property
    def is_save_due(self) -> bool:
        is_old = self._clock.now_ms() - self._saved_ms >= _SAVE_INTERVAL_MS
        return self._unsaved_count >= _SAVE_COUNT or (is_old and self._unsaved_count > 0)

    async def save(self) -> None:
        """Put the index on disk, and out of memory what is due much later. One that fails is followed by another."""
        if not self._unsaved_count:
            return
        async with self._saving:
            if self.is_gone:
                return
            is_cleaned, stale_count = self._has_many_stale, self.state.cancelled_count
            capture = self._captured()
            count, self._unsaved_count = self._unsaved_count, 0
            if self._indexed_end is None:
                self._indexed_end = capture.end
            try:
                await self.log.settled_at_last(capture.end)
                cleaned = await self._threads.run(lambda: self._cleaned(capture) if is_cleaned else {})
                await self._threads.run(lambda: self._index.save(capture))
            except (GoQueueError, OSError) as error:
                self._unsaved_count += count
                self._take_back(capture)
                logger.warning("the index of a schedule is not saved error=%r", str(error))
                return
            finally:
                self._saved_ms = self._clock.now_ms()
            self._indexed_end = capture.end
            if is_cleaned:
                self.state.wheel.replace(cleaned)
                self.state.cancelled_count -= stale_count

    @property
    def _has_many_stale(self) -> bool:
        state = self.state
        return state.cancelled_count > _STALE_COUNT_MIN + state.states.pending_count // 2

    def _captured(self) -> Capture:
        state = self.state
        far = [state.wheel.park(bucket) for bucket in state.wheel.far_buckets(self._clock.now_ms())]
        log = self.log.partition.log
        return Capture(
            log.end,
            log.epochs.at(log.end - 1),
            list(state.ripe),
            state.firing,
            state.last_fired,
            list(state.taken.values()),
            state.recurring.all(),
            state.cancelled_count,
            state.wheel.parts(),
            list(state.states.pages()),
            dict(state.wheel.parked),
            far,
        )

    def _take_back(self, capture: Capture) -> None:
        """What could not be parked is in memory, as it was."""
        wheel = self.state.wheel
        for part in capture.far:
            wheel.take_back(part)

    def _cleaned(self, capture: Capture) -> dict[int, array[int]]:
        """Full blocks without what was cancelled, by the identity of the block each stands for."""
        is_pending = self.state.states.is_pending
        cleaned: dict[int, array[int]] = {}
        for part in capture.parts:
            for block in part.blocks[:-1]:
                numbers = iter(block)
                kept = array("q")
                for due_ms, id_ in zip(numbers, numbers, strict=True):
                    if is_pending(id_):
                        kept.extend((due_ms, id_))
                cleaned[id(block)] = kept
        capture.parts = [
            part._replace(blocks=[cleaned.get(id(block), block) for block in part.blocks])
            for part in capture.parts
        ]
        capture.cancelled_count = 0
        return cleaned

    def _restore(self, capture: Capture) -> None:
        state = self.state
        state.states.restore(capture.pages)
        for part in capture.parts:
            state.wheel.restore(part)
        state.wheel.parked = dict(capture.parked)
        state.ripe.extend(capture.ripe)
        state.firing, state.last_fired = capture.firing, capture.last_fired
        state.taken = {one.producer_id: one for one in capture.taken}
        state.recurring = RecurringTable(capture.recurring)
        state.cancelled_count = capture.cancelled_count

    # ---------------------------------------------------------------- facts

    async def soonest(self, count: int) -> list[Due]:
        """In a thread: there may be millions in one slot."""
        state = self.state
        async with self._saving:
            while True:
                sources = [Source(0, list(state.ripe).__iter__)]
                sources += [Source(part.start_ms, part.pairs) for part in state.wheel.parts()]
                sources += [_parked(self._index, bucket) for bucket in state.wheel.parked]
                try:
                    return await self._threads.run(partial(soonest, sources, count, state.states.is_pending))
                except _Damaged as damage:
                    state.wheel.unpark(damage.bucket, await self._read_bucket(damage.bucket))


class _Damaged(Exception):
    def __init__(self, bucket: int) -> None:
        super().__init__()
        self.bucket = bucket


def _parked(index: IndexFile, bucket: int) -> Source:
    def read() -> Iterator[Due]:
        blocks = index.read_bucket(bucket)
        if blocks is None:
            raise _Damaged(bucket)
        return Part(FAR, bucket, blocks).pairs()

    return Source(Part(FAR, bucket, []).start_ms, read)
