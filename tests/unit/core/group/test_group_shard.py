"""A shard as a whole: which groups there are, of which type, and how they end."""

from __future__ import annotations

import pytest
from tests.support.groups import Desk, durable, join, subscription

from goqueue.core.group.commands import (
    ClassicGroupFacts,
    CommitInTransaction,
    CommitOffsets,
    DeleteGroup,
    DeleteOffsets,
    Done,
    FetchOffsets,
    GroupState,
    GroupSummary,
    GroupType,
    Heartbeat,
    Joined,
    LeaveGroup,
    Leaver,
    MemberFacts,
    NewOffset,
    PartitionResults,
    SyncGroup,
)
from goqueue.core.group.config import GroupConfig
from goqueue.core.group.consumer_events import ConsumerGroupFacts, ConsumerHeartbeat, ConsumerHeartbeatReply
from goqueue.core.group.facts import describe, summaries
from goqueue.model.codes import Code
from goqueue.model.errors import GoQueueError, GroupNotFound


@pytest.fixture
def desk() -> Desk:
    return Desk()


def beat(epoch: int = 0, member_id: str = "m", group: str = "g") -> ConsumerHeartbeat:
    is_join = epoch == 0
    return ConsumerHeartbeat(
        group,
        member_id,
        epoch,
        "fresh",
        rebalance_timeout_ms=60_000 if is_join else -1,
        subscribed_topics=("orders",) if is_join else None,
        owned=() if is_join else None,
    )


def exists(desk: Desk, group: str = "g") -> bool:
    try:
        describe(desk.shard, group)
    except GroupNotFound:
        return False
    return True


# What can be seen.


def test_stable_group_shows_its_members_with_what_they_said_and_got(desk: Desk) -> None:
    joined = desk.answer(desk.join(instance_id="i"), Joined)
    desk.sync(joined)
    member = MemberFacts(
        "i-fresh", "i", "client", "/127.0.0.1", subscription("orders"), b"i-fresh", desk.now_ms + 10_000
    )
    assert describe(desk.shard, "g") == ClassicGroupFacts(
        "g", GroupState.STABLE, "consumer", "range", 1, "i-fresh", (member,)
    )


def test_rebalancing_group_shows_who_is_there_but_not_what_is_over(desk: Desk) -> None:
    desk.stable(1)
    desk.join(fresh_id="b")
    facts = describe(desk.shard, "g")
    assert isinstance(facts, ClassicGroupFacts)
    assert (facts.state, facts.protocol_name) == (GroupState.PREPARING_REBALANCE, "")
    assert [(one.metadata, one.assignment) for one in facts.members] == [(b"", b""), (b"", b"")]


def test_groups_are_listed_by_name_and_filtered_by_state_and_type(desk: Desk) -> None:
    desk.stable(1, group="b")
    desk.commit(1, group="a")
    desk.call(beat(group="c"), ConsumerHeartbeatReply)
    everything = [
        GroupSummary("a", GroupType.CLASSIC, "", GroupState.EMPTY),
        GroupSummary("b", GroupType.CLASSIC, "consumer", GroupState.STABLE),
        GroupSummary("c", GroupType.CONSUMER, "consumer", GroupState.STABLE),
    ]
    assert summaries(desk.shard) == everything
    assert summaries(desk.shard, states=["stable"]) == everything[1:]
    assert summaries(desk.shard, types=["Classic"]) == everything[:2]
    assert summaries(desk.shard, states=["Stable", "Empty"], types=["consumer"]) == everything[2:]
    assert summaries(desk.shard, states=["nonsense"]) == []


def test_group_that_only_has_offsets_is_an_empty_one_without_a_type(desk: Desk) -> None:
    desk.commit(1)
    assert describe(desk.shard, "g") == ClassicGroupFacts("g", GroupState.EMPTY, "", "", 0, None, ())


# Deleting.


def test_group_is_deleted_with_its_offsets_once_it_is_empty(desk: Desk) -> None:
    (member,) = desk.stable(1)
    desk.commit(1, member)
    desk.call(CommitInTransaction("g", 1, 0, (NewOffset("orders", 1, 1),)), PartitionResults)
    assert desk.refusal(DeleteGroup("g")) is Code.GROUP_NOT_EMPTY
    desk.leave(member.member_id)
    desk.call(DeleteGroup("g"), Done)
    assert not exists(desk)
    assert desk.refusal(DeleteGroup("g")) is Code.GROUP_NOT_FOUND
    assert durable(desk.replayed()) == durable(desk.replayed(desk.newest_per_key())) == ({}, [], {})


def test_group_that_waits_for_an_id_can_be_deleted(desk: Desk) -> None:
    desk.join(must_know_id=True)
    desk.call(DeleteGroup("g"), Done)
    assert desk.refusal(join("client-fresh")) is Code.UNKNOWN_MEMBER
    desk.advance(20_000)
    assert not exists(desk)


def test_deleted_group_begins_anew(desk: Desk) -> None:
    (member,) = desk.stable(1)
    desk.leave(member.member_id)
    desk.call(DeleteGroup("g"), Done)
    (again,) = desk.stable(1)
    assert again.generation == 1
    assert desk.committed() == -1


# Consumer groups.


def test_first_heartbeat_makes_a_consumer_group(desk: Desk) -> None:
    reply = desk.call(beat(), ConsumerHeartbeatReply)
    assert reply.assignment == (("orders", (0, 1, 2, 3)),)
    assert isinstance(describe(desk.shard, "g"), ConsumerGroupFacts)
    assert durable(desk.replayed()) == durable(desk.shard)


def test_heartbeat_that_is_no_join_makes_no_group(desk: Desk) -> None:
    assert desk.refusal(beat(3)) is Code.UNKNOWN_MEMBER
    assert desk.refusal(beat(group="")) is Code.INVALID_GROUP_ID
    assert not exists(desk)


def test_refused_join_makes_no_group(desk: Desk) -> None:
    command = ConsumerHeartbeat("g", "m", 0, "fresh")
    assert desk.refusal(command) is Code.INVALID_REQUEST
    assert not exists(desk)


def test_consumer_group_removes_a_member_that_is_not_heard_of(desk: Desk) -> None:
    desk.call(beat(), ConsumerHeartbeatReply)
    desk.advance(desk.config.consumer_session_ms - 1)
    desk.call(beat(1), ConsumerHeartbeatReply)
    desk.advance(desk.config.consumer_session_ms)
    facts = describe(desk.shard, "g")
    assert isinstance(facts, ConsumerGroupFacts)
    assert facts.members == ()
    assert durable(desk.replayed()) == durable(desk.shard)


def test_consumer_group_notices_new_partitions_when_its_members_are_heard_of(desk: Desk) -> None:
    desk.call(beat(), ConsumerHeartbeatReply)
    desk.topics.counts["orders"] = 5
    desk.advance(desk.config.consumer_heartbeat_ms)
    assert desk.call(beat(1), ConsumerHeartbeatReply).assignment == (("orders", (0, 1, 2, 3, 4)),)


def test_consumer_group_without_members_is_forgotten_after_a_while_and_its_offsets_after_a_week(
    desk: Desk,
) -> None:
    desk.call(beat(), ConsumerHeartbeatReply)
    desk.call(CommitOffsets("g", (NewOffset("orders", 0, 1),), "m", 1), PartitionResults)
    desk.call(beat(group="other"), ConsumerHeartbeatReply)
    for group in ("g", "other"):
        desk.call(beat(-1, group=group), ConsumerHeartbeatReply)
    desk.advance(10 * 60_000)
    assert [exists(desk, group) for group in ("g", "other")] == [True, False]
    desk.advance(desk.config.offset_retention_ms)
    assert not exists(desk)
    assert durable(desk.replayed()) == durable(desk.shard) == ({}, [], {})


def test_consumer_group_goes_on_after_a_restart(desk: Desk) -> None:
    desk.call(beat(), ConsumerHeartbeatReply)
    desk.restart()
    desk.advance(desk.config.consumer_session_ms - 1)
    assert desk.call(beat(1), ConsumerHeartbeatReply).member_epoch == 1
    desk.advance(desk.config.consumer_session_ms)
    assert desk.refusal(beat(1)) is Code.UNKNOWN_MEMBER


def test_zombie_of_a_consumer_group_cannot_commit(desk: Desk) -> None:
    desk.call(beat(), ConsumerHeartbeatReply)
    offsets = (NewOffset("orders", 0, 1),)
    assert desk.refusal(CommitOffsets("g", offsets, "m", 0)) is Code.STALE_MEMBER_EPOCH
    assert desk.refusal(CommitOffsets("g", offsets, "other", 1)) is Code.UNKNOWN_MEMBER
    assert desk.refusal(CommitOffsets("g", offsets)) is Code.UNKNOWN_MEMBER
    assert desk.refusal(CommitInTransaction("g", 1, 0, offsets, "m", 0)) is Code.ILLEGAL_GENERATION
    assert desk.refusal(CommitInTransaction("g", 1, 0, offsets, "other", 1)) is Code.UNKNOWN_MEMBER
    desk.call(CommitInTransaction("g", 1, 0, offsets), PartitionResults)
    desk.call(CommitInTransaction("g", 1, 0, offsets, "m", 1), PartitionResults)
    desk.call(CommitOffsets("g", offsets, "m", 1), PartitionResults)


def test_zombie_of_a_consumer_group_cannot_ask_for_offsets(desk: Desk) -> None:
    desk.call(beat(), ConsumerHeartbeatReply)
    assert desk.refusal(FetchOffsets("g", member_id="m", member_epoch=9)) is Code.STALE_MEMBER_EPOCH
    assert desk.refusal(FetchOffsets("g", member_id="other", member_epoch=1)) is Code.UNKNOWN_MEMBER
    for command in (FetchOffsets("g"), FetchOffsets("g", member_id="m", member_epoch=1)):
        desk.send(command)
        assert not isinstance(desk.answers[desk.send(command)], GoQueueError)


def test_offsets_of_a_topic_that_a_consumer_group_reads_are_not_deleted(desk: Desk) -> None:
    desk.call(beat(), ConsumerHeartbeatReply)
    found = desk.call(DeleteOffsets("g", (("orders", 0), ("bills", 0))), PartitionResults)
    codes = [one.error and one.error.code for one in found.partitions]
    assert codes == [Code.GROUP_SUBSCRIBED_TO_TOPIC, None]
    assert desk.refusal(DeleteGroup("g")) is Code.GROUP_NOT_EMPTY


# One group has one type.


def test_classic_member_and_consumer_group_do_not_mix(desk: Desk) -> None:
    desk.call(beat(), ConsumerHeartbeatReply)
    assert desk.refusal(join()) is Code.INCONSISTENT_GROUP_PROTOCOL
    assert desk.refusal(SyncGroup("g", "m", 1)) is Code.UNKNOWN_MEMBER
    assert desk.refusal(Heartbeat("g", "m", 1)) is Code.UNKNOWN_MEMBER
    assert desk.refusal(LeaveGroup("g", (Leaver("m"),))) is Code.UNKNOWN_MEMBER


def test_consumer_does_not_join_members_of_the_classic_protocol(desk: Desk) -> None:
    desk.stable(1)
    assert desk.refusal(beat()) is Code.INCONSISTENT_GROUP_PROTOCOL


def test_empty_classic_group_becomes_a_consumer_group_and_keeps_its_offsets(desk: Desk) -> None:
    (member,) = desk.stable(1)
    desk.commit(7, member)
    desk.leave(member.member_id)
    desk.call(beat(), ConsumerHeartbeatReply)
    assert isinstance(describe(desk.shard, "g"), ConsumerGroupFacts)
    assert desk.committed() == 7
    for records in (desk.log, desk.newest_per_key(), list(reversed(desk.newest_per_key()))):
        assert durable(desk.replayed(records)) == durable(desk.shard)


def test_empty_consumer_group_becomes_a_classic_group_and_keeps_its_offsets(desk: Desk) -> None:
    desk.call(beat(), ConsumerHeartbeatReply)
    desk.call(CommitOffsets("g", (NewOffset("orders", 0, 7),), "m", 1), PartitionResults)
    desk.call(beat(-1), ConsumerHeartbeatReply)
    desk.stable(1)
    assert isinstance(describe(desk.shard, "g"), ClassicGroupFacts)
    assert desk.committed() == 7
    for records in (desk.log, desk.newest_per_key(), list(reversed(desk.newest_per_key()))):
        assert durable(desk.replayed(records)) == durable(desk.shard)


def test_refused_join_leaves_an_empty_consumer_group_as_it_is(desk: Desk) -> None:
    desk.call(beat(), ConsumerHeartbeatReply)
    desk.call(beat(-1), ConsumerHeartbeatReply)
    before = durable(desk.shard)
    assert desk.refusal(join(protocols=())) is Code.INCONSISTENT_GROUP_PROTOCOL
    assert durable(desk.shard) == before


def test_group_limit_counts_both_types() -> None:
    desk = Desk(GroupConfig(group_count_max=1))
    desk.call(beat(), ConsumerHeartbeatReply)
    assert desk.refusal(join(group="other")) is Code.LIMIT_EXCEEDED
    assert desk.refusal(beat(group="other")) is Code.LIMIT_EXCEEDED
    desk.call(beat(1), ConsumerHeartbeatReply)


# Time.


def test_many_deadlines_of_one_moment_are_all_met(desk: Desk) -> None:
    for group in ("a", "b", "c"):
        desk.stable(3, group=group)
    desk.advance(10_000)
    assert [group.state for group in summaries(desk.shard)] == [GroupState.EMPTY] * 3
    assert durable(desk.replayed()) == durable(desk.shard)


def test_shard_without_groups_waits_for_nothing(desk: Desk) -> None:
    assert desk.shard.next_tick_ms() is None
    assert desk.refusal(Heartbeat("g", "m", 1)) is Code.UNKNOWN_MEMBER
    assert desk.shard.next_tick_ms() is None


def test_abandoning_a_call_that_does_not_wait_does_nothing(desk: Desk) -> None:
    ticket = desk.join()
    desk.shard.abandon(ticket)
    assert desk.answer(ticket, Joined).generation == 1


@pytest.mark.parametrize("by_ms", [-3_600_000, 3_600_000])
def test_sessions_last_as_long_as_they_should_when_the_clock_is_set(desk: Desk, by_ms: int) -> None:
    (member,) = desk.stable(1)
    desk.call(beat(group="c"), ConsumerHeartbeatReply)
    desk.advance(6_000)
    desk.now_ms += by_ms
    desk.shard.clock_was_set(by_ms, desk.now_ms)
    desk.advance(3_999)
    assert desk.heartbeat(member) == Done()
    desk.advance(10_000)
    assert summaries(desk.shard)[1].state is GroupState.EMPTY
    assert summaries(desk.shard)[0].state is GroupState.STABLE
    desk.advance(desk.config.consumer_session_ms)
    assert summaries(desk.shard)[0].state is GroupState.EMPTY
