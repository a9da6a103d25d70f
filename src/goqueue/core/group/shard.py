"""The groups and offsets of one partition of `__consumer_offsets`.

`handle` and `tick` decide; they change only what is volatile: sessions, calls that wait, rebalances that are not finished.
What they want to be durable they return as events, together with the answers that are true once these are written;
`apply` alone takes them over, now and after a restart.
"""

from __future__ import annotations

from functools import partial
from typing import Final, assert_never

from goqueue.core.group.classic import ClassicGroup, unknown_member
from goqueue.core.group.commands import (
    Command,
    CommitInTransaction,
    CommitOffsets,
    CompleteTransaction,
    ConfigureGroup,
    DeleteGroup,
    DeleteOffsets,
    Done,
    FetchOffsets,
    FollowGates,
    ForgetPartitions,
    ForgetTopic,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    Reply,
    SyncGroup,
)
from goqueue.core.group.commits import Commits
from goqueue.core.group.config import GroupConfig
from goqueue.core.group.consumer_events import ConsumerHeartbeat
from goqueue.core.group.consumers import Consumers
from goqueue.core.group.deadlines import GroupDeadlines, Key, Kind
from goqueue.core.group.events import (
    Event,
    GroupForgotten,
    GroupSaved,
    OffsetCommitted,
    OffsetForgotten,
    OffsetPended,
    PendedForgotten,
    TransactionCompleted,
    TransactionForgotten,
)
from goqueue.core.group.gates import GateNotes, Gates, ScalingOf, is_past, no_scaling
from goqueue.core.group.joining import Joining
from goqueue.core.group.known import Known, checked_id, not_empty, refuse_if_unknown, refuse_share_group
from goqueue.core.group.membership import Membership
from goqueue.core.group.offsets import PRODUCER_KEPT_MS, IdOf, Offsets, no_id
from goqueue.core.group.outcome import Outcome, Ticket
from goqueue.core.group.overrides import GroupConfigured, Overrides
from goqueue.core.group.rebalance import Rebalance, Turn
from goqueue.core.group.share import ShareGroups
from goqueue.core.group.share_events import (
    ShareGroupAdvanced,
    ShareGroupForgotten,
    ShareHeartbeat,
    ShareMemberRemoved,
    ShareMemberSaved,
)
from goqueue.core.group.topics_view import Topics
from goqueue.model.errors import GoQueueError, GroupNotFound, InconsistentGroupProtocol, LimitExceeded

EMPTY_GROUP_KEPT_MS = 10 * 60_000  # without members and offsets; Kafka's interval of looking
_DURATIONS: Final = (Kind.SESSION, Kind.JOIN, Kind.SYNC, Kind.SHARE)  # the others are moments of the calendar

PromptCommand = (  # those that are never parked
    CommitOffsets
    | CommitInTransaction
    | CompleteTransaction
    | FetchOffsets
    | DeleteOffsets
    | DeleteGroup
    | ForgetTopic
    | ForgetPartitions
    | ConfigureGroup
    | ConsumerHeartbeat
    | ShareHeartbeat
)


class GroupShard:
    def __init__(
        self,
        config: GroupConfig,
        topics: Topics,
        scaling_of: ScalingOf = no_scaling,
        notes: GateNotes | None = None,
        id_of: IdOf = no_id,
        open_id_of: IdOf = no_id,
    ) -> None:
        self._config = config
        self._topics = topics
        self.deadlines = GroupDeadlines()
        self.offsets = Offsets(config, topics, partial(is_past, scaling_of), id_of, open_id_of)
        self.gates = Gates(scaling_of, self.offsets.committed, notes or GateNotes())
        self._rebalance = Rebalance(config, self.deadlines)
        self._joining = Joining(config, self.deadlines, self._rebalance)
        self._membership = Membership(self.deadlines, self._rebalance, self.gates)
        self.classic: dict[str, ClassicGroup] = {}
        self.consumers = Consumers(config, topics, self.deadlines, self.gates.blocked)
        self.overrides = Overrides(config)
        self.shares = ShareGroups(config, topics, self.overrides, self.deadlines)
        self._commits = Commits(config, topics, self.offsets, self._known, self._membership, self.gates)
        self._now_ms = 0  # of the last turn
        self.resumed_ms = 0  # when it was read: sessions begin anew

    # What is asked.

    def handle(self, command: Command, ticket: Ticket, now_ms: int) -> Outcome:
        """Raises where the whole call is refused; then nothing has changed."""
        self._begin(now_ms)
        turn = Turn(now_ms)
        match command:
            case JoinGroup():
                self._join(command, ticket, turn)
            case SyncGroup():
                self._membership.sync(self._with_member(command), command, ticket, turn)
            case Heartbeat():
                self._membership.heartbeat(self._with_member(command), command, ticket, turn)
            case LeaveGroup():
                self._leave(command, ticket, turn)
            case FollowGates():
                self._follow_gates(command.group_id, turn)
                turn.outcome.replies.append((ticket, Done()))
            case _:
                turn.outcome.replies.append((ticket, self._reply(command, turn)))
        self._schedule(turn)
        return turn.outcome

    def tick(self, now_ms: int) -> Outcome:
        """Everything whose deadline has passed, but for what depends on events of this very turn: that is due at once."""
        self._begin(now_ms)
        turn = Turn(now_ms)
        decided: set[str] = set()  # only ever asked for membership
        while (key := self.deadlines.first_due(now_ms)) is not None and key.group_id not in decided:
            event_count = len(turn.outcome.events)
            self._pass(key, turn)
            if len(turn.outcome.events) > event_count:
                decided.add(key.group_id)
        self._schedule(turn)
        return turn.outcome

    def next_tick_ms(self) -> int | None:
        self._begin(self._now_ms)
        return self.deadlines.next_ms()

    def abandon(self, ticket: Ticket) -> None:
        """The client of a parked call went away."""
        self._rebalance.abandon(ticket)

    def _begin(self, now_ms: int) -> None:
        self._now_ms = now_ms
        for group_id in self.consumers.settle(now_ms):
            self.deadlines.set_if_earlier(Key(Kind.EXPIRY, group_id), now_ms + EMPTY_GROUP_KEPT_MS)

    def _reply(self, command: PromptCommand, turn: Turn) -> Reply:
        match command:
            case CommitOffsets():
                return self._commits.commit(command, turn)
            case CommitInTransaction():
                return self._commits.commit_in_transaction(command, turn)
            case CompleteTransaction():
                turn.outcome.events += self.offsets.complete(command, turn.now_ms)
                return Done()
            case FetchOffsets():
                return self._commits.fetch(command)
            case DeleteOffsets():
                return self._commits.delete(command, turn)
            case DeleteGroup():
                turn.outcome.events += self._delete(command.group_id)
                return Done()
            case ForgetTopic():
                turn.outcome.events += self.offsets.delete_topic(command.topic, ids=command.ids)
                return Done()
            case ForgetPartitions():
                first = command.partition_count
                turn.outcome.events += self.offsets.delete_topic(command.topic, first=first)
                return Done()
            case ConfigureGroup():
                return self._configure(command, turn)
            case ConsumerHeartbeat():
                return self._consumer_heartbeat(command, turn)
            case ShareHeartbeat():
                return self._share_heartbeat(command, turn)
            case _:
                assert_never(command)

    # Members.

    def _join(self, command: JoinGroup, ticket: Ticket, turn: Turn) -> None:
        group_id = checked_id(command.group_id)
        consumer = self.consumers.get(group_id)
        if consumer is not None and not consumer.is_empty:
            raise _other_type(group_id, "consumer")
        if group_id in self.shares:
            raise _other_type(group_id, "share")
        group = self.classic.get(group_id) or ClassicGroup(group_id)
        self._joining.check(group, command)
        if group_id not in self.classic:
            self._refuse_if_too_many_groups()
        if consumer is not None:
            turn.outcome.events += consumer.forget()
        self.classic[group_id] = group
        self._joining.join(group, command, ticket, turn)
        self._drop_if_void(group)

    def _leave(self, command: LeaveGroup, ticket: Ticket, turn: Turn) -> None:
        group = self.classic.get(checked_id(command.group_id))
        if group is None:
            raise unknown_member(command.group_id, command.members[0].member_id if command.members else "")
        self._membership.leave(group, command, ticket, turn)
        self._drop_if_void(group)

    def _follow_gates(self, group_id: str, turn: Turn) -> None:
        classic, consumer = self.classic.get(group_id), self.consumers.get(group_id)
        if classic is not None:
            self._membership.follow_gates(classic, turn)
        if consumer is not None:
            turn.outcome.events += consumer.follow_topics()

    def is_astray(self, group_id: str) -> bool:
        """Whether the group has what it should not be given, or not what it should: then it is to follow its gates."""
        classic, consumer = self.classic.get(group_id), self.consumers.get(group_id)
        return (classic is not None and self._membership.is_astray(classic)) or (
            consumer is not None and bool(consumer.follow_topics())
        )

    def _with_member(self, command: SyncGroup | Heartbeat) -> ClassicGroup:
        group = self.classic.get(checked_id(command.group_id))
        if group is None:
            raise unknown_member(command.group_id, command.member_id)
        return group

    def _consumer_heartbeat(self, command: ConsumerHeartbeat, turn: Turn) -> Reply:
        group_id = checked_id(command.group_id)
        classic = self.classic.get(group_id)
        if classic is not None and classic.members:
            raise _other_type(group_id, "classic")
        refuse_share_group(self._known(group_id))
        if self.consumers.get(group_id) is None:
            self._refuse_if_too_many_groups()
        events, reply = self.consumers.heartbeat(command, turn.now_ms)
        if classic is not None:
            turn.outcome.events.append(GroupForgotten(group_id))
        turn.outcome.events += events
        return reply

    def _share_heartbeat(self, command: ShareHeartbeat, turn: Turn) -> Reply:
        """As in Kafka, a group of another kind stays what it is, even without members."""
        group_id = checked_id(command.group_id)
        if group_id not in self.shares:
            if self._known(group_id).is_known:
                raise GroupNotFound(f"group {group_id!r} is no share group", group=group_id)
            self._refuse_if_too_many_groups()
        events, reply = self.shares.heartbeat(command, turn.now_ms)
        turn.outcome.events += events
        return reply

    def _configure(self, command: ConfigureGroup, turn: Turn) -> Reply:
        group_id = checked_id(command.group_id)
        turn.outcome.events += self.overrides.change(group_id, command.changes, is_whole=command.is_whole)
        return Done()

    def _known(self, group_id: str) -> Known:
        return Known(
            group_id,
            self.classic.get(group_id),
            self.consumers.get(group_id),
            is_share=group_id in self.shares,
            has_offsets=self.offsets.has_group(group_id),
        )

    def _refuse_if_too_many_groups(self) -> None:
        count = len(self.classic) + self.consumers.count() + len(self.shares)
        if count >= self._config.group_count_max:
            raise LimitExceeded(f"there are {count} groups in this shard already, which is the limit")

    def _drop_if_void(self, group: ClassicGroup) -> None:
        if group.is_void:
            self.classic.pop(group.group_id, None)

    # The end of groups.

    def _delete(self, group_id: str) -> list[Event]:
        if group_id not in self.overrides:
            refuse_if_unknown(self._known(checked_id(group_id, may_be_empty=True)))
        if self.has_members(group_id):
            raise not_empty(group_id)
        return [
            *self.offsets.delete_group(group_id),
            *self._forget(group_id),
            *self.overrides.forget(group_id),
        ]

    def _forget(self, group_id: str) -> list[Event]:
        """The group itself, without its offsets."""
        events: list[Event] = []
        if group_id in self.classic:
            events.append(GroupForgotten(group_id))
        consumer = self.consumers.get(group_id)
        if consumer is not None:
            events += consumer.forget()
        if group_id in self.shares:
            events += self.shares.forget(group_id)
        return events

    def has_members(self, group_id: str) -> bool:
        classic, consumer = self.classic.get(group_id), self.consumers.get(group_id)
        return (
            (classic is not None and bool(classic.members))
            or (consumer is not None and not consumer.is_empty)
            or self.shares.has_members(group_id)
        )

    # What time brings.

    def _pass(self, key: Key, turn: Turn) -> None:
        """A deadline has passed: it is cancelled, or set anew."""
        group = self.classic.get(key.group_id)
        match key.kind:
            case Kind.EXPIRY:
                self._expire(key, turn)
            case Kind.CONSUMER:
                turn.outcome.events += self.consumers.tick(key.group_id, turn.now_ms)
            case Kind.SHARE:
                turn.outcome.events += self.shares.end_session(key.group_id, key.member_id)
            case Kind.PRODUCER:
                self._expire_producer(key, turn)
            case _ if group is None:
                self.deadlines.cancel(key)
            case Kind.SESSION:
                self._rebalance.end_session(group, key.member_id, turn)
                self._drop_if_void(group)
            case Kind.JOIN:
                self._rebalance.end_join_phase(group, turn)
            case Kind.SYNC:
                self._rebalance.end_sync_phase(group, turn)
            case _:
                assert_never(key.kind)

    def _expire(self, key: Key, turn: Turn) -> None:
        """Of a group without members the offsets that nobody used for too long, and in the end the group."""
        group_id, now_ms = key.group_id, turn.now_ms
        self.deadlines.cancel(key)
        if self.has_members(group_id):
            return  # begins anew when they have gone
        since_ms = self._empty_since_ms(group_id)
        events, next_ms = self.offsets.expire(group_id, since_ms, now_ms)
        turn.outcome.events += events
        if next_ms is not None:
            self.deadlines.set(key, max(next_ms, now_ms + 1))
        elif not events and since_ms + EMPTY_GROUP_KEPT_MS > now_ms:
            self.deadlines.set(key, since_ms + EMPTY_GROUP_KEPT_MS)
        else:
            turn.outcome.events += self._forget(group_id)

    def _empty_since_ms(self, group_id: str) -> int:
        """0 for a group that never had members."""
        classic = self.classic.get(group_id)
        if classic is not None:
            return classic.since_ms
        return self.consumers.empty_since_ms(group_id) or 0

    def _expire_producer(self, key: Key, turn: Turn) -> None:
        self.deadlines.cancel(key)
        events, next_ms = self.offsets.forget_producer(int(key.group_id), turn.now_ms)
        turn.outcome.events += events
        if next_ms is not None:
            self.deadlines.set(key, max(next_ms, turn.now_ms + 1))

    def _schedule(self, turn: Turn) -> None:
        """When to look at what this turn has decided."""
        for event in turn.outcome.events:
            match event:
                case GroupSaved() if not event.members:
                    self._look_at(event.group_id, event.since_ms + EMPTY_GROUP_KEPT_MS)
                case OffsetCommitted() if not self.has_members(event.group_id):
                    kept_until_ms = event.committed_ms + self._config.offset_retention_ms
                    self._look_at(
                        event.group_id, kept_until_ms if event.expires_ms is None else event.expires_ms
                    )
                case TransactionCompleted():
                    key = Key(Kind.PRODUCER, str(event.producer_id))
                    self.deadlines.set_if_earlier(key, event.completed_ms + PRODUCER_KEPT_MS)

    def _look_at(self, group_id: str, at_ms: int) -> None:
        self.deadlines.set_if_earlier(Key(Kind.EXPIRY, group_id), max(at_ms, self._now_ms + 1))

    # What happened.

    def apply(self, event: Event) -> None:
        match event:
            case GroupSaved():
                group = self.classic.get(event.group_id)
                if group is None:
                    group = self.classic[event.group_id] = ClassicGroup(event.group_id)
                group.restore(event)
            case GroupForgotten():
                self.classic.pop(event.group_id, None)
            case (
                OffsetCommitted()
                | OffsetForgotten()
                | OffsetPended()
                | PendedForgotten()
                | TransactionCompleted()
                | TransactionForgotten()
            ):
                self.offsets.apply(event)
            case GroupConfigured():
                self.overrides.apply(event)
            case ShareGroupAdvanced() | ShareGroupForgotten() | ShareMemberSaved() | ShareMemberRemoved():
                self.shares.apply(event)
            case _:
                self.consumers.apply(event)

    def resume(self, now_ms: int) -> None:
        """After everything was applied: the sessions of the members that were found begin anew."""
        self._now_ms = self.resumed_ms = now_ms
        self.consumers.resume(now_ms)
        self.shares.resume(now_ms)
        self._begin(now_ms)
        for group in self.classic.values():
            for member in group.members.values():
                self._rebalance.touch(group, member, now_ms)
        for group_id in [*self.classic, *self.offsets.groups()]:
            if not self.has_members(group_id):
                self._resume_expiry(group_id, now_ms)
        for completed in self.offsets.completed():
            key = Key(Kind.PRODUCER, str(completed.producer_id))
            self.deadlines.set(key, completed.completed_ms + PRODUCER_KEPT_MS)

    def clock_was_set(self, by_ms: int, now_ms: int) -> None:
        """Sessions and rebalances take as long as they would have; only what is kept until a date ends at that date."""
        self._now_ms = now_ms
        self.deadlines.shift(lambda key: key.kind in _DURATIONS, by_ms)
        self.consumers.resume(now_ms)

    def _resume_expiry(self, group_id: str, now_ms: int) -> None:
        since_ms = self._empty_since_ms(group_id)
        events, next_ms = self.offsets.expire(group_id, since_ms, now_ms)
        if events or next_ms is None:
            next_ms = max(since_ms + EMPTY_GROUP_KEPT_MS, now_ms + 1)
        self._look_at(group_id, next_ms)


def _other_type(group_id: str, type: str) -> GoQueueError:
    return InconsistentGroupProtocol(
        f"group {group_id!r} has members of the {type} protocol; one group cannot have both", group=group_id
    )
