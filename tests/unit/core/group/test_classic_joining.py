"""Joining a classic group: who is taken in, when the rebalance ends, who leads."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.groups import Desk, FixedTopics, join, subscription

from goqueue.core.group.commands import (
    ClassicGroupFacts,
    Done,
    GroupState,
    Heartbeat,
    Joined,
    JoinedMember,
    JoinGroup,
    LeaveGroup,
    Leaver,
    Left,
    Synced,
)
from goqueue.core.group.config import GroupConfig
from goqueue.core.group.facts import describe
from goqueue.model.codes import Code
from goqueue.model.errors import GoQueueError

RANGE = subscription("orders")
DELAYED = GroupConfig(initial_rebalance_delay_ms=3_000)


@pytest.fixture
def desk() -> Desk:
    return Desk()


def state(desk: Desk, group: str = "g") -> GroupState:
    facts = describe(desk.shard, group)
    assert isinstance(facts, ClassicGroupFacts)
    return facts.state


def test_one_member_alone_is_at_once_the_leader_of_generation_one(desk: Desk) -> None:
    joined = desk.answer(desk.join(), Joined)
    assert joined == Joined(
        member_id="client-fresh",
        generation=1,
        protocol_type="consumer",
        protocol_name="range",
        leader_id="client-fresh",
        members=(JoinedMember("client-fresh", None, RANGE),),
    )
    assert state(desk) is GroupState.COMPLETING_REBALANCE


def test_dynamic_member_that_must_know_its_id_joins_in_two_steps(desk: Desk) -> None:
    error = desk.call(join(must_know_id=True), GoQueueError)
    assert error.code is Code.MEMBER_ID_REQUIRED
    assert error.details["member_id"] == "client-fresh"
    assert state(desk) is GroupState.EMPTY
    assert desk.answer(desk.join("client-fresh"), Joined).member_id == "client-fresh"


def test_static_member_needs_no_id_first(desk: Desk) -> None:
    ticket = desk.join(must_know_id=True, instance_id="i")
    assert desk.answer(ticket, Joined).member_id == "i-fresh"


def test_id_that_is_not_used_expires_and_leaves_nothing_behind(desk: Desk) -> None:
    desk.join(must_know_id=True)
    desk.advance(10_000)
    assert desk.refusal(join("client-fresh")) is Code.UNKNOWN_MEMBER
    with pytest.raises(GoQueueError, match="no group"):
        describe(desk.shard, "g")
    assert desk.log == []


def test_rebalance_waits_for_an_id_that_was_given_out_until_that_expires(desk: Desk) -> None:
    (first,) = desk.stable(1)
    desk.join(must_know_id=True, fresh_id="b")
    rejoin = desk.join(first.member_id)
    assert desk.is_parked(rejoin)
    desk.advance(10_000)
    assert desk.answer(rejoin, Joined).generation == 2


def test_id_given_to_a_dynamic_member_is_not_for_a_static_one(desk: Desk) -> None:
    desk.join(must_know_id=True)
    assert desk.refusal(join("client-fresh", instance_id="i")) is Code.INVALID_REQUEST


def test_second_member_waits_until_the_first_has_rejoined(desk: Desk) -> None:
    (first,) = desk.stable(1)
    second = desk.join(fresh_id="b")
    assert desk.is_parked(second)
    assert state(desk) is GroupState.PREPARING_REBALANCE
    answers = [desk.answer(ticket, Joined) for ticket in (desk.join(first.member_id), second)]
    assert [one.generation for one in answers] == [2, 2]
    assert {one.leader_id for one in answers} == {first.member_id}
    assert [len(one.members) for one in answers] == [2, 0]


def test_member_that_does_not_rejoin_in_time_is_removed(desk: Desk) -> None:
    (first,) = desk.stable(1, session_timeout_ms=1_000_000)
    second = desk.join(fresh_id="b")
    desk.advance(59_999)
    assert desk.is_parked(second)
    desk.advance(1)
    joined = desk.answer(second, Joined)
    assert joined.generation == 2
    assert joined.leader_id == joined.member_id
    assert [one.member_id for one in joined.members] == [joined.member_id]
    assert desk.refusal(Heartbeat("g", first.member_id, 1)) is Code.UNKNOWN_MEMBER


def test_longest_rebalance_timeout_of_the_members_counts(desk: Desk) -> None:
    desk.stable(1, session_timeout_ms=1_000_000, rebalance_timeout_ms=90_000)
    second = desk.join(fresh_id="b", rebalance_timeout_ms=1_000)
    desk.advance(89_999)
    assert desk.is_parked(second)
    desk.advance(1)
    assert desk.answer(second, Joined).generation == 2


def test_parked_join_keeps_its_member_alive(desk: Desk) -> None:
    first, second = desk.stable(2, session_timeout_ms=10_000)
    rejoin = desk.join(first.member_id)
    for _ in range(10):
        desk.advance(5_000)
        desk.heartbeat(second)
    assert desk.is_parked(rejoin)
    desk.join(second.member_id)
    assert desk.answer(rejoin, Joined).generation == second.generation + 1


def test_new_member_whose_client_has_gone_does_not_stay_for_ever(desk: Desk) -> None:
    (first,) = desk.stable(1, rebalance_timeout_ms=10_000_000)
    second = desk.join(fresh_id="b")
    desk.shard.abandon(second)
    for _ in range(60):
        desk.advance(5_000)
        desk.heartbeat(first)
    assert desk.is_parked(second)
    assert desk.answer(desk.join(first.member_id), Joined).members[0].member_id == first.member_id


def test_member_whose_client_went_away_while_it_joined_is_in_the_generation_until_its_session_ends(
    desk: Desk,
) -> None:
    leader, follower = desk.stable(2)
    gone = desk.join(leader.member_id)
    desk.shard.abandon(gone)
    joined = desk.answer(desk.join(follower.member_id), Joined)
    assert joined.leader_id == leader.member_id
    assert desk.is_parked(gone)
    answers = []
    for _ in range(2):
        desk.advance(5_000)
        answers.append(desk.heartbeat(joined))
    assert answers[0] == Done()
    assert isinstance(answers[1], GoQueueError)
    assert answers[1].code is Code.REBALANCE_IN_PROGRESS


def test_second_join_of_a_member_releases_its_first(desk: Desk) -> None:
    first, second = desk.stable(2)
    earlier = desk.join(first.member_id)
    later = desk.join(first.member_id)
    assert desk.code(earlier) is Code.REBALANCE_IN_PROGRESS
    desk.join(second.member_id)
    assert desk.answer(later, Joined).generation == second.generation + 1


def test_follower_that_did_not_hear_the_answer_is_told_again_without_a_rebalance(desk: Desk) -> None:
    _, follower = desk.stable(2)
    again = desk.answer(desk.join(follower.member_id), Joined)
    assert again == follower
    assert state(desk) is GroupState.STABLE


def test_leader_that_rejoins_begins_a_rebalance(desk: Desk) -> None:
    leader, _ = desk.stable(2)
    assert desk.is_parked(desk.join(leader.member_id))
    assert state(desk) is GroupState.PREPARING_REBALANCE


def test_follower_that_subscribes_to_something_else_begins_a_rebalance(desk: Desk) -> None:
    _, follower = desk.stable(2)
    changed = (("range", subscription("orders", "bills")),)
    assert desk.is_parked(desk.join(follower.member_id, protocols=changed))


def test_join_of_the_same_member_before_sync_is_answered_from_the_current_generation(desk: Desk) -> None:
    joined = desk.answer(desk.join(), Joined)
    assert desk.answer(desk.join(joined.member_id), Joined) == joined
    changed = (("range", subscription("bills")),)
    assert desk.answer(desk.join(joined.member_id, protocols=changed), Joined).generation == 2


def test_protocol_is_the_one_that_all_know_and_most_want(desk: Desk) -> None:
    both = (("range", b"r"), ("sticky", b"s"))
    (first,) = desk.stable(1, protocols=(("sticky", b"s"), ("range", b"r"), ("own", b"o")))
    tickets = [desk.join(fresh_id=name, protocols=both) for name in ("b", "c")]
    tickets.append(desk.join(first.member_id, protocols=(("sticky", b"s"), ("range", b"r"), ("own", b"o"))))
    assert {desk.answer(ticket, Joined).protocol_name for ticket in tickets} == {"range"}
    leader = desk.answer(tickets[-1], Joined)
    assert [one.metadata for one in leader.members] == [b"r", b"r", b"r"]


@pytest.mark.parametrize(
    "changes",
    [
        {"protocol_type": "connect"},
        {"protocols": (("other", b""),)},
        {"protocols": ()},
        {"protocol_type": ""},
    ],
)
def test_member_that_has_no_protocol_in_common_is_refused(desk: Desk, changes: dict[str, Any]) -> None:
    desk.stable(1)
    assert desk.refusal(join(fresh_id="b", **changes)) is Code.INCONSISTENT_GROUP_PROTOCOL
    assert state(desk) is GroupState.STABLE


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (join(group=""), Code.INVALID_GROUP_ID),
        (join(group="g" * 1_001), Code.INVALID_GROUP_ID),
        (join(session_timeout_ms=999), Code.INVALID_SESSION_TIMEOUT),
        (join(session_timeout_ms=1_800_001), Code.INVALID_SESSION_TIMEOUT),
        (join("nobody"), Code.UNKNOWN_MEMBER),
        (join(protocols=()), Code.INCONSISTENT_GROUP_PROTOCOL),
        (join(protocol_type=""), Code.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_join_that_cannot_be_is_refused_and_makes_no_group(
    desk: Desk, command: JoinGroup, code: Code
) -> None:
    assert desk.refusal(command) is code
    assert not desk.shard.classic


def test_unknown_member_of_a_group_that_exists_is_refused(desk: Desk) -> None:
    desk.stable(1)
    assert desk.refusal(join("nobody")) is Code.UNKNOWN_MEMBER


def test_group_takes_so_many_members_and_no_more() -> None:
    desk = Desk(GroupConfig(member_count_max=2))
    desk.stable(2)
    assert desk.refusal(join(fresh_id="c")) is Code.GROUP_FULL
    assert desk.refusal(join(fresh_id="c", must_know_id=True)) is Code.GROUP_FULL
    assert state(desk) is GroupState.STABLE


def test_last_of_the_members_with_a_given_id_finds_room() -> None:
    desk = Desk(GroupConfig(member_count_max=2))
    (first,) = desk.stable(1)
    desk.join(must_know_id=True, fresh_id="b")
    second = desk.join("client-b")
    desk.join(first.member_id)
    assert desk.answer(second, Joined).generation == 2


def test_shard_takes_so_many_groups_and_no_more() -> None:
    desk = Desk(GroupConfig(group_count_max=1))
    desk.stable(2)
    assert desk.refusal(join(group="other")) is Code.LIMIT_EXCEEDED


def test_empty_group_waits_for_its_first_members_and_longer_while_they_keep_coming() -> None:
    desk = Desk(DELAYED)
    tickets = [desk.join(fresh_id="a", rebalance_timeout_ms=8_000)]
    desk.advance(2_000)
    tickets.append(desk.join(fresh_id="b", rebalance_timeout_ms=8_000))
    desk.advance(1_000)
    assert desk.is_parked(tickets[0])
    tickets.append(desk.join(fresh_id="c", rebalance_timeout_ms=8_000))
    desk.advance(3_000)
    assert desk.is_parked(tickets[0])
    desk.join(fresh_id="d", rebalance_timeout_ms=8_000)
    desk.advance(1_999)
    assert desk.is_parked(tickets[0])
    desk.advance(1)  # the rebalance timeout is the end of it
    assert [desk.answer(ticket, Joined).generation for ticket in tickets] == [1, 1, 1]
    assert len(desk.answer(tickets[0], Joined).members) == 4


def test_initial_delay_ends_where_nobody_else_comes() -> None:
    desk = Desk(DELAYED)
    ticket = desk.join()
    desk.advance(2_999)
    assert desk.is_parked(ticket)
    desk.advance(1)
    assert desk.answer(ticket, Joined).generation == 1


def test_group_whose_first_members_left_during_the_delay_is_as_if_it_had_never_been() -> None:
    desk = Desk(DELAYED)
    ticket = desk.join()
    desk.answer(desk.leave("client-fresh"), Left)
    assert desk.code(ticket) is Code.UNKNOWN_MEMBER
    desk.advance(10_000)
    assert not desk.shard.classic
    assert desk.log == []


# Static members.


def static(desk: Desk, instance: str, fresh: str, **changes: Any) -> Joined:
    return desk.answer(desk.join(instance_id=instance, fresh_id=fresh, **changes), Joined)


def test_static_member_that_comes_back_keeps_its_assignment_without_a_rebalance(desk: Desk) -> None:
    before = static(desk, "i", "1")
    desk.answer(desk.sync(before), Synced)
    after = static(desk, "i", "2", may_skip_assignment=True)
    assert after.member_id == "i-2"
    assert after.generation == before.generation
    assert after.leader_id == "i-2"
    assert after.skip_assignment
    assert [one.member_id for one in after.members] == ["i-2"]
    assert desk.answer(desk.sync(after, {}), Synced).assignment == b"i-1"
    assert state(desk) is GroupState.STABLE


def test_static_leader_of_an_old_client_comes_back_as_a_follower(desk: Desk) -> None:
    desk.sync(static(desk, "i", "1"))
    after = static(desk, "i", "2")
    assert (after.leader_id, after.members, after.skip_assignment) == ("i-1", (), False)


def test_static_member_that_comes_back_is_the_same_after_a_restart(desk: Desk) -> None:
    desk.sync(static(desk, "i", "1"))
    after = static(desk, "i", "2")
    desk.restart()
    assert desk.answers[desk.send(Heartbeat("g", "i-2", after.generation, "i"))] == Done()
    assert desk.refusal(Heartbeat("g", "i-1", after.generation, "i")) is Code.FENCED_INSTANCE


def test_old_id_of_a_static_member_is_fenced_everywhere(desk: Desk) -> None:
    before = static(desk, "i", "1")
    desk.sync(before)
    static(desk, "i", "2")
    assert desk.refusal(Heartbeat("g", "i-1", before.generation, "i")) is Code.FENCED_INSTANCE
    assert desk.refusal(Heartbeat("g", "i-1", before.generation)) is Code.UNKNOWN_MEMBER
    assert desk.refusal(join("i-1", instance_id="i")) is Code.FENCED_INSTANCE
    left = desk.call(LeaveGroup("g", (Leaver("i-1", "i"),)), Left)
    assert left.members[0].error is not None
    assert left.members[0].error.code is Code.FENCED_INSTANCE


def test_parked_join_of_a_replaced_static_member_is_fenced(desk: Desk) -> None:
    leader = static(desk, "i", "1")
    desk.sync(leader)
    static_join = desk.join(instance_id="j", fresh_id="1")
    again = desk.join(instance_id="j", fresh_id="2")
    assert desk.code(static_join) is Code.FENCED_INSTANCE
    desk.join(leader.member_id, instance_id="i")
    assert desk.answer(again, Joined).member_id == "j-2"


def test_static_member_that_subscribes_to_something_else_begins_a_rebalance(desk: Desk) -> None:
    desk.sync(static(desk, "i", "1"))
    after = static(desk, "i", "2", protocols=(("range", subscription("bills")),))
    assert after.generation == 2


def test_what_a_consumer_owns_is_no_change_of_its_subscription(desk: Desk) -> None:
    desk.sync(static(desk, "i", "1", protocols=(("range", subscription("orders", owned=b"0123")),)))
    after = static(desk, "i", "2", protocols=(("range", subscription("orders", owned=b"")),))
    assert after.generation == 1


def test_static_member_that_returns_before_the_sync_begins_a_rebalance(desk: Desk) -> None:
    assert static(desk, "i", "1").generation == 1
    assert static(desk, "i", "2").generation == 2


def test_static_member_that_is_late_stays_until_its_session_ends(desk: Desk) -> None:
    desk.sync(static(desk, "i", "1", session_timeout_ms=100_000))
    second = desk.join(fresh_id="b")
    desk.advance(60_000)
    joined = desk.answer(second, Joined)
    assert [one.member_id for one in joined.members] == ["i-1", "client-b"]
    assert joined.leader_id == "client-b"


def test_static_members_that_are_all_away_are_waited_for(desk: Desk) -> None:
    before = static(desk, "i", "1", session_timeout_ms=200_000)
    desk.sync(before)
    joining = desk.join(fresh_id="b", rebalance_timeout_ms=1_000)
    desk.leave("client-b")
    assert desk.code(joining) is Code.UNKNOWN_MEMBER
    desk.advance(130_000)
    assert state(desk) is GroupState.PREPARING_REBALANCE
    assert desk.answer(desk.join("i-1", instance_id="i"), Joined).generation == 2


def test_topics_are_not_asked_for_when_a_member_joins() -> None:
    desk = Desk(topics=FixedTopics())
    desk.stable(1)
    assert state(desk) is GroupState.STABLE
