"""ShareGroupHeartbeat and ShareGroupDescribe (KIP-932): who competes for the records of a queue group."""

from __future__ import annotations

from typing import Any

from goqueue.api.kafka.assignments import assigned, described
from goqueue.api.kafka.call import Answer, Api, Call
from goqueue.api.kafka.context import Context, coordinator_code
from goqueue.model.errors import GoQueueError
from goqueue.node.groups.requests import ShareGroupFacts, ShareHeartbeat
from goqueue.wire.schema import responses

_H = responses("share_group_heartbeat")
_D = responses("share_group_describe")
_ASSIGNOR = "simple"  # Kafka's name for everything to everybody


class ShareGroupsApi:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._groups = context.node.groups

    def apis(self) -> list[Api]:
        return [
            Api("share_group_heartbeat", 1, 1, self.share_group_heartbeat),
            Api("share_group_describe", 1, 1, self.share_group_describe),
        ]

    async def share_group_heartbeat(self, call: Call, request: Any) -> Answer:
        names = request.subscribed_topic_names
        command = ShareHeartbeat(
            group_id=request.group_id,
            member_id=request.member_id,
            member_epoch=request.member_epoch,
            rack_id=request.rack_id,
            client_id=call.client_id,
            client_host=call.client_host,
            subscribed_topics=None if names is None else tuple(names),
        )
        try:
            reply = await self._groups.share_heartbeat(command)
        except GoQueueError as error:
            return _H.ShareGroupHeartbeatResponse(
                error_code=coordinator_code(error), error_message=error.sentence, member_id=request.member_id
            )
        return _H.ShareGroupHeartbeatResponse(
            member_id=reply.member_id,
            member_epoch=reply.member_epoch,
            heartbeat_interval_ms=reply.heartbeat_interval_ms,
            assignment=None if reply.assignment is None else assigned(self._context, _H, reply.assignment),
        )

    async def share_group_describe(self, call: Call, request: Any) -> Answer:
        return _D.ShareGroupDescribeResponse(
            groups=[await self._described(group_id) for group_id in request.group_ids]
        )

    async def _described(self, group_id: str) -> Any:
        try:
            facts = await self._groups.describe_share(group_id)
        except GoQueueError as error:
            return _D.DescribedGroup(
                error_code=coordinator_code(error), error_message=error.sentence, group_id=group_id
            )
        return self._facts(facts)

    def _facts(self, facts: ShareGroupFacts) -> Any:
        return _D.DescribedGroup(
            group_id=facts.group_id,
            group_state=facts.state.value,
            group_epoch=facts.epoch,
            assignment_epoch=facts.epoch,
            assignor_name=_ASSIGNOR,
            members=[
                _D.Member(
                    member_id=member.member_id,
                    rack_id=member.rack_id,
                    member_epoch=member.epoch,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    subscribed_topic_names=member.subscribed_topics,
                    assignment=described(self._context, _D, member.assigned),
                )
                for member in facts.members
            ],
        )
