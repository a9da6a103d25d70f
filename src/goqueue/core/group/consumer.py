"""Consumer groups as of KIP-848: the broker assigns, and members move towards it one by one while the rest read on.

Three numbers drive a group. The *group epoch* goes up whenever the assignment might have to change: a member joins or
leaves or subscribes to something else, or a subscribed topic comes, goes or grows. The *assignment epoch* is the group
epoch that the targets were computed for; the next heartbeat of anybody makes it catch up. The *member epoch* is how
far one member has come: it reaches the assignment epoch when the member has given up what is not in its target
(`consumer_reconcile`). A member at an older epoch than it is known to have reached is a zombie and fenced.

`heartbeat` and `tick` decide, `apply` changes. What is not in the log are deadlines (sessions, and the time to give up
partitions): they start anew with `resume`.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from goqueue.core.deadlines import Deadlines
from goqueue.core.group.assignors import ASSIGNORS
from goqueue.core.group.config import GroupConfig, check_session_timeout
from goqueue.core.group.consumer_checks import check_epoch, check_form
from goqueue.core.group.consumer_events import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    Assignment,
    ConsumerEvent,
    ConsumerGroupAdvanced,
    ConsumerGroupFacts,
    ConsumerGroupForgotten,
    ConsumerHeartbeat,
    ConsumerHeartbeatReply,
    ConsumerMemberFacts,
    CurrentRemoved,
    MemberReconciled,
    MemberRemoved,
    MemberState,
    MemberSubscribed,
    TargetAssigned,
    TargetRemoved,
    unpack,
)
from goqueue.core.group.consumer_reconcile import reconcile
from goqueue.core.group.consumer_roster import Roster
from goqueue.core.group.consumer_subscriptions import digest, subscribed
from goqueue.core.group.gates import Blocked, assign_open, nothing_blocked
from goqueue.core.group.topics_view import Topics
from goqueue.model.errors import (
    FencedInstance,
    GroupFull,
    InvalidRequest,
    StaleMemberEpoch,
    UnknownMember,
    UnreleasedInstance,
)


class _Seat(Struct, frozen=True):
    """A member's place in the group as a heartbeat finds it."""

    before: MemberSubscribed | None  # None: new
    current: MemberReconciled
    target: Assignment
    replaces: str | None = None  # the id that the same static instance had before


class ConsumerGroup:
    def __init__(
        self, group_id: str, config: GroupConfig, topics: Topics, blocked: Blocked = nothing_blocked
    ) -> None:
        self._group_id = group_id
        self._blocked = blocked
        self._config = config
        self._roster = Roster(group_id, topics)
        # Volatile: after a restart everybody gets the full time again.
        self._sessions = Deadlines[str]()
        self._revocations = Deadlines[str]()
        self._refresh_ms = 0  # when a heartbeat next looks whether topics have changed

    @property
    def is_empty(self) -> bool:
        return not self._roster.members

    def is_subscribed(self, topic: str) -> bool:
        return self._roster.subscriptions.includes(topic)

    def heartbeat(
        self, command: ConsumerHeartbeat, now_ms: int
    ) -> tuple[list[ConsumerEvent], ConsumerHeartbeatReply]:
        check_form(command)
        if command.member_epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH):
            return self._leave(command)
        if command.subscribed_regex:
            self._roster.subscriptions.check_regex(command.subscribed_regex)
        check_session_timeout(command.session_timeout_ms, self._config)
        return self._beat(command, now_ms)

    def tick(self, now_ms: int) -> list[ConsumerEvent]:
        """Remove who has not been heard of, and notice topics that have changed."""
        gone = self._overdue(now_ms)
        if gone:
            return [*self._removals(gone), self._advanced_without(gone)]
        return self.follow_topics()

    def follow_topics(self) -> list[ConsumerEvent]:
        """Whether there are other topics and partitions to be given now."""
        if self.is_empty:
            return []
        topics = self._roster.subscriptions.topics()
        topics_digest = digest(topics, self._closed(topics))
        if topics_digest == self._roster.group.topics_digest:
            return []
        return [
            msgspec.structs.replace(
                self._roster.group, epoch=self._roster.group.epoch + 1, topics_digest=topics_digest
            )
        ]

    def next_tick_ms(self) -> int | None:
        times_ms = (self._sessions.next_ms(), self._revocations.next_ms())
        return min((time_ms for time_ms in times_ms if time_ms is not None), default=None)

    def resume(self, now_ms: int) -> None:
        self._sessions.clear()
        self._revocations.clear()
        self._refresh_ms = 0
        for member_id in self._roster.members:
            self._sessions.set(member_id, now_ms + self._session_ms(self._roster.members[member_id]))
            if self._roster.current(member_id).state is MemberState.PENDING_REVOKE:
                self._await_revocation(self._roster.members[member_id], now_ms)

    def check_commit(self, member_id: str, member_epoch: int, instance_id: str | None) -> None:
        """Whether the member may commit offsets. As in Kafka, whoever is no member may while nobody is."""
        if member_epoch < 0 and self.is_empty:
            return
        self._check_instance(instance_id, member_id)
        if member_id not in self._roster.members:
            raise self._unknown(member_id)
        epoch = self._roster.current(member_id).epoch
        if member_epoch != epoch:
            raise StaleMemberEpoch(
                f"member {member_id!r} is at epoch {epoch}, not {member_epoch}",
                member_id=member_id,
                member_epoch=member_epoch,
                expected_epoch=epoch,
            )

    def forget(self) -> list[ConsumerEvent]:
        """Leave nothing of the group in the log."""
        roster = self._roster
        member_ids = sorted({*roster.members, *roster.targets, *roster.currents})
        return [*self._removals(member_ids), ConsumerGroupForgotten(self._group_id)]

    def describe(self) -> ConsumerGroupFacts:
        """What is durable."""
        return self._roster.describe()

    def describe_now(self) -> ConsumerGroupFacts:
        """With the times that are known until a restart."""
        facts = self._roster.describe()
        return msgspec.structs.replace(facts, members=tuple(self._with_times(one) for one in facts.members))

    def member_now(self, member_id: str) -> ConsumerMemberFacts | None:
        if member_id not in self._roster.members:
            return None
        return self._with_times(self._roster.member_facts(member_id))

    def _with_times(self, facts: ConsumerMemberFacts) -> ConsumerMemberFacts:
        ends_ms = self._sessions.get(facts.member_id)
        return msgspec.structs.replace(
            facts,
            heard_ms=None
            if ends_ms is None
            else ends_ms - self._session_ms(self._roster.members[facts.member_id]),
            revocation_ms=self._revocations.get(facts.member_id),
        )

    def apply(self, event: ConsumerEvent) -> None:
        self._roster.apply(event)
        match event:
            case MemberRemoved():
                self._sessions.cancel(event.member_id)
                self._revocations.cancel(event.member_id)
            case MemberReconciled() if event.state is not MemberState.PENDING_REVOKE:
                self._revocations.cancel(event.member_id)

    # A member joins, or is still there.

    def _beat(
        self, command: ConsumerHeartbeat, now_ms: int
    ) -> tuple[list[ConsumerEvent], ConsumerHeartbeatReply]:
        seat = self._seat(command)
        member = subscribed(self._group_id, seat.current.member_id, seat.before, command)
        group, targets = self._targeted(seat, member, now_ms)
        current = self._reconciled(
            seat.current, targets[member.member_id], group.assignment_epoch, command.owned
        )

        events: list[ConsumerEvent] = self._removals([seat.replaces]) if seat.replaces is not None else []
        if member != self._roster.members.get(member.member_id):
            events.append(member)
        if group != self._roster.group:
            events.append(group)
        events += [
            TargetAssigned(self._group_id, member_id, target)
            for member_id, target in sorted(targets.items())
            if target != self._roster.targets.get(member_id, ())
        ]
        if current != self._roster.currents.get(member.member_id):
            events.append(current)
            if current.state is MemberState.PENDING_REVOKE:
                self._await_revocation(member, now_ms)
        self._sessions.set(member.member_id, now_ms + self._session_ms(member))
        return events, self._reply(command, seat, current)

    def _reply(
        self, command: ConsumerHeartbeat, seat: _Seat, current: MemberReconciled
    ) -> ConsumerHeartbeatReply:
        """A member that says what it owns has joined, has changed something or has missed an answer: it is told again."""
        is_news = command.owned is not None or current.assigned != seat.current.assigned
        return ConsumerHeartbeatReply(
            member_id=current.member_id,
            member_epoch=current.epoch,
            heartbeat_interval_ms=self._config.consumer_heartbeat_ms,
            assignment=current.assigned if is_news else None,
        )

    def _seat(self, command: ConsumerHeartbeat) -> _Seat:
        joins = command.member_epoch == JOIN_EPOCH
        member_id = command.member_id or command.fresh_id
        if command.instance_id is not None:
            if not joins:
                self._check_static(command.instance_id, member_id)
            holder_id = self._roster.instances.get(command.instance_id, member_id)
            if holder_id != member_id:
                return self._take_over(holder_id, member_id, command.instance_id)
        before = self._roster.members.get(member_id)
        if before is None:
            return self._new_seat(member_id, joins=joins)
        if command.instance_id not in (None, before.instance_id):
            raise self._id_in_use(member_id)
        current = self._roster.current(member_id)
        if joins and current.epoch == LEAVE_STATIC_EPOCH:
            current = _back(current, member_id)
        check_epoch(current, command)
        return _Seat(before, current, self._roster.targets.get(member_id, ()))

    def _new_seat(self, member_id: str, *, joins: bool) -> _Seat:
        if not joins:
            raise self._unknown(member_id)
        if len(self._roster.members) >= self._config.member_count_max:
            raise GroupFull(
                f"group {self._group_id!r} has {len(self._roster.members)} members, which is the limit",
                group_id=self._group_id,
                member_count_max=self._config.member_count_max,
            )
        return _Seat(None, self._roster.current(member_id), ())

    def _take_over(self, holder_id: str, member_id: str, instance_id: str) -> _Seat:
        """A static instance is back under a new member id: it gets its old place, if the old process has left it."""
        holder = self._roster.current(holder_id)
        if holder.epoch != LEAVE_STATIC_EPOCH:
            raise UnreleasedInstance(
                f"instance {instance_id!r} is in use by member {holder_id!r}, which has not left",
                instance_id=instance_id,
                member_id=holder_id,
            )
        if member_id in self._roster.members:
            raise self._id_in_use(member_id)
        before = msgspec.structs.replace(self._roster.members[holder_id], member_id=member_id)
        return _Seat(before, _back(holder, member_id), self._roster.targets.get(holder_id, ()), holder_id)

    def _targeted(
        self, seat: _Seat, member: MemberSubscribed, now_ms: int
    ) -> tuple[ConsumerGroupAdvanced, dict[str, Assignment]]:
        """The group and the targets that hold from now on; only this member's target where no other can have changed."""
        group = self._roster.group
        subscriptions = self._roster.subscriptions
        if member != seat.before:
            subscriptions = subscriptions.replaced(seat.before, member)
        is_changed = (
            seat.before is None
            or (member.topics, member.regex) != (seat.before.topics, seat.before.regex)
            or subscriptions.assignor() != self._roster.subscriptions.assignor()
        )
        targets = {member.member_id: seat.target}
        if not is_changed and group.epoch == group.assignment_epoch and now_ms < self._refresh_ms:
            return group, targets
        self._refresh_ms = now_ms + self._config.consumer_heartbeat_ms
        topics = subscriptions.topics()
        closed = self._closed(topics)
        topics_digest = digest(topics, closed)
        epoch = group.epoch + (is_changed or topics_digest != group.topics_digest)
        if epoch == group.assignment_epoch:
            return group, targets
        members = {**self._roster.members, member.member_id: member}
        previous = {**self._roster.targets, **targets}
        if seat.replaces is not None:
            del members[seat.replaces]
        assign = ASSIGNORS[subscriptions.assignor()]
        return (
            ConsumerGroupAdvanced(self._group_id, epoch, epoch, topics_digest),
            assign_open(assign, subscriptions.of_each(members.values()), topics, closed, previous),
        )

    def _closed(self, topics: Mapping[str, int]) -> dict[str, frozenset[int]]:
        """What the group is not given, of topics of which it is not given everything."""
        found = ((topic, self._blocked(topic)) for topic in topics)
        return {topic: indexes for topic, indexes in found if indexes}

    def _reconciled(
        self, current: MemberReconciled, target: Assignment, target_epoch: int, owned: Assignment | None
    ) -> MemberReconciled:
        # Of what it lacks, a member can itself hold only what it was giving up.
        revoking = frozenset(unpack(current.revoking))
        return reconcile(
            current,
            target,
            target_epoch,
            owned=owned,
            is_held_by_others=lambda partition: self._roster.is_held(partition, beside=partition in revoking),
        )

    def _session_ms(self, member: MemberSubscribed) -> int:
        return member.session_timeout_ms or self._config.consumer_session_ms

    def _await_revocation(self, member: MemberSubscribed, now_ms: int) -> None:
        wait_ms = min(member.rebalance_timeout_ms, self._config.consumer_rebalance_ms_max)
        self._revocations.set(member.member_id, now_ms + wait_ms)

    # A member goes.

    def _leave(self, command: ConsumerHeartbeat) -> tuple[list[ConsumerEvent], ConsumerHeartbeatReply]:
        member_id = command.member_id
        if command.instance_id is not None:
            self._check_static(command.instance_id, member_id)
        if member_id not in self._roster.members:
            raise self._unknown(member_id)
        reply = ConsumerHeartbeatReply(member_id, command.member_epoch, 0, None)
        if command.member_epoch == LEAVE_EPOCH:
            return [*self._removals([member_id]), self._advanced_without([member_id])], reply
        # What it was giving up is free: the process is gone. The rest waits for it until its session ends.
        away = msgspec.structs.replace(
            self._roster.current(member_id), epoch=LEAVE_STATIC_EPOCH, state=MemberState.NONE, revoking=()
        )
        return [away], reply

    def _overdue(self, now_ms: int) -> list[str]:
        gone = []
        for member_id in self._sessions.due(now_ms, len(self._sessions)):
            if member_id in self._roster.members:
                gone.append(member_id)
            else:
                self._sessions.cancel(member_id)  # its joining was never written
        for member_id in self._revocations.due(now_ms, len(self._revocations)):
            if self._roster.current(member_id).state is not MemberState.PENDING_REVOKE:
                self._revocations.cancel(member_id)
            elif member_id not in gone:
                gone.append(member_id)
        return sorted(gone)

    def _removals(self, member_ids: list[str]) -> list[ConsumerEvent]:
        events: list[ConsumerEvent] = []
        for member_id in member_ids:
            if member_id in self._roster.currents:
                events.append(CurrentRemoved(self._group_id, member_id))
            if member_id in self._roster.targets:
                events.append(TargetRemoved(self._group_id, member_id))
            events.append(MemberRemoved(self._group_id, member_id))
        return events

    def _advanced_without(self, member_ids: list[str]) -> ConsumerGroupAdvanced:
        """The next heartbeat of one that is left makes the targets; if nobody is, there is nothing to make."""
        epoch = self._roster.group.epoch + 1
        is_last = len(member_ids) == len(self._roster.members)
        assignment_epoch = epoch if is_last else self._roster.group.assignment_epoch
        return msgspec.structs.replace(self._roster.group, epoch=epoch, assignment_epoch=assignment_epoch)

    def _check_static(self, instance_id: str, member_id: str) -> None:
        if instance_id not in self._roster.instances:
            raise UnknownMember(
                f"group {self._group_id!r} has no instance {instance_id!r}; join again with epoch 0",
                group_id=self._group_id,
                instance_id=instance_id,
            )
        self._check_instance(instance_id, member_id)

    def _check_instance(self, instance_id: str | None, member_id: str) -> None:
        holder_id = (
            self._roster.instances.get(instance_id, member_id) if instance_id is not None else member_id
        )
        if holder_id != member_id:
            raise FencedInstance(
                f"instance {instance_id!r} is member {holder_id!r} now, not {member_id!r}",
                instance_id=instance_id,
                member_id=member_id,
            )

    def _unknown(self, member_id: str) -> UnknownMember:
        return UnknownMember(
            f"group {self._group_id!r} has no member {member_id!r}; join again with epoch 0",
            group_id=self._group_id,
            member_id=member_id,
        )

    def _id_in_use(self, member_id: str) -> InvalidRequest:
        return InvalidRequest(
            f"member id {member_id!r} is in use by another instance; choose a new one", member_id=member_id
        )


def _back(current: MemberReconciled, member_id: str) -> MemberReconciled:
    """A static member that was away, before it is reconciled: with what it had, but in no epoch."""
    return msgspec.structs.replace(
        current, member_id=member_id, epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH, state=MemberState.NONE
    )
