"""Clients that do anything in any order, also wrong things, on a shard that restarts: what must hold always."""

from __future__ import annotations

from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.support.groups import Desk, durable, subscription

from goqueue.core.group.commands import (
    Command,
    CommitInTransaction,
    CommitOffsets,
    CompleteTransaction,
    DeleteGroup,
    DeleteOffsets,
    ForgetTopic,
    GroupState,
    Heartbeat,
    Joined,
    LeaveGroup,
    Leaver,
    Left,
    NewOffset,
    PartitionResults,
    Synced,
    SyncGroup,
)
from goqueue.core.group.config import GroupConfig
from goqueue.core.group.consumer_events import ConsumerHeartbeat, ConsumerHeartbeatReply
from goqueue.core.group.outcome import Ticket
from goqueue.model.errors import GoQueueError

GROUPS = ("g", "h")
INSTANCES = ("i", "j")
CONFIG = GroupConfig(
    initial_rebalance_delay_ms=0, member_count_max=4, offset_retention_ms=500_000, consumer_session_ms=20_000
)
groups = st.sampled_from(GROUPS)
places = st.tuples(st.sampled_from(["orders", "bills"]), st.integers(0, 1))


class Client:
    """What a member believes of itself."""

    def __init__(self, group: str, instance: str | None) -> None:
        self.group = group
        self.instance = instance
        self.member_id = ""
        self.generation = -1
        self.is_leader = False
        self.roster: list[str] = []


class GroupMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.desk = Desk(CONFIG)
        self.clients: list[Client] = []
        self.joining: dict[Ticket, Client] = {}
        self.syncing: dict[Ticket, Client] = {}
        self.abandoned: set[Ticket] = set()
        self.fresh = 0
        self.assignments: dict[tuple[str, int, str], bytes] = {}  # group, generation, member
        self.synced: dict[str, int] = dict.fromkeys(GROUPS, 0)  # the newest generation that was assigned
        self.gone: set[tuple[str, str]] = set()  # group and member that was told it is out
        self.epochs: dict[tuple[str, str], int] = {}  # of members of consumer groups

    # What clients do.

    def client(self, at: int) -> Client | None:
        return self.clients[at % len(self.clients)] if self.clients else None

    @rule(group=groups, instance=st.none() | st.sampled_from(INSTANCES))
    def appear(self, group: str, instance: str | None) -> None:
        self.clients.append(Client(group, instance))
        self.join(len(self.clients) - 1, must_know_id=False, topic="orders", forgets=False)

    @rule(
        at=st.integers(0, 9),
        must_know_id=st.booleans(),
        topic=st.sampled_from(["orders", "bills"]),
        forgets=st.booleans(),
    )
    def join(self, at: int, must_know_id: bool, topic: str, forgets: bool) -> None:
        client = self.client(at)
        if client is None:
            return
        self.fresh += 1
        ticket = self.desk.join(
            "" if forgets else client.member_id,
            group=client.group,
            fresh_id=str(self.fresh),
            instance_id=client.instance,
            must_know_id=must_know_id,
            may_skip_assignment=self.fresh % 2 == 0,
            protocols=(("range", subscription(topic)), ("sticky", subscription(topic))),
            rebalance_timeout_ms=15_000,
        )
        self.joining[ticket] = client
        self.hear()

    @rule(at=st.integers(0, 9))
    def sync(self, at: int) -> None:
        client = self.client(at)
        if client is None or not client.member_id:
            return
        mine = b"%s of %d by %d"
        self.fresh += 1
        assigned = {
            one: mine % (one.encode(), client.generation, self.fresh)
            for one in (client.roster if client.is_leader else [])
        }
        command = SyncGroup(
            client.group,
            client.member_id,
            client.generation,
            client.instance,
            assignments=tuple(assigned.items()),
        )
        self.syncing[self.desk.send(command)] = client
        self.hear()

    @rule(group=groups)
    def behave(self, group: str) -> None:
        """For once everybody does what it should: the group has an assignment, unless others stand in the way."""
        places = [at for at, one in enumerate(self.clients) if one.group == group][-4:]
        for at in places:
            if self.clients[at] not in self.joining.values():
                self.join(at, must_know_id=False, topic="orders", forgets=False)
        if self.desk.config.initial_rebalance_delay_ms:
            self.wait(2 * self.desk.config.initial_rebalance_delay_ms)
        for at in sorted(places, key=lambda at: not self.clients[at].is_leader):
            if self.clients[at] not in self.joining.values():
                self.sync(at)

    @rule(at=st.integers(0, 9))
    def heartbeat(self, at: int) -> None:
        client = self.client(at)
        if client is not None and client.member_id:
            command = Heartbeat(client.group, client.member_id, client.generation, client.instance)
            answer = self.ask(command)
            if not isinstance(answer, GoQueueError):
                assert (client.group, client.member_id) not in self.gone
                assert client.generation >= self.synced[client.group]

    @rule(at=st.integers(0, 9), place=places)
    def commit(self, at: int, place: tuple[str, int]) -> None:
        client = self.client(at)
        if client is not None and client.member_id:
            offsets = (NewOffset(*place, self.fresh),)
            command = CommitOffsets(
                client.group, offsets, client.member_id, client.generation, client.instance
            )
            self.prove_no_zombie(client, self.ask(command))

    @rule(at=st.integers(0, 9), place=places, producer=st.integers(1, 2), epoch=st.integers(0, 2))
    def pend(self, at: int, place: tuple[str, int], producer: int, epoch: int) -> None:
        client = self.client(at)
        if client is not None and client.member_id:
            offsets = (NewOffset(*place, self.fresh),)
            command = CommitInTransaction(
                client.group, producer, epoch, offsets, client.member_id, client.generation, client.instance
            )
            self.prove_no_zombie(client, self.ask(command))

    def prove_no_zombie(self, client: Client, answer: object) -> None:
        if isinstance(answer, PartitionResults):
            is_simple = client.generation < 0
            assert is_simple or (client.group, client.member_id) not in self.gone
            assert is_simple or client.generation >= self.synced[client.group]

    @rule(at=st.integers(0, 9), by_instance=st.booleans())
    def leave(self, at: int, by_instance: bool) -> None:
        client = self.client(at)
        if client is None:
            return
        member_id = "" if by_instance and client.instance else client.member_id
        answer = self.ask(LeaveGroup(client.group, (Leaver(member_id, client.instance),)))
        if isinstance(answer, Left) and answer.members[0].error is None and member_id:
            self.gone.add((client.group, member_id))

    @rule(at=st.integers(0, 9))
    def go_away(self, at: int) -> None:
        parked = [*self.joining, *self.syncing]
        if parked:
            ticket = parked[at % len(parked)]
            self.desk.shard.abandon(ticket)
            self.abandoned.add(ticket)
            self.joining.pop(ticket, None)
            self.syncing.pop(ticket, None)

    # What others do.

    @rule(group=groups, member=st.sampled_from(["m", "n"]), leaves=st.booleans())
    def consumer_heartbeat(self, group: str, member: str, leaves: bool) -> None:
        epoch = self.epochs.get((group, member), 0)
        is_join = epoch == 0
        command = ConsumerHeartbeat(
            group,
            member,
            -1 if leaves else epoch,
            "",
            rebalance_timeout_ms=10_000 if is_join else -1,
            subscribed_topics=("orders",) if is_join else None,
            owned=() if is_join else None,
        )
        answer = self.ask(command)
        has_gone = leaves or isinstance(answer, GoQueueError)
        if isinstance(answer, ConsumerHeartbeatReply) and not has_gone:
            self.epochs[(group, member)] = answer.member_epoch
        else:
            self.epochs.pop((group, member), None)

    @rule(group=groups, place=places)
    def commit_without_a_member(self, group: str, place: tuple[str, int]) -> None:
        before = self.desk.shard.has_members(group)
        answer = self.ask(CommitOffsets(group, (NewOffset(*place, self.fresh),)))
        assert isinstance(answer, GoQueueError) == before

    @rule(producer=st.integers(1, 2), epoch=st.integers(0, 3), is_commit=st.booleans())
    def complete(self, producer: int, epoch: int, is_commit: bool) -> None:
        self.ask(CompleteTransaction(producer, epoch, is_commit))

    @rule(group=groups)
    def delete_group(self, group: str) -> None:
        had_members = self.desk.shard.has_members(group)
        answer = self.ask(DeleteGroup(group))
        assert isinstance(answer, GoQueueError) or not had_members
        if not isinstance(answer, GoQueueError):
            self.synced[group] = 0  # its generations begin anew
            self.assignments = {key: one for key, one in self.assignments.items() if key[0] != group}

    @rule(group=groups, place=places)
    def delete_offset(self, group: str, place: tuple[str, int]) -> None:
        self.ask(DeleteOffsets(group, (place,)))

    @rule()
    def forget_topic(self) -> None:
        self.ask(ForgetTopic("bills"))

    @rule(ms=st.sampled_from([1, 1_000, 5_000, 9_000, 20_000, 700_000]))
    def wait(self, ms: int) -> None:
        self.desk.advance(ms)
        self.hear()
        self.note_new_beginnings()

    @rule()
    def restart(self) -> None:
        for ticket in [*self.joining, *self.syncing]:
            self.abandoned.add(ticket)
        self.joining, self.syncing = {}, {}
        self.desk.restart()
        # Members are written down with their assignment: who left since then is back, until its session ends.
        self.gone -= {
            (name, member_id)
            for name, group in self.desk.shard.classic.items()
            for member_id in group.members
        }

    def ask(self, command: Command) -> object:
        """A call that never waits."""
        answer = self.desk.answers[self.desk.send(command)]
        self.hear()
        self.note_new_beginnings()
        return answer

    def note_new_beginnings(self) -> None:
        """A group that was forgotten, or has changed its type, counts its generations from one again."""
        for group in GROUPS:
            if group not in self.desk.shard.classic:
                self.synced[group] = 0
                self.assignments = {key: one for key, one in self.assignments.items() if key[0] != group}

    def hear(self) -> None:
        for ticket in [one for one in self.joining if one in self.desk.answers]:
            self.hear_join(self.joining.pop(ticket), self.desk.answers[ticket])
        for ticket in [one for one in self.syncing if one in self.desk.answers]:
            client = self.syncing.pop(ticket)
            answer = self.desk.answers[ticket]
            if isinstance(answer, Synced):
                self.hear_assignment(client, answer.assignment)

    def hear_join(self, client: Client, answer: object) -> None:
        if isinstance(answer, GoQueueError):
            known = answer.details.get("member_id")
            client.member_id = str(known) if known else ""
            client.generation = -1
            return
        assert isinstance(answer, Joined)
        client.member_id = answer.member_id
        client.generation = answer.generation
        client.is_leader = answer.leader_id == answer.member_id and not answer.skip_assignment
        client.roster = [one.member_id for one in answer.members]

    def hear_assignment(self, client: Client, assignment: bytes) -> None:
        group = self.desk.shard.classic.get(client.group)
        if group is None or group.state is not GroupState.STABLE:
            return
        for member in group.members.values():
            key = (client.group, group.generation, member.member_id)
            before = self.assignments.setdefault(key, member.assignment)
            assert before == member.assignment, "two assignments in one generation"
        self.synced[client.group] = max(self.synced[client.group], group.generation)
        assert assignment in [one.assignment for one in group.members.values()]

    # What must hold.

    @invariant()
    def no_call_is_lost(self) -> None:
        waiting = {ticket for ticket in (*self.joining, *self.syncing) if ticket not in self.abandoned}
        assert waiting == set(self.desk.shard._rebalance._parked)
        assert not waiting & self.desk.answers.keys()

    @invariant()
    def members_are_counted_right(self) -> None:
        for group in self.desk.shard.classic.values():
            members = list(group.members.values())
            assert group.joining_count == sum(one.is_joining for one in members)
            assert group.joining_count <= CONFIG.member_count_max  # the last to come again are too many
            assert len(members) <= 2 * CONFIG.member_count_max
            statics = {one.instance_id: one.member_id for one in members if one.instance_id is not None}
            assert statics == group.statics
            assert (group.leader_id in group.members) == bool(members)
            assert all(one in group.members for one in group.unsynced)
            assert (group.state is GroupState.EMPTY) == (not members) or group.is_initial

    @invariant()
    def replayed_state_equals_live_state(self) -> None:
        live = durable(self.desk.shard)
        assert durable(self.desk.replayed()) == live
        newest = self.desk.newest_per_key()
        Random(len(self.desk.log)).shuffle(newest)
        assert durable(self.desk.replayed(newest)) == live

    def teardown(self) -> None:
        """Whoever waits is answered in the end."""
        self.desk.advance(1_000_000)
        self.hear()
        assert not self.joining
        assert not self.syncing


GroupMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestGroups = GroupMachine.TestCase


class DelayedGroupMachine(GroupMachine):
    """The same with a delay before the first rebalance of an empty group."""

    def __init__(self) -> None:
        super().__init__()
        self.desk = Desk(
            GroupConfig(initial_rebalance_delay_ms=3_000, member_count_max=4, consumer_session_ms=20_000)
        )


DelayedGroupMachine.TestCase.settings = settings(max_examples=30, stateful_step_count=40, deadline=None)
TestDelayedGroups = DelayedGroupMachine.TestCase
