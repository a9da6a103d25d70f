"""A consumer group and clients that follow the protocol on a bad day: they give up late, crash, come back, lose
requests and answers, while topics change, writes fail and the broker restarts.

Always: no partition is held by two members; what a client reads and could commit is held by it; nothing is revoked
that does not move; the log alone, also compacted and in any order of keys, gives the same group. In the end, when
everybody behaves: everything is assigned, evenly, and read by whom it is assigned to.
"""

from __future__ import annotations

from collections import Counter
from copy import deepcopy
from dataclasses import dataclass, field
from enum import Enum, auto
from random import Random
from typing import assert_never

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from goqueue.core.group.config import GroupConfig
from goqueue.core.group.consumer import ConsumerGroup
from goqueue.core.group.consumer_events import (
    ConsumerEvent,
    ConsumerGroupState,
    ConsumerHeartbeat,
    ConsumerHeartbeatReply,
    ConsumerMemberFacts,
    CurrentRemoved,
    MemberReconciled,
    MemberRemoved,
    Partition,
    TargetRemoved,
    decode_consumer_event,
    encode_consumer_event,
    pack,
    unpack,
)
from goqueue.model.errors import (
    FencedInstance,
    FencedMemberEpoch,
    GoQueueError,
    UnknownMember,
    UnreleasedInstance,
)

CONFIG = GroupConfig()
SLOTS = 3
SUBSCRIPTIONS: list[tuple[tuple[str, ...], str]] = [
    (("a",), ""),
    (("a", "b"), ""),
    (("b", "later"), ""),
    ((), "a|b"),
    (("a",), "(b|l).*"),
]


class Act(Enum):
    BEAT = auto()
    FOLLOW = auto()
    BEAT_AND_FOLLOW = auto()
    REQUEST_LOST = auto()
    ANSWER_LOST = auto()
    WRITE_FAILS = auto()


class FakeTopics:
    def __init__(self) -> None:
        self.counts = {"a": 6, "b": 3}

    def partition_count(self, name: str) -> int | None:
        return self.counts.get(name)

    def names(self) -> list[str]:
        return sorted(self.counts)


@dataclass
class Client:
    """One consumer process. `reading` is what it really reads; `told` is what it was last told to read."""

    member_id: str
    instance_id: str | None
    topics: tuple[str, ...]
    regex: str
    assignor: str | None
    epoch: int = 0
    reading: set[Partition] = field(default_factory=set)
    told: set[Partition] = field(default_factory=set)
    must_say_all: bool = True  # an answer is missing, or something has changed

    def heartbeat(self) -> ConsumerHeartbeat:
        says_all = self.must_say_all or self.epoch == 0
        return ConsumerHeartbeat(
            group_id="g",
            member_id=self.member_id,
            member_epoch=self.epoch,
            fresh_id="",
            instance_id=self.instance_id,
            rebalance_timeout_ms=20_000 if says_all else -1,
            subscribed_topics=self.topics if says_all else None,
            subscribed_regex=self.regex if says_all else None,
            assignor=self.assignor if says_all else None,
            owned=pack(self.reading) if says_all else None,
        )

    def hear(self, reply: ConsumerHeartbeatReply) -> None:
        self.epoch = reply.member_epoch
        self.must_say_all = False
        if reply.assignment is not None:
            self.told = set(unpack(reply.assignment))

    def follow(self) -> None:
        """Gives up and takes up; what it has is then news."""
        if self.reading != self.told:
            self.reading = set(self.told)
            self.must_say_all = True

    def start_over(self) -> None:
        self.epoch = 0
        self.reading.clear()
        self.told.clear()
        self.must_say_all = True


class BadDay(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.topics = FakeTopics()
        self.group = ConsumerGroup("g", CONFIG, self.topics)
        self.log: list[tuple[bytes, bytes | None]] = []
        self.now_ms = 0
        self.clients: dict[int, Client] = {}
        self.started = 0

    # What the broker does.

    def commit(self, events: list[ConsumerEvent]) -> None:
        for event in events:
            key, value = encode_consumer_event(event)
            self.log.append((key, value))
            if isinstance(event, MemberReconciled):
                self.check_only_moved_partitions_are_revoked(event)
            self.group.apply(decode_consumer_event(msgspec.json.decode(key), value))

    def member(self, member_id: str) -> ConsumerMemberFacts | None:
        return next((m for m in self.group.describe().members if m.member_id == member_id), None)

    def check_only_moved_partitions_are_revoked(self, event: MemberReconciled) -> None:
        before = self.member(event.member_id)
        if before is None:
            return
        target = set(unpack(before.target))
        had = set(unpack(before.assigned))
        if event.epoch >= 0 and event.revoking != before.revoking:
            assert not set(unpack(event.revoking)) & target
            assert set(unpack(event.revoking)) <= had
            assert had & target <= set(unpack(event.assigned))

    def beat(self, client: Client, *, answer_arrives: bool = True) -> None:
        try:
            events, reply = self.group.heartbeat(client.heartbeat(), self.now_ms)
        except (FencedMemberEpoch, UnknownMember):
            client.start_over()
            return
        except UnreleasedInstance:
            return
        self.commit(events)
        if answer_arrives:
            client.hear(reply)
        else:
            client.must_say_all = True

    def replayed(self, log: list[tuple[bytes, bytes | None]]) -> ConsumerGroup:
        group = ConsumerGroup("g", CONFIG, self.topics)
        for key, value in log:
            group.apply(decode_consumer_event(msgspec.json.decode(key), value))
        return group

    # What may happen.

    @initialize(subscriptions=st.lists(st.sampled_from(SUBSCRIPTIONS), max_size=SLOTS))
    def begin(self, subscriptions: list[tuple[tuple[str, ...], str]]) -> None:
        for slot, subscription in enumerate(subscriptions):
            self.start(slot, subscription, None)

    def start(self, slot: int, subscription: tuple[tuple[str, ...], str], assignor: str | None) -> None:
        self.started += 1
        instance_id = f"i{slot}" if slot % 2 else None
        self.clients[slot] = Client(f"m{self.started}", instance_id, *subscription, assignor)
        self.beat(self.clients[slot])

    @precondition(lambda self: len(self.clients) < SLOTS)
    @rule(
        subscription=st.sampled_from(SUBSCRIPTIONS),
        assignor=st.sampled_from([None, None, None, None, "sticky", "range", "roundrobin"]),
    )
    def consumer_starts(self, subscription: tuple[tuple[str, ...], str], assignor: str | None) -> None:
        slot = min(slot for slot in range(SLOTS) if slot not in self.clients)
        self.start(slot, subscription, assignor)

    @rule(
        acts=st.lists(st.sampled_from(Act), min_size=SLOTS, max_size=SLOTS),
        later_ms=st.integers(0, 5_000),
    )
    def everybody_acts(self, acts: list[Act], later_ms: int) -> None:
        self.now_ms += later_ms
        for slot in sorted(self.clients):
            self.act(self.clients[slot], acts[slot])
        due_ms = self.group.next_tick_ms()
        if due_ms is not None and due_ms <= self.now_ms:
            self.commit(self.group.tick(self.now_ms))

    @rule(slot=st.integers(0, SLOTS - 1), act=st.sampled_from(Act))
    def one_acts(self, slot: int, act: Act) -> None:
        if slot in self.clients:
            self.act(self.clients[slot], act)

    def act(self, client: Client, act: Act) -> None:
        match act:
            case Act.FOLLOW:
                client.follow()
            case Act.BEAT:
                self.beat(client)
            case Act.BEAT_AND_FOLLOW:
                self.beat(client)
                client.follow()
            case Act.REQUEST_LOST:
                client.must_say_all = True
            case Act.ANSWER_LOST:
                self.beat(client, answer_arrives=False)
            case Act.WRITE_FAILS:
                self.fail_to_write(client)
            case _:
                assert_never(act)

    def fail_to_write(self, client: Client) -> None:
        before = self.group.describe()
        try:
            self.group.heartbeat(client.heartbeat(), self.now_ms)
        except GoQueueError:
            pass
        client.must_say_all = True
        assert self.group.describe() == before

    @rule(slot=st.integers(0, SLOTS - 1), subscription=st.sampled_from(SUBSCRIPTIONS))
    def consumer_subscribes(self, slot: int, subscription: tuple[tuple[str, ...], str]) -> None:
        client = self.clients.get(slot)
        if client is not None:
            client.topics, client.regex = subscription
            client.must_say_all = True
            self.beat(client)

    @rule(slot=st.integers(0, SLOTS - 1), way=st.sampled_from([-1, -2, None]))
    def consumer_goes(self, slot: int, way: int | None) -> None:
        """For good, to come back soon, or without a word."""
        client = self.clients.pop(slot, None)
        if client is None or way is None:
            return
        epoch = way if client.instance_id is not None else -1
        command = ConsumerHeartbeat("g", client.member_id, epoch, "", instance_id=client.instance_id)
        try:
            events, _ = self.group.heartbeat(command, self.now_ms)
        except (UnknownMember, FencedInstance):
            return
        self.commit(events)

    @rule(later_ms=st.sampled_from([20_000, 45_000]))
    def time_passes(self, later_ms: int) -> None:
        self.now_ms += later_ms
        self.commit(self.group.tick(self.now_ms))

    @rule(topic=st.sampled_from(["a", "b", "later"]), count=st.sampled_from([0, 7, 8]), is_told=st.booleans())
    def topic_changes(self, topic: str, count: int, is_told: bool) -> None:
        if count == 0:
            self.topics.counts.pop(topic, None)
        else:
            self.topics.counts[topic] = max(count, self.topics.counts.get(topic, 0))
        if is_told:
            self.commit(self.group.tick(self.now_ms))

    @precondition(lambda self: self.log)
    @rule(is_compacted=st.booleans(), random=st.randoms(use_true_random=False))
    def broker_restarts(self, is_compacted: bool, random: Random) -> None:
        log = self.log
        if is_compacted:
            newest = list(dict(log).items())
            random.shuffle(newest)
            log = newest
        group = self.replayed(log)
        assert group.describe() == self.group.describe()
        group.resume(self.now_ms)
        self.group, self.log = group, log

    # What must hold.

    @invariant()
    def no_partition_is_held_by_two_members(self) -> None:
        held = Counter(
            partition
            for member in self.group.describe().members
            for partition in unpack(member.assigned) + unpack(member.revoking)
        )
        assert all(count == 1 for count in held.values())

    @invariant()
    def what_a_client_reads_and_could_commit_is_held_by_it(self) -> None:
        """Nobody can keep a client from reading what it was told when the news that it is gone got lost; but the epoch
        has moved on then, so nothing that comes of it is taken."""
        for client in self.clients.values():
            try:
                self.group.check_commit(client.member_id, client.epoch, client.instance_id)
            except GoQueueError:
                continue
            member = self.member(client.member_id)
            if member is not None:
                assert client.reading <= {*unpack(member.assigned), *unpack(member.revoking)}

    @invariant()
    def replayed_state_is_the_live_state(self) -> None:
        """Down to what the next member would be told."""
        compacted = list(reversed(dict(self.log).items()))
        command = ConsumerHeartbeat(
            "g", "probe", 0, "", rebalance_timeout_ms=1, subscribed_topics=("a", "b"), owned=()
        )
        live = self.group.describe(), deepcopy(self.group).heartbeat(command, self.now_ms)
        for log in (self.log, compacted):
            group = self.replayed(log)
            assert (group.describe(), group.heartbeat(command, self.now_ms)) == live
            assert group.forget() == self.group.forget()

    @invariant()
    def nothing_is_left_of_who_is_gone(self) -> None:
        members = {member.member_id for member in self.group.describe().members}
        for event in self.group.forget():
            if isinstance(event, CurrentRemoved | TargetRemoved | MemberRemoved):
                assert event.member_id in members

    def teardown(self) -> None:
        """Everybody behaves from now on; who is gone is found out."""
        for _ in range(60):
            self.now_ms += CONFIG.consumer_heartbeat_ms
            self.commit(self.group.tick(self.now_ms))
            for slot in sorted(self.clients):
                self.beat(self.clients[slot])
                self.clients[slot].follow()
        facts = self.group.describe()
        expected = ConsumerGroupState.STABLE if self.clients else ConsumerGroupState.EMPTY
        assert facts.state is expected
        assert {m.member_id for m in facts.members} == {c.member_id for c in self.clients.values()}
        members = {member.member_id: member for member in facts.members}
        found: set[Partition] = set()
        loads: dict[tuple[tuple[str, ...], str], list[int]] = {}
        for client in self.clients.values():
            member = members[client.member_id]
            assert pack(client.reading) == member.assigned == member.target
            found |= client.reading
            loads.setdefault((client.topics, client.regex), []).append(len(client.reading))
        read = [topic for topic in self.topics.counts if self.group.is_subscribed(topic)]
        assert found == {(topic, index) for topic in read for index in range(self.topics.counts[topic])}
        if facts.assignor in ("uniform", "sticky"):
            assert all(max(of_one) - min(of_one) <= 1 for of_one in loads.values())


TestBadDay = BadDay.TestCase
TestBadDay.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
