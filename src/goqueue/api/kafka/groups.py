"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup: the classic protocol, where one member assigns for all."""

from __future__ import annotations

from typing import Any

from goqueue.api.kafka.call import Answer, Api, Call
from goqueue.api.kafka.context import Context, coordinator_code
from goqueue.model.errors import GoQueueError, MemberIdRequired
from goqueue.node.groups.requests import Heartbeat, JoinGroup, LeaveGroup, Leaver, SyncGroup
from goqueue.wire.schema import responses

_J = responses("join_group")
_S = responses("sync_group")
_H = responses("heartbeat")
_L = responses("leave_group")
_MUST_KNOW_ID_FROM = 4  # KIP-394
_MAY_SKIP_ASSIGNMENT_FROM = 9
_SEVERAL_LEAVE_FROM = 3


class GroupsApi:
    def __init__(self, context: Context) -> None:
        self._groups = context.node.groups

    def apis(self) -> list[Api]:
        return [
            Api("join_group", 0, 9, self.join_group),
            Api("sync_group", 0, 5, self.sync_group),
            Api("heartbeat", 0, 4, self.heartbeat),
            Api("leave_group", 0, 5, self.leave_group),
        ]

    async def join_group(self, call: Call, request: Any) -> Answer:
        timeout_ms = request.rebalance_timeout_ms if call.version >= 1 else request.session_timeout_ms
        command = JoinGroup(
            group_id=request.group_id,
            member_id=request.member_id,
            fresh_id="",
            client_id=call.client_id,
            client_host=call.client_host,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=timeout_ms,
            protocol_type=request.protocol_type,
            protocols=tuple((one.name, one.metadata) for one in request.protocols),
            instance_id=request.group_instance_id,
            must_know_id=call.version >= _MUST_KNOW_ID_FROM,
            may_skip_assignment=call.version >= _MAY_SKIP_ASSIGNMENT_FROM,
        )
        try:
            joined = await self._groups.join(command)
        except MemberIdRequired as error:
            return _J.JoinGroupResponse(
                error_code=coordinator_code(error),
                generation_id=-1,
                member_id=str(error.details["member_id"]),
            )
        except GoQueueError as error:
            return _J.JoinGroupResponse(
                error_code=coordinator_code(error), generation_id=-1, member_id=request.member_id
            )
        return _J.JoinGroupResponse(
            generation_id=joined.generation,
            protocol_type=joined.protocol_type,
            protocol_name=joined.protocol_name,
            leader=joined.leader_id,
            skip_assignment=joined.skip_assignment,
            member_id=joined.member_id,
            members=[
                _J.JoinGroupResponseMember(
                    member_id=one.member_id, group_instance_id=one.instance_id, metadata=one.metadata
                )
                for one in joined.members
            ],
        )

    async def sync_group(self, call: Call, request: Any) -> Answer:
        command = SyncGroup(
            group_id=request.group_id,
            member_id=request.member_id,
            generation=request.generation_id,
            instance_id=request.group_instance_id,
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignments=tuple((one.member_id, one.assignment) for one in request.assignments),
        )
        try:
            synced = await self._groups.sync(command)
        except GoQueueError as error:
            return _S.SyncGroupResponse(error_code=coordinator_code(error))
        return _S.SyncGroupResponse(
            protocol_type=synced.protocol_type,
            protocol_name=synced.protocol_name,
            assignment=synced.assignment,
        )

    async def heartbeat(self, call: Call, request: Any) -> Answer:
        command = Heartbeat(
            group_id=request.group_id,
            member_id=request.member_id,
            generation=request.generation_id,
            instance_id=request.group_instance_id,
        )
        try:
            await self._groups.heartbeat(command)
        except GoQueueError as error:
            return _H.HeartbeatResponse(error_code=coordinator_code(error))
        return _H.HeartbeatResponse()

    async def leave_group(self, call: Call, request: Any) -> Answer:
        if call.version < _SEVERAL_LEAVE_FROM:
            leavers: tuple[Leaver, ...] = (Leaver(request.member_id),)
        else:
            leavers = tuple(Leaver(one.member_id, one.group_instance_id) for one in request.members)
        try:
            left = await self._groups.leave(LeaveGroup(request.group_id, leavers))
        except GoQueueError as error:
            return _L.LeaveGroupResponse(error_code=coordinator_code(error))
        if call.version < _SEVERAL_LEAVE_FROM:
            return _L.LeaveGroupResponse(error_code=coordinator_code(left.members[0].error))
        return _L.LeaveGroupResponse(
            members=[
                _L.MemberResponse(
                    member_id=one.member_id,
                    group_instance_id=one.instance_id,
                    error_code=coordinator_code(one.error),
                )
                for one in left.members
            ]
        )
