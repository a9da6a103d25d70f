"""Who is in a consumer group, what each wants, shall have and has: the state that the log holds, and its only changes.

Every key of the log is a slot of its own here, and what is derived from the slots is counted, so that the order
between keys does not matter.
"""

from __future__ import annotations

from collections import Counter
from typing import assert_never

from goqueue.core.group.consumer_events import (
    JOIN_EPOCH,
    Assignment,
    ConsumerEvent,
    ConsumerGroupAdvanced,
    ConsumerGroupFacts,
    ConsumerGroupForgotten,
    ConsumerGroupState,
    ConsumerMemberFacts,
    CurrentRemoved,
    MemberReconciled,
    MemberRemoved,
    MemberState,
    MemberSubscribed,
    Partition,
    TargetAssigned,
    TargetRemoved,
    unpack,
)
from goqueue.core.group.consumer_subscriptions import Subscriptions
from goqueue.core.group.topics_view import Topics


class Roster:
    def __init__(self, group_id: str, topics: Topics) -> None:
        self._group_id = group_id
        self.group = _new_group(group_id)
        self.members: dict[str, MemberSubscribed] = {}
        self.targets: dict[str, Assignment] = {}
        self.currents: dict[str, MemberReconciled] = {}
        # Derived:
        self.subscriptions = Subscriptions(topics)
        self.instances: dict[str, str] = {}
        self._holder_counts: Counter[Partition] = Counter()

    def apply(self, event: ConsumerEvent) -> None:
        match event:
            case ConsumerGroupAdvanced():
                self.group = event
            case ConsumerGroupForgotten():
                self.group = _new_group(self._group_id)
            case MemberSubscribed():
                self._set_member(event.member_id, event)
            case MemberRemoved():
                self._set_member(event.member_id, None)
            case TargetAssigned():
                self.targets[event.member_id] = event.partitions
            case TargetRemoved():
                self.targets.pop(event.member_id, None)
            case MemberReconciled():
                self._set_current(event.member_id, event)
            case CurrentRemoved():
                self._set_current(event.member_id, None)
            case _:
                assert_never(event)

    def current(self, member_id: str) -> MemberReconciled:
        """Of one that has none yet: nothing, in no epoch."""
        current = self.currents.get(member_id)
        if current is not None:
            return current
        return MemberReconciled(self._group_id, member_id, JOIN_EPOCH, JOIN_EPOCH, MemberState.NONE, (), ())

    def is_held(self, partition: Partition, *, beside: int) -> bool:
        """Whether more than so many members have it or still give it up."""
        return self._holder_counts[partition] > beside

    def describe(self) -> ConsumerGroupFacts:
        return ConsumerGroupFacts(
            group_id=self._group_id,
            state=self._state(),
            epoch=self.group.epoch,
            assignment_epoch=self.group.assignment_epoch,
            assignor=self.subscriptions.assignor(),
            members=tuple(self.member_facts(member_id) for member_id in sorted(self.members)),
        )

    def member_facts(self, member_id: str) -> ConsumerMemberFacts:
        member, current = self.members[member_id], self.current(member_id)
        return ConsumerMemberFacts(
            member_id=member_id,
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            subscribed_topics=member.topics,
            subscribed_regex=member.regex,
            epoch=current.epoch,
            previous_epoch=current.previous_epoch,
            state=current.state,
            assigned=current.assigned,
            revoking=current.revoking,
            target=self.targets.get(member_id, ()),
            session_timeout_ms=member.session_timeout_ms,
        )

    def _set_member(self, member_id: str, member: MemberSubscribed | None) -> None:
        before = self.members.pop(member_id, None)
        if before is not None:
            self.subscriptions.remove(before)
            if before.instance_id is not None and self.instances.get(before.instance_id) == member_id:
                del self.instances[before.instance_id]
        if member is not None:
            self.members[member_id] = member
            self.subscriptions.add(member)
            if member.instance_id is not None:
                self.instances[member.instance_id] = member_id

    def _set_current(self, member_id: str, current: MemberReconciled | None) -> None:
        before = self.currents.pop(member_id, None)
        if before is not None:
            for partition in _held(before):
                self._holder_counts[partition] -= 1
                if not self._holder_counts[partition]:
                    del self._holder_counts[partition]
        if current is not None:
            self.currents[member_id] = current
            self._holder_counts.update(_held(current))

    def _state(self) -> ConsumerGroupState:
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.group.epoch > self.group.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        for member_id in self.members:
            current = self.current(member_id)
            if current.state is not MemberState.COMPLETE or current.epoch != self.group.assignment_epoch:
                return ConsumerGroupState.RECONCILING
        return ConsumerGroupState.STABLE


def _new_group(group_id: str) -> ConsumerGroupAdvanced:
    return ConsumerGroupAdvanced(group_id, epoch=0, assignment_epoch=0, topics_digest="")


def _held(current: MemberReconciled) -> list[Partition]:
    return unpack(current.assigned) + unpack(current.revoking)
