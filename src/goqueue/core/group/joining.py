"""Who may join a classic group, and whether that takes a rebalance."""

from __future__ import annotations

from msgspec import structs

from goqueue.core.group.classic import ClassicGroup, Member, fenced_instance, unknown_member
from goqueue.core.group.commands import GroupState, Joined, JoinGroup
from goqueue.core.group.config import GroupConfig
from goqueue.core.group.deadlines import GroupDeadlines
from goqueue.core.group.outcome import Ticket
from goqueue.core.group.rebalance import NEW_MEMBER_JOIN_MS_MAX, Rebalance, Turn, joined, session_key
from goqueue.core.group.subscription import is_same_subscription
from goqueue.model.errors import (
    GroupFull,
    InconsistentGroupProtocol,
    InvalidRequest,
    InvalidSessionTimeout,
    MemberIdRequired,
)


class Joining:
    def __init__(self, config: GroupConfig, deadlines: GroupDeadlines, rebalance: Rebalance) -> None:
        self._config = config
        self._deadlines = deadlines
        self._rebalance = rebalance

    def check(self, group: ClassicGroup, command: JoinGroup) -> None:
        """Refuse what is wrong whoever sends it; reads only."""
        shortest_ms, longest_ms = self._config.session_ms_min, self._config.session_ms_max
        if not shortest_ms <= command.session_timeout_ms <= longest_ms:
            raise InvalidSessionTimeout(
                f"a session lasts {shortest_ms} to {longest_ms} ms, not {command.session_timeout_ms}",
                session_timeout_ms=command.session_timeout_ms,
            )
        if command.member_id and group.is_void:
            raise unknown_member(group.group_id, command.member_id)
        if not group.supports(command.protocol_type, [name for name, _ in command.protocols]):
            raise InconsistentGroupProtocol(
                f"group {group.group_id!r} has members of type {group.protocol_type!r} that know none of these "
                f"protocols of type {command.protocol_type!r}: {[name for name, _ in command.protocols]}"
                if group.members
                else "a member needs a protocol type and at least one protocol",
                group=group.group_id,
                protocol_type=command.protocol_type,
            )
        if command.member_id in group.expected and command.instance_id is not None:
            raise InvalidRequest(
                f"{command.member_id!r} was given to a dynamic member, not to {command.instance_id!r}",
                member=command.member_id,
            )
        if command.member_id and command.member_id not in group.expected:
            group.check_member(command.member_id, command.instance_id)
        if not command.member_id and len(group.expected) >= self._config.member_count_max:
            raise self._full(group)

    def join(self, group: ClassicGroup, command: JoinGroup, ticket: Ticket, turn: Turn) -> None:
        """Call `check` first."""
        known = group.members.get(command.member_id)
        if not self._has_room(group, known):
            turn.outcome.replies.append((ticket, self._full(group)))
            if known is not None:
                self._rebalance.remove(group, known, turn)
                self._rebalance.members_left(group, turn)
        elif known is not None:
            self._rejoin(group, known, command, ticket, turn)
        elif command.member_id:
            self._add(group, command.member_id, command, ticket, turn)
        elif command.instance_id is not None:
            self._join_static(group, command, ticket, turn)
        elif command.must_know_id:
            self._give_id(group, command, ticket, turn)
        else:
            self._add(group, _new_id(command), command, ticket, turn)

    def _has_room(self, group: ClassicGroup, known: Member | None) -> bool:
        """While joins gather, those who have joined count: if the limit was lowered, the last to come are too many."""
        count_max = self._config.member_count_max
        if group.state is GroupState.PREPARING_REBALANCE:
            return (known is not None and known.is_joining) or group.joining_count < count_max
        return known is not None or len(group.members) < count_max

    def _full(self, group: ClassicGroup) -> GroupFull:
        return GroupFull(
            f"group {group.group_id!r} has {self._config.member_count_max} members, which is the limit",
            group=group.group_id,
        )

    def _give_id(self, group: ClassicGroup, command: JoinGroup, ticket: Ticket, turn: Turn) -> None:
        """The member joins again with its id: so one that gives up in between leaves nothing behind."""
        member_id = _new_id(command)
        group.expected[member_id] = None
        self._deadlines.set(session_key(group, member_id), turn.now_ms + command.session_timeout_ms)
        refusal = MemberIdRequired(
            f"join group {group.group_id!r} again with the member id {member_id!r}",
            group=group.group_id,
            member_id=member_id,
        )
        turn.outcome.replies.append((ticket, refusal))

    def _add(
        self, group: ClassicGroup, member_id: str, command: JoinGroup, ticket: Ticket, turn: Turn
    ) -> None:
        member = Member(
            member_id,
            command.instance_id,
            command.client_id,
            command.client_host,
            command.session_timeout_ms,
            max(command.rebalance_timeout_ms, 0),
            command.protocols,
            is_new=True,
        )
        group.has_newcomer = True
        group.add(member, command.protocol_type)
        self._deadlines.set(session_key(group, member_id), turn.now_ms + NEW_MEMBER_JOIN_MS_MAX)
        self._rebalance.park_join(group, member, ticket, turn)
        self._rebalance.prepare_or_join(group, turn)

    def _rejoin(
        self, group: ClassicGroup, member: Member, command: JoinGroup, ticket: Ticket, turn: Turn
    ) -> None:
        """Answered at once if it only did not hear what it was told. A leader always begins a rebalance: it may know of
        new partitions."""
        is_settled = group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE)
        is_leader = group.leader_id == member.member_id
        has_changed = member.protocols != command.protocols
        if is_settled and not has_changed and not (is_leader and group.state is GroupState.STABLE):
            turn.outcome.replies.append((ticket, joined(group, member)))
            return
        self._update(group, member, command)
        self._rebalance.park_join(group, member, ticket, turn)
        self._rebalance.prepare_or_join(group, turn)

    def _update(self, group: ClassicGroup, member: Member, command: JoinGroup) -> None:
        group.set_protocols(member, command.protocols)
        member.session_timeout_ms = command.session_timeout_ms
        member.rebalance_timeout_ms = max(command.rebalance_timeout_ms, 0)
        member.client_id = command.client_id
        member.client_host = command.client_host

    def _join_static(self, group: ClassicGroup, command: JoinGroup, ticket: Ticket, turn: Turn) -> None:
        """A static member that comes back takes its place over, and while the group is stable also its assignment."""
        known_id = group.statics.get(command.instance_id or "")
        if known_id is None:
            self._add(group, _new_id(command), command, ticket, turn)
            return
        member = group.members[known_id]
        leader_id = group.leader_id
        metadata = member.metadata(group.protocol_name)
        self._replace(group, member, command, turn)
        if group.state is GroupState.STABLE and _needs_no_rebalance(group, member, metadata):
            turn.outcome.events.append(group.snapshot(group.since_ms))
            turn.outcome.replies.append((ticket, _resumed(group, member, command, leader_id)))
            return
        self._rebalance.park_join(group, member, ticket, turn)
        self._rebalance.prepare_or_join(group, turn)

    def _replace(self, group: ClassicGroup, member: Member, command: JoinGroup, turn: Turn) -> None:
        """The old id is fenced at once, also where a call of it still waits."""
        fenced = fenced_instance(group.group_id, member.member_id, command.instance_id or "")
        self._rebalance.answer(group, member, fenced, turn)
        self._deadlines.cancel(session_key(group, member.member_id))
        group.rename(member, _new_id(command))
        self._update(group, member, command)
        self._rebalance.touch(group, member, turn.now_ms)


def _needs_no_rebalance(group: ClassicGroup, member: Member, metadata: bytes) -> bool:
    """Whether the assignment would come out the same, given what the member said before."""
    return group.choose_protocol() == group.protocol_name and is_same_subscription(
        group.protocol_type, metadata, member.metadata(group.protocol_name)
    )


def _resumed(group: ClassicGroup, member: Member, command: JoinGroup, leader_id: str | None) -> Joined:
    """A leader goes on as leader without assigning anew. One that is too old to know that is told the name of its
    predecessor as leader, so that it asks for its assignment like the others."""
    reply = joined(group, member)
    if command.may_skip_assignment:
        return structs.replace(reply, skip_assignment=group.leader_id == member.member_id)
    return structs.replace(reply, leader_id=leader_id or "", members=())


def _new_id(command: JoinGroup) -> str:
    return f"{command.instance_id or command.client_id}-{command.fresh_id}"
