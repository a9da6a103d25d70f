"""What rebalances cost: how many there were and why, how many partitions moved, how long groups took to be stable again.

Learnt from the events of the groups as they are written, so every protocol counts; since the broker started, so nothing
of it is durable. A classic group only says when it is done: its rebalances are counted, not timed.
"""

from __future__ import annotations

import asyncio
from collections import Counter as Counts
from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from msgspec import Struct
from prometheus_client import CollectorRegistry, Counter, Histogram

from goqueue.core.group.consumer_events import (
    JOIN_EPOCH,
    ConsumerGroupAdvanced,
    ConsumerGroupFacts,
    ConsumerGroupForgotten,
    MemberReconciled,
    MemberRemoved,
    MemberState,
    MemberSubscribed,
    Partition,
    unpack,
)
from goqueue.core.group.events import Event, GroupForgotten, GroupSaved
from goqueue.node.groups.groups import Groups
from goqueue.node.internal_topics import PARTITION_COUNT, coordinator_partition

_GROUP_COUNT_MAX: Final = 10_000  # the ones that changed longest ago are forgotten; the totals are not
_SECONDS: Final = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 120.0)


class Reason(StrEnum):
    MEMBER_JOINED = "member_joined"
    MEMBER_LEFT = "member_left"
    MEMBER_EXPIRED = "member_expired"
    REVOCATION_TIMEOUT = "revocation_timeout"
    SUBSCRIPTION_CHANGED = "subscription_changed"
    TOPICS_CHANGED = "topics_changed"
    CLASSIC = "classic"  # whatever made the members of a classic group join again


class RebalanceStats(Struct):
    rebalance_count: int = 0
    moved_count: int = 0
    timeout_count: int = 0
    by_reason: Counts[str] = Counts()
    timed_count: int = 0
    last_ms: int | None = None
    longest_ms: int | None = None
    sum_ms: int = 0
    is_in_progress: bool = False


class _Group:
    def __init__(self, facts: ConsumerGroupFacts | None) -> None:
        self.stats = RebalanceStats(by_reason=Counts())
        self.epoch = 0 if facts is None else facts.epoch
        self.assignment_epoch = 0 if facts is None else facts.assignment_epoch
        self.members: dict[str, tuple[int, MemberState]] = {}
        self.unsettled: dict[str, None] = {}
        self.owners: dict[Partition, str] = {}
        self.revoking_since: dict[str, tuple[float, int]] = {}  # and how long it may take, in ms
        self.began_at: float | None = None
        for one in () if facts is None else facts.members:
            self.members[one.member_id] = one.epoch, one.state
            self.owners.update(dict.fromkeys(unpack(one.assigned), one.member_id))

    def settle(self, member_id: str) -> None:
        if self.members.get(member_id) in (None, (self.assignment_epoch, MemberState.COMPLETE)):
            self.unsettled.pop(member_id, None)
        else:
            self.unsettled[member_id] = None


class Rebalances:
    def __init__(self, registry: CollectorRegistry, groups: Groups, *, revocation_ms_max: int) -> None:
        self._source = groups
        self._revocation_ms_max = revocation_ms_max
        self._groups: dict[str, _Group] = {}
        self._total = RebalanceStats(by_reason=Counts())
        self._rebalances = Counter(
            "goqueue_consumer_group_rebalances", "Rebalances of groups.", ["reason"], registry=registry
        )
        self._moves = Counter(
            "goqueue_consumer_moved_partitions",
            "Partitions that went from one member to another.",
            registry=registry,
        )
        self._timeouts = Counter(
            "goqueue_consumer_revocation_timeouts",
            "Members that did not give up partitions in time and lost them all.",
            registry=registry,
        )
        self._seconds = Histogram(
            "goqueue_consumer_rebalance_seconds",
            "Time from the change that made a group rebalance until every member had its partitions.",
            registry=registry,
            buckets=_SECONDS,
        )
        groups.when_changed(self.note)
        groups.when_ended(self._leave_to_others)

    def total(self) -> RebalanceStats:
        self._total.is_in_progress = any(group.began_at is not None for group in self._groups.values())
        return self._total

    def of(self, group_id: str) -> RebalanceStats:
        """All zeroes where nothing has happened since the start."""
        group = self._groups.get(group_id)
        if group is None:
            return RebalanceStats(by_reason=Counts())
        group.stats.is_in_progress = group.began_at is not None
        return group.stats

    def _leave_to_others(self, index: int) -> None:
        """What becomes of these groups another node sees."""
        for group_id in [id for id in self._groups if coordinator_partition(id, PARTITION_COUNT) == index]:
            del self._groups[group_id]

    def note(self, events: Sequence[Event], is_due: bool) -> None:
        """What one command or one deadline brought. A watcher of `Groups`."""
        touched: dict[str, list[Event]] = {}
        for event in events:
            match event:
                case ConsumerGroupForgotten() | GroupForgotten():
                    self._groups.pop(event.group_id, None)
                case GroupSaved() if event.members:
                    self._count(self._group(event.group_id), Reason.CLASSIC)
                case ConsumerGroupAdvanced() | MemberReconciled() | MemberRemoved() | MemberSubscribed():
                    touched.setdefault(event.group_id, []).append(event)
        for group_id, several in touched.items():
            self._follow(self._group(group_id), several, is_due)

    def _group(self, group_id: str) -> _Group:
        group = self._groups.pop(group_id, None)
        if group is None:
            group = _Group(self._source.consumer_group(group_id))
            group.epoch = -1  # what it was before is not known
            while len(self._groups) >= _GROUP_COUNT_MAX:
                del self._groups[next(iter(self._groups))]
        self._groups[group_id] = group  # the last again
        return group

    def _follow(self, group: _Group, events: list[Event], is_due: bool) -> None:
        now = asyncio.get_running_loop().time()
        reason = self._reason(group, events, is_due, now)
        for event in events:
            match event:
                case ConsumerGroupAdvanced():
                    is_known = group.epoch >= 0
                    if event.epoch > group.epoch and (is_known or reason is not Reason.TOPICS_CHANGED):
                        self._count(group, reason)
                        group.began_at = now if group.began_at is None else group.began_at
                    group.epoch, group.assignment_epoch = event.epoch, event.assignment_epoch
                    for member_id in group.members:
                        group.settle(member_id)
                case MemberReconciled():
                    self._reconciled(group, event, now)
                case MemberRemoved():
                    group.members.pop(event.member_id, None)
                    group.revoking_since.pop(event.member_id, None)
                    group.settle(event.member_id)
        is_stable = group.epoch == group.assignment_epoch and not group.unsettled
        if group.began_at is not None and is_stable:
            self._end(group, now)

    def _reason(self, group: _Group, events: list[Event], is_due: bool, now: float) -> Reason:
        joined = any(isinstance(one, MemberReconciled) and one.previous_epoch == JOIN_EPOCH for one in events)
        subscribed = any(isinstance(one, MemberSubscribed) for one in events)
        removed = [one.member_id for one in events if isinstance(one, MemberRemoved)]
        if subscribed:
            return Reason.MEMBER_JOINED if joined else Reason.SUBSCRIPTION_CHANGED
        if not removed:
            return Reason.TOPICS_CHANGED
        if not is_due:
            return Reason.MEMBER_LEFT
        late = [one for one in removed if _is_late(group, one, now)]
        group.stats.timeout_count += len(late)
        self._total.timeout_count += len(late)
        self._timeouts.inc(len(late))
        return Reason.REVOCATION_TIMEOUT if late else Reason.MEMBER_EXPIRED

    def _reconciled(self, group: _Group, event: MemberReconciled, now: float) -> None:
        group.members[event.member_id] = event.epoch, event.state
        group.settle(event.member_id)
        moved_count = 0
        for partition in unpack(event.assigned):
            moved_count += group.owners.get(partition, event.member_id) != event.member_id
            group.owners[partition] = event.member_id
        group.stats.moved_count += moved_count
        self._total.moved_count += moved_count
        self._moves.inc(moved_count)
        if event.state is MemberState.PENDING_REVOKE:
            group.revoking_since.setdefault(event.member_id, (now, self._timeout_ms(event)))
        else:
            group.revoking_since.pop(event.member_id, None)

    def _timeout_ms(self, event: MemberReconciled) -> int:
        facts = self._source.consumer_member(event.group_id, event.member_id)
        most_ms = self._revocation_ms_max
        return most_ms if facts is None else min(most_ms, facts.rebalance_timeout_ms)

    def _count(self, group: _Group, reason: Reason) -> None:
        for stats in (group.stats, self._total):
            stats.rebalance_count += 1
            stats.by_reason[reason.value] += 1
        self._rebalances.labels(reason.value).inc()

    def _end(self, group: _Group, now: float) -> None:
        took_s = now - (group.began_at or now)
        group.began_at = None
        took_ms = round(took_s * 1_000)
        for stats in (group.stats, self._total):
            stats.timed_count += 1
            stats.last_ms = took_ms
            stats.longest_ms = max(took_ms, stats.longest_ms or 0)
            stats.sum_ms += took_ms
        self._seconds.observe(took_s)


def _is_late(group: _Group, member_id: str, now: float) -> bool:
    since = group.revoking_since.get(member_id)
    return since is not None and (now - since[0]) * 1_000 >= since[1] - 1
