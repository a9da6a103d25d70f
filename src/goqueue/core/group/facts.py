"""What can be seen of the groups of a shard."""

from __future__ import annotations

from collections.abc import Collection

from goqueue.core.group.classic import ClassicGroup
from goqueue.core.group.commands import (
    ClassicGroupFacts,
    GroupFacts,
    GroupState,
    GroupSummary,
    GroupType,
    MemberFacts,
)
from goqueue.core.group.deadlines import GroupDeadlines, Key, Kind
from goqueue.core.group.shard import GroupShard
from goqueue.core.group.subscription import CONSUMER_PROTOCOL_TYPE
from goqueue.model.errors import GroupNotFound

SHARE_PROTOCOL_TYPE = "share"


def describe(shard: GroupShard, group_id: str) -> GroupFacts:
    if group_id in shard.shares:
        return shard.shares.describe(group_id)
    consumer = shard.consumers.get(group_id)
    if consumer is not None:
        return consumer.describe_now()
    classic = shard.classic.get(group_id)
    if classic is not None:
        return _classic_facts(classic, shard.deadlines)
    if shard.offsets.has_group(group_id):  # somebody who takes no part in a group commits under this name
        return ClassicGroupFacts(group_id, GroupState.EMPTY, "", "", 0, None, ())
    raise GroupNotFound(f"there is no group {group_id!r}", group=group_id)


def summaries(
    shard: GroupShard, states: Collection[str] = (), types: Collection[str] = ()
) -> list[GroupSummary]:
    """Sorted by name; only those in one of the states and of one of the types, whatever their case, if any are given."""
    wanted_states = [state.lower() for state in states]
    wanted_types = [type.lower() for type in types]
    names = sorted({*shard.classic, *shard.consumers.ids(), *shard.shares.ids(), *shard.offsets.groups()})
    found = [_summary(shard, name) for name in names]
    return [
        one
        for one in found
        if (not wanted_states or one.state.lower() in wanted_states)
        and (not wanted_types or one.group_type.lower() in wanted_types)
    ]


def _summary(shard: GroupShard, group_id: str) -> GroupSummary:
    if group_id in shard.shares:
        state = GroupState.STABLE if shard.shares.has_members(group_id) else GroupState.EMPTY
        return GroupSummary(group_id, GroupType.SHARE, SHARE_PROTOCOL_TYPE, state)
    consumer = shard.consumers.get(group_id)
    if consumer is not None:
        state = GroupState(consumer.describe().state)
        return GroupSummary(group_id, GroupType.CONSUMER, CONSUMER_PROTOCOL_TYPE, state)
    classic = shard.classic.get(group_id)
    if classic is not None:
        return GroupSummary(group_id, GroupType.CLASSIC, classic.protocol_type, classic.state)
    return GroupSummary(group_id, GroupType.CLASSIC, "", GroupState.EMPTY)


def _classic_facts(group: ClassicGroup, deadlines: GroupDeadlines) -> ClassicGroupFacts:
    """While members change, what they said and got belongs to a generation that is over: it is not shown."""
    is_stable = group.state is GroupState.STABLE
    members = tuple(
        MemberFacts(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            member.metadata(group.protocol_name) if is_stable else b"",
            member.assignment if is_stable else b"",
            deadlines.get(Key(Kind.SESSION, group.group_id, member.member_id)),
        )
        for member in group.members.values()
    )
    return ClassicGroupFacts(
        group.group_id,
        group.state,
        group.protocol_type,
        (group.protocol_name or "") if is_stable else "",
        group.generation,
        group.leader_id,
        members,
    )
