"""Members of queue groups, which are Kafka's share groups: each may get messages of every partition of its topics."""

from __future__ import annotations

import asyncio
from functools import partial

from goqueue.core.group.consumer_events import JOIN_EPOCH, LEAVE_EPOCH, MemberState
from goqueue.core.group.share_events import ShareHeartbeat, ShareMemberSaved
from goqueue.model.errors import GoQueueError, InvalidRequest
from goqueue.model.group_settings import SHARE_AUTO_OFFSET_RESET, OffsetReset
from goqueue.node.groups.groups import Groups
from goqueue.node.groups.member_requests import (
    GroupMode,
    Join,
    Membership,
    Place,
    Polled,
    PollRequest,
    Who,
)
from goqueue.node.queue.polling import Poll
from goqueue.node.queue.queue import Queue
from goqueue.node.spread.polling import QueuePolls
from goqueue.node.topic_table import TopicTable

_HOST = "rest"


class QueueMembers:
    def __init__(self, groups: Groups, queue: Queue, polls: QueuePolls, table: TopicTable) -> None:
        self._groups = groups
        self._queue = queue
        self._polls = polls
        self._table = table

    async def join(self, join: Join) -> Membership:
        for name, is_given in (
            ("strategy", join.strategy is not None),
            ("auto_commit", join.auto_commit),
            ("rebalance_timeout", join.rebalance_timeout_ms is not None),
        ):
            if is_given:
                raise InvalidRequest(
                    f"{name} means nothing in mode queue, whose members share all partitions; leave it out",
                    field=name,
                )
        reply = await self._groups.share_heartbeat(
            ShareHeartbeat(
                join.group_id,
                join.member_id,
                JOIN_EPOCH,
                client_id=join.client_id,
                client_host=_HOST,
                subscribed_topics=join.topics,
                session_timeout_ms=join.session_timeout_ms,
            )
        )
        member = self._groups.share_member_now(join.group_id, reply.member_id, None)
        return self._membership(member, reply.heartbeat_interval_ms, had=[])

    async def heartbeat(self, who: Who) -> Membership:
        before = self.find(who)
        reply = await self._groups.share_heartbeat(_beat(before, before.epoch))
        member = self._groups.share_member_now(who.group_id, who.member_id, None)
        return self._membership(member, reply.heartbeat_interval_ms, had=_places(before))

    async def leave(self, who: Who) -> list[Place]:
        """Others may have what it held."""
        member = self.find(who)
        await self._groups.share_heartbeat(_beat(member, LEAVE_EPOCH))
        return _places(member)

    async def poll(self, poll: PollRequest) -> Polled:
        """The member is heard of as long as it waits, and gets to know new partitions."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + poll.wait_ms / 1_000
        who = poll.who
        while True:
            membership = await self.heartbeat(who)
            who = Who(who.group_id, who.member_id)  # its generation was right when it began
            left_ms = max(0, round((deadline - loop.time()) * 1_000))
            reset = self._groups.settings_of(who.group_id).get(SHARE_AUTO_OFFSET_RESET)
            delivered = await self._polls.poll(
                Poll(
                    who.group_id,
                    who.member_id,
                    self._existing(membership.assigned),
                    poll.limit,
                    min(left_ms, membership.heartbeat_interval_ms),
                    poll.visibility_ms,
                    from_latest=reset == OffsetReset.LATEST,
                    is_wanted=partial(self._is_member, who),
                )
            )
            self.find(who)  # who left meanwhile has nothing of it any more
            if delivered or left_ms <= membership.heartbeat_interval_ms or not self._queue.is_ready:
                return Polled(membership, delivered)

    def find(self, who: Who) -> ShareMemberSaved:
        return self._groups.share_member_now(who.group_id, who.member_id, who.generation)

    def _is_member(self, who: Who) -> bool:
        try:
            self.find(who)
        except GoQueueError:
            return False
        return True

    def _existing(self, places: list[Place]) -> list[Place]:
        return [place for place in places if place[1] < (self._table.partition_count(place[0]) or 0)]

    def _membership(self, member: ShareMemberSaved, interval_ms: int, *, had: list[Place]) -> Membership:
        assigned = _places(member)
        return Membership(
            member_id=member.member_id,
            generation=member.epoch,
            mode=GroupMode.QUEUE,
            state=MemberState.COMPLETE,
            assigned=assigned,
            added=[place for place in assigned if place not in had],
            to_revoke=[],
            pending=[],
            revocation_ms=None,
            heartbeat_interval_ms=min(interval_ms, (member.session_timeout_ms or 3 * interval_ms) // 3),
        )


def _beat(member: ShareMemberSaved, epoch: int) -> ShareHeartbeat:
    return ShareHeartbeat(
        member.group_id,
        member.member_id,
        epoch,
        client_id=member.client_id,
        client_host=member.client_host,
    )


def _places(member: ShareMemberSaved) -> list[Place]:
    return [(topic, index) for topic, count in member.assigned for index in range(count)]
