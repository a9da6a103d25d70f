"""Share groups and their members on a bad day, beside groups of the other kinds, against a plain model: dicts of who was
heard of when and what each knows.

Always: who was heard of within its session is a member, nobody else is; what a member was told is all partitions of its
topics as they were; its epochs only grow; a name is of one kind; the log alone, also compacted and in any order of keys,
gives the same groups.
"""

from __future__ import annotations

from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.support.groups import Desk, FixedTopics
from tests.support.share_groups import beat, durable_shares

from goqueue.core.group.commands import ConfigureGroup, DeleteGroup, Done
from goqueue.core.group.config import GroupConfig
from goqueue.core.group.consumer_events import Assignment, ConsumerHeartbeat, ConsumerHeartbeatReply
from goqueue.core.group.share_events import ShareHeartbeat, ShareHeartbeatReply
from goqueue.model.codes import Code
from goqueue.model.errors import GoQueueError

CONFIG = GroupConfig(member_count_max=2, share_session_ms=20_000)
SESSIONS_MS = ("5000", "20000", "60000")
groups = st.sampled_from(("g", "g", "h"))
ids = st.sampled_from(("a", "b", "c"))
subscriptions = st.sampled_from((("orders",), ("bills", "orders"), ("bills", "later")))


class Member:
    def __init__(self, topics: tuple[str, ...]) -> None:
        self.topics = topics
        self.epoch = 0
        self.known_epoch = 0  # older where an answer got lost
        self.changed_from = 0  # what it knew when its epoch last changed
        self.told: Assignment = ()
        self.ends_ms = 0


class ShareMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.topics = FixedTopics(orders=2, bills=1)
        self.desk = Desk(CONFIG, self.topics)
        self.members: dict[tuple[str, str], Member] = {}
        self.share_groups: set[str] = set()
        self.session_ms = dict.fromkeys(("g", "h"), 20_000)

    @rule(group=groups, id=ids, topics=subscriptions)
    def join(self, group: str, id: str, topics: tuple[str, ...]) -> None:
        answer = self.ask(beat(0, id, group, subscribed_topics=topics))
        before = self.members.get((group, id))
        of_group = [key for key in self.members if key[0] == group]
        if isinstance(answer, GoQueueError):
            is_full = before is None and len(of_group) == CONFIG.member_count_max
            is_other = self.desk.shard.consumers.get(group) is not None
            assert answer.code is (Code.GROUP_NOT_FOUND if is_other else Code.GROUP_FULL)
            assert is_full or is_other
            return
        self.share_groups.add(group)
        member = self.members[group, id] = Member(topics)
        self.hear(group, member, answer, older=before.epoch if before else 0)
        assert answer.assignment is not None

    @rule(pick=st.integers(0, 5), topics=st.none() | subscriptions)
    def heartbeat(self, pick: int, topics: tuple[str, ...] | None) -> None:
        group, id = self.picked(pick)
        member = self.members.get((group, id))
        answer = self.ask(beat(member.known_epoch if member else 1, id, group, subscribed_topics=topics))
        if member is None:
            assert isinstance(answer, GoQueueError)
            assert answer.code in (Code.UNKNOWN_MEMBER, Code.GROUP_NOT_FOUND)
        else:
            assert isinstance(answer, ShareHeartbeatReply)
            member.topics = member.topics if topics is None else topics
            if answer.member_epoch != member.epoch:
                member.changed_from = member.known_epoch
            self.hear(group, member, answer, older=member.epoch - 1)

    @rule(pick=st.integers(0, 5), topics=subscriptions)
    def lose_an_answer(self, pick: int, topics: tuple[str, ...]) -> None:
        """The member knows only what it knew before."""
        member = self.members.get(self.picked(pick))
        if member is not None:
            known = member.known_epoch, member.told
            self.heartbeat(pick, topics)
            member.known_epoch, member.told = known

    @rule(pick=st.integers(0, 5), off_by=st.sampled_from((1, -1, -7)))
    def be_a_zombie(self, pick: int, off_by: int) -> None:
        group, id = self.picked(pick)
        member = self.members.get((group, id))
        epoch = 0 if member is None else member.known_epoch + off_by
        if member is None or epoch <= 0 or epoch in (member.epoch, member.changed_from):
            return
        answer = self.ask(beat(epoch, id, group))
        assert isinstance(answer, GoQueueError)
        assert answer.code is Code.FENCED_MEMBER_EPOCH

    @rule(group=groups, id=ids)
    def leave(self, group: str, id: str) -> None:
        answer = self.ask(beat(-1, id, group))
        assert isinstance(answer, GoQueueError) == ((group, id) not in self.members)
        self.members.pop((group, id), None)

    @rule(ms=st.sampled_from((1, 3_000, 4_999, 19_999, 60_000)))
    def wait(self, ms: int) -> None:
        self.desk.advance(ms)
        now_ms = self.desk.now_ms
        self.members = {key: one for key, one in self.members.items() if one.ends_ms > now_ms}

    @rule(topic=st.sampled_from(("orders", "bills", "later")), count=st.integers(0, 3))
    def change_topic(self, topic: str, count: int) -> None:
        if count:
            self.topics.counts[topic] = count
        else:
            self.topics.counts.pop(topic, None)

    @rule(group=groups, text=st.sampled_from(SESSIONS_MS))
    def configure(self, group: str, text: str) -> None:
        self.desk.call(ConfigureGroup(group, {"share.session.timeout.ms": text}), Done)
        self.session_ms[group] = int(text)

    @rule(group=groups)
    def delete(self, group: str) -> None:
        answer = self.desk.answers[self.desk.send(DeleteGroup(group))]
        if isinstance(answer, GoQueueError):
            assert answer.code in (Code.GROUP_NOT_EMPTY, Code.GROUP_NOT_FOUND)
            return
        assert not any(key[0] == group for key in self.members)
        self.share_groups.discard(group)
        self.session_ms[group] = CONFIG.share_session_ms

    @rule(group=groups)
    def join_as_consumer(self, group: str) -> None:
        command = ConsumerHeartbeat(
            group, "k", 0, "", rebalance_timeout_ms=1, subscribed_topics=("orders",), owned=()
        )
        answer = self.desk.answers[self.desk.send(command)]
        assert isinstance(answer, ConsumerHeartbeatReply) == (group not in self.share_groups)
        if isinstance(answer, ConsumerHeartbeatReply):
            self.desk.send(ConsumerHeartbeat(group, "k", -1, ""))

    @rule()
    def restart(self) -> None:
        self.desk.restart()
        for (group, _), member in self.members.items():
            member.ends_ms = self.desk.now_ms + self.session_ms[group]

    @rule(seed=st.integers(0, 1_000))
    def replay(self, seed: int) -> None:
        kept = self.desk.newest_per_key()
        Random(seed).shuffle(kept)
        for records in (self.desk.log, kept):
            shard = self.desk.replayed(records)
            assert durable_shares(shard) == durable_shares(self.desk.shard)
            for group in ("g", "h"):
                assert shard.overrides.get(group) == self.desk.shard.overrides.get(group)

    @invariant()
    def members_are_who_was_heard_of(self) -> None:
        shares = self.desk.shard.shares
        assert set(shares.ids()) == self.share_groups
        found = {
            (group, one.member_id): one for group in shares.ids() for one in shares.describe(group).members
        }
        assert set(found) == set(self.members)
        for key, member in self.members.items():
            assert found[key].epoch == member.epoch
            assert found[key].subscribed_topics == tuple(sorted(member.topics))
            assert found[key].heard_ms is not None

    def picked(self, pick: int) -> tuple[str, str]:
        return [*sorted(self.members), ("g", "nobody")][pick % (len(self.members) + 1)]

    def ask(self, command: ShareHeartbeat) -> ShareHeartbeatReply | GoQueueError:
        answer = self.desk.answers[self.desk.send(command)]
        assert isinstance(answer, ShareHeartbeatReply | GoQueueError)
        return answer

    def hear(self, group: str, member: Member, answer: ShareHeartbeatReply, *, older: int) -> None:
        now = tuple(
            (name, tuple(range(count)))
            for name in sorted(member.topics)
            if (count := self.topics.partition_count(name)) is not None
        )
        assert answer.member_epoch > older
        if answer.assignment is not None:
            member.told = answer.assignment
        assert member.told == now
        member.epoch = member.known_epoch = answer.member_epoch
        member.ends_ms = self.desk.now_ms + self.session_ms[group]


TestShareGroups = ShareMachine.TestCase
TestShareGroups.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
