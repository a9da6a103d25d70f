"""ConsumerGroupHeartbeat and ConsumerGroupDescribe (KIP-848): the broker assigns, a heartbeat says everything."""

from __future__ import annotations

from typing import Any

from goqueue.api.kafka.assignments import Assignment, assigned, described
from goqueue.api.kafka.call import Answer, Api, Call
from goqueue.api.kafka.context import Context, coordinator_code
from goqueue.model.errors import GoQueueError
from goqueue.node.groups.requests import ConsumerGroupFacts, ConsumerHeartbeat
from goqueue.wire.schema import responses

_H = responses("consumer_group_heartbeat")
_D = responses("consumer_group_describe")


class ConsumerGroupsApi:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._groups = context.node.groups

    def apis(self) -> list[Api]:
        return [
            Api("consumer_group_heartbeat", 0, 1, self.consumer_group_heartbeat),
            Api("consumer_group_describe", 0, 1, self.consumer_group_describe),
        ]

    async def consumer_group_heartbeat(self, call: Call, request: Any) -> Answer:
        names = request.subscribed_topic_names
        command = ConsumerHeartbeat(
            group_id=request.group_id,
            member_id=request.member_id,
            member_epoch=request.member_epoch,
            fresh_id="",
            instance_id=request.instance_id,
            rack_id=request.rack_id,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            client_id=call.client_id,
            client_host=call.client_host,
            subscribed_topics=None if names is None else tuple(names),
            subscribed_regex=request.subscribed_topic_regex,
            assignor=request.server_assignor,
            owned=self._owned(request.topic_partitions),
        )
        try:
            reply = await self._groups.consumer_heartbeat(command)
        except GoQueueError as error:
            return _H.ConsumerGroupHeartbeatResponse(
                error_code=coordinator_code(error), error_message=error.sentence, member_id=request.member_id
            )
        return _H.ConsumerGroupHeartbeatResponse(
            member_id=reply.member_id,
            member_epoch=reply.member_epoch,
            heartbeat_interval_ms=reply.heartbeat_interval_ms,
            assignment=None if reply.assignment is None else assigned(self._context, _H, reply.assignment),
        )

    def _owned(self, topics: Any) -> Assignment | None:
        """By name. A topic that was deleted is owned by nobody."""
        if topics is None:
            return None
        owned: list[tuple[str, tuple[int, ...]]] = []
        for topic in topics:
            try:
                owned.append((self._context.topic_name(topic.topic_id), tuple(topic.partitions)))
            except GoQueueError:
                continue
        return tuple(owned)

    async def consumer_group_describe(self, call: Call, request: Any) -> Answer:
        return _D.ConsumerGroupDescribeResponse(
            groups=[await self._described(group_id) for group_id in request.group_ids]
        )

    async def _described(self, group_id: str) -> Any:
        try:
            facts = await self._groups.describe_consumer(group_id)
        except GoQueueError as error:
            return _D.DescribedGroup(
                error_code=coordinator_code(error), error_message=error.sentence, group_id=group_id
            )
        return self._facts(facts)

    def _facts(self, facts: ConsumerGroupFacts) -> Any:
        return _D.DescribedGroup(
            group_id=facts.group_id,
            group_state=facts.state.value,
            group_epoch=facts.epoch,
            assignment_epoch=facts.assignment_epoch,
            assignor_name=facts.assignor,
            members=[
                _D.Member(
                    member_id=member.member_id,
                    instance_id=member.instance_id,
                    rack_id=member.rack_id,
                    member_epoch=member.epoch,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    subscribed_topic_names=member.subscribed_topics,
                    subscribed_topic_regex=member.subscribed_regex,
                    assignment=described(self._context, _D, member.assigned),
                    target_assignment=described(self._context, _D, member.target),
                    member_type=1,
                )
                for member in facts.members
            ],
        )
