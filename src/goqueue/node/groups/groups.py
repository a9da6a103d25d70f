"""Groups: the use cases of the coordinator, for every protocol.

Everything of one group is in one partition of `__consumer_offsets`, found by the hash of its name. The topic is made by
the first call that may write; until then there are no groups. In a cluster this node knows the groups of the partitions
that it leads, and sends away who asks for others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import assert_never

from msgspec import structs

from goqueue.core.catalog import Catalog
from goqueue.core.group.commands import (
    ClassicGroupFacts,
    CommitInTransaction,
    CommitOffsets,
    CompleteTransaction,
    ConfigureGroup,
    DeleteGroup,
    DeleteOffsets,
    Done,
    FetchedOffset,
    FetchedOffsets,
    FetchOffsets,
    GroupFacts,
    GroupSummary,
    GroupType,
    Heartbeat,
    Joined,
    JoinGroup,
    LeaveGroup,
    Left,
    PartitionResults,
    Synced,
    SyncGroup,
)
from goqueue.core.group.config import GroupConfig
from goqueue.core.group.consumer_events import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    ConsumerGroupFacts,
    ConsumerHeartbeat,
    ConsumerHeartbeatReply,
    ConsumerMemberFacts,
)
from goqueue.core.group.events import Event
from goqueue.core.group.facts import describe, summaries
from goqueue.core.group.outcome import Ticket
from goqueue.core.group.share_events import (
    ShareGroupFacts,
    ShareHeartbeat,
    ShareHeartbeatReply,
    ShareMemberSaved,
)
from goqueue.model.cluster_errors import CoordinatorLoading
from goqueue.model.errors import GroupNotFound
from goqueue.model.group_settings import lease_settings
from goqueue.node.clock import Clock
from goqueue.node.commit import Spawn
from goqueue.node.groups.farewells import Farewells
from goqueue.node.groups.metrics import GroupMetrics
from goqueue.node.groups.shard import Admit
from goqueue.node.groups.shards import GroupShards
from goqueue.node.guard import Guard
from goqueue.node.ids import Ids
from goqueue.node.internal_topics import InternalTopics
from goqueue.node.metrics import Metrics
from goqueue.node.topic_table import TopicTable

BeginningOf = Callable[[str, int], Awaitable[int]]
GroupWatcher = Callable[[Sequence[Event], bool], None]  # what happened, and whether time brought it


class Groups:
    def __init__(
        self,
        config: GroupConfig,
        internal_topics: InternalTopics,
        table: TopicTable,
        catalog: Catalog,
        guard: Guard,
        metrics: Metrics,
        clock: Clock,
        ids: Ids,
        spawn: Spawn,
        *,
        is_solo: bool,
    ) -> None:
        self._guard = guard
        self._ids = ids
        self.shards = GroupShards(
            config,
            internal_topics,
            table,
            catalog,
            GroupMetrics(metrics.registry),
            clock,
            spawn,
            self._tell_watchers,
            is_solo=is_solo,
        )
        self._farewells = Farewells(spawn)
        self._watchers: list[GroupWatcher] = [self._farewells.note]
        self._when_deleted: list[Callable[[str], Awaitable[None]]] = []
        self._when_gone: list[Callable[[str], Awaitable[None]]] = []
        self._forgetting = asyncio.Lock()
        self._beginning_of: BeginningOf | None = None

    async def start(self) -> None:
        """Go on where the log ends. Call it when the topics are open."""
        await self.shards.start()

    def when_changed(self, watcher: GroupWatcher) -> None:
        """It is called with everything that happens to groups from now on; it may not wait."""
        self._watchers.append(watcher)

    def note_leadership(self, topic: str, index: int, is_leading: bool) -> None:
        """Of any partition that this node begins or ceases to lead."""
        self.shards.note_leadership(topic, index, is_leading)

    def when_ended(self, callback: Callable[[int], None]) -> None:
        """It is called with a partition of the internal topic when its groups are another node's; it may not wait."""
        self.shards.when_ended(callback)

    def coordinates(self, group_id: str) -> bool:
        """Whether this node is the one to ask about the group, be it now or in a moment."""
        return self.shards.coordinates(group_id)

    def _tell_watchers(self, events: Sequence[Event], is_due: bool) -> None:
        for watcher in self._watchers:
            watcher(events, is_due)

    def release(self) -> None:
        """Send members away whose calls wait: the node stops."""
        for shard in self.shards.all():
            shard.release()

    # ---------------------------------------------------------------- members

    async def join(self, command: JoinGroup) -> Joined:
        """Back when the rebalance has gathered its members. `fresh_id` is made here."""
        self._guard.admit_change()
        command = structs.replace(command, fresh_id=self._ids.fresh())
        return await self.shards.write(command.group_id, command, Joined)

    async def sync(self, command: SyncGroup) -> Synced:
        self._guard.admit_change()
        return await self.shards.ask(command.group_id, command, Synced)

    async def heartbeat(self, command: Heartbeat) -> None:
        """Also on a full disk: members must be able to stay."""
        self._guard.admit_read()
        await self.shards.ask(command.group_id, command, Done)

    async def leave(self, command: LeaveGroup) -> Left:
        self._guard.admit_read()
        return await self.shards.ask(command.group_id, command, Left)

    async def consumer_heartbeat(self, command: ConsumerHeartbeat) -> ConsumerHeartbeatReply:
        """`fresh_id` is made here."""
        command = structs.replace(command, fresh_id=self._ids.fresh())
        if command.member_epoch == JOIN_EPOCH:
            self._guard.admit_change()
            return await self.shards.write(command.group_id, command, ConsumerHeartbeatReply)
        self._guard.admit_read()
        return await self.shards.ask(command.group_id, command, ConsumerHeartbeatReply)

    def consumer_member(self, group_id: str, member_id: str) -> ConsumerMemberFacts | None:
        """As it is at this moment, which may not be durable yet."""
        group = self.shards.state(group_id).consumers.get(group_id)
        return None if group is None else group.member_now(member_id)

    def consumer_group(self, group_id: str) -> ConsumerGroupFacts | None:
        """As it is at this moment, which may not be durable yet."""
        group = self.shards.state(group_id).consumers.get(group_id)
        return None if group is None else group.describe_now()

    # ---------------------------------------------------------------- members of share groups

    async def share_heartbeat(self, command: ShareHeartbeat) -> ShareHeartbeatReply:
        """`fresh_id` is made here. Who has left holds nothing any more."""
        command = structs.replace(command, fresh_id=self._ids.fresh())
        if command.member_epoch == JOIN_EPOCH:
            self._guard.admit_change()
            return await self._join_share(command)
        self._guard.admit_read()
        reply = await self.shards.ask(command.group_id, command, ShareHeartbeatReply)
        if command.member_epoch == LEAVE_EPOCH:
            await self._farewells.until_said(command.group_id, command.member_id)
        return reply

    async def _join_share(self, command: ShareHeartbeat) -> ShareHeartbeatReply:
        """Whoever was called so before must have nothing to do with it, or it would lose what it gets: a member that has
        just left, a group that is being deleted. Either may come to its end while this is written."""
        group_id, member_id = command.group_id, command.member_id
        await self._farewells.until_said(group_id, member_id)
        await self._forget_positions(group_id)
        reply = await self.shards.write(group_id, command, ShareHeartbeatReply)
        await self._farewells.until_said(group_id, member_id)
        await self._forget_positions(group_id)
        return reply

    def share_member(self, group_id: str, member_id: str, epoch: int | None) -> tuple[str, ...]:
        """The topics that a member subscribes to; an epoch of None is not checked. Raises UnknownMember or
        FencedMemberEpoch."""
        return self.share_member_now(group_id, member_id, epoch).topics

    def share_member_now(self, group_id: str, member_id: str, epoch: int | None) -> ShareMemberSaved:
        """All of it."""
        return self.shards.state(group_id).shares.member(group_id, member_id, epoch)

    def when_member_left(self, callback: Callable[[str, str], Awaitable[None]]) -> None:
        """Called with group and member, whether it said so or was not heard of any more."""
        self._farewells.add(callback)

    def when_group_deleted(self, callback: Callable[[str], Awaitable[None]]) -> None:
        """Called with a share group that is about to be deleted; if it fails, the group stays."""
        self._when_deleted.append(callback)

    def when_group_gone(self, callback: Callable[[str], Awaitable[None]]) -> None:
        """Called with a share group that is deleted; until it succeeds, no other of that name begins."""
        self._when_gone.append(callback)

    # ---------------------------------------------------------------- settings of groups

    async def configure(
        self, group_id: str, changes: Mapping[str, str | None], *, is_whole: bool = False
    ) -> None:
        """By the names of `model.group_settings`. None takes a setting back; if these are the whole, so does leaving it
        out. The group need not exist yet."""
        self._guard.admit_change()
        await self.shards.write(group_id, ConfigureGroup(group_id, dict(changes), is_whole), Done)

    def check_configuration(
        self, group_id: str, changes: Mapping[str, str | None], *, is_whole: bool = False
    ) -> None:
        """Raises what `configure` would."""
        state = self.shards.state(group_id)
        state.handle(ConfigureGroup(group_id, dict(changes), is_whole), Ticket(0), self.shards.clock.now_ms())

    def settings_of(self, group_id: str) -> dict[str, str]:
        """What the group has of its own, by our names only."""
        return dict(self.shards.state(group_id).overrides.get(group_id))

    def lease_settings_of(self, group_id: str) -> dict[str, str]:
        """Those that cover the settings of the topics it reads; none, where another node knows the group."""
        return lease_settings(self.settings_of(group_id)) if self.coordinates(group_id) else {}

    # ---------------------------------------------------------------- offsets

    async def commit(self, command: CommitOffsets) -> PartitionResults:
        self._guard.admit_change()
        return await self.shards.write(command.group_id, command, PartitionResults)

    async def commit_in_transaction(
        self, command: CommitInTransaction, verify: Admit | None = None
    ) -> PartitionResults:
        """Pending until `complete_transaction`. `verify` asks the transaction coordinator whether the group belongs to the
        producer's transaction: at the last moment, for the transaction may end while the group is read from its log, and what
        became pending after that would be so for ever."""
        self._guard.admit_change()
        return await self.shards.write(command.group_id, command, PartitionResults, verify)

    async def complete_transaction(
        self, group_id: str, producer_id: int, epoch: int, *, is_commit: bool
    ) -> None:
        """What the producer has pending counts from now on, or never will. May be repeated."""
        await self.shards.ask(group_id, CompleteTransaction(producer_id, epoch, is_commit), Done)

    async def complete_in(self, index: int, completed: CompleteTransaction) -> None:
        """As `complete_transaction`, of all groups of one partition of the internal topic."""
        await self.shards.at(index).ask(completed)

    def coordinator_epoch(self, index: int, producer_id: int) -> int:
        """Of the coordinator that completed the producer's newest transaction in a partition of the internal topic that this node
        leads; below all others where none is known."""
        return self.shards.at(index).state.offsets.coordinator_epoch(producer_id)

    async def fetch(self, command: FetchOffsets) -> FetchedOffsets:
        """As it was when this was called, or later; NotCoordinator where that is not certain."""
        self._guard.admit_read()
        await self.shards.until_sure(command.group_id)
        fetched = await self.shards.ask(command.group_id, command, FetchedOffsets)
        if self._beginning_of is None or not any(one.is_beginning for one in fetched.offsets):
            return fetched
        return FetchedOffsets(tuple([await self._begun(one, self._beginning_of) for one in fetched.offsets]))

    async def _begun(self, one: FetchedOffset, beginning_of: BeginningOf) -> FetchedOffset:
        if not one.is_beginning:
            return one
        return structs.replace(one, offset=await beginning_of(one.topic, one.partition))

    def when_beginning(self, beginning_of: BeginningOf) -> None:
        """Whom to ask for the first offset of a partition, where a group is to begin there; it never fails."""
        self._beginning_of = beginning_of

    async def delete_offsets(self, command: DeleteOffsets) -> PartitionResults:
        self._guard.admit_relief()
        return await self.shards.ask(command.group_id, command, PartitionResults)

    async def topic_deleted(self, topic: str) -> None:
        """What groups have committed for it goes."""
        await self.shards.forget_topic(topic)

    async def topic_shrunk(self, topic: str, partition_count: int) -> None:
        """What groups have committed for partitions that are no more goes: it would be wrong if they came back."""
        await self.shards.forget_partitions(topic, partition_count)

    # ---------------------------------------------------------------- groups

    async def describe(self, group_id: str) -> ClassicGroupFacts:
        facts = await self.describe_any(group_id)
        if not isinstance(facts, ClassicGroupFacts):
            raise _of_other_kind(facts, GroupType.CLASSIC)
        return facts

    async def describe_consumer(self, group_id: str) -> ConsumerGroupFacts:
        facts = await self.describe_any(group_id)
        if not isinstance(facts, ConsumerGroupFacts):
            raise _of_other_kind(facts, GroupType.CONSUMER)
        return facts

    async def describe_share(self, group_id: str) -> ShareGroupFacts:
        facts = await self.describe_any(group_id)
        if not isinstance(facts, ShareGroupFacts):
            raise _of_other_kind(facts, GroupType.SHARE)
        return facts

    async def delete(self, group_id: str) -> None:
        """A member may join until it is done: then the group is not empty, and has lost nothing."""
        self._guard.admit_relief()
        await self._forget_positions(group_id)  # of an attempt before this one
        state = self.shards.state(group_id)
        if group_id in state.shares and not state.has_members(group_id):
            for callback in self._when_deleted:
                await callback(group_id)
        await self.shards.ask(group_id, DeleteGroup(group_id), Done)
        await self._forget_positions(group_id)

    async def _forget_positions(self, group_id: str) -> None:
        """Of a share group that is deleted. The log says that it is: whatever ends in between, the next of that name is not
        mistaken for it."""
        shard = self.shards.of(group_id)
        if shard is None:
            return
        await shard.ready()
        if group_id not in shard.deleted:
            return
        async with self._forgetting:
            if group_id in shard.deleted:
                for callback in self._when_gone:
                    await callback(group_id)
                shard.deleted.discard(group_id)

    async def list(self, *, states: Collection[str] = (), types: Collection[str] = ()) -> list[GroupSummary]:
        """Those that this node coordinates, by name; only those in one of the states and of one of the types, if any are
        given."""
        self._guard.admit_read()
        found: list[GroupSummary] = []
        if self.shards.is_loading():
            raise CoordinatorLoading("groups are being read from their log; try again")
        for shard in self.shards.all():
            await shard.ready()
            await shard.settled()
            found += summaries(shard.state, states, types)
        return sorted(found, key=lambda group: group.group_id)

    async def describe_any(self, group_id: str) -> GroupFacts:
        """Of whatever kind it is."""
        self._guard.admit_read()
        shard = self.shards.of(group_id)
        if shard is None:
            return describe(self.shards.nothing(), group_id)
        await shard.ready()
        await shard.settled()
        return describe(shard.state, group_id)


def _of_other_kind(facts: GroupFacts, wanted: GroupType) -> GroupNotFound:
    match facts:
        case ClassicGroupFacts():
            kind = GroupType.CLASSIC
        case ConsumerGroupFacts():
            kind = GroupType.CONSUMER
        case ShareGroupFacts():
            kind = GroupType.SHARE
        case _:
            assert_never(facts)
    return GroupNotFound(f"{facts.group_id!r} is a {kind} group, not a {wanted} group", group=facts.group_id)
