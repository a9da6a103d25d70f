"""A shard of groups as a node runs it: every event passes through the bytes of the log before it is applied."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from goqueue.core.cluster.scaling import Scaling
from goqueue.core.group.commands import (
    Command,
    CommitOffsets,
    FetchedOffsets,
    FetchOffsets,
    Heartbeat,
    Joined,
    JoinGroup,
    LeaveGroup,
    Leaver,
    NewOffset,
    PartitionResults,
    Reply,
    Synced,
    SyncGroup,
)
from goqueue.core.group.config import GroupConfig
from goqueue.core.group.consumer_events import ConsumerGroupFacts
from goqueue.core.group.events import Event, GroupCodec, GroupSaved
from goqueue.core.group.gates import GateNotes
from goqueue.core.group.outcome import Outcome, Ticket
from goqueue.core.group.shard import GroupShard
from goqueue.model.codes import Code
from goqueue.model.errors import GoQueueError

T = TypeVar("T")  # and `Any` below: fields of commands, checked when the command is made
START_MS = 1_000_000


class FixedTopics:
    def __init__(self, **counts: int) -> None:
        self.counts = counts

    def partition_count(self, name: str) -> int | None:
        return self.counts.get(name)

    def names(self) -> list[str]:
        return sorted(self.counts)


class Desk:
    """Takes calls, keeps the answers, lets time pass and restarts."""

    def __init__(self, config: GroupConfig | None = None, topics: FixedTopics | None = None) -> None:
        self.config = config or GroupConfig()
        self.topics = topics or FixedTopics(orders=4, bills=2)
        self.scalings: dict[str, Scaling] = {}
        self.notes = GateNotes()
        self.ids: dict[str, int] = {}  # of topics
        self.open_ids = self.ids  # of those that are open
        self.shard = self._new_shard()
        self.now_ms = START_MS
        self.log: list[tuple[bytes, bytes | None]] = []
        self.answers: dict[Ticket, Reply | GoQueueError] = {}
        self._ticket_count = 0

    def send(self, command: Command) -> Ticket:
        """A call that may be answered later."""
        self._ticket_count += 1
        ticket = Ticket(self._ticket_count)
        try:
            outcome = self.shard.handle(command, ticket, self.now_ms)
        except GoQueueError as error:
            self._answer(ticket, error)
        else:
            self._write(outcome)
        return ticket

    def answer(self, ticket: Ticket, kind: type[T]) -> T:
        answer = self.answers[ticket]
        assert isinstance(answer, kind), answer
        return answer

    def call(self, command: Command, kind: type[T]) -> T:
        """A call that is answered at once, and as expected."""
        return self.answer(self.send(command), kind)

    def refusal(self, command: Command) -> Code:
        return self.call(command, GoQueueError).code

    def code(self, ticket: Ticket) -> Code:
        return self.answer(ticket, GoQueueError).code

    def is_parked(self, ticket: Ticket) -> bool:
        return ticket not in self.answers

    def advance(self, ms: int) -> None:
        """Let time pass; every deadline is met at its very moment."""
        end_ms = self.now_ms + ms
        while (next_ms := self.shard.next_tick_ms()) is not None and next_ms <= end_ms:
            self.now_ms = max(self.now_ms, next_ms)
            self._write(self.shard.tick(self.now_ms))
        self.now_ms = end_ms

    def _write(self, outcome: Outcome) -> None:
        codec = GroupCodec()
        for event in outcome.events:
            record = codec.encode(event)
            self.log.append(record)
            self.shard.apply(codec.decode(*record))
        for ticket, answer in outcome.replies:
            self._answer(ticket, answer)

    def _answer(self, ticket: Ticket, answer: Reply | GoQueueError) -> None:
        assert ticket not in self.answers, "answered twice"
        self.answers[ticket] = answer

    def newest_per_key(self) -> list[tuple[bytes, bytes | None]]:
        """What compaction keeps."""
        return list(dict(self.log).items())

    def replayed(self, records: Iterable[tuple[bytes, bytes | None]] | None = None) -> GroupShard:
        shard = self._new_shard()
        for key, value in self.log if records is None else records:
            shard.apply(GroupCodec().decode(key, value))
        return shard

    def _new_shard(self) -> GroupShard:
        return GroupShard(
            self.config,
            self.topics,
            self.scalings.get,
            self.notes,
            lambda topic: self.ids.get(topic, 0),
            lambda topic: self.open_ids.get(topic, 0),
        )

    def restart(self) -> None:
        self.shard = self.replayed()
        self.shard.resume(self.now_ms)

    # What clients do.

    def join(self, member_id: str = "", **changes: Any) -> Ticket:
        """A join that needs no id first; `fresh_id` and the rest as given."""
        return self.send(join(member_id, **changes))

    def sync(
        self, joined: Joined, assignments: dict[str, bytes] | None = None, *, group: str = "g"
    ) -> Ticket:
        """As leader with assignments: each member gets its id if none are given."""
        if assignments is None:
            assignments = {one.member_id: one.member_id.encode() for one in joined.members}
        return self.send(
            SyncGroup(
                group,
                joined.member_id,
                joined.generation,
                assignments=tuple(assignments.items()),
            )
        )

    def heartbeat(self, joined: Joined, *, group: str = "g", **changes: str) -> Reply | GoQueueError:
        ticket = self.send(Heartbeat(group, joined.member_id, joined.generation, **changes))
        return self.answers[ticket]

    def leave(self, *member_ids: str, group: str = "g") -> Ticket:
        return self.send(LeaveGroup(group, tuple(Leaver(one) for one in member_ids)))

    def commit(
        self,
        offset: int,
        joined: Joined | None = None,
        *,
        group: str = "g",
        place: tuple[str, int] = ("orders", 0),
    ) -> Code | None:
        command = CommitOffsets(
            group,
            (NewOffset(*place, offset),),
            joined.member_id if joined else "",
            joined.generation if joined else -1,
        )
        answer = self.answers[self.send(command)]
        if isinstance(answer, GoQueueError):
            return answer.code
        assert isinstance(answer, PartitionResults)
        error = answer.partitions[0].error
        return error.code if error else None

    def commit_as(
        self, member_id: str, epoch: int, offset: int, *, place: tuple[str, int], group: str = "g"
    ) -> GoQueueError | None:
        """By a member of the consumer protocol."""
        command = CommitOffsets(group, (NewOffset(*place, offset),), member_id, epoch)
        return self.call(command, PartitionResults).partitions[0].error

    def committed(self, *, group: str = "g", place: tuple[str, int] = ("orders", 0)) -> int:
        topic, partition = place
        found = self.call(FetchOffsets(group, ((topic, (partition,)),)), FetchedOffsets)
        return found.offsets[0].offset

    def stable(self, count: int, *, group: str = "g", **changes: Any) -> list[Joined]:
        """A stable group of so many dynamic members, the leader first."""
        members: list[Joined] = []
        for _ in range(count):
            self._ticket_count += 1
            tickets = [self.join(group=group, **{"fresh_id": str(self._ticket_count), **changes})]
            tickets += [self.join(one.member_id, group=group, **changes) for one in members]
            members = [self.answer(ticket, Joined) for ticket in tickets]
            members.sort(key=lambda one: one.member_id != one.leader_id)
            for ticket in [self.sync(one, group=group) for one in members]:
                self.answer(ticket, Synced)
        return members


def join(member_id: str = "", *, group: str = "g", **changes: Any) -> JoinGroup:
    fields: dict[str, object] = {
        "group_id": group,
        "member_id": member_id,
        "fresh_id": "fresh",
        "client_id": "client",
        "client_host": "/127.0.0.1",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 60_000,
        "protocol_type": "consumer",
        "protocols": (("range", subscription("orders")),),
    }
    make: Callable[..., JoinGroup] = JoinGroup
    return make(**{**fields, **changes})


def subscription(*topics: str, owned: bytes = b"") -> bytes:
    """As consumers write it: version, topics, and what only they understand."""
    names = [topic.encode() for topic in topics]
    body = b"".join(struct.pack(">h", len(name)) + name for name in names)
    return struct.pack(">hi", 1, len(names)) + body + owned


def durable(shard: GroupShard) -> tuple[dict[str, GroupSaved], list[Event], dict[str, ConsumerGroupFacts]]:
    """Everything that must survive."""
    saved = {name: group.saved for name, group in sorted(shard.classic.items()) if group.saved is not None}
    offsets: list[Event] = sorted(shard.offsets.events(), key=repr)
    consumers = {}
    for name in sorted(shard.consumers.ids()):
        group = shard.consumers.get(name)
        assert group is not None
        consumers[name] = group.describe()
    return saved, offsets, consumers
