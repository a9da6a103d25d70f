"""The routes that show groups, change their settings and offsets, and delete them."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import UnsetType

from goqueue.api.http.call import Call, NoBody
from goqueue.api.http.group_bodies import (
    CommitOffsets,
    GroupAssignment,
    GroupChanges,
    GroupConfig,
    GroupCooperation,
    GroupDeleted,
    GroupDescription,
    GroupLine,
    GroupList,
    MemberAssignment,
    MemberCooperation,
    MemberDescription,
    MovedOffset,
    OffsetAndLag,
    Offsets,
    RebalanceStats,
    ResetDone,
    ResetOffsets,
)
from goqueue.api.http.group_members import instant, partitions
from goqueue.api.http.query import NoQuery
from goqueue.api.http.read import path_number
from goqueue.api.http.topics import setting_text
from goqueue.model.duration import parse_instant_ms
from goqueue.model.errors import InvalidRequest
from goqueue.node.groups.member_requests import GroupMode, MemberState
from goqueue.node.groups.members import check_group_id
from goqueue.node.groups.offsets import GroupOffset, Reset
from goqueue.node.groups.rebalances import RebalanceStats as Stats
from goqueue.node.groups.requests import GroupType


async def list_groups(call: Call[NoQuery, NoBody]) -> GroupList:
    return GroupList(
        [
            GroupLine(
                one.group_id,
                GroupMode.QUEUE if one.group_type is GroupType.SHARE else GroupMode.STREAM,
                one.group_type.value,
                one.state.value,
            )
            for one in await call.node.group_views.list()
        ]
    )


async def describe_group(call: Call[NoQuery, NoBody]) -> GroupDescription:
    view = await call.node.group_views.get(call.path["group"])
    return GroupDescription(
        view.group_id,
        view.mode,
        view.group_type.value,
        view.state,
        view.generation,
        view.protocol,
        view.topics,
        [
            MemberDescription(
                one.member_id,
                one.client_id,
                one.host,
                one.generation,
                list(one.topics),
                partitions(one.assigned),
                instant(one.heard_ms),
            )
            for one in view.members
        ],
        call.node.groups.settings_of(view.group_id),
    )


async def configure_group(call: Call[NoQuery, GroupChanges]) -> GroupConfig:
    group_id = call.path["group"]
    check_group_id(group_id)
    changes = {
        name: None if value is None else setting_text(name, value) for name, value in call.body.config.items()
    }
    await call.node.groups.configure(group_id, changes)
    return GroupConfig(group_id, call.node.groups.settings_of(group_id))


async def delete_group(call: Call[NoQuery, NoBody]) -> GroupDeleted:
    await call.node.groups.delete(call.path["group"])
    return GroupDeleted(call.path["group"], True)


async def show_assignment(call: Call[NoQuery, NoBody]) -> GroupAssignment:
    view = await call.node.group_views.get(call.path["group"])
    members = [
        MemberAssignment(
            one.member_id, one.generation, one.state, partitions(one.assigned), partitions(one.target)
        )
        for one in view.members
    ]
    return GroupAssignment(view.group_id, view.generation, view.protocol, members)


async def show_cooperation(call: Call[NoQuery, NoBody]) -> GroupCooperation:
    view = await call.node.group_views.get(call.path["group"])
    members = [
        MemberCooperation(
            one.member_id,
            one.generation,
            one.state,
            partitions(one.revoking),
            partitions(place for place in one.target if place not in one.assigned),
            instant(one.revocation_ms) if one.state is MemberState.PENDING_REVOKE else None,
        )
        for one in view.members
    ]
    is_moving = view.generation != view.assignment_generation or any(
        one.state is not MemberState.COMPLETE for one in view.members
    )
    return GroupCooperation(
        view.group_id, view.state, view.generation, view.assignment_generation, is_moving, members
    )


# -------------------------------------------------------------------- rebalances


async def group_rebalances(call: Call[NoQuery, NoBody]) -> RebalanceStats:
    await call.node.group_views.get(call.path["group"])
    return _stats(call.node.rebalances.of(call.path["group"]))


async def all_rebalances(call: Call[NoQuery, NoBody]) -> RebalanceStats:
    return _stats(call.node.rebalances.total())


def _stats(stats: Stats) -> RebalanceStats:
    return RebalanceStats(
        stats.rebalance_count,
        stats.is_in_progress,
        stats.moved_count,
        stats.timeout_count,
        dict(sorted(stats.by_reason.items())),
        stats.last_ms,
        stats.longest_ms,
        round(stats.sum_ms / stats.timed_count, 1) if stats.timed_count else None,
    )


# -------------------------------------------------------------------- offsets


async def read_offsets(call: Call[NoQuery, NoBody]) -> Offsets:
    return _offsets(await call.node.group_offsets.read(call.path["group"]))


async def commit_offsets(call: Call[NoQuery, CommitOffsets]) -> Offsets:
    body = call.body
    offsets = {
        (topic, path_number("partition", index)): offset
        for topic, indexes in body.offsets.items()
        for index, offset in indexes.items()
    }
    return _offsets(
        await call.node.group_offsets.commit(
            call.path["group"],
            offsets,
            member_id=None if isinstance(body.member_id, UnsetType) else body.member_id,
            generation=None if isinstance(body.generation, UnsetType) else body.generation,
        )
    )


async def reset_offsets(call: Call[NoQuery, ResetOffsets]) -> ResetDone:
    body = call.body
    moved = await call.node.group_offsets.reset(
        Reset(
            group_id=call.path["group"],
            to=body.to,
            topic=None if isinstance(body.topic, UnsetType) else body.topic,
            partitions=body.partitions,
            offset=None if isinstance(body.offset, UnsetType) else body.offset,
            timestamp_ms=_timestamp_ms(body.timestamp),
            is_dry_run=body.dry_run,
        )
    )
    return ResetDone(body.dry_run, [MovedOffset(one.topic, one.partition, one.old, one.new) for one in moved])


def _timestamp_ms(text: str | UnsetType) -> int | None:
    if isinstance(text, UnsetType):
        return None
    try:
        return max(0, parse_instant_ms(text))
    except (ValueError, OverflowError) as error:
        raise InvalidRequest(f"timestamp is wrong: {error}", field="timestamp") from None


def _offsets(found: Iterable[GroupOffset]) -> Offsets:
    topics: dict[str, dict[str, OffsetAndLag]] = {}
    for one in found:
        topics.setdefault(one.topic, {})[str(one.partition)] = OffsetAndLag(one.offset, one.lag)
    return Offsets(topics)
