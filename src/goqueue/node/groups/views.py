"""Groups of every kind as one picture: who is in them, what each has and shall have."""

from __future__ import annotations

from msgspec import Struct

from goqueue.core.group.commands import ClassicGroupFacts, GroupSummary, GroupType
from goqueue.core.group.consumer_events import ConsumerGroupFacts, MemberState, unpack
from goqueue.core.group.protocol_assignment import assigned_partitions
from goqueue.core.group.share_events import ShareGroupFacts
from goqueue.core.group.subscription import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from goqueue.node.groups.groups import Groups
from goqueue.node.groups.member_requests import GroupMode, Place

_SHARE_PROTOCOL = "share"


class MemberView(Struct, frozen=True):
    member_id: str
    client_id: str
    host: str
    generation: int
    state: MemberState
    topics: tuple[str, ...]
    assigned: list[Place]
    revoking: list[Place] = []
    target: list[Place] = []
    heard_ms: int | None = None  # None where the protocol does not say
    revocation_ms: int | None = None


class GroupView(Struct, frozen=True):
    group_id: str
    mode: GroupMode
    group_type: GroupType
    state: str
    generation: int
    assignment_generation: int  # the one that the targets were made for
    protocol: str
    topics: list[str]
    members: list[MemberView]


class GroupViews:
    def __init__(self, groups: Groups) -> None:
        self._groups = groups

    async def list(self) -> list[GroupSummary]:
        return await self._groups.list()

    async def get(self, group_id: str) -> GroupView:
        """GroupNotFound where there is none."""
        facts = await self._groups.describe_any(group_id)
        match facts:
            case ClassicGroupFacts():
                return _classic(facts)
            case ConsumerGroupFacts():
                return _consumer(facts)
            case ShareGroupFacts():
                return _share(facts)


def _share(facts: ShareGroupFacts) -> GroupView:
    members = [
        MemberView(
            one.member_id,
            one.client_id,
            one.client_host,
            one.epoch,
            MemberState.COMPLETE,
            one.subscribed_topics,
            unpack(one.assigned),
            target=unpack(one.assigned),
            heard_ms=one.heard_ms,
        )
        for one in facts.members
    ]
    return GroupView(
        facts.group_id,
        GroupMode.QUEUE,
        GroupType.SHARE,
        facts.state.value,
        facts.epoch,
        facts.epoch,
        _SHARE_PROTOCOL,
        _topics(members),
        members,
    )


def _consumer(facts: ConsumerGroupFacts) -> GroupView:
    members = [
        MemberView(
            one.member_id,
            one.client_id,
            one.client_host,
            one.epoch,
            one.state,
            one.subscribed_topics,
            unpack(one.assigned),
            unpack(one.revoking),
            unpack(one.target),
            one.heard_ms,
            one.revocation_ms,
        )
        for one in facts.members
    ]
    return GroupView(
        facts.group_id,
        GroupMode.STREAM,
        GroupType.CONSUMER,
        facts.state.value,
        facts.epoch,
        facts.assignment_epoch,
        facts.assignor,
        _topics(members),
        members,
    )


def _classic(facts: ClassicGroupFacts) -> GroupView:
    """Its members assign among themselves; what consumers say in doing so can be read."""
    is_readable = facts.protocol_type == CONSUMER_PROTOCOL_TYPE
    members: list[MemberView] = []
    for one in facts.members:
        assigned = sorted(assigned_partitions(one.assignment)) if is_readable else []
        topics = (subscribed_topics(one.metadata) or []) if is_readable else []
        state = MemberState.COMPLETE if one.assignment else MemberState.NONE
        members.append(
            MemberView(
                one.member_id,
                one.client_id,
                one.client_host,
                facts.generation,
                state,
                tuple(topics),
                assigned,
                target=assigned,
            )
        )
    return GroupView(
        facts.group_id,
        GroupMode.STREAM,
        GroupType.CLASSIC,
        facts.state.value,
        facts.generation,
        facts.generation,
        facts.protocol_name,
        _topics(members),
        members,
    )


def _topics(members: list[MemberView]) -> list[str]:
    return sorted(
        {topic for member in members for topic in (*member.topics, *(at for at, _ in member.assigned))}
    )
