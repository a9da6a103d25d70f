"""ListGroups, DescribeGroups and DeleteGroups."""

from __future__ import annotations

from typing import Any

from goqueue.api.kafka.call import Answer, Api, Call
from goqueue.api.kafka.context import Context, code_of
from goqueue.model.errors import GoQueueError, GroupNotFound
from goqueue.node.groups.requests import ClassicGroupFacts
from goqueue.wire.schema import responses

_L = responses("list_groups")
_G = responses("describe_groups")
_D = responses("delete_groups")
_DEAD = "Dead"
_NOT_FOUND_IS_AN_ERROR_FROM = 6


class GroupAdminApi:
    def __init__(self, context: Context) -> None:
        self._groups = context.node.groups

    def apis(self) -> list[Api]:
        return [
            Api("list_groups", 0, 5, self.list_groups),
            Api("describe_groups", 0, 6, self.describe_groups),
            Api("delete_groups", 0, 2, self.delete_groups),
        ]

    async def list_groups(self, call: Call, request: Any) -> Answer:
        try:
            groups = await self._groups.list()
        except GoQueueError as error:
            return _L.ListGroupsResponse(error_code=code_of(error))
        states = {state.lower() for state in request.states_filter}
        types = {type.lower() for type in request.types_filter}
        return _L.ListGroupsResponse(
            groups=[
                _L.ListedGroup(
                    group_id=group.group_id,
                    protocol_type=group.protocol_type,
                    group_state=group.state.value,
                    group_type=group.group_type.value,
                )
                for group in groups
                if (not states or group.state.value.lower() in states)
                and (not types or group.group_type.value.lower() in types)
            ]
        )

    async def describe_groups(self, call: Call, request: Any) -> Answer:
        return _G.DescribeGroupsResponse(
            groups=[await self._described(call, group_id) for group_id in request.groups]
        )

    async def _described(self, call: Call, group_id: str) -> Any:
        try:
            facts = await self._groups.describe(group_id)
        except GroupNotFound as error:
            if call.version < _NOT_FOUND_IS_AN_ERROR_FROM:
                return _G.DescribedGroup(group_id=group_id, group_state=_DEAD)
            return _G.DescribedGroup(
                error_code=code_of(error), error_message=error.sentence, group_id=group_id, group_state=_DEAD
            )
        except GoQueueError as error:
            return _G.DescribedGroup(
                error_code=code_of(error), error_message=error.sentence, group_id=group_id
            )
        return _classic(facts)

    async def delete_groups(self, call: Call, request: Any) -> Answer:
        return _D.DeleteGroupsResponse(
            results=[await self._deleted(group_id) for group_id in request.groups_names]
        )

    async def _deleted(self, group_id: str) -> Any:
        try:
            await self._groups.delete(group_id)
        except GoQueueError as error:
            return _D.DeletableGroupResult(group_id=group_id, error_code=code_of(error))
        return _D.DeletableGroupResult(group_id=group_id)


def _classic(facts: ClassicGroupFacts) -> Any:
    return _G.DescribedGroup(
        group_id=facts.group_id,
        group_state=facts.state.value,
        protocol_type=facts.protocol_type,
        protocol_data=facts.protocol_name,
        members=[
            _G.DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=f"/{member.client_host}",
                member_metadata=member.metadata,
                member_assignment=member.assignment,
            )
            for member in facts.members
        ],
    )
