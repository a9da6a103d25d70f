"""Groups: the use cases of the coordinator, for every protocol.

Everything of one group is in one partition of `__consumer_offsets`, found by the hash of its name. The topic is made by
the first call that may write; until then there are no groups.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from typing import TypeVar

from msgspec import structs

from goqueue.core.group.commands import (
    ClassicGroupFacts,
    Command,
    CommitInTransaction,
    CommitOffsets,
    CompleteTransaction,
    DeleteGroup,
    DeleteOffsets,
    Done,
    FetchedOffsets,
    FetchOffsets,
    ForgetTopic,
    GroupFacts,
    GroupSummary,
    Heartbeat,
    Joined,
    JoinGroup,
    LeaveGroup,
    Left,
    PartitionResults,
    Reply,
    Synced,
    SyncGroup,
)
from goqueue.core.group.config import GroupConfig
from goqueue.core.group.consumer_events import (
    JOIN_EPOCH,
    ConsumerGroupFacts,
    ConsumerHeartbeat,
    ConsumerHeartbeatReply,
)
from goqueue.core.group.events import GroupCodec
from goqueue.core.group.facts import describe, summaries
from goqueue.core.group.outcome import Ticket
from goqueue.core.group.shard import GroupShard
from goqueue.model.errors import GoQueueError, GroupNotFound, InvariantViolation
from goqueue.node.clock import Clock
from goqueue.node.commit import Spawn
from goqueue.node.group_clock import WatchedClock
from goqueue.node.group_metrics import GroupMetrics
from goqueue.node.group_shard import OwnedGroups
from goqueue.node.guard import Guard
from goqueue.node.ids import Ids
from goqueue.node.internal_topics import OFFSETS_TOPIC, InternalTopics, coordinator_partition
from goqueue.node.metrics import Metrics
from goqueue.node.shard_timer import ShardTimer
from goqueue.node.topic_table import TopicTable

logger = logging.getLogger(__name__)
R = TypeVar("R")


class Groups:
    def __init__(
        self,
        config: GroupConfig,
        internal_topics: InternalTopics,
        table: TopicTable,
        guard: Guard,
        metrics: Metrics,
        clock: Clock,
        ids: Ids,
        spawn: Spawn,
    ) -> None:
        self._config = config
        self._internal_topics = internal_topics
        self._table = table
        self._guard = guard
        self._metrics = GroupMetrics(metrics.registry)
        self._clock = WatchedClock(clock, self._clock_was_set)
        self._ids = ids
        self._spawn = spawn
        self._shards: list[OwnedGroups] = []  # none until the first group
        self._opening = asyncio.Lock()
        self._timer = ShardTimer(lambda: self._shards, OwnedGroups.tick, self._clock)

    async def start(self) -> None:
        """Go on where the log ends. Call it when the topics are open."""
        if self._internal_topics.exists(OFFSETS_TOPIC):
            await self._open()
            await self._forget_deleted_topics()
        self._spawn(self._timer.run())

    def release(self) -> None:
        """Send members away whose calls wait: the node stops."""
        for shard in self._shards:
            shard.release()

    # ---------------------------------------------------------------- members

    async def join(self, command: JoinGroup) -> Joined:
        """Back when the rebalance has gathered its members. `fresh_id` is made here."""
        self._guard.admit_change()
        command = structs.replace(command, fresh_id=self._ids.fresh())
        return await self._write(command.group_id, command, Joined)

    async def sync(self, command: SyncGroup) -> Synced:
        self._guard.admit_change()
        return await self._ask(command.group_id, command, Synced)

    async def heartbeat(self, command: Heartbeat) -> None:
        """Also on a full disk: members must be able to stay."""
        self._guard.admit_read()
        await self._ask(command.group_id, command, Done)

    async def leave(self, command: LeaveGroup) -> Left:
        self._guard.admit_read()
        return await self._ask(command.group_id, command, Left)

    async def consumer_heartbeat(self, command: ConsumerHeartbeat) -> ConsumerHeartbeatReply:
        """`fresh_id` is made here."""
        command = structs.replace(command, fresh_id=self._ids.fresh())
        if command.member_epoch == JOIN_EPOCH:
            self._guard.admit_change()
            return await self._write(command.group_id, command, ConsumerHeartbeatReply)
        self._guard.admit_read()
        return await self._ask(command.group_id, command, ConsumerHeartbeatReply)

    # ---------------------------------------------------------------- offsets

    async def commit(self, command: CommitOffsets) -> PartitionResults:
        self._guard.admit_change()
        return await self._write(command.group_id, command, PartitionResults)

    async def commit_in_transaction(self, command: CommitInTransaction) -> PartitionResults:
        """Pending until `complete_transaction`. Ask the transaction coordinator first whether the group belongs to the
        producer's transaction."""
        self._guard.admit_change()
        return await self._write(command.group_id, command, PartitionResults)

    async def complete_transaction(
        self, group_id: str, producer_id: int, epoch: int, *, is_commit: bool
    ) -> None:
        """What the producer has pending counts from now on, or never will. May be repeated."""
        await self._ask(group_id, CompleteTransaction(producer_id, epoch, is_commit), Done)

    async def fetch(self, command: FetchOffsets) -> FetchedOffsets:
        self._guard.admit_read()
        return await self._ask(command.group_id, command, FetchedOffsets)

    async def delete_offsets(self, command: DeleteOffsets) -> PartitionResults:
        self._guard.admit_relief()
        return await self._ask(command.group_id, command, PartitionResults)

    async def topic_deleted(self, topic: str) -> None:
        """What groups have committed for it goes."""
        for shard in self._shards:
            if shard.state.offsets.has_topic(topic):
                await self._forget_topic(shard, topic)

    # ---------------------------------------------------------------- groups

    async def describe(self, group_id: str) -> ClassicGroupFacts:
        facts = await self._facts(group_id)
        if not isinstance(facts, ClassicGroupFacts):
            raise GroupNotFound(f"{group_id!r} is a consumer group, not a classic one", group=group_id)
        return facts

    async def describe_consumer(self, group_id: str) -> ConsumerGroupFacts:
        facts = await self._facts(group_id)
        if not isinstance(facts, ConsumerGroupFacts):
            raise GroupNotFound(f"{group_id!r} is a classic group, not a consumer group", group=group_id)
        return facts

    async def delete(self, group_id: str) -> None:
        self._guard.admit_relief()
        await self._ask(group_id, DeleteGroup(group_id), Done)

    async def list(self, *, states: Collection[str] = (), types: Collection[str] = ()) -> list[GroupSummary]:
        """By name; only those in one of the states and of one of the types, if any are given."""
        self._guard.admit_read()
        found: list[GroupSummary] = []
        for shard in self._shards:
            await shard.ready()
            await shard.settled()
            found += summaries(shard.state, states, types)
        return sorted(found, key=lambda group: group.group_id)

    async def _facts(self, group_id: str) -> GroupFacts:
        self._guard.admit_read()
        if not self._shards:
            return describe(self._nothing(), group_id)
        shard = self._shard(group_id)
        await shard.ready()
        await shard.settled()
        return describe(shard.state, group_id)

    # ---------------------------------------------------------------- asking

    async def _open(self) -> None:
        """Once: later there are shards."""
        async with self._opening:
            if self._shards:
                return
            logs = await self._internal_topics.logs(OFFSETS_TOPIC, GroupCodec())
            shards = [
                OwnedGroups(log, self._nothing, self._clock, self._metrics, self._spawn, self._timer.watch)
                for log in logs
            ]
            for index, shard in enumerate(shards):
                try:
                    await shard.ready()
                except GoQueueError as error:  # its groups are not available; those of the others are
                    logger.error("groups cannot be read partition=%d error=%r", index, error.sentence)
            self._shards = shards
        self._timer.wake()

    def _nothing(self) -> GroupShard:
        return GroupShard(self._config, self._table)

    def _shard(self, group_id: str) -> OwnedGroups:
        return self._shards[coordinator_partition(group_id, len(self._shards))]

    async def _write(self, group_id: str, command: Command, kind: type[R]) -> R:
        """Of a call that may begin a group."""
        if not self._shards:
            self._nothing().handle(command, Ticket(0), 0)  # what would be refused makes no topic
            await self._open()
        return await self._ask(group_id, command, kind)

    async def _ask(self, group_id: str, command: Command, kind: type[R]) -> R:
        if not self._shards:
            return _expect(self._answer_without_groups(command), kind)
        shard = self._shard(group_id)
        try:
            return _expect(await shard.ask(command), kind)
        finally:
            self._timer.watch(shard)

    def _answer_without_groups(self, command: Command) -> Reply:
        outcome = self._nothing().handle(command, Ticket(0), self._clock.now_ms())
        ((_, answer),) = outcome.replies
        if isinstance(answer, GoQueueError):
            raise answer
        return answer

    async def _forget_deleted_topics(self) -> None:
        """A crash may have come between the end of a topic and that of its offsets."""
        for shard in self._shards:
            for topic in shard.state.offsets.topics():
                if self._table.partition_count(topic) is None:
                    await self._forget_topic(shard, topic)

    async def _forget_topic(self, shard: OwnedGroups, topic: str) -> None:
        try:
            await shard.ask(ForgetTopic(topic))
        except GoQueueError as error:  # the topic is gone all the same; the next start tries again
            logger.warning("offsets of a deleted topic remain topic=%s error=%r", topic, error.sentence)

    # ---------------------------------------------------------------- deadlines

    def _clock_was_set(self, by_ms: int, now_ms: int) -> None:
        logger.warning("the clock was set by_ms=%d", by_ms)
        for shard in self._shards:
            shard.state.clock_was_set(by_ms, now_ms)
        self._timer.wake()


def _expect(reply: Reply, kind: type[R]) -> R:
    if not isinstance(reply, kind):
        raise InvariantViolation(f"{kind.__name__} was expected and {reply} came")
    return reply
