"""The shards of groups that this node has, and how they are asked.

`__consumer_offsets` is made by the first call that may write; until then there are no groups. A node alone has all its
partitions; in a cluster they come and go with the leadership.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

from goqueue.core.catalog import Catalog
from goqueue.core.group.commands import Command, ForgetPartitions, ForgetTopic, Reply
from goqueue.core.group.config import GroupConfig
from goqueue.core.group.events import Event, GroupCodec
from goqueue.core.group.gates import GateNotes, ScalingOf
from goqueue.core.group.outcome import Ticket
from goqueue.core.group.shard import GroupShard
from goqueue.core.group.topics_view import Topics
from goqueue.model.errors import GoQueueError, InvariantViolation
from goqueue.node.clock import Clock
from goqueue.node.cluster.confirming import Confirm
from goqueue.node.commit import Spawn
from goqueue.node.groups.clock import WatchedClock
from goqueue.node.groups.metrics import GroupMetrics
from goqueue.node.groups.shard import Admit, OwnedGroups
from goqueue.node.internal_topics import (
    OFFSETS_TOPIC,
    PARTITION_COUNT,
    InternalTopics,
    coordinator_partition,
)
from goqueue.node.led_shards import LedShards
from goqueue.node.shard_timer import ShardTimer
from goqueue.node.topic_table import TopicTable

logger = logging.getLogger(__name__)
R = TypeVar("R")


class TopicsOfGroups:
    """Without partitions that the catalogue has let go: their files may take a while."""

    def __init__(self, table: Topics, scaling_of: ScalingOf) -> None:
        self._table = table
        self._scaling_of = scaling_of

    def partition_count(self, name: str) -> int | None:
        count, scaling = self._table.partition_count(name), self._scaling_of(name)
        return count if count is None or scaling is None else min(count, scaling.partition_count)

    def names(self) -> list[str]:
        return self._table.names()


class GroupShards:
    def __init__(
        self,
        config: GroupConfig,
        internal_topics: InternalTopics,
        table: TopicTable,
        catalog: Catalog,
        metrics: GroupMetrics,
        clock: Clock,
        spawn: Spawn,
        on_events: Callable[[Sequence[Event], bool], None],
        *,
        is_solo: bool,
    ) -> None:
        self._config = config
        self._internal_topics = internal_topics
        self._table = table
        self._catalog = catalog
        self._metrics = metrics
        self.clock = WatchedClock(clock, self._clock_was_set)
        self._spawn = spawn
        self.is_solo = is_solo
        self._on_events = on_events
        self.notes = GateNotes()
        self._shards = LedShards(OFFSETS_TOPIC, self._make, spawn, self._loaded, self._ended)
        self._when_loaded: list[Callable[[OwnedGroups], None]] = []
        self._when_ended: list[Callable[[int], None]] = []
        self.confirm: Confirm | None = None  # that this node still leads; alone it always does
        self._opening = asyncio.Lock()
        self._timer = ShardTimer(self._shards.all, OwnedGroups.tick, self.clock)

    async def start(self) -> None:
        if self.is_solo and self._internal_topics.exists(OFFSETS_TOPIC):
            await self._open()
            for shard in self.all():
                await self._forget_what_is_gone(shard)
        self._spawn(self._timer.run())

    def note_leadership(self, topic: str, index: int, is_leading: bool) -> None:
        self._shards.note(topic, index, is_leading)

    def when_loaded(self, callback: Callable[[OwnedGroups], None]) -> None:
        """It is called with every shard that this node has from then on; it may not wait."""
        self._when_loaded.append(callback)

    def when_ended(self, callback: Callable[[int], None]) -> None:
        """It is called with the partition of a shard that is another node's; it may not wait."""
        self._when_ended.append(callback)

    # ---------------------------------------------------------------- finding

    def all(self) -> list[OwnedGroups]:
        """Those that are read, by partition."""
        return self._shards.all()

    def led(self) -> list[int]:
        """The partitions whose shards are read."""
        return [index for index in range(PARTITION_COUNT) if self._shards.has_loaded(index)]

    def is_loading(self) -> bool:
        return self._shards.is_loading()

    def exists(self) -> bool:
        """Whether there are groups at all."""
        return self._shards.has(0) if self.is_solo else self._internal_topics.exists(OFFSETS_TOPIC)

    def coordinates(self, group_id: str) -> bool:
        """Whether this node is the one to ask about the group, be it now or in a moment."""
        return self.is_solo or self._shards.has(coordinator_partition(group_id, PARTITION_COUNT))

    def at(self, index: int) -> OwnedGroups:
        return self._shards.find(index)

    def of(self, group_id: str) -> OwnedGroups | None:
        """None: there are no groups at all yet. Raises where the group is another node's."""
        if self.is_solo and not self._shards.has(0):
            return None
        return self._shards.find(coordinator_partition(group_id, PARTITION_COUNT))

    def state(self, group_id: str) -> GroupShard:
        """As it is at this moment."""
        shard = self.of(group_id)
        return self.nothing() if shard is None else shard.current()

    def nothing(self) -> GroupShard:
        scaling_of = self._catalog.scaling
        topics = TopicsOfGroups(self._table, scaling_of)
        return GroupShard(self._config, topics, scaling_of, self.notes, self._id_of, self._open_id_of)

    def _id_of(self, topic: str) -> int:
        """By what is decided: this node may have the topic before open yet."""
        facts = self._catalog.find(topic)
        return 0 if facts is None else facts.id

    def _open_id_of(self, topic: str) -> int:
        found = self._table.any_topic(topic)
        return 0 if found is None else found.facts.id

    # ---------------------------------------------------------------- asking

    async def until_sure(self, group_id: str) -> None:
        """Until it is certain that no other node has coordinated the group by the time this was called; NotCoordinator where it is
        not. For what is told from memory: whatever is written is refused by the followers of another one."""
        if self.confirm is not None:
            await self.confirm(OFFSETS_TOPIC, coordinator_partition(group_id, PARTITION_COUNT))

    async def write(self, group_id: str, command: Command, kind: type[R], admit: Admit | None = None) -> R:
        """Of a call that may begin a group."""
        if not self.exists():
            self.nothing().handle(command, Ticket(0), 0)  # what would be refused makes no topic
            await self._open()
        return await self.ask(group_id, command, kind, admit)

    async def ask(self, group_id: str, command: Command, kind: type[R], admit: Admit | None = None) -> R:
        await self._shards.wait(coordinator_partition(group_id, PARTITION_COUNT))
        shard = self.of(group_id)
        if shard is None:
            return _expect(self._answer_without_groups(command), kind)
        try:
            return _expect(await shard.ask(command, admit), kind)
        finally:
            self._timer.watch(shard)

    def _answer_without_groups(self, command: Command) -> Reply:
        outcome = self.nothing().handle(command, Ticket(0), self.clock.now_ms())
        ((_, answer),) = outcome.replies
        if isinstance(answer, GoQueueError):
            raise answer
        return answer

    # ---------------------------------------------------------------- coming and going

    async def _open(self) -> None:
        """Once, of a node alone: later there are shards. In a cluster they come with the leadership."""
        async with self._opening:
            await self._internal_topics.ensure(OFFSETS_TOPIC)
            if not self.is_solo or self.all():
                return
            shards = [self._make(index) for index in range(self._internal_topics.count(OFFSETS_TOPIC))]
            for index, shard in enumerate(shards):
                try:
                    await shard.ready()
                except GoQueueError as error:  # its groups are not available; those of the others are
                    logger.error("groups cannot be read partition=%d error=%r", index, error.sentence)
            for index, shard in enumerate(shards):
                self._shards.put(index, shard)
            for shard in shards:
                self._tell_loaded(shard)
        self._timer.wake()

    def _make(self, index: int) -> OwnedGroups:
        return OwnedGroups(
            self._internal_topics.log(OFFSETS_TOPIC, index, GroupCodec()),
            self.nothing,
            self.clock,
            self._metrics,
            self._spawn,
            self._timer.watch,
            self._on_events,
        )

    def _loaded(self, index: int, shard: OwnedGroups) -> None:
        self._timer.wake()
        self._tell_loaded(shard)
        self._spawn(self._forget_what_is_gone(shard))

    def _tell_loaded(self, shard: OwnedGroups) -> None:
        for callback in self._when_loaded:
            callback(shard)

    def _ended(self, index: int, shard: OwnedGroups) -> None:
        for callback in self._when_ended:
            callback(index)

    async def forget_topic(self, topic: str) -> None:
        """In a cluster it is only begun here: to be done it takes other nodes, and whoever calls may be what they wait for."""
        self.notes.forget_topic(topic)
        await self._forget(self._end_of(topic))

    def _end_of(self, topic: str) -> ForgetTopic:
        """What does not say of which topic of the name it is goes with any of them."""
        return ForgetTopic(topic, range(self._catalog.gone_before(topic)))

    async def forget_partitions(self, topic: str, partition_count: int) -> None:
        """Likewise, of those that the topic does not have any more."""
        self.notes.forget_topic(topic)
        await self._forget(ForgetPartitions(topic, partition_count))

    async def _forget(self, command: ForgetTopic | ForgetPartitions) -> None:
        for shard in self.all():
            if not shard.state.offsets.has_topic(command.topic):
                continue
            if self.is_solo:
                await _forget_in(shard, command)
            else:
                self._spawn(_forget_in(shard, command))
                await asyncio.sleep(0)  # it is written before the next topic of that name is known

    async def _forget_what_is_gone(self, shard: OwnedGroups) -> None:
        """A crash may have come between the end of a topic or of a partition and that of its offsets, and another topic of the name
        before this node had them."""
        for topic in shard.state.offsets.made_again():
            await _forget_in(shard, ForgetTopic(topic, range(1, self._catalog.gone_before(topic))))
        for topic in shard.state.offsets.topics():
            scaling = self._catalog.scaling(topic)
            if self._table.partition_count(topic) is None and self._was_deleted(topic):
                await _forget_in(shard, self._end_of(topic))
            elif scaling is not None:  # it is never behind what was committed, as the table of topics may be
                await _forget_in(shard, ForgetPartitions(topic, scaling.begun_count))

    def _was_deleted(self, topic: str) -> bool:
        """Of one that is not open here; other nodes may know of one before this one does."""
        return self.is_solo or self._catalog.was_deleted(topic)

    def _clock_was_set(self, by_ms: int, now_ms: int) -> None:
        logger.warning("the clock was set by_ms=%d", by_ms)
        for shard in self.all():
            shard.state.clock_was_set(by_ms, now_ms)
        self._timer.wake()


async def _forget_in(shard: OwnedGroups, command: ForgetTopic | ForgetPartitions) -> None:
    try:
        await shard.ask(command)
    except GoQueueError as error:  # it is gone all the same; the next start tries again
        logger.warning("offsets of what is gone remain topic=%s error=%r", command.topic, error.sentence)


def _expect(reply: Reply, kind: type[R]) -> R:
    if not isinstance(reply, kind):
        raise InvariantViolation(f"{kind.__name__} was expected and {reply} came")
    return reply
