"""Consumer groups: each rule of a heartbeat, the two phases of a move, deadlines, and what is told about it all."""

from __future__ import annotations

import msgspec
import pytest

from goqueue.core.group.config import GroupConfig
from goqueue.core.group.consumer import ConsumerGroup
from goqueue.core.group.consumer_events import (
    Assignment,
    ConsumerEvent,
    ConsumerGroupState,
    ConsumerHeartbeat,
    ConsumerHeartbeatReply,
    ConsumerMemberFacts,
    MemberReconciled,
    MemberState,
    MemberSubscribed,
    TargetAssigned,
    decode_consumer_event,
    encode_consumer_event,
)
from goqueue.model.errors import (
    FencedInstance,
    FencedMemberEpoch,
    GoQueueError,
    GroupFull,
    InvalidRegularExpression,
    InvalidRequest,
    StaleMemberEpoch,
    UnknownMember,
    UnreleasedInstance,
    UnsupportedAssignor,
)

CONFIG = GroupConfig(member_count_max=4)
SESSION_MS = CONFIG.consumer_session_ms


class FakeTopics:
    def __init__(self, **counts: int) -> None:
        self.counts = counts

    def partition_count(self, name: str) -> int | None:
        return self.counts.get(name)

    def names(self) -> list[str]:
        return sorted(self.counts)


class Bench:
    """A group as the shard keeps it: events go through their bytes and are applied before anything else."""

    def __init__(self, topics: FakeTopics) -> None:
        self.topics = topics
        self.group = ConsumerGroup("g", CONFIG, topics)
        self.now_ms = 1_000
        self.events: list[ConsumerEvent] = []  # of the last call

    def beat(self, member_id: str, epoch: int, /, **fields: object) -> ConsumerHeartbeatReply:
        command = msgspec.structs.replace(
            ConsumerHeartbeat("g", member_id, epoch, "fresh", client_id="c", client_host="h"), **fields
        )
        events, reply = self.group.heartbeat(command, self.now_ms)
        self._apply(events)
        return reply

    def join(self, member_id: str, /, *topics: str, **fields: object) -> ConsumerHeartbeatReply:
        asked: dict[str, object] = {
            "rebalance_timeout_ms": 30_000,
            "subscribed_topics": topics or ("a",),
            "owned": (),
        }
        return self.beat(member_id, 0, **(asked | fields))

    def tick(self, later_ms: int) -> list[ConsumerEvent]:
        self.now_ms += later_ms
        self._apply(self.group.tick(self.now_ms))
        return self.events

    def _apply(self, events: list[ConsumerEvent]) -> None:
        self.events = events
        for event in events:
            key, value = encode_consumer_event(event)
            self.group.apply(decode_consumer_event(msgspec.json.decode(key), value))

    def member(self, member_id: str) -> ConsumerMemberFacts:
        (found,) = [m for m in self.group.describe().members if m.member_id == member_id]
        return found

    def members(self) -> list[str]:
        return [member.member_id for member in self.group.describe().members]

    def state(self) -> ConsumerGroupState:
        return self.group.describe().state

    @property
    def epochs(self) -> tuple[int, int]:
        facts = self.group.describe()
        return facts.epoch, facts.assignment_epoch


def a(*indexes: int) -> Assignment:
    return (("a", indexes),)


@pytest.fixture
def bench() -> Bench:
    return Bench(FakeTopics(a=4, b=2))


@pytest.fixture
def moving(bench: Bench) -> Bench:
    """m1 had all of `a` and has been told to give half of it to m2, which waits."""
    bench.join("m1")
    bench.join("m2")
    bench.beat("m1", 1)
    return bench


# Joining.


def test_first_member_gets_everything_at_once(bench: Bench) -> None:
    assert bench.state() is ConsumerGroupState.EMPTY
    reply = bench.join("m1")
    assert reply == ConsumerHeartbeatReply("m1", 1, CONFIG.consumer_heartbeat_ms, a(0, 1, 2, 3))
    assert bench.state() is ConsumerGroupState.STABLE
    assert bench.epochs == (1, 1)


def test_member_without_an_id_gets_the_fresh_one(bench: Bench) -> None:
    assert bench.join("").member_id == "fresh"
    assert bench.members() == ["fresh"]


def test_heartbeat_without_news_changes_and_tells_nothing(bench: Bench) -> None:
    bench.join("m1")
    assert bench.beat("m1", 1) == ConsumerHeartbeatReply("m1", 1, CONFIG.consumer_heartbeat_ms, None)
    assert bench.events == []


def test_deciding_changes_nothing_until_it_is_applied(bench: Bench) -> None:
    bench.join("m1")
    before = bench.group.describe()
    bench.group.heartbeat(
        ConsumerHeartbeat("g", "m2", 0, "", rebalance_timeout_ms=1, subscribed_topics=("b",), owned=()), 5
    )
    bench.group.heartbeat(ConsumerHeartbeat("g", "m1", -1, ""), 5)
    bench.group.tick(bench.now_ms + SESSION_MS)
    bench.group.forget()
    assert bench.group.describe() == before


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"rebalance_timeout_ms": -1}, "rebalance timeout"),
        ({"rebalance_timeout_ms": -2}, "rebalance timeout"),
        ({"owned": None}, "owns no partition"),
        ({"owned": (("a", (0,)),)}, "owns no partition"),
        ({"subscribed_topics": None}, "subscribes"),
        ({"instance_id": ""}, "instance"),
        ({"rack_id": ""}, "rack"),
        ({"group_id": ""}, "group"),
        ({"member_id": "", "fresh_id": ""}, "id"),
        ({"member_id": "", "member_epoch": 1}, "id"),
        ({"member_epoch": -3}, "-3"),
        ({"member_epoch": -2}, "instance"),
        ({"member_epoch": -1, "member_id": ""}, "id"),
    ],
)
def test_malformed_heartbeat_is_an_invalid_request(
    bench: Bench, fields: dict[str, object], what: str
) -> None:
    with pytest.raises(InvalidRequest, match=what):
        bench.join("m1", **fields)
    assert bench.group.is_empty


def test_member_may_join_without_reading_anything(bench: Bench) -> None:
    assert bench.join("m1", subscribed_topics=()).assignment == ()
    assert bench.state() is ConsumerGroupState.STABLE


def test_full_group_takes_nobody_but_its_members(bench: Bench) -> None:
    for number in range(CONFIG.member_count_max):
        bench.join(f"m{number}", instance_id=f"i{number}")
    with pytest.raises(GroupFull, match="4"):
        bench.join("one more")
    bench.join("m1", instance_id="i1")
    bench.beat("m2", -2, instance_id="i2")
    assert bench.join("m2 again", instance_id="i2").member_epoch > 0


def test_member_that_joins_again_gets_its_place_and_assignment_again(bench: Bench) -> None:
    """Its answer was lost, or it was fenced somewhere else: it has abandoned everything."""
    first = bench.join("m1")
    assert bench.join("m1") == first
    assert bench.events == []


def test_joining_again_acknowledges_what_was_to_be_given_up(moving: Bench) -> None:
    assert moving.member("m1").state is MemberState.PENDING_REVOKE
    assert moving.join("m1").assignment == a(0, 1)
    assert moving.member("m1").state is MemberState.COMPLETE


# Two phases.


def test_partitions_move_only_when_their_owner_has_given_them_up(bench: Bench) -> None:
    bench.join("m1")
    waits = bench.join("m2")
    assert (waits.member_epoch, waits.assignment) == (2, ())
    assert bench.member("m2").state is MemberState.PENDING_ASSIGN
    assert bench.state() is ConsumerGroupState.RECONCILING

    told = bench.beat("m1", 1)
    assert (told.member_epoch, told.assignment) == (1, a(0, 1))
    assert bench.member("m1").state is MemberState.PENDING_REVOKE
    assert bench.member("m1").revoking == a(2, 3)
    assert bench.beat("m2", 2).assignment is None

    assert bench.beat("m1", 1, owned=a(0, 1, 2)).member_epoch == 1  # not all of it yet
    acknowledged = bench.beat("m1", 1, owned=a(0, 1))
    assert (acknowledged.member_epoch, acknowledged.assignment) == (2, a(0, 1))
    assert bench.member("m1").state is MemberState.COMPLETE

    assert bench.beat("m2", 2).assignment == a(2, 3)
    assert bench.member("m2").target == bench.member("m2").assigned == a(2, 3)
    assert bench.state() is ConsumerGroupState.STABLE


def test_heartbeat_that_does_not_say_what_it_owns_acknowledges_nothing(moving: Bench) -> None:
    assert moving.beat("m1", 1).member_epoch == 1
    assert moving.member("m1").state is MemberState.PENDING_REVOKE


def test_member_that_owns_nothing_of_it_needs_no_second_heartbeat(bench: Bench) -> None:
    bench.join("m1")
    bench.join("m2")
    assert bench.beat("m1", 1, owned=a(0, 1)).member_epoch == 2
    assert bench.beat("m2", 2).assignment == a(2, 3)


def test_every_acknowledged_revocation_moves_the_epoch(moving: Bench) -> None:
    """Or a member that reads on what it has given up could commit it."""
    moving.join("m3")
    moving.join("m4")
    assert moving.beat("m1", 1, owned=a(0, 1)).member_epoch == 2
    assert moving.member("m1").state is MemberState.PENDING_REVOKE
    assert moving.member("m1").revoking == a(1)
    with pytest.raises(StaleMemberEpoch):
        moving.group.check_commit("m1", 1, None)
    assert moving.beat("m1", 2, owned=a(0)).member_epoch == 4


def test_member_gets_back_at_once_what_it_has_just_given_up(moving: Bench) -> None:
    moving.beat("m2", -1)
    assert moving.beat("m1", 1, owned=a(0, 1)).assignment == a(0, 1, 2, 3)
    assert moving.state() is ConsumerGroupState.STABLE


def test_leaving_sets_partitions_free_and_the_next_heartbeat_assigns_them(bench: Bench) -> None:
    bench.join("m1")
    bench.join("m2")
    left = bench.beat("m1", -1)
    assert left == ConsumerHeartbeatReply("m1", -1, 0, None)
    assert bench.state() is ConsumerGroupState.ASSIGNING
    assert bench.epochs == (3, 2)
    assert bench.beat("m2", 2).assignment == a(0, 1, 2, 3)
    assert bench.epochs == (3, 3)
    assert bench.state() is ConsumerGroupState.STABLE


def test_last_member_leaves_an_empty_group_with_nothing_to_assign(bench: Bench) -> None:
    bench.join("m1")
    bench.beat("m1", -1)
    assert bench.state() is ConsumerGroupState.EMPTY
    assert bench.epochs == (2, 2)
    assert bench.group.next_tick_ms() is None
    assert bench.join("m2").member_epoch == 3


def test_only_what_moves_is_revoked(bench: Bench) -> None:
    for name in ("m1", "m2", "m3"):
        bench.join(name, "a", "b")
    for _ in range(3):
        for name in ("m1", "m2", "m3"):
            member = bench.member(name)
            bench.beat(name, member.epoch, owned=member.assigned)
    before = {name: bench.member(name).assigned for name in bench.members()}
    bench.beat("m3", -1)
    for name in ("m1", "m2"):
        reply = bench.beat(name, bench.member(name).epoch)
        assert bench.member(name).revoking == ()
        assert dict(before[name]).keys() <= dict(reply.assignment or ()).keys()


# Epochs.


def test_unknown_member_must_join(bench: Bench) -> None:
    for epoch in (1, -1):
        with pytest.raises(UnknownMember, match="join again"):
            bench.beat("m1", epoch)


@pytest.mark.parametrize("epoch", [3, 100])
def test_epoch_from_the_future_is_fenced(moving: Bench, epoch: int) -> None:
    with pytest.raises(FencedMemberEpoch, match="epoch 0"):
        moving.beat("m1", epoch)


def test_epoch_before_the_last_is_fenced(moving: Bench) -> None:
    moving.beat("m1", 1, owned=a(0, 1))
    moving.join("m3")
    facts = moving.member("m1")
    moving.beat("m1", facts.epoch, owned=a(0))
    assert moving.member("m1").epoch == 3
    with pytest.raises(FencedMemberEpoch):
        moving.beat("m1", 1, owned=())


def test_lost_answer_is_told_again(moving: Bench) -> None:
    bumped = moving.beat("m1", 1, owned=a(0, 1))
    assert bumped.member_epoch == 2
    again = moving.beat("m1", 1, owned=a(0, 1))
    assert again == bumped
    assert moving.beat("m1", 1, owned=()).assignment == a(0, 1)


@pytest.mark.parametrize("owned", [None, (("a", (0, 1, 2)),), (("b", (0,)),)])
def test_previous_epoch_with_anything_else_is_fenced(moving: Bench, owned: Assignment | None) -> None:
    moving.beat("m1", 1, owned=a(0, 1))
    with pytest.raises(FencedMemberEpoch):
        moving.beat("m1", 1, owned=owned)


def test_refused_heartbeat_does_not_keep_the_session_alive(moving: Bench) -> None:
    moving.now_ms += SESSION_MS - 1
    with pytest.raises(FencedMemberEpoch):
        moving.beat("m2", 7)
    moving.tick(1)
    assert "m2" not in moving.members()


# Subscriptions.


def test_changed_subscription_reassigns(bench: Bench) -> None:
    bench.join("m1")
    reply = bench.beat("m1", 1, subscribed_topics=("b", "a", "b"), owned=a(0, 1, 2, 3))
    assert (reply.member_epoch, reply.assignment) == (2, (*a(0, 1, 2, 3), ("b", (0, 1))))
    assert bench.member("m1").subscribed_topics == ("a", "b")


def test_same_subscription_again_changes_nothing(bench: Bench) -> None:
    bench.join("m1", "a", "b")
    bench.beat("m1", 1, subscribed_topics=("b", "a"), rebalance_timeout_ms=30_000)
    assert bench.events == []


def test_what_does_not_concern_assignment_is_written_without_a_new_epoch(bench: Bench) -> None:
    bench.join("m1")
    assert bench.beat("m1", 1, rack_id="r", rebalance_timeout_ms=5, client_host="other").member_epoch == 1
    (event,) = bench.events
    assert isinstance(event, MemberSubscribed)
    assert (event.rack_id, event.rebalance_timeout_ms, event.client_host) == ("r", 5, "other")
    assert event.topics == ("a",)


def test_topic_that_does_not_exist_yet_is_assigned_when_it_does(bench: Bench) -> None:
    assert bench.join("m1", "later").assignment == ()
    bench.topics.counts["later"] = 2
    assert bench.beat("m1", 1).assignment is None  # topics are looked at now and then, not every time
    bench.now_ms += CONFIG.consumer_heartbeat_ms
    assert bench.beat("m1", 1).assignment == (("later", (0, 1)),)


def test_topic_that_grows_is_noticed_by_a_heartbeat(bench: Bench) -> None:
    bench.join("m1")
    bench.topics.counts["a"] = 5
    bench.now_ms += CONFIG.consumer_heartbeat_ms
    assert bench.beat("m1", 1).assignment == a(0, 1, 2, 3, 4)
    assert bench.epochs == (2, 2)


def test_topic_that_grows_is_noticed_by_a_tick(bench: Bench) -> None:
    bench.join("m1")
    bench.topics.counts["a"] = 5
    bench.topics.counts["c"] = 5
    bench.tick(1)
    assert bench.state() is ConsumerGroupState.ASSIGNING
    assert bench.tick(1) == []
    assert bench.beat("m1", 1).assignment == a(0, 1, 2, 3, 4)


def test_partitions_of_a_deleted_topic_are_given_up(bench: Bench) -> None:
    bench.join("m1", "a", "b")
    del bench.topics.counts["b"]
    bench.tick(1)
    assert bench.beat("m1", 1).assignment == a(0, 1, 2, 3)
    assert bench.member("m1").revoking == (("b", (0, 1)),)
    assert bench.beat("m1", 1, owned=a(0, 1, 2, 3)).member_epoch == 2


def test_topics_nobody_reads_do_not_matter(bench: Bench) -> None:
    bench.join("m1")
    bench.topics.counts["c"] = 9
    assert bench.tick(1) == []


def test_pattern_follows_the_topics_it_matches(bench: Bench) -> None:
    bench.topics.counts |= {"a1": 1, "__a": 3}
    joined = bench.join("m1", subscribed_topics=None, subscribed_regex="(__)?a.*")
    assert joined.assignment == (*a(0, 1, 2, 3), ("a1", (0,)))
    bench.topics.counts["a2"] = 1
    del bench.topics.counts["a1"]
    bench.tick(1)
    told = bench.beat("m1", 1)
    assert told.assignment == a(0, 1, 2, 3)
    assert bench.beat("m1", 1, owned=a(0, 1, 2, 3)).assignment == (*a(0, 1, 2, 3), ("a2", (0,)))


def test_pattern_and_names_add_up_and_an_empty_pattern_ends_it(bench: Bench) -> None:
    joined = bench.join("m1", "b", subscribed_regex="a")
    assert joined.assignment == (*a(0, 1, 2, 3), ("b", (0, 1)))
    assert bench.group.is_subscribed("a")
    assert bench.beat("m1", 1, subscribed_regex="", owned=(("b", (0, 1)),)).assignment == (("b", (0, 1)),)
    assert bench.member("m1").subscribed_regex is None
    assert not bench.group.is_subscribed("a")


@pytest.mark.parametrize("regex", ["(", "a" * 257, r"(a)\1", "(?=a)"])
def test_pattern_that_cannot_be_matched_safely_is_refused(bench: Bench, regex: str) -> None:
    with pytest.raises(InvalidRegularExpression):
        bench.join("m1", subscribed_topics=None, subscribed_regex=regex)
    bench.join("m1")
    with pytest.raises(InvalidRegularExpression):
        bench.beat("m1", 1, subscribed_regex=regex)


def test_subscribed_topics_are_those_of_any_member(bench: Bench) -> None:
    bench.join("m1", "a", "missing")
    bench.join("m2", subscribed_topics=None, subscribed_regex="b.?")
    asked = {topic: bench.group.is_subscribed(topic) for topic in ("a", "missing", "b", "b1", "c", "__b")}
    assert asked == {"a": True, "missing": True, "b": True, "b1": True, "c": False, "__b": False}
    bench.beat("m1", -1)
    bench.beat("m2", -1)
    assert not any(bench.group.is_subscribed(topic) for topic in asked)


# Assignors.


def test_unknown_assignor_is_refused_with_the_known_ones(bench: Bench) -> None:
    with pytest.raises(UnsupportedAssignor, match="range, roundrobin, sticky, uniform"):
        bench.join("m1", assignor="best")


def test_most_wanted_assignor_is_used(bench: Bench) -> None:
    assert bench.group.describe().assignor == "uniform"
    bench.join("m1", "a", "b", assignor="range")
    bench.join("m2", "a", "b", assignor="roundrobin")
    assert bench.group.describe().assignor == "range"
    bench.join("m3", "a", "b", assignor="roundrobin")
    assert bench.group.describe().assignor == "roundrobin"
    assert [m.target for m in bench.group.describe().members] == [
        (("a", (0, 3)),),
        (("a", (1,)), ("b", (0,))),
        (("a", (2,)), ("b", (1,))),
    ]


def test_changed_vote_that_decides_reassigns(bench: Bench) -> None:
    bench.join("m1", "a")
    bench.beat("m1", 1, assignor="range")
    assert bench.epochs == (2, 2)
    bench.beat("m1", 2, assignor="range")
    assert bench.epochs == (2, 2)


# Static members.


def test_static_member_that_comes_back_keeps_its_partitions(bench: Bench) -> None:
    bench.join("m1", instance_id="i1")
    bench.join("m2", instance_id="i2")
    bench.beat("m1", 1, owned=a(0, 1), instance_id="i1")
    bench.beat("m2", 2, instance_id="i2")
    left = bench.beat("m2", -2, instance_id="i2")
    assert left == ConsumerHeartbeatReply("m2", -2, 0, None)
    assert bench.beat("m1", 2, instance_id="i1").assignment is None
    assert bench.epochs == (2, 2)

    back = bench.join("m2 again", instance_id="i2")
    assert (back.member_epoch, back.assignment) == (2, a(2, 3))
    assert bench.members() == ["m1", "m2 again"]
    assert bench.epochs == (2, 2)
    assert bench.state() is ConsumerGroupState.STABLE


def test_static_member_may_come_back_with_its_old_id(bench: Bench) -> None:
    bench.join("m1", instance_id="i1")
    bench.beat("m1", -2, instance_id="i1")
    assert bench.join("m1", instance_id="i1").assignment == a(0, 1, 2, 3)
    assert bench.state() is ConsumerGroupState.STABLE


def test_static_member_that_comes_back_with_another_subscription_reassigns(bench: Bench) -> None:
    bench.join("m1", instance_id="i1")
    bench.beat("m1", -2, instance_id="i1")
    back = bench.join("m2", "b", instance_id="i1")
    assert (back.member_epoch, back.assignment) == (2, (("b", (0, 1)),))
    assert bench.members() == ["m2"]
    assert [event.member_id for event in bench.events if isinstance(event, TargetAssigned)] == ["m2"]


def test_static_member_that_left_while_giving_up_has_given_up(bench: Bench) -> None:
    bench.join("m1", instance_id="i1")
    bench.join("m2")
    bench.beat("m1", 1, instance_id="i1")
    bench.beat("m1", -2, instance_id="i1")
    assert bench.beat("m2", 2).assignment == a(2, 3)
    assert bench.join("m3", instance_id="i1").assignment == a(0, 1)


def test_instance_that_has_not_left_cannot_be_taken(bench: Bench) -> None:
    bench.join("m1", instance_id="i1")
    with pytest.raises(UnreleasedInstance, match="m1"):
        bench.join("m2", instance_id="i1")


def test_static_member_whose_answer_was_lost_may_join_again(bench: Bench) -> None:
    first = bench.join("m1", instance_id="i1")
    assert bench.join("m1", instance_id="i1") == first


def test_replaced_static_member_is_fenced(bench: Bench) -> None:
    bench.join("m1", instance_id="i1")
    bench.beat("m1", -2, instance_id="i1")
    bench.join("m2", instance_id="i1")
    for epoch in (1, -1, -2):
        with pytest.raises(FencedInstance, match="m2"):
            bench.beat("m1", epoch, instance_id="i1")
    with pytest.raises(FencedInstance):
        bench.group.check_commit("m1", 1, "i1")


def test_static_member_that_left_is_fenced_until_it_joins(bench: Bench) -> None:
    bench.join("m1", instance_id="i1")
    bench.beat("m1", -2, instance_id="i1")
    with pytest.raises(FencedMemberEpoch):
        bench.beat("m1", 1, instance_id="i1", owned=())


def test_unknown_instance_is_an_unknown_member(bench: Bench) -> None:
    for epoch in (1, -1, -2):
        with pytest.raises(UnknownMember, match="i1"):
            bench.beat("m1", epoch, instance_id="i1")


def test_member_id_belongs_to_one_instance(bench: Bench) -> None:
    bench.join("m1", instance_id="i1")
    bench.join("m2", instance_id="i2")
    bench.beat("m2", -2, instance_id="i2")
    for instance_id in ("i2", "i3"):
        with pytest.raises(InvalidRequest, match="another instance"):
            bench.join("m1", instance_id=instance_id)


def test_static_member_that_stays_away_goes_when_its_session_ends(bench: Bench) -> None:
    bench.join("m1", instance_id="i1")
    bench.join("m2")
    bench.beat("m1", -2, instance_id="i1")
    bench.now_ms += SESSION_MS - 1
    bench.beat("m2", 2)
    bench.tick(1)
    assert bench.members() == ["m2"]
    assert bench.beat("m2", 2).assignment == a(0, 1, 2, 3)


# Deadlines.


def test_silent_member_is_removed_when_its_session_ends(bench: Bench) -> None:
    bench.join("m1")
    bench.join("m2")
    assert bench.group.next_tick_ms() == bench.now_ms + SESSION_MS
    bench.now_ms += 10
    bench.beat("m2", 2)
    assert bench.tick(SESSION_MS - 11) == []
    bench.tick(1)
    assert bench.members() == ["m2"]
    assert bench.beat("m2", 2).assignment == a(0, 1, 2, 3)
    with pytest.raises(UnknownMember):
        bench.beat("m1", 1)


def test_next_tick_is_never_later_than_the_first_deadline(bench: Bench) -> None:
    bench.join("m1")
    for _ in range(5):
        bench.now_ms += 100
        bench.beat("m1", 1)
    assert (bench.group.next_tick_ms() or 0) <= bench.now_ms + SESSION_MS
    bench.tick(0)
    assert bench.group.next_tick_ms() == bench.now_ms + SESSION_MS


def test_all_members_may_go_at_once(bench: Bench) -> None:
    bench.join("m1")
    bench.join("m2")
    bench.tick(SESSION_MS)
    assert bench.group.is_empty
    assert bench.epochs == (3, 3)
    assert bench.group.next_tick_ms() is None


@pytest.mark.parametrize(("asked_ms", "granted_ms"), [(7_000, 7_000), (300_000, 60_000)])
def test_member_that_does_not_give_up_in_time_is_removed(
    bench: Bench, asked_ms: int, granted_ms: int
) -> None:
    bench.join("m1", rebalance_timeout_ms=asked_ms)
    bench.join("m2")
    bench.beat("m1", 1)
    start_ms = bench.now_ms
    while bench.now_ms < start_ms + granted_ms - 1_000:
        assert bench.tick(1_000) == []
        bench.beat("m1", 1, owned=a(0, 1, 2, 3))
        bench.beat("m2", 2)
    bench.tick(999)
    assert bench.members() == ["m1", "m2"]
    bench.tick(1)
    assert bench.members() == ["m2"]
    assert bench.beat("m2", 2).assignment == a(0, 1, 2, 3)


def test_member_that_has_given_up_in_time_stays(moving: Bench) -> None:
    moving.beat("m1", 1, owned=a(0, 1))
    assert moving.tick(30_000) == []
    assert moving.members() == ["m1", "m2"]


def test_what_was_decided_but_never_written_leaves_no_deadline_behind(bench: Bench) -> None:
    bench.group.heartbeat(
        ConsumerHeartbeat("g", "m1", 0, "", rebalance_timeout_ms=1, subscribed_topics=("a",), owned=()), 5
    )
    assert bench.tick(SESSION_MS) == []
    assert bench.group.next_tick_ms() is None


def test_sessions_and_revocations_start_anew_after_a_restart(moving: Bench) -> None:
    moving.now_ms += 1_000_000
    moving.group.resume(moving.now_ms)
    assert moving.group.next_tick_ms() == moving.now_ms + 30_000
    assert moving.tick(29_999) == []
    moving.tick(1)
    assert moving.members() == ["m2"]
    moving.tick(15_000)
    assert moving.group.is_empty


# Commits.


def test_commit_needs_the_members_own_epoch(moving: Bench) -> None:
    moving.group.check_commit("m1", 1, None)
    moving.group.check_commit("m2", 2, None)
    for epoch in (0, 1, 3, -1):
        with pytest.raises(StaleMemberEpoch):
            moving.group.check_commit("m2", epoch, None)
    for epoch in (1, -1):
        with pytest.raises(UnknownMember):
            moving.group.check_commit("nobody", epoch, None)


def test_member_commits_in_its_epoch_until_it_has_given_up(moving: Bench) -> None:
    moving.group.check_commit("m1", 1, None)
    moving.beat("m1", 1, owned=a(0, 1))
    with pytest.raises(StaleMemberEpoch):
        moving.group.check_commit("m1", 1, None)
    moving.group.check_commit("m1", 2, None)


def test_anybody_without_an_epoch_commits_to_an_empty_group(bench: Bench) -> None:
    bench.group.check_commit("", -1, None)
    with pytest.raises(UnknownMember):
        bench.group.check_commit("m1", 1, None)


# Facts, order and the end.


def test_group_describes_itself(moving: Bench) -> None:
    facts = moving.group.describe()
    assert (facts.group_id, facts.state, facts.epoch, facts.assignment_epoch, facts.assignor) == (
        "g",
        ConsumerGroupState.RECONCILING,
        2,
        2,
        "uniform",
    )
    assert facts.members == (
        ConsumerMemberFacts(
            member_id="m1",
            instance_id=None,
            rack_id=None,
            client_id="c",
            client_host="h",
            rebalance_timeout_ms=30_000,
            subscribed_topics=("a",),
            subscribed_regex=None,
            epoch=1,
            previous_epoch=0,
            state=MemberState.PENDING_REVOKE,
            assigned=a(0, 1),
            revoking=a(2, 3),
            target=a(0, 1),
        ),
        moving.member("m2"),
    )


def test_only_targets_that_changed_are_written(bench: Bench) -> None:
    bench.join("m1", "a")
    bench.join("m2", "b")
    written = [event.member_id for event in bench.events if isinstance(event, TargetAssigned)]
    assert written == ["m2"]
    assert [event.member_id for event in bench.events if isinstance(event, MemberReconciled)] == ["m2"]


def test_forgotten_group_leaves_nothing_and_starts_anew(moving: Bench) -> None:
    for event in moving.group.forget():
        assert encode_consumer_event(event)[1] is None
        moving.group.apply(event)
    assert moving.group.is_empty
    assert moving.epochs == (0, 0)
    assert not moving.group.is_subscribed("a")
    assert moving.join("m9").assignment == a(0, 1, 2, 3)
    assert moving.epochs == (1, 1)


@pytest.mark.parametrize("epoch", [0, 1, -1, -2])
def test_refusal_changes_nothing(moving: Bench, epoch: int) -> None:
    before = moving.group.describe()
    with pytest.raises(GoQueueError):
        moving.beat("m1", epoch, instance_id="i", assignor="none such")
    assert moving.group.describe() == before
