"""Share groups (KIP-932): members compete, each may get records of every partition of the topics it names.

So there is nothing to balance, and nobody waits for anybody: what a member is assigned follows from its own topics
alone. The *group epoch* counts changes of the members. A *member epoch* is the group epoch at which the member last
changed: when it joined, named other topics, or got to know that one of them came, went or grew. A member at an older
epoch is a zombie and fenced; the one that it knew when it last changed is taken as well, as the answer may be lost.

`heartbeat` and `end_session` decide, `apply` changes. What is not in the log are the sessions: they begin anew with
`resume`. A group stays when its members have gone, for the queue remembers how far it has come, until it is deleted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import assert_never

from goqueue.core.group.config import GroupConfig
from goqueue.core.group.consumer_events import JOIN_EPOCH, LEAVE_EPOCH
from goqueue.core.group.deadlines import GroupDeadlines, Key, Kind
from goqueue.core.group.overrides import Overrides
from goqueue.core.group.share_checks import check_form, check_member_epoch
from goqueue.core.group.share_events import (
    PartitionCounts,
    ShareEvent,
    ShareGroupAdvanced,
    ShareGroupFacts,
    ShareGroupForgotten,
    ShareGroupState,
    ShareHeartbeat,
    ShareHeartbeatReply,
    ShareMemberFacts,
    ShareMemberRemoved,
    ShareMemberSaved,
    partitions_of,
)
from goqueue.core.group.topics_view import Topics
from goqueue.model.errors import GroupFull, UnknownMember

Decision = tuple[list[ShareEvent], ShareHeartbeatReply]


@dataclass(slots=True)
class ShareGroup:
    group_id: str
    epoch: int = 0
    members: dict[str, ShareMemberSaved] = field(default_factory=dict)


class ShareGroups:
    """Those of a shard."""

    def __init__(
        self, config: GroupConfig, topics: Topics, overrides: Overrides, deadlines: GroupDeadlines
    ) -> None:
        self._config = config
        self._topics = topics
        self._overrides = overrides
        self._deadlines = deadlines
        self._groups: dict[str, ShareGroup] = {}

    def __contains__(self, group_id: str) -> bool:
        return group_id in self._groups

    def __len__(self) -> int:
        return len(self._groups)

    def ids(self) -> list[str]:
        return list(self._groups)

    def has_members(self, group_id: str) -> bool:
        group = self._groups.get(group_id)
        return group is not None and bool(group.members)

    def member(self, group_id: str, member_id: str, epoch: int | None) -> ShareMemberSaved:
        """None: whatever its epoch is."""
        group = self._groups.get(group_id)
        member = None if group is None else group.members.get(member_id)
        if member is None:
            raise _unknown(group_id, member_id)
        if epoch is not None:
            check_member_epoch(member, epoch)
        return member

    def describe(self, group_id: str) -> ShareGroupFacts:
        group = self._groups[group_id]
        return ShareGroupFacts(
            group_id=group_id,
            state=ShareGroupState.STABLE if group.members else ShareGroupState.EMPTY,
            epoch=group.epoch,
            members=tuple(self._facts(group.members[member_id]) for member_id in sorted(group.members)),
        )

    # What is asked.

    def heartbeat(self, command: ShareHeartbeat, now_ms: int) -> Decision:
        check_form(command, self._config)
        if command.member_epoch == LEAVE_EPOCH:
            return self._leave(command)
        return self._beat(command, now_ms)

    def end_session(self, group_id: str, member_id: str) -> list[ShareEvent]:
        self._deadlines.cancel(_session(group_id, member_id))
        if not self.has_members(group_id) or member_id not in self._groups[group_id].members:
            return []  # its joining was never written
        return self._removal(self._groups[group_id], member_id)

    def forget(self, group_id: str) -> list[ShareEvent]:
        """Leave nothing of the group in the log."""
        members = self._groups[group_id].members
        return [
            *(ShareMemberRemoved(group_id, member_id) for member_id in sorted(members)),
            ShareGroupForgotten(group_id),
        ]

    def _beat(self, command: ShareHeartbeat, now_ms: int) -> Decision:
        group = self._groups.get(command.group_id) or ShareGroup(command.group_id)
        joins = command.member_epoch == JOIN_EPOCH
        before = self._before(group, command, joins=joins)
        member = self._member(group, command, before or _nobody(command))
        events: list[ShareEvent] = []
        if member.epoch > group.epoch:
            events.append(ShareGroupAdvanced(group.group_id, member.epoch))
        if member != before:
            events.append(member)
        self._deadlines.set(_session(group.group_id, member.member_id), now_ms + self._session_ms(member))
        is_news = member.epoch != command.member_epoch
        reply = ShareHeartbeatReply(
            member_id=member.member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=self._overrides.heartbeat_ms(group.group_id),
            assignment=partitions_of(member.assigned) if is_news else None,
        )
        return events, reply

    def _before(self, group: ShareGroup, command: ShareHeartbeat, *, joins: bool) -> ShareMemberSaved | None:
        before = group.members.get(command.member_id)
        if before is None and not joins:
            raise _unknown(group.group_id, command.member_id)
        if before is None and len(group.members) >= self._config.member_count_max:
            raise GroupFull(
                f"group {group.group_id!r} has {len(group.members)} members, which is the limit",
                group_id=group.group_id,
                member_count_max=self._config.member_count_max,
            )
        if before is not None and not joins:
            check_member_epoch(before, command.member_epoch)
        return before

    def _member(
        self, group: ShareGroup, command: ShareHeartbeat, before: ShareMemberSaved
    ) -> ShareMemberSaved:
        """What the member was, with what the heartbeat says anew. Who joins again has begun a new life: what it knew in
        the last one is a zombie's."""
        said = command.subscribed_topics
        topics = before.topics if said is None else tuple(sorted(set(said)))
        assigned = self._assigned(topics)
        if command.member_epoch == JOIN_EPOCH:
            epoch, previous_epoch = group.epoch + 1, JOIN_EPOCH
        elif topics != before.topics:
            epoch, previous_epoch = group.epoch + 1, command.member_epoch
        elif assigned != before.assigned:
            epoch, previous_epoch = max(group.epoch, before.epoch + 1), command.member_epoch
        else:
            epoch, previous_epoch = before.epoch, before.previous_epoch
        return ShareMemberSaved(
            group_id=group.group_id,
            member_id=before.member_id,
            rack_id=before.rack_id if command.rack_id is None else command.rack_id,
            client_id=command.client_id,
            client_host=command.client_host,
            topics=topics,
            epoch=epoch,
            previous_epoch=previous_epoch,
            assigned=assigned,
            session_timeout_ms=command.session_timeout_ms or before.session_timeout_ms,
        )

    def _session_ms(self, member: ShareMemberSaved) -> int:
        return member.session_timeout_ms or self._overrides.session_ms(member.group_id)

    def _assigned(self, topics: tuple[str, ...]) -> PartitionCounts:
        found = ((topic, self._topics.partition_count(topic)) for topic in topics)
        return tuple((topic, count) for topic, count in found if count is not None)

    def _leave(self, command: ShareHeartbeat) -> Decision:
        group_id, member_id = command.group_id, command.member_id
        self.member(group_id, member_id, None)
        events = self._removal(self._groups[group_id], member_id)
        return events, ShareHeartbeatReply(member_id, LEAVE_EPOCH, 0, None)

    def _removal(self, group: ShareGroup, member_id: str) -> list[ShareEvent]:
        return [
            ShareMemberRemoved(group.group_id, member_id),
            ShareGroupAdvanced(group.group_id, group.epoch + 1),
        ]

    def _facts(self, member: ShareMemberSaved) -> ShareMemberFacts:
        session_ms = self._session_ms(member)
        ends_ms = self._deadlines.get(_session(member.group_id, member.member_id))
        return ShareMemberFacts(
            member_id=member.member_id,
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topics=member.topics,
            epoch=member.epoch,
            assigned=partitions_of(member.assigned),
            session_timeout_ms=session_ms,
            heard_ms=None if ends_ms is None else ends_ms - session_ms,
        )

    # What happened.

    def apply(self, event: ShareEvent) -> None:
        group = self._groups.get(event.group_id) or ShareGroup(event.group_id)
        match event:
            case ShareGroupAdvanced():
                group.epoch = event.epoch
            case ShareGroupForgotten():
                group.epoch = 0
            case ShareMemberSaved():
                group.members[event.member_id] = event
            case ShareMemberRemoved():
                group.members.pop(event.member_id, None)
                self._deadlines.cancel(_session(event.group_id, event.member_id))
            case _:
                assert_never(event)
        if group.epoch or group.members:
            self._groups[event.group_id] = group
        else:
            self._groups.pop(event.group_id, None)

    def resume(self, now_ms: int) -> None:
        for group_id, group in self._groups.items():
            for member_id, member in group.members.items():
                self._deadlines.set(_session(group_id, member_id), now_ms + self._session_ms(member))


def _nobody(command: ShareHeartbeat) -> ShareMemberSaved:
    """A member before its first heartbeat."""
    member_id = command.member_id or command.fresh_id
    return ShareMemberSaved(command.group_id, member_id, None, "", "", (), JOIN_EPOCH, JOIN_EPOCH, ())


def _session(group_id: str, member_id: str) -> Key:
    return Key(Kind.SHARE, group_id, member_id)


def _unknown(group_id: str, member_id: str) -> UnknownMember:
    return UnknownMember(
        f"share group {group_id!r} has no member {member_id!r}; join with epoch {JOIN_EPOCH}",
        group_id=group_id,
        member_id=member_id,
    )
