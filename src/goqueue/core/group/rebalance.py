"""The rebalance of a classic group: join, then sync.

Empty or Stable, a change of the members begins PreparingRebalance: joins are parked until every known member has joined
or the longest rebalance timeout is over, which removes those who did not. Then a new generation begins
(CompletingRebalance): the joins are answered, the leader assigns, and its SyncGroup makes the group Stable. Members that
never ask for their assignment are removed after the same timeout, which begins the next rebalance.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from goqueue.core.group.classic import ClassicGroup, Member, unknown_member
from goqueue.core.group.commands import GroupState, Joined, Reply
from goqueue.core.group.config import GroupConfig
from goqueue.core.group.deadlines import GroupDeadlines, Key, Kind
from goqueue.core.group.outcome import Outcome, Ticket
from goqueue.model.errors import GoQueueError, RebalanceInProgress

NEW_MEMBER_JOIN_MS_MAX = 5 * 60_000  # Kafka's: a new member whose client has gone must not stay for ever
_POSTPONE_MS_MIN = 1_000


@dataclass(slots=True)
class Turn:
    """One command or one deadline that is being worked on."""

    now_ms: int
    outcome: Outcome = field(default_factory=Outcome)


class Rebalance:
    def __init__(self, config: GroupConfig, deadlines: GroupDeadlines) -> None:
        self._config = config
        self._deadlines = deadlines
        self._parked: dict[Ticket, Member] = {}

    # Sessions.

    def touch(self, group: ClassicGroup, member: Member, now_ms: int) -> None:
        """The member was heard of."""
        self._deadlines.set(session_key(group, member.member_id), now_ms + member.session_timeout_ms)

    def end_session(self, group: ClassicGroup, member_id: str, turn: Turn) -> None:
        """It was not heard of for too long. Who waits for us is excused, but for new members: nobody would notice that
        their clients have gone."""
        self._deadlines.cancel(session_key(group, member_id))
        if member_id in group.expected:
            del group.expected[member_id]
            self._complete_if_all_joined(group, turn)
            return
        member = group.members.get(member_id)
        if member is not None and (member.is_new or not (member.is_joining or member.is_syncing)):
            self.remove(group, member, turn)
            self.members_left(group, turn)

    # Members that go.

    def remove(self, group: ClassicGroup, member: Member, turn: Turn) -> None:
        """Call `members_left` when all who leave together are removed."""
        self.answer(group, member, unknown_member(group.group_id, member.member_id), turn)
        self._deadlines.cancel(session_key(group, member.member_id))
        group.remove(member)

    def members_left(self, group: ClassicGroup, turn: Turn) -> None:
        if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            self.prepare(group, turn)
        else:
            self._complete_if_all_joined(group, turn)

    def _complete_if_all_joined(self, group: ClassicGroup, turn: Turn) -> None:
        """An empty group's first rebalance ends with its delay, not before."""
        is_waiting = group.state is GroupState.PREPARING_REBALANCE and not group.is_initial
        if is_waiting and (group.has_all_joined or not group.members):
            self._complete_join(group, turn)

    # The first phase.

    def prepare_or_join(self, group: ClassicGroup, turn: Turn) -> None:
        """A member came or changed: begin a rebalance, or go on with the one that is under way."""
        if group.state is not GroupState.PREPARING_REBALANCE:
            self.prepare(group, turn)
        else:
            self._complete_if_all_joined(group, turn)

    def prepare(self, group: ClassicGroup, turn: Turn) -> None:
        if group.state is GroupState.COMPLETING_REBALANCE:
            self._cancel_syncs(group, turn)
        group.unsynced.clear()
        self._deadlines.cancel(_sync_key(group))
        group.is_initial = group.state is GroupState.EMPTY
        group.state = GroupState.PREPARING_REBALANCE
        delay_ms = self._config.initial_rebalance_delay_ms
        if group.is_initial and delay_ms > 0:
            group.has_newcomer = False
            group.initial_ms_left = max(group.rebalance_timeout_ms - delay_ms, 0)
            self._deadlines.set(_join_key(group), turn.now_ms + delay_ms)
        elif group.is_initial or group.has_all_joined or not group.members:
            self._complete_join(group, turn)
        else:
            self._deadlines.set(_join_key(group), turn.now_ms + group.rebalance_timeout_ms)

    def end_join_phase(self, group: ClassicGroup, turn: Turn) -> None:
        """The time is up; an initial one is prolonged as long as members keep coming."""
        self._deadlines.cancel(_join_key(group))
        if group.state is not GroupState.PREPARING_REBALANCE:
            return
        if group.is_initial and group.has_newcomer and group.initial_ms_left > 0:
            delay_ms = min(self._config.initial_rebalance_delay_ms, group.initial_ms_left)
            group.has_newcomer = False
            group.initial_ms_left -= delay_ms
            self._deadlines.set(_join_key(group), turn.now_ms + delay_ms)
        else:
            self._complete_join(group, turn)

    def _complete_join(self, group: ClassicGroup, turn: Turn) -> None:
        self._deadlines.cancel(_join_key(group))
        late = [one for one in group.members.values() if not one.is_joining and one.instance_id is None]
        for member in late:
            self.remove(group, member, turn)
        if group.members and not group.elect_joined_leader():
            # Only static members, all of them away: wait until they are back or their sessions end.
            postponed_ms = max(group.rebalance_timeout_ms, _POSTPONE_MS_MIN)
            self._deadlines.set(_join_key(group), turn.now_ms + postponed_ms)
            return
        group.generation += 1
        if not group.members:
            self._become_empty(group, turn)
            return
        group.protocol_name = group.choose_protocol()
        group.state = GroupState.COMPLETING_REBALANCE
        for member in group.members.values():
            self.answer(group, member, joined(group, member), turn)
            self.touch(group, member, turn.now_ms)
            member.is_new = False
            group.unsynced[member.member_id] = None
        self._deadlines.set(_sync_key(group), turn.now_ms + group.rebalance_timeout_ms)

    def _become_empty(self, group: ClassicGroup, turn: Turn) -> None:
        group.protocol_name = None
        group.withheld = ()
        turn.outcome.events.append(group.snapshot(turn.now_ms))

    # The second phase.

    def _cancel_syncs(self, group: ClassicGroup, turn: Turn) -> None:
        for member in group.members.values():
            if member.is_syncing:
                self.answer(group, member, rebalancing(group.group_id), turn)
                self.touch(group, member, turn.now_ms)

    def end_sync_phase(self, group: ClassicGroup, turn: Turn) -> None:
        """Who has not asked for its assignment by now is not coming."""
        self._deadlines.cancel(_sync_key(group))
        late = [group.members[member_id] for member_id in group.unsynced]
        for member in late:
            self.remove(group, member, turn)
        if late:
            self.prepare(group, turn)

    def has_synced(self, group: ClassicGroup, member: Member) -> None:
        group.unsynced.pop(member.member_id, None)
        if not group.unsynced:
            self._deadlines.cancel(_sync_key(group))

    # Calls that wait.

    def park_join(self, group: ClassicGroup, member: Member, ticket: Ticket, turn: Turn) -> None:
        self.answer(group, member, rebalancing(group.group_id), turn)  # an earlier call of the same member
        group.begin_joining(member, ticket)
        self._parked[ticket] = member

    def park_sync(self, group: ClassicGroup, member: Member, ticket: Ticket, turn: Turn) -> None:
        self.answer(group, member, rebalancing(group.group_id), turn)
        member.is_syncing = True
        member.ticket = ticket
        self._parked[ticket] = member

    def answer(self, group: ClassicGroup, member: Member, answer: Reply | GoQueueError, turn: Turn) -> None:
        """The call of a member that waits, if there is one."""
        group.end_joining(member)
        member.is_syncing = False
        if member.ticket is not None:
            del self._parked[member.ticket]
            turn.outcome.replies.append((member.ticket, answer))
            member.ticket = None

    def abandon(self, ticket: Ticket) -> None:
        """The client went away. Its member stays in the rebalance, as in Kafka: it may be back before its session
        ends."""
        member = self._parked.pop(ticket, None)
        if member is not None:
            member.ticket = None


def joined(group: ClassicGroup, member: Member) -> Joined:
    """The answer to a join of the generation that there is."""
    is_leader = group.leader_id == member.member_id
    return Joined(
        member_id=member.member_id,
        generation=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name or "",
        leader_id=group.leader_id or "",
        members=group.roster() if is_leader else (),
    )


def rebalancing(group_id: str) -> RebalanceInProgress:
    return RebalanceInProgress(f"group {group_id!r} is rebalancing; join again", group=group_id)


def session_key(group: ClassicGroup, member_id: str) -> Key:
    return Key(Kind.SESSION, group.group_id, member_id)


def _join_key(group: ClassicGroup) -> Key:
    return Key(Kind.JOIN, group.group_id)


def _sync_key(group: ClassicGroup) -> Key:
    return Key(Kind.SYNC, group.group_id)
