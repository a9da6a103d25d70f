"""The routes of groups."""

from __future__ import annotations

from goqueue.api.http import group_admin as admin
from goqueue.api.http import group_bodies as bodies
from goqueue.api.http import group_members as members
from goqueue.api.http.call import NoBody
from goqueue.api.http.query import NoQuery
from goqueue.api.http.route import AnyRoute, Direct, Route
from goqueue.model.codes import Code

_WRITE = (
    Code.REQUEST_TOO_LARGE,
    Code.DISK_FULL,
    Code.STORAGE_ERROR,
    Code.PARTITION_OFFLINE,
    Code.TIMEOUT,
    Code.COORDINATOR_NOT_AVAILABLE,
)
_GROUP = (Code.GROUP_NOT_FOUND, Code.COORDINATOR_NOT_AVAILABLE)
_TOPIC = (Code.INVALID_NAME, Code.TOPIC_NOT_FOUND, Code.PARTITION_NOT_FOUND)
_MEMBER = (Code.UNKNOWN_MEMBER, Code.FENCED_MEMBER_EPOCH)
_JOIN = (
    *_WRITE,
    *_TOPIC,
    Code.INVALID_GROUP_ID,
    Code.INVALID_SESSION_TIMEOUT,
    Code.UNSUPPORTED_ASSIGNOR,
    Code.INCONSISTENT_GROUP_PROTOCOL,
    Code.GROUP_FULL,
    Code.LIMIT_EXCEEDED,
)
_POLL = (
    "Mode stream: messages of the member's partitions, from its position on, which is not durable: it begins at the "
    "committed offsets when the member joins, also again (do that when an answer was lost) or the broker restarts. Mode "
    "queue: messages that nobody else has, with receipts. A poll is a heartbeat. It ends early where the member's "
    "partitions change."
)
_COOPERATIVE = "The two phases in the open: first partitions are given up, then assigned."

_MEMBERS: tuple[AnyRoute, ...] = (
    Route(
        method="POST",
        path="/groups/{group}/join",
        summary="Become a member of a group",
        endpoint=members.join,
        query=NoQuery,
        body=bodies.Join,
        answer=bodies.Joined,
        errors=_JOIN,
    ),
    Route(
        method="POST",
        path="/groups/{group}/heartbeat",
        summary="Say that a member is there",
        description="What is to be given up is given up by this call.",
        endpoint=members.heartbeat,
        query=NoQuery,
        body=bodies.Heartbeat,
        answer=bodies.Beaten,
        errors=(*_WRITE, *_MEMBER),
    ),
    Route(
        method="POST",
        path="/groups/{group}/leave",
        summary="Leave a group",
        description="What the member has is for others at once.",
        endpoint=members.leave,
        query=NoQuery,
        body=bodies.Heartbeat,
        answer=bodies.Left,
        errors=(*_WRITE, *_MEMBER),
    ),
    Route(
        method="GET",
        path="/groups/{group}/poll",
        summary="Get messages as a member of a group",
        description=_POLL,
        endpoint=Direct(members.poll),
        query=bodies.PollParameters,
        body=NoBody,
        answer=bodies.Polled,
        errors=(
            *_WRITE,
            *_MEMBER,
            Code.INVALID_NAME,
            Code.INVALID_VISIBILITY,
            Code.LIMIT_EXCEEDED,
            Code.DATA_CORRUPT,
        ),
    ),
    Route(
        method="POST",
        path="/groups/{group}/join/cooperative",
        summary="Become a member that gives up partitions itself",
        description=_COOPERATIVE,
        endpoint=members.join_cooperative,
        query=NoQuery,
        body=bodies.JoinCooperative,
        answer=bodies.Cooperation,
        errors=_JOIN,
    ),
    Route(
        method="POST",
        path="/groups/{group}/heartbeat/cooperative",
        summary="Say that a member is there, and hear what it is to give up",
        description=_COOPERATIVE,
        endpoint=members.heartbeat_cooperative,
        query=NoQuery,
        body=bodies.Heartbeat,
        answer=bodies.Cooperation,
        errors=(*_WRITE, *_MEMBER),
    ),
    Route(
        method="POST",
        path="/groups/{group}/revoke",
        summary="Say that a member has given up partitions",
        description="When all that were to be given up are, the member gets its new ones.",
        endpoint=members.revoke,
        query=NoQuery,
        body=bodies.Revoke,
        answer=bodies.Cooperation,
        errors=(*_WRITE, *_MEMBER),
    ),
    Route(
        method="POST",
        path="/groups/{group}/leave/cooperative",
        summary="Leave a group, with what that releases",
        description=_COOPERATIVE,
        endpoint=members.leave,
        query=NoQuery,
        body=bodies.Heartbeat,
        answer=bodies.Left,
        errors=(*_WRITE, *_MEMBER),
    ),
)

_OFFSETS: tuple[AnyRoute, ...] = (
    Route(
        method="GET",
        path="/groups/{group}/offsets",
        summary="How far a group has come",
        description="Committed offsets of a stream, the acknowledged prefix of a queue, each with the lag.",
        endpoint=admin.read_offsets,
        query=NoQuery,
        body=NoBody,
        answer=bodies.Offsets,
        errors=_GROUP,
    ),
    Route(
        method="POST",
        path="/groups/{group}/offsets",
        summary="Commit offsets",
        description="For a member, of partitions that it has; without member_id, only while the group has no members.",
        endpoint=admin.commit_offsets,
        query=NoQuery,
        body=bodies.CommitOffsets,
        answer=bodies.Offsets,
        errors=(
            *_WRITE,
            *_TOPIC,
            Code.INVALID_GROUP_ID,
            Code.UNKNOWN_MEMBER,
            Code.STALE_MEMBER_EPOCH,
            Code.ILLEGAL_GENERATION,
            Code.PARTITION_NOT_ASSIGNED,
            Code.GROUP_NOT_EMPTY,
            Code.INCONSISTENT_GROUP_PROTOCOL,
            Code.OFFSET_OUT_OF_RANGE,
            Code.LIMIT_EXCEEDED,
        ),
    ),
    Route(
        method="POST",
        path="/groups/{group}/offsets/reset",
        summary="Send a group to another place",
        description="A stream's members must have left. A queue may be reset while it is read; its receipts become void.",
        endpoint=admin.reset_offsets,
        query=NoQuery,
        body=bodies.ResetOffsets,
        answer=bodies.ResetDone,
        errors=(
            *_WRITE,
            *_TOPIC,
            Code.INVALID_GROUP_ID,
            Code.GROUP_NOT_FOUND,
            Code.GROUP_NOT_EMPTY,
            Code.OFFSET_OUT_OF_RANGE,
            Code.LIMIT_EXCEEDED,
        ),
    ),
)

_GROUPS: tuple[AnyRoute, ...] = (
    Route(
        method="GET",
        path="/groups",
        summary="All groups, by name",
        endpoint=admin.list_groups,
        query=NoQuery,
        body=NoBody,
        answer=bodies.GroupList,
        errors=(Code.COORDINATOR_NOT_AVAILABLE,),
    ),
    Route(
        method="GET",
        path="/groups/{group}",
        summary="A group and its members",
        endpoint=admin.describe_group,
        query=NoQuery,
        body=NoBody,
        answer=bodies.GroupDescription,
        errors=_GROUP,
    ),
    Route(
        method="PATCH",
        path="/groups/{group}",
        summary="Change a group's settings",
        description="Those of a queue group, over the settings of the topics it reads. The group need not exist yet.",
        endpoint=admin.configure_group,
        query=NoQuery,
        body=bodies.GroupChanges,
        answer=bodies.GroupConfig,
        errors=(*_WRITE, Code.INVALID_GROUP_ID, Code.INVALID_SETTING, Code.INVALID_NAME, Code.LIMIT_EXCEEDED),
    ),
    Route(
        method="DELETE",
        path="/groups/{group}",
        summary="Delete a group without members, and its offsets",
        endpoint=admin.delete_group,
        query=NoQuery,
        body=NoBody,
        answer=bodies.GroupDeleted,
        errors=(*_WRITE, Code.GROUP_NOT_FOUND, Code.GROUP_NOT_EMPTY, Code.INVALID_GROUP_ID),
    ),
    Route(
        method="GET",
        path="/groups/{group}/assignment",
        summary="What each member has and shall have",
        endpoint=admin.show_assignment,
        query=NoQuery,
        body=NoBody,
        answer=bodies.GroupAssignment,
        errors=_GROUP,
    ),
    Route(
        method="GET",
        path="/groups/{group}/cooperative",
        summary="How far each member is in a rebalance",
        endpoint=admin.show_cooperation,
        query=NoQuery,
        body=NoBody,
        answer=bodies.GroupCooperation,
        errors=_GROUP,
    ),
    Route(
        method="GET",
        path="/groups/{group}/rebalance/stats",
        summary="The rebalances of a group",
        endpoint=admin.group_rebalances,
        query=NoQuery,
        body=NoBody,
        answer=bodies.RebalanceStats,
        errors=_GROUP,
    ),
    Route(
        method="GET",
        path="/rebalance/stats",
        summary="The rebalances of all groups",
        endpoint=admin.all_rebalances,
        query=NoQuery,
        body=NoBody,
        answer=bodies.RebalanceStats,
    ),
)

GROUP_ROUTES: tuple[AnyRoute, ...] = (*_MEMBERS, *_OFFSETS, *_GROUPS)
