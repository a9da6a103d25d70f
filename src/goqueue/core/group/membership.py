"""What members of a classic group do between joins: ask for their assignment, stay alive, leave, commit."""

from __future__ import annotations

from goqueue.core.group.classic import ClassicGroup, Member, unknown_member
from goqueue.core.group.commands import (
    CommitInTransaction,
    CommitOffsets,
    Done,
    GroupState,
    Heartbeat,
    LeaveGroup,
    Leaver,
    LeaverResult,
    Left,
    Synced,
    SyncGroup,
)
from goqueue.core.group.deadlines import GroupDeadlines
from goqueue.core.group.gates import Gates
from goqueue.core.group.outcome import Ticket
from goqueue.core.group.protocol_assignment import without_partitions
from goqueue.core.group.rebalance import Rebalance, Turn, rebalancing, session_key
from goqueue.model.errors import GoQueueError, InconsistentGroupProtocol


class Membership:
    def __init__(self, deadlines: GroupDeadlines, rebalance: Rebalance, gates: Gates) -> None:
        self._deadlines = deadlines
        self._rebalance = rebalance
        self._gates = gates

    def sync(self, group: ClassicGroup, command: SyncGroup, ticket: Ticket, turn: Turn) -> None:
        member = group.check_member(command.member_id, command.instance_id)
        group.check_generation(command.generation)
        _check_protocol(group, command)
        if group.state is GroupState.PREPARING_REBALANCE:
            raise rebalancing(group.group_id)
        self._rebalance.has_synced(group, member)
        if group.state is GroupState.STABLE:
            turn.outcome.replies.append((ticket, _synced(group, member)))
            return
        self._rebalance.park_sync(group, member, ticket, turn)
        if group.leader_id == member.member_id:
            self._assign(group, dict(command.assignments), turn)

    def _assign(self, group: ClassicGroup, assignments: dict[str, bytes], turn: Turn) -> None:
        """The group is stable once this is written. What is behind a gate is left out, whoever assigned it."""
        for member in group.members.values():
            member.assignment = assignments.get(member.member_id, b"")
        withheld = set(self._gates.withheld(group.group_id, group.given()))
        group.withheld = tuple(sorted(withheld))
        for member in group.members.values() if withheld else ():
            member.assignment = without_partitions(member.assignment, withheld)
        turn.outcome.events.append(group.snapshot(turn.now_ms))
        for member in group.members.values():
            if member.is_syncing:
                self._rebalance.answer(group, member, _synced(group, member), turn)
                self._rebalance.touch(group, member, turn.now_ms)

    def follow_gates(self, group: ClassicGroup, turn: Turn) -> None:
        """Rebalance where a gate has opened for the group, or has come before what it has."""
        if self.is_astray(group):
            self._rebalance.prepare(group, turn)

    def is_astray(self, group: ClassicGroup) -> bool:
        if group.state is not GroupState.STABLE or not group.members:
            return False  # who assigns next will know
        is_given_too_much = bool(self._gates.withheld(group.group_id, group.given()))
        still_withheld = self._gates.withheld(group.group_id, group.withheld)
        return is_given_too_much or len(still_withheld) < len(group.withheld)

    def heartbeat(self, group: ClassicGroup, command: Heartbeat, ticket: Ticket, turn: Turn) -> None:
        member = group.check_member(command.member_id, command.instance_id)
        group.check_generation(command.generation)
        self._rebalance.touch(group, member, turn.now_ms)
        is_rebalancing = group.state is GroupState.PREPARING_REBALANCE
        turn.outcome.replies.append((ticket, rebalancing(group.group_id) if is_rebalancing else Done()))

    def leave(self, group: ClassicGroup, command: LeaveGroup, ticket: Ticket, turn: Turn) -> None:
        results = tuple(self._leave(group, leaver, turn) for leaver in command.members)
        turn.outcome.replies.append((ticket, Left(results)))
        if any(result.error is None for result in results):
            self._rebalance.members_left(group, turn)

    def _leave(self, group: ClassicGroup, leaver: Leaver, turn: Turn) -> LeaverResult:
        member_id, instance_id = leaver.member_id, leaver.instance_id
        error: GoQueueError | None = None
        if member_id in group.expected:
            del group.expected[member_id]
            self._deadlines.cancel(session_key(group, member_id))
        else:
            try:
                self._rebalance.remove(group, _leaving_member(group, leaver), turn)
            except GoQueueError as refusal:
                error = refusal
        return LeaverResult(member_id, instance_id, error)

    def check_commit(self, group: ClassicGroup, command: CommitOffsets, now_ms: int) -> None:
        """Only members of the current generation commit, and whoever likes while there are none. It is a sign of life."""
        if command.generation < 0 and not group.members:
            return
        member = group.check_member(command.member_id, command.instance_id)
        group.check_generation(command.generation)
        if group.state is GroupState.COMPLETING_REBALANCE:
            raise rebalancing(group.group_id)
        self._rebalance.touch(group, member, now_ms)

    def check_transactional_commit(self, group: ClassicGroup, command: CommitInTransaction) -> None:
        """Producers of old do not say for which member they commit; their transactional id fences them."""
        is_anonymous = command.generation < 0 and not command.member_id and command.instance_id is None
        if is_anonymous or (command.generation < 0 and not group.members):
            return
        group.check_member(command.member_id, command.instance_id)
        group.check_generation(command.generation)


def _check_protocol(group: ClassicGroup, command: SyncGroup) -> None:
    for said, known in (
        (command.protocol_type, group.protocol_type),
        (command.protocol_name, group.protocol_name),
    ):
        if said is not None and known is not None and said != known:
            raise InconsistentGroupProtocol(
                f"group {group.group_id!r} uses {known!r}, not {said!r}", group=group.group_id
            )


def _leaving_member(group: ClassicGroup, leaver: Leaver) -> Member:
    """An operator may name a static member by its instance alone."""
    if leaver.member_id or leaver.instance_id is None:
        return group.check_member(leaver.member_id, leaver.instance_id)
    member_id = group.statics.get(leaver.instance_id)
    if member_id is None:
        raise unknown_member(group.group_id, leaver.instance_id)
    return group.members[member_id]


def _synced(group: ClassicGroup, member: Member) -> Synced:
    return Synced(group.protocol_type, group.protocol_name or "", member.assignment)
