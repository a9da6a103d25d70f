"""Delayed messages: they wait in the schedule of their partition and are put into their topic when they are due.

The wall clock is the truth. It may jump: what a jump forward makes due is fired within half a second, and after a jump back
nothing is early or comes twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from heapq import merge
from itertools import islice
from typing import Final
from weakref import WeakValueDictionary

from goqueue.core.schedule.events import Message
from goqueue.core.schedule.states import WAITING, State
from goqueue.log.disk import Disk
from goqueue.model.cluster_errors import HomeUndecided
from goqueue.model.errors import GoQueueError, InvalidRequest, ScheduleNotFound
from goqueue.node.clock import Clock
from goqueue.node.commit import Spawn
from goqueue.node.companions import Companion, Companions
from goqueue.node.guard import Guard
from goqueue.node.metrics import Metrics
from goqueue.node.partition import Partition
from goqueue.node.producers import Producers
from goqueue.node.schedule.firing import Firer, Onward
from goqueue.node.schedule.index import IndexFile
from goqueue.node.schedule.metrics import ScheduleMetrics
from goqueue.node.schedule.nearby import Room
from goqueue.node.schedule.requests import Delayed, DelayedPage, DelayStats
from goqueue.node.schedule.shard import OwnedSchedule
from goqueue.node.schedule.succession import Succession
from goqueue.node.threads import Threads
from goqueue.node.topic_folders import owner_of
from goqueue.node.topic_table import TopicTable

logger = logging.getLogger(__name__)
LIST_COUNT_MAX: Final = 1_000
SKIP_COUNT_MAX: Final = 100_000
_LOOK_MS: Final = 500  # at the clock, while anything waits: it may have jumped
_PAUSE_S: Final = 1.0  # after a failure
_KEEP_INTERVAL_S: Final = 5.0

Place = tuple[str, int]


class Scheduler:
    def __init__(
        self,
        companions: Companions,
        table: TopicTable,
        producers: Producers,
        guard: Guard,
        disk: Disk,
        threads: Threads,
        metrics: Metrics,
        clock: Clock,
        spawn: Spawn,
    ) -> None:
        self._companions = companions
        self._table = table
        self._guard = guard
        self._disk = disk
        self._threads = threads
        self._clock = clock
        self._spawn = spawn
        self._schedules: dict[Place, OwnedSchedule] = {}
        self._unread: set[Place] = set()  # which could not be read when the node started
        self._room = Room()
        self._opening: WeakValueDictionary[Place, asyncio.Lock] = WeakValueDictionary()
        self._saving: WeakValueDictionary[Place, asyncio.Lock] = WeakValueDictionary()
        self._woken = asyncio.Event()
        self._looks_ms: int | None = None  # when the timer wakes next
        self._metrics = ScheduleMetrics(metrics.registry, self._pending_count)
        self._succession = Succession(threads)
        self._firer = Firer(table, producers, self._succession, self._metrics, clock)

    @property
    def onward(self) -> Onward | None:
        """Who sends on what is due in a partition that goes away."""
        return self._firer.onward

    @onward.setter
    def onward(self, onward: Onward) -> None:
        self._firer.onward = onward

    def home_of(self, topic: str, index: int) -> int:
        """The partition where a schedule belongs that was meant for one."""
        return index if self.onward is None else self.onward.home_of(topic, index)

    def check_takes(self, partition: Partition) -> None:
        """At the last moment before something is to wait in a partition: one that goes away takes nothing that would go with it."""
        if self.onward is not None and self.onward.sends_all_on(partition):
            raise HomeUndecided(partition.topic, partition.index, "it goes away, and nothing may wait there")

    async def start(self) -> None:
        """Read what waits, where this node is alone; else that is done as it begins to lead. Then `run` and `keep` have to be
        started."""
        if self._companions.are_replicated:
            return
        for topic, index in self._companions.existing(Companion.SCHEDULE):
            try:
                await self.open(topic, index)
            except GoQueueError as error:  # its messages wait; those of the others do not
                self._unread.add((topic, index))
                logger.error(
                    "a schedule cannot be read topic=%s partition=%d error=%r", topic, index, error.sentence
                )

    async def stop(self) -> None:
        """So that the next start is quick."""
        for schedule in self._all():
            await schedule.save()

    async def topic_deleted(self, topic: str) -> None:
        for place in [place for place in self._schedules if place[0] == topic]:
            self.drop(*place)
        self._unread = {place for place in self._unread if place[0] != topic}

    def drop(self, topic: str, index: int) -> None:
        """Another node leads the partition now, or nobody will."""
        schedule = self._schedules.pop((topic, index), None)
        if schedule is not None:
            schedule.nearby.close()

    async def open(self, topic: str, index: int) -> OwnedSchedule:
        """Made if need be. NotLeader where another node has to be asked."""
        place = topic, index
        schedule = self._known(topic, index)
        if schedule is not None:
            return schedule
        turn = self._opening.setdefault(place, asyncio.Lock())
        async with turn:
            schedule = self._known(topic, index)
            if schedule is None:
                home = await self._companions.open(Companion.SCHEDULE, topic, index)
                source = self._table.get(topic).partition(index)
                saving = self._saving.setdefault(place, asyncio.Lock())
                schedule = OwnedSchedule(
                    source, home, self._disk, self._threads, self._clock, self._room, saving
                )
                await schedule.open()
                self._schedules[place] = schedule
                self._unread.discard(place)
                self._watch(schedule)
        return schedule

    async def forgettable_end(self, log: Partition) -> int:
        """Before which offset a log may forget what is deleted. Of that of a schedule, where its index on disk ends. One that nobody here keeps
        up, for this node leads no longer, would count when it leads again: that goes first."""
        topic, index = owner_of(log.topic), log.index
        if log.topic != f"{Companion.SCHEDULE.value}{topic}":
            return log.log.end
        schedule = self._schedules.get((topic, index))
        if schedule is not None and schedule.log.partition is log and not schedule.is_gone:
            return schedule.forgettable_end
        turn = self._opening.setdefault((topic, index), asyncio.Lock())
        saving = self._saving.setdefault((topic, index), asyncio.Lock())
        if turn.locked() or saving.locked():  # it is being read, or written for the last time: not this time
            return 0
        async with turn, saving:
            await self._threads.run(IndexFile(self._disk, log.log.folder).remove)
            return log.log.end

    async def find(self, partition: Partition, *, makes: bool) -> OwnedSchedule | None:
        """That of a partition; None where it has none and none is to be made."""
        if makes:
            return await self.open(partition.topic, partition.index)
        return await self._found(partition.topic, partition.index)

    async def _found(self, topic: str, index: int) -> OwnedSchedule | None:
        """As `_known`; in a cluster it is opened if this node has not come to that yet."""
        schedule = self._known(topic, index)
        if schedule is not None or not self._companions.are_replicated:
            return schedule
        has_one = self._companions.has(Companion.SCHEDULE, topic, index)
        return await self.open(topic, index) if has_one else None

    async def of_topic(self, topic: str) -> list[OwnedSchedule]:
        """All that a topic has; raises where one cannot be read."""
        for place in sorted(self._unread):
            if place[0] == topic:
                await self.open(*place)
        return self._all(topic)

    async def loaded(self, topic: str) -> list[OwnedSchedule]:
        """Those of a topic that can be read; in a cluster all of the partitions that this node leads, also if it has just
        begun to."""
        if self._companions.are_replicated:
            for partition in self._table.get(topic).partitions:
                if partition.leadership is not None:
                    await self._found(topic, partition.index)
        return self._all(topic)

    def known_of(self, topic: str) -> list[OwnedSchedule]:
        """Those of a topic that can be read."""
        return self._all(topic)

    def _known(self, topic: str, index: int) -> OwnedSchedule | None:
        """Of a partition that exists and that this node leads, if it ever had a delayed message."""
        source = self._table.get(topic).partition(index)
        source.check_leads()
        schedule = self._schedules.get((topic, index))
        if schedule is None or schedule.source is not source or schedule.tenure.is_over:
            return None
        return schedule

    def _all(self, topic: str | None = None) -> list[OwnedSchedule]:
        return [
            schedule
            for place, schedule in sorted(self._schedules.items())
            if not schedule.is_gone and (topic is None or place[0] == topic)
        ]

    def _pending_count(self) -> int:
        return sum(schedule.state.waiting_count for schedule in self._all())

    # ---------------------------------------------------------------- use cases

    async def schedule(self, topic: str, index: int, messages: Sequence[Message]) -> list[int | GoQueueError]:
        """Keep messages until they are due: for each its id, or why it is not kept. What has an id is durable."""
        schedule = await self.open(topic, index)
        await schedule.log.lead()
        self.check_takes(schedule.source)
        ids, error = schedule.add(messages)
        if ids:
            self.note(schedule, len(ids))
            await schedule.log.settled()
        return [*ids, *([error] * (len(messages) - len(ids)) if error is not None else [])]

    def note(self, schedule: OwnedSchedule, count: int) -> None:
        """More messages wait there: look sooner, if one of them is due sooner."""
        self._metrics.scheduled.inc(count)
        self._watch(schedule)

    async def cancel(self, topic: str, index: int, id: int) -> None:
        """Once this returns the message is never delivered. Of a recurring schedule that is one firing."""
        self._guard.admit_relief()
        schedule = await self._found(topic, index)
        if schedule is None:
            raise ScheduleNotFound(
                f"there is no delayed message {id} in partition {index} of {topic!r}", offset=id
            )
        await schedule.log.lead()
        if schedule.state.recurring.of(id) is not None:
            await self._succession.skip(schedule, id)
            self.note(schedule, 1)
        else:
            schedule.carry_out([schedule.state.cancel(id)])
        await schedule.log.settled()
        schedule.cancelled_count += 1
        self._metrics.cancelled.inc()

    async def get(self, topic: str, index: int, id: int) -> Delayed:
        self._guard.admit_read()
        schedule = await self._found(topic, index)
        if schedule is not None and schedule.state.states.get(id) in WAITING:
            found = await schedule.read([id])
            state = schedule.state.states.get(id)  # by now
            if id in found and state in WAITING:
                return Delayed(topic, index, id, found[id].due_ms, state, found[id].lane)
        raise ScheduleNotFound(
            f"no message with offset {id} waits in partition {index} of {topic!r}", offset=id
        )

    async def list(self, topic: str, *, limit: int = 100, skip: int = 0) -> DelayedPage:
        """What waits, the soonest first."""
        self._guard.admit_read()
        self._table.get(topic)
        if not 1 <= limit <= LIST_COUNT_MAX or not 0 <= skip <= SKIP_COUNT_MAX:
            raise InvalidRequest(
                f"limit is {limit} and skip is {skip}; they may be 1 to {LIST_COUNT_MAX} and 0 to {SKIP_COUNT_MAX}",
                limit=limit,
                skip=skip,
            )
        found: list[list[Delayed]] = []
        schedules = await self.loaded(topic)
        for schedule in schedules:
            states, index = schedule.state.states, schedule.source.index
            found.append(
                [
                    Delayed(topic, index, one.id, one.due_ms, State.PENDING, states.lane(one.id))
                    for one in await schedule.soonest(skip + limit)
                ]
            )
        ordered = merge(*found, key=lambda one: (one.deliver_at_ms, one.partition, one.offset))
        pending_count = sum(one.state.states.pending_count for one in schedules)
        return DelayedPage([*islice(ordered, skip, skip + limit)], pending_count)

    def stats(self) -> Sequence[DelayStats]:
        return [
            DelayStats(
                one.source.topic,
                one.source.index,
                one.state.waiting_count,
                sum(one.state.wheel.parked.values()),
                one.fired_count,
                one.cancelled_count,
            )
            for one in self._all()
        ]

    # ---------------------------------------------------------------- time

    def _watch(self, schedule: OwnedSchedule) -> None:
        at_ms = schedule.next_ms()
        if at_ms is not None and (self._looks_ms is None or at_ms < self._looks_ms):
            self._woken.set()

    async def run(self) -> None:
        """Look after every schedule when its time has come."""
        while True:
            self._woken.clear()
            now_ms = self._clock.now_ms()
            self._looks_ms = self._begin_due(now_ms)
            wait_ms = None if self._looks_ms is None else min(self._looks_ms - now_ms, _LOOK_MS)
            try:
                async with asyncio.timeout(None if wait_ms is None else wait_ms / 1_000):
                    await self._woken.wait()
            except TimeoutError:
                pass

    def _begin_due(self, now_ms: int) -> int | None:
        """When the first of the others will be due."""
        next_ms: int | None = None
        for schedule in self._schedules.values():
            at_ms = schedule.next_ms()
            if at_ms is not None and at_ms <= now_ms:
                schedule.is_busy = True
                self._spawn(self._fire(schedule))
            elif at_ms is not None and (next_ms is None or at_ms < next_ms):
                next_ms = at_ms
        return next_ms

    async def _fire(self, schedule: OwnedSchedule) -> None:
        try:
            await self._firer.run(schedule)
            schedule.has_failed = False
        except GoQueueError as error:
            if not schedule.has_failed and not schedule.is_gone:
                schedule.has_failed = True  # said once, tried until it works
                logger.warning(
                    "delayed messages wait topic=%s partition=%d error=%r",
                    schedule.source.topic,
                    schedule.source.index,
                    error.sentence,
                )
            await asyncio.sleep(_PAUSE_S)
        schedule.is_busy = False  # after any other error it stays so: the node must stop
        self._woken.set()
        if schedule.has_moved and not schedule.is_reading_ahead and not schedule.is_gone:
            self._spawn(self._read_ahead(schedule))

    async def _read_ahead(self, schedule: OwnedSchedule) -> None:
        try:
            await schedule.read_ahead()
        except GoQueueError as error:  # whoever fires will see whether it is still so
            logger.info("delayed messages are not read ahead error=%r", error.sentence)

    async def keep(self) -> None:
        """Save the indexes from time to time."""
        while True:
            await asyncio.sleep(_KEEP_INTERVAL_S)
            for schedule in self._all():
                if schedule.is_save_due:
                    await schedule.save()
