"""Makes what runs on this node follow the catalogue: partitions are opened, given their role, and closed as it says.

`follow` compares what is with what should be, so it may be called any number of times, for whatever reason, and after
anything was left half done. Changes of one topic take turns.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final
from weakref import WeakSet, WeakValueDictionary

from goqueue.core.catalog import Event, TopicCreated
from goqueue.core.cluster.events import (
    CompanionMade,
    PartitionsChanged,
    TopicAltered,
    TopicDeleted,
    TopicGrown,
    TopicShrunk,
)
from goqueue.core.cluster.partitions import NO_LEADER, PartitionState
from goqueue.core.cluster.scaling import Scaling
from goqueue.model.errors import GoQueueError
from goqueue.model.names import companions_of
from goqueue.model.settings import TopicSettings, resolve
from goqueue.node.companions import Companions
from goqueue.node.metadata import Metadata
from goqueue.node.metrics import Metrics
from goqueue.node.opening import PartitionOpener
from goqueue.node.partition import Partition
from goqueue.node.replication.replication import Replication
from goqueue.node.threads import Threads
from goqueue.node.topic_folders import TopicFolders, owner_of
from goqueue.node.topic_table import OpenTopic, TopicTable

logger = logging.getLogger(__name__)
_PAUSE_S: Final = 1.0  # before what could not be done is tried again
_AT_ONCE: Final = 16  # partitions that get their roles: whoever begins to lead waits for the disk

TellDeleted = Callable[[str], Awaitable[None]]
TellOpened = Callable[[OpenTopic], None]
ReportLost = Callable[[list[tuple[str, int]]], Awaitable[None]]


class LocalTopics:
    def __init__(
        self,
        defaults: TopicSettings,
        folders: TopicFolders,
        table: TopicTable,
        metadata: Metadata,
        metrics: Metrics,
        threads: Threads,
        opener: PartitionOpener,
        companions: Companions,
        replication: Replication | None,
    ) -> None:
        self._defaults = defaults
        self._folders = folders
        self._table = table
        self._metadata = metadata
        self._metrics = metrics
        self._threads = threads
        self._opener = opener
        opener.when_damaged = self.note_damage
        self._companions = companions
        self._replication = replication
        self._tell_deleted: tuple[TellDeleted, ...] = ()
        self._tell_opened: tuple[TellOpened, ...] = ()
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self.report_lost: ReportLost | None = None  # back when nobody counts on this node for these any more
        self._judged: WeakSet[Partition] = WeakSet()  # in how they were when they were opened
        self._stale: dict[str, None] = {}  # topics to look at
        self._woken = asyncio.Event()
        self._swept = (
            asyncio.Event()
        )  # nothing is opened before that: the folders of what is new would be swept away, too
        metadata.when_applied(self._note)
        metadata.when_restored(self._note_all)

    def when_deleted(self, tell: TellDeleted) -> None:
        """Whoever keeps something about a topic hears when it is gone."""
        self._tell_deleted += (tell,)

    def when_opened(self, tell: TellOpened) -> None:
        """It is called with a topic whose partitions are open, before anybody finds those that are new."""
        self._tell_opened += (tell,)

    async def start(self) -> None:
        """Open every topic of the catalogue, and clear away what an interrupted change left."""
        self._stale.clear()  # what happens from here on is followed afterwards
        catalog = self._metadata.catalog
        names = [topic.name for topic in catalog.topics()]
        deleted = [one for one in await self._folder_owners() if catalog.was_deleted(one)]
        await self._threads.run(lambda: self._folders.sweep(names, deleted))
        self._swept.set()
        for name in names:
            await self.follow(name)
        self.count()

    async def _folder_owners(self) -> list[str]:
        return [owner_of(folder) for folder in await self._threads.run(self._folders.folders)]

    async def missing(self, number: int) -> list[tuple[str, int]]:
        """Partitions that others count on this node for, and of which it has no folder. One that lacks only a companion's may be from
        before that was made: it has all that was committed, and learns the rest."""
        catalog, absent = self._metadata.catalog, self._folders.absent
        counted = {
            topic.name: [
                index
                for index, state in enumerate(catalog.partitions_of(topic.name))
                if number in (*state.in_sync, *state.eligible)
            ]
            for topic in catalog.topics()
        }
        return await self._threads.run(
            lambda: [(name, index) for name, indexes in counted.items() for index in absent(name, indexes)]
        )

    # ---------------------------------------------------------------- following

    def _note(self, events: Sequence[Event]) -> None:
        for event in events:
            match event:
                case TopicCreated(name=name) | TopicAltered(name=name) | TopicGrown(name=name):
                    self._stale[name] = None
                case TopicDeleted(name=name) | CompanionMade(topic=name) | TopicShrunk(name=name):
                    self._stale[name] = None
                case PartitionsChanged(changes=changes):
                    names = dict.fromkeys(change.topic for change in changes)
                    for name in names:
                        self._table.note_states(name, self._metadata.catalog.partitions_of(name))
                    self._stale |= names
                case _:
                    continue
        if self._stale:
            self._woken.set()

    def note_damage(self, partition: Partition) -> None:
        """Found while it follows: others are not to count on it."""
        name = owner_of(partition.topic)
        topic = self._table.any_topic(name)
        if topic is not None:
            topic.assigned.pop(partition.index, None)
            self._stale[name] = None
            self._woken.set()

    def _note_all(self) -> None:
        names = [topic.name for topic in self._metadata.catalog.topics()]
        for name in [*names, *self._table.all_names()]:
            self._stale[name] = None
        self._woken.set()

    async def run(self) -> None:
        """Follow whatever the quorum decides."""
        while True:
            await self._woken.wait()
            self._woken.clear()
            stale, self._stale = self._stale, {}
            await self._follow_all(list(stale))

    async def _follow_all(self, names: Iterable[str]) -> None:
        failed: list[str] = []
        for name in names:
            try:
                await self.follow(name)
            except (GoQueueError, OSError) as error:
                logger.error("a topic is not as it should be topic=%s error=%r", name, str(error))
                failed.append(name)
        if failed:
            await asyncio.sleep(_PAUSE_S)
            self._stale |= dict.fromkeys(failed)
            self._woken.set()

    async def follow_at_last(self, name: str) -> None:
        """As `follow`, until it is so: where nobody waits for it."""
        while True:
            try:
                return await self.follow(name)
            except (GoQueueError, OSError) as error:
                logger.error("a topic is not as it should be topic=%s error=%r", name, str(error))
            await asyncio.sleep(_PAUSE_S)

    async def follow(self, name: str) -> None:
        """Raises OSError or GoQueueError where the disk does not allow it; then it may be tried again. While this node starts, it waits."""
        await self._swept.wait()
        turn = self._turns.setdefault(name, asyncio.Lock())
        async with turn:
            facts = self._metadata.catalog.find(name)
            topic = self._table.any_topic(name)
            if topic is not None and (facts is None or topic.facts.id != facts.id):
                await self._close(topic)
                topic = None
            elif facts is None and self._metadata.catalog.was_deleted(name):
                # While this node started: after it was swept, and before it was opened.
                await self._threads.run(lambda: self._folders.throw_away_all(name))
            if facts is None:
                return
            if topic is None:
                topic = OpenTopic(facts, resolve(facts.overrides, self._defaults), 0, {}, ())
            await self._update(topic, facts)

    async def _update(self, topic: OpenTopic, facts: TopicCreated) -> None:
        states = self._metadata.catalog.partitions_of(facts.name)
        scaling = self._metadata.catalog.scaling(facts.name)
        topic.settings = resolve(facts.overrides, self._defaults)
        for partition in topic.partitions:
            partition.log.settings = topic.settings
        await self._let_go(topic, states, scaling)
        await self._open(topic, facts, states)
        if await self._let_go(topic, states, scaling):
            await self._open(topic, facts, states)
        for tell in self._tell_opened:
            tell(topic)
        # Everything is open: now it may be found.
        topic.facts, topic.states, topic.partition_count = facts, states, facts.partition_count
        topic.local = dict(sorted(topic.local.items()))
        self._table.put(topic)
        await self._assign(topic)
        self.count()

    async def _open(self, topic: OpenTopic, facts: TopicCreated, states: Sequence[PartitionState]) -> None:
        wanted = [index for index in self._held(states) if index not in topic.local]
        if not wanted:
            return
        if self._replication is not None:
            await self._threads.run(lambda: self._folders.prepare(facts.name, facts.id, wanted))
        opened = await self._opener.open(facts.name, wanted, topic.settings)
        topic.local |= {partition.index: partition for partition in opened}

    def _held(self, states: Sequence[PartitionState]) -> list[int]:
        if self._replication is None:
            return list(range(len(states)))
        number = self._replication.number
        return [index for index, state in enumerate(states) if number in state.replicas]

    async def _assign(self, topic: OpenTopic) -> None:
        replication = self._replication
        if replication is None:
            return
        name = topic.facts.name
        kinds = self._metadata.catalog.companions(name)
        least = topic.settings.min_insync_replicas
        # A topic may have thousands of partitions, of which one has changed.
        changed = [
            index for index in topic.local if topic.assigned.get(index) != (topic.states[index], kinds, least)
        ]
        companions = await self._companions.follow(name, changed, kinds)
        held = {index: [topic.local[index], *companions[index]] for index in changed}
        await self._report_damage(replication, topic, held)
        for at in range(0, len(changed), _AT_ONCE):
            roles = [
                self._assign_one(replication, topic, held[index], kinds, least)
                for index in changed[at : at + _AT_ONCE]
            ]
            failures = [
                one for one in await asyncio.gather(*roles, return_exceptions=True) if one is not None
            ]
            if failures:
                raise failures[0]

    async def _report_damage(
        self, replication: Replication, topic: OpenTopic, held: Mapping[int, Sequence[Partition]]
    ) -> None:
        """Of partitions, with their companions, that another node has, too. Before they get their roles: a follower gives up what is
        damaged, and after that no start can tell that something is not here which others count on."""
        if self.report_lost is None:
            return
        lost = [
            (topic.facts.name, index)
            for index, partitions in held.items()
            if len((state := topic.states[index]).replicas) > 1
            and any(self._is_to_report(one, state, replication.number) for one in partitions)
        ]
        if lost:
            await self.report_lost(lost)
        self._judged.update(one for partitions in held.values() for one in partitions)

    def _is_to_report(self, partition: Partition, state: PartitionState, number: int) -> bool:
        """What was found when it was opened; what was found since, where another leads now and did not learn it from the one before."""
        if partition not in self._judged:
            return partition.damaged_from is not None or partition.is_short
        follows = state.leader not in (number, NO_LEADER)
        return partition.damaged_from is not None and follows and number in (*state.in_sync, *state.eligible)

    async def _assign_one(
        self,
        replication: Replication,
        topic: OpenTopic,
        partitions: Sequence[Partition],
        kinds: frozenset[str],
        least: int,
    ) -> None:
        """A partition of the topic, which comes first, and its companions."""
        index = partitions[0].index
        state = topic.states[index]
        topic.assigned.pop(index, None)
        await replication.assign((topic.facts.name, index), partitions, state, min_in_sync=least)
        topic.assigned[index] = state, kinds, least

    # ---------------------------------------------------------------- letting go

    async def _let_go(
        self, topic: OpenTopic, states: Sequence[PartitionState], scaling: Scaling | None
    ) -> bool:
        """Of partitions that other nodes have now, or that are no more; also of what became so while this one was down. Whether
        any of them was open."""
        name, held = topic.facts.name, set(self._held(states))
        gone = [
            index
            for index, partition in topic.local.items()
            if index not in held or _is_of_the_past(partition, scaling)
        ]
        for index in gone:
            topic.may_have_strays = True
            partition = topic.local.pop(index)
            topic.assigned.pop(index, None)
            await self._retire((name, index), [partition, *self._table.remove_companions_of(name, index)])
            await self._threads.run(partial(self._folders.throw_away_partition, name, index))
        if topic.may_have_strays and self._may_throw_away(scaling):
            await self._threads.run(lambda: self._folders.throw_away_others(name, held))
            topic.may_have_strays = False
        return bool(gone)

    def _may_throw_away(self, scaling: Scaling | None) -> bool:
        """Alone, only partitions of keyed topics ever go."""
        if self._replication is None:
            return scaling is not None
        return self._replication.has_joined

    async def _close(self, topic: OpenTopic) -> None:
        """It is deleted."""
        name = topic.facts.name
        self._table.remove(name)
        for tell in self._tell_deleted:
            await tell(name)
        companions = self._table.remove_companions(companions_of(name))
        for partition in [*topic.partitions, *companions]:
            partition.retire()
        self.count()
        for index, partition in topic.local.items():
            own = [one for one in companions if one.index == index]
            await self._retire((name, index), [partition, *own])
        try:
            await self._threads.run(lambda: self._folders.throw_away_all(name))
        except OSError as error:  # the topic is gone all the same; the next start sweeps
            logger.warning("files of a deleted topic remain topic=%s error=%r", name, str(error))

    async def _retire(self, place: tuple[str, int], partitions: Sequence[Partition]) -> None:
        if self._replication is not None:
            await self._replication.drop(place, partitions)
        for partition in partitions:
            partition.retire()
            await partition.close()

    def count(self) -> None:
        topics, partitions = self._table.counts()
        self._metrics.topics.set(topics)
        self._metrics.partitions.set(partitions)


def _is_of_the_past(partition: Partition, scaling: Scaling | None) -> bool:
    """It went when its topic shrank, and there is another one of its number now, of which nothing is in this log: the node did not
    come to close it in between, or was not there."""
    if scaling is None or partition.is_solo:
        return False
    return partition.log.end > 0 and partition.log.epochs.latest < scaling.first_epoch(partition.index)
