"""One classic group: the members and where their rebalance stands.

Durable is only what `GroupSaved` says, and only `restore` takes it over. Everything else is a rebalance that may never
be finished: after a restart the group is what it was when its last generation was complete, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from goqueue.core.group.commands import GroupState, JoinedMember, Protocol
from goqueue.core.group.consumer_events import Partition
from goqueue.core.group.events import GroupSaved, SavedMember
from goqueue.core.group.outcome import Ticket
from goqueue.core.group.protocol_assignment import assigned_partitions
from goqueue.core.group.subscription import CONSUMER_PROTOCOL_TYPE, owned_partitions, subscribed_topics
from goqueue.model.errors import FencedInstance, GoQueueError, IllegalGeneration, UnknownMember, invariant


@dataclass(slots=True)
class Member:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[Protocol, ...]
    assignment: bytes = b""
    is_new: bool = False  # has not been told its id yet, so it cannot heartbeat
    is_joining: bool = False  # waits for the answer to its JoinGroup, or would if its client had not gone
    is_syncing: bool = False  # likewise SyncGroup
    ticket: Ticket | None = None  # of the call that waits

    def metadata(self, protocol_name: str | None) -> bytes:
        return dict(self.protocols).get(protocol_name or "", b"")

    def saved(self) -> SavedMember:
        return SavedMember(
            self.member_id,
            self.instance_id,
            self.client_id,
            self.client_host,
            self.session_timeout_ms,
            self.rebalance_timeout_ms,
            self.protocols,
            self.assignment,
        )


class ClassicGroup:
    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.saved: GroupSaved | None = None
        self.state = GroupState.EMPTY
        self.generation = 0
        self.protocol_type = ""
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.since_ms = 0
        self.withheld: tuple[Partition, ...] = ()  # of this generation: assigned by its leader and not given
        self.members: dict[str, Member] = {}  # in order of joining
        self.statics: dict[str, str] = {}  # instance id to member id
        self.expected: dict[str, None] = {}  # ids that were given out and have not joined yet
        self.unsynced: dict[str, None] = {}  # members that have not asked for their assignment yet
        self.joining_count = 0
        self.is_initial = False  # the rebalance began with an empty group
        self.has_newcomer = False  # since the initial delay was last prolonged
        self.initial_ms_left = 0
        self._supporters: dict[str, int] = {}  # protocol name to how many members know it

    # What the group is.

    @property
    def has_all_joined(self) -> bool:
        return self.joining_count == len(self.members) and not self.expected

    @property
    def is_void(self) -> bool:
        """Nobody would miss it."""
        return self.saved is None and not self.members and not self.expected

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def supports(self, protocol_type: str, names: Iterable[str]) -> bool:
        if not self.members:
            return bool(protocol_type) and any(True for _ in names)
        count = len(self.members)
        return protocol_type == self.protocol_type and any(
            self._supporters.get(name, 0) == count for name in names
        )

    def choose_protocol(self) -> str:
        """Of those that every member knows the one that most want first; the oldest member breaks ties."""
        count = len(self.members)
        votes: dict[str, int] = {}
        for member in self.members.values():
            vote = next(name for name, _ in member.protocols if self._supporters.get(name) == count)
            votes[vote] = votes.get(vote, 0) + 1
        return max(votes, key=lambda name: votes[name])

    def is_subscribed(self, topic: str) -> bool:
        """Whether a live member may read the topic; yes if it cannot be known."""
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return False
        for member in self.members.values():
            first_name = member.protocols[0][0] if member.protocols else None
            metadata = member.metadata(self.protocol_name) or member.metadata(first_name)
            topics = subscribed_topics(metadata)
            if topics is None or topic in topics:
                return True
        return False

    def given(self) -> list[Partition]:
        """What its members were told to read in this generation; nothing where it is not about partitions."""
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return []
        return [each for member in self.members.values() for each in assigned_partitions(member.assignment)]

    def owned_before(self) -> list[Partition]:
        """What its members said that they had when they joined this generation."""
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return []
        said = (member.metadata(self.protocol_name) for member in self.members.values())
        return [each for metadata in said for each in owned_partitions(metadata)]

    def roster(self) -> tuple[JoinedMember, ...]:
        """For the leader, who assigns."""
        return tuple(
            JoinedMember(member.member_id, member.instance_id, member.metadata(self.protocol_name))
            for member in self.members.values()
        )

    def check_member(self, member_id: str, instance_id: str | None) -> Member:
        if instance_id is not None:
            current_id = self.statics.get(instance_id)
            if current_id is not None and current_id != member_id:
                raise fenced_instance(self.group_id, member_id, instance_id)
            if current_id is None:
                raise unknown_member(self.group_id, member_id)
        member = self.members.get(member_id)
        if member is None:
            raise unknown_member(self.group_id, member_id)
        return member

    def check_generation(self, generation: int) -> None:
        if generation != self.generation:
            raise IllegalGeneration(
                f"group {self.group_id!r} is in generation {self.generation}, not {generation}; join again",
                group=self.group_id,
                generation=generation,
                current_generation=self.generation,
            )

    # How its members change.

    def add(self, member: Member, protocol_type: str) -> None:
        invariant(member.member_id not in self.members, f"{member.member_id} joins twice")
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.statics[member.instance_id] = member.member_id
        self.expected.pop(member.member_id, None)
        self._count(member.protocols, 1)

    def remove(self, member: Member) -> None:
        """Its calls must have been answered before."""
        self.end_joining(member)
        del self.members[member.member_id]
        if member.instance_id is not None:
            del self.statics[member.instance_id]
        self.unsynced.pop(member.member_id, None)
        self._count(member.protocols, -1)
        if self.leader_id == member.member_id:
            self.leader_id = next(iter(self.members), None)

    def rename(self, member: Member, member_id: str) -> None:
        """A static member has come back and got a new id; who still uses the old one is fenced."""
        old_id, member.member_id = member.member_id, member_id
        self.members = {one.member_id: one for one in self.members.values()}
        if member.instance_id is not None:
            self.statics[member.instance_id] = member_id
        if old_id in self.unsynced:
            del self.unsynced[old_id]
            self.unsynced[member_id] = None
        if self.leader_id == old_id:
            self.leader_id = member_id

    def set_protocols(self, member: Member, protocols: tuple[Protocol, ...]) -> None:
        self._count(member.protocols, -1)
        member.protocols = protocols
        self._count(protocols, 1)

    def begin_joining(self, member: Member, ticket: Ticket) -> None:
        if not member.is_joining:
            self.joining_count += 1
        member.is_joining = True
        member.ticket = ticket

    def end_joining(self, member: Member) -> None:
        if member.is_joining:
            self.joining_count -= 1
        member.is_joining = False

    def elect_joined_leader(self) -> bool:
        """A leader that did not join in time cannot assign; False if nobody has joined."""
        if self.leader_id is not None and self.members[self.leader_id].is_joining:
            return True
        for member in self.members.values():
            if member.is_joining:
                self.leader_id = member.member_id
                return True
        return False

    # What becomes durable.

    def snapshot(self, now_ms: int) -> GroupSaved:
        return GroupSaved(
            self.group_id,
            self.generation,
            self.protocol_type,
            self.protocol_name,
            self.leader_id,
            now_ms,
            tuple(member.saved() for member in self.members.values()),
            self.withheld,
        )

    def restore(self, saved: GroupSaved) -> None:
        self.saved = saved
        self.state = GroupState.STABLE if saved.members else GroupState.EMPTY
        self.generation = saved.generation
        self.protocol_type = saved.protocol_type
        self.protocol_name = saved.protocol_name
        self.leader_id = saved.leader_id
        self.since_ms = saved.since_ms
        self.withheld = saved.withheld
        self.is_initial = False
        members = {one.member_id: self._restored(one) for one in saved.members}
        self.members, self.statics, self._supporters = members, {}, {}
        for member in members.values():
            self._count(member.protocols, 1)
            if member.instance_id is not None:
                self.statics[member.instance_id] = member.member_id

    def _restored(self, saved: SavedMember) -> Member:
        """The member that is there keeps what is not durable of it."""
        member = self.members.get(saved.member_id)
        if member is None:
            return Member(
                saved.member_id,
                saved.instance_id,
                saved.client_id,
                saved.client_host,
                saved.session_timeout_ms,
                saved.rebalance_timeout_ms,
                saved.protocols,
                saved.assignment,
            )
        member.protocols = saved.protocols
        member.assignment = saved.assignment
        return member

    def _count(self, protocols: tuple[Protocol, ...], step: int) -> None:
        for name in dict(protocols):
            self._supporters[name] = self._supporters.get(name, 0) + step
            if not self._supporters[name]:
                del self._supporters[name]


def unknown_member(group_id: str, member_id: str) -> GoQueueError:
    return UnknownMember(
        f"group {group_id!r} has no member {member_id!r}; join again", group=group_id, member=member_id
    )


def fenced_instance(group_id: str, member_id: str, instance_id: str) -> GoQueueError:
    return FencedInstance(
        f"another member is {instance_id!r} of group {group_id!r} by now; {member_id!r} has been replaced",
        group=group_id,
        instance=instance_id,
        member=member_id,
    )
