"""What groups have set of their own, wherever they are coordinated."""

from __future__ import annotations

from collections.abc import Mapping

from goqueue.node.forwarding import Forwarding, OfGroup
from goqueue.node.groups.groups import Groups
from goqueue.node.other_nodes import GroupConfigCall, OtherNodes


class GroupConfigs:
    def __init__(self, groups: Groups, forwarding: Forwarding | None, nodes: OtherNodes | None) -> None:
        """The last two are None where this node is alone."""
        self._groups = groups
        self._forwarding = forwarding
        self._nodes = nodes

    async def settings_of(self, group_id: str) -> dict[str, str]:
        return await self._carry(GroupConfigCall(group_id))

    async def configure(
        self, group_id: str, changes: Mapping[str, str | None], *, is_whole: bool, validate_only: bool
    ) -> None:
        """As `Groups.configure`; with `validate_only` it raises what that would, and changes nothing."""
        await self._carry(GroupConfigCall(group_id, dict(changes), is_whole, validate_only))

    async def _carry(self, call: GroupConfigCall) -> dict[str, str]:
        nodes = self._nodes
        if self._forwarding is None or nodes is None:
            return await configure_here(self._groups, call)
        return await self._forwarding.carry(
            OfGroup(call.group_id),
            lambda: configure_here(self._groups, call),
            lambda target: nodes.configure_group(target, call),
            may_repeat=True,
        )


async def configure_here(groups: Groups, call: GroupConfigCall) -> dict[str, str]:
    """The settings of the group afterwards; NotCoordinator where another node knows it."""
    if call.changes is not None and call.validate_only:
        groups.check_configuration(call.group_id, call.changes, is_whole=call.is_whole)
    elif call.changes is not None:
        await groups.configure(call.group_id, call.changes, is_whole=call.is_whole)
    return groups.settings_of(call.group_id)
