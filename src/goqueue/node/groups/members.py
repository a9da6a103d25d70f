"""The members that the broker reads for, in both modes: REST's now, and those of any protocol like it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from goqueue.core.group.commands import ClassicGroupFacts
from goqueue.core.group.consumer_events import ConsumerGroupFacts
from goqueue.core.group.share_events import ShareGroupFacts
from goqueue.model.errors import (
    GroupNotFound,
    InconsistentGroupProtocol,
    InvalidGroupId,
    InvalidRequest,
    UnknownMember,
)
from goqueue.model.limits import Limits
from goqueue.model.names import check_topic_name
from goqueue.node.groups.groups import Groups
from goqueue.node.groups.member_requests import GroupMode, Join, Membership, Place, Polled, PollRequest, Who
from goqueue.node.groups.queue_members import QueueMembers
from goqueue.node.groups.stream_members import StreamMembers
from goqueue.node.groups.stream_polling import StreamPolling
from goqueue.node.topic_table import TopicTable

TOPIC_COUNT_MAX: Final = 1_000
ID_LENGTH_MAX: Final = 249
POLL_COUNT_MAX: Final = 1_000
_REFUSED_IN_IDS: Final = frozenset(map(chr, (*range(0x20), 0x7F, *b"/\\")))
_KINDS: Final = {ClassicGroupFacts: "classic", ConsumerGroupFacts: "stream", ShareGroupFacts: "queue"}


class Members:
    def __init__(
        self,
        groups: Groups,
        streams: StreamMembers,
        polling: StreamPolling,
        queues: QueueMembers,
        table: TopicTable,
        limits: Limits,
    ) -> None:
        self._groups = groups
        self._streams = streams
        self._polling = polling
        self._queues = queues
        self._table = table
        self._limits = limits

    async def join(self, join: Join, mode: GroupMode) -> Membership:
        check_group_id(join.group_id)
        if not 1 <= len(join.topics) <= TOPIC_COUNT_MAX:
            raise InvalidRequest(
                f"a member reads 1 to {TOPIC_COUNT_MAX} topics, not {len(join.topics)}",
                count=len(join.topics),
            )
        for topic in join.topics:
            self._table.get(check_topic_name(topic))
        await self._refuse_other_kind(join.group_id, mode)
        if mode is GroupMode.QUEUE:
            return await self._queues.join(join)
        return await self._streams.join(join)

    async def heartbeat(self, who: Who, *, revokes: bool = True) -> Membership:
        if self._mode(who) is GroupMode.QUEUE:
            return await self._queues.heartbeat(who)
        return await self._streams.heartbeat(who, revokes=revokes)

    async def revoke(self, who: Who, places: Sequence[Place]) -> Membership:
        if self._mode(who) is GroupMode.QUEUE:
            raise InvalidRequest("members of a queue group share all partitions: there is nothing to revoke")
        return await self._streams.revoke(who, places)

    async def leave(self, who: Who) -> list[Place]:
        """What it had."""
        if self._mode(who) is GroupMode.QUEUE:
            return await self._queues.leave(who)
        return await self._streams.leave(who)

    async def poll(self, poll: PollRequest) -> Polled:
        self._check(poll)
        if self._mode(poll.who) is GroupMode.QUEUE:
            return await self._queues.poll(poll)
        if poll.visibility_ms is not None:
            raise InvalidRequest(
                "visibility is of mode queue; a stream member has its partitions for itself and commits offsets"
            )
        return await self._polling.poll(poll)

    def release(self) -> None:
        """The node stops: nobody waits any longer."""
        self._streams.release()

    def _check(self, poll: PollRequest) -> None:
        if not 1 <= poll.limit <= POLL_COUNT_MAX:
            raise InvalidRequest(f"limit is {poll.limit}; it must be 1 to {POLL_COUNT_MAX}", limit=poll.limit)
        if not 0 <= poll.wait_ms <= self._limits.wait_ms_max:
            raise InvalidRequest(
                f"timeout is {poll.wait_ms} ms; it must be 0 to {self._limits.wait_ms_max}",
                timeout_ms=poll.wait_ms,
            )

    def _mode(self, who: Who) -> GroupMode:
        if self._groups.consumer_member(who.group_id, who.member_id) is not None:
            return GroupMode.STREAM
        try:
            self._groups.share_member_now(who.group_id, who.member_id, None)
        except UnknownMember:
            raise UnknownMember(
                f"group {who.group_id!r} has no member {who.member_id!r}; it never joined, has left or was not heard of: "
                "join again",
                group=who.group_id,
                member=who.member_id,
            ) from None
        return GroupMode.QUEUE

    async def _refuse_other_kind(self, group_id: str, mode: GroupMode) -> None:
        """A stream group whose members have gone may become classic and the other way round; queues stay queues."""
        try:
            facts = await self._groups.describe_any(group_id)
        except GroupNotFound:
            return
        is_queue = isinstance(facts, ShareGroupFacts)
        if is_queue is (mode is GroupMode.QUEUE):
            return
        raise InconsistentGroupProtocol(
            f"group {group_id!r} is a {_KINDS[type(facts)]} group, which a member of mode {mode.value} cannot join; "
            "choose another name, or delete the group",
            group=group_id,
            mode=mode.value,
        )


def check_group_id(group_id: str) -> None:
    """Of groups that are made here. Kafka's clients may call theirs anything."""
    if not 1 <= len(group_id) <= ID_LENGTH_MAX:
        raise InvalidGroupId(
            f"a group's name has 1 to {ID_LENGTH_MAX} characters, not {len(group_id)}", length=len(group_id)
        )
    if group_id in (".", "..") or not _REFUSED_IN_IDS.isdisjoint(group_id):
        raise InvalidGroupId(
            f"{group_id!r} is no name for a group: slashes, backslashes, control characters and dots alone are refused",
            group=group_id,
        )
