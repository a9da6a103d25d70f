"""Members of a classic group between joins: sync, heartbeat, leave, and who is a zombie."""

from __future__ import annotations

import pytest
from tests.support.groups import Desk, durable

from goqueue.core.group.commands import (
    ClassicGroupFacts,
    Command,
    CommitOffsets,
    Done,
    GroupState,
    Heartbeat,
    Joined,
    LeaveGroup,
    Leaver,
    Left,
    NewOffset,
    Synced,
    SyncGroup,
)
from goqueue.core.group.facts import describe
from goqueue.model.codes import Code
from goqueue.model.errors import GoQueueError


@pytest.fixture
def desk() -> Desk:
    return Desk()


def facts(desk: Desk, group: str = "g") -> ClassicGroupFacts:
    found = describe(desk.shard, group)
    assert isinstance(found, ClassicGroupFacts)
    return found


def two_joined(desk: Desk) -> tuple[Joined, Joined]:
    """A leader and a follower that have not synced."""
    (leader,) = desk.stable(1)
    second = desk.join(fresh_id="b")
    leader = desk.answer(desk.join(leader.member_id), Joined)
    return leader, desk.answer(second, Joined)


# Sync.


def test_assignment_is_given_to_everybody_when_the_leader_has_sent_it(desk: Desk) -> None:
    leader, follower = two_joined(desk)
    early = desk.sync(follower)
    assert desk.is_parked(early)
    own = desk.sync(leader, {leader.member_id: b"a", follower.member_id: b"b"})
    assert desk.answer(own, Synced) == Synced("consumer", "range", b"a")
    assert desk.answer(early, Synced).assignment == b"b"
    assert facts(desk).state is GroupState.STABLE


def test_sync_after_the_group_is_stable_is_answered_at_once(desk: Desk) -> None:
    leader, follower = two_joined(desk)
    desk.sync(leader)
    assert desk.answer(desk.sync(follower), Synced).assignment == follower.member_id.encode()


def test_member_that_the_leader_forgot_gets_an_empty_assignment(desk: Desk) -> None:
    leader, follower = two_joined(desk)
    early = desk.sync(follower)
    desk.sync(leader, {leader.member_id: b"a"})
    assert desk.answer(early, Synced).assignment == b""


def test_what_a_follower_sends_as_assignment_is_ignored(desk: Desk) -> None:
    leader, follower = two_joined(desk)
    early = desk.sync(follower, {leader.member_id: b"mine"})
    desk.sync(leader, {leader.member_id: b"a", follower.member_id: b"b"})
    assert desk.answer(early, Synced).assignment == b"b"
    assert [member.assignment for member in facts(desk).members] == [b"a", b"b"]


def test_parked_sync_is_sent_back_when_another_rebalance_begins(desk: Desk) -> None:
    _, follower = two_joined(desk)
    early = desk.sync(follower)
    desk.join(fresh_id="c")
    assert desk.code(early) is Code.REBALANCE_IN_PROGRESS


def test_second_sync_of_a_member_releases_its_first(desk: Desk) -> None:
    leader, follower = two_joined(desk)
    first, second = desk.sync(follower), desk.sync(follower)
    assert desk.code(first) is Code.REBALANCE_IN_PROGRESS
    desk.sync(leader)
    desk.answer(second, Synced)


def test_parked_sync_keeps_its_member_alive(desk: Desk) -> None:
    leader, follower = two_joined(desk)
    early = desk.sync(follower)
    for _ in range(5):
        desk.advance(9_000)
        assert desk.heartbeat(leader) == Done()
    desk.sync(leader)
    desk.answer(early, Synced)
    desk.advance(9_999)
    assert desk.heartbeat(follower) == Done()


def test_members_that_never_sync_are_removed_after_the_rebalance_timeout(desk: Desk) -> None:
    leader, follower = two_joined(desk)
    desk.sync(leader)
    for _ in range(11):
        desk.advance(5_000)
        assert [desk.heartbeat(one) for one in (leader, follower)] == [Done(), Done()]
    desk.advance(5_000)
    assert facts(desk).state is GroupState.PREPARING_REBALANCE
    assert [member.member_id for member in facts(desk).members] == [leader.member_id]


def test_leader_that_never_syncs_is_removed_and_the_follower_told_to_join_again(desk: Desk) -> None:
    leader, follower = two_joined(desk)
    early = desk.sync(follower)
    for _ in range(12):
        desk.advance(5_000)
        desk.heartbeat(leader)
    assert desk.code(early) is Code.REBALANCE_IN_PROGRESS
    again = desk.answer(desk.join(follower.member_id), Joined)
    assert again.leader_id == follower.member_id


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"member_id": "nobody"}, Code.UNKNOWN_MEMBER),
        ({"generation": 0}, Code.ILLEGAL_GENERATION),
        ({"generation": 3}, Code.ILLEGAL_GENERATION),
        ({"protocol_type": "connect"}, Code.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_name": "sticky"}, Code.INCONSISTENT_GROUP_PROTOCOL),
        ({"instance_id": "i"}, Code.UNKNOWN_MEMBER),
        ({"group_id": "other"}, Code.UNKNOWN_MEMBER),
        ({"group_id": ""}, Code.INVALID_GROUP_ID),
    ],
)
def test_sync_of_somebody_else_is_refused(desk: Desk, changes: dict[str, object], code: Code) -> None:
    (member,) = desk.stable(1)
    fields = {"group_id": "g", "member_id": member.member_id, "generation": member.generation} | changes
    assert desk.refusal(SyncGroup(**fields)) is code  # type: ignore[arg-type]  # a table of fields


def test_sync_while_members_gather_is_refused(desk: Desk) -> None:
    (member,) = desk.stable(1)
    desk.join(fresh_id="b")
    assert desk.refusal(SyncGroup("g", member.member_id, 1)) is Code.REBALANCE_IN_PROGRESS


# Heartbeats and sessions.


def test_member_that_is_heard_of_stays_and_one_that_is_not_goes(desk: Desk) -> None:
    leader, follower = desk.stable(2)
    for _ in range(3):
        desk.advance(6_000)
        assert desk.heartbeat(leader) in (Done(),) or facts(desk).state is GroupState.PREPARING_REBALANCE
    assert desk.refusal(Heartbeat("g", follower.member_id, follower.generation)) is Code.UNKNOWN_MEMBER
    assert desk.refusal(Heartbeat("g", leader.member_id, leader.generation)) is Code.REBALANCE_IN_PROGRESS


def test_heartbeat_while_members_gather_keeps_the_session(desk: Desk) -> None:
    leader, follower = desk.stable(2)
    desk.join(leader.member_id)
    for _ in range(4):
        desk.advance(9_000)
        refusal = desk.heartbeat(follower)
        assert isinstance(refusal, GoQueueError)
        assert refusal.code is Code.REBALANCE_IN_PROGRESS
    assert len(facts(desk).members) == 2


def test_last_member_that_goes_leaves_an_empty_group_behind(desk: Desk) -> None:
    (member,) = desk.stable(1)
    desk.advance(10_000)
    assert facts(desk).state is GroupState.EMPTY
    assert facts(desk).generation == member.generation + 1
    assert desk.refusal(Heartbeat("g", member.member_id, member.generation)) is Code.UNKNOWN_MEMBER


def test_next_generation_of_an_empty_group_is_a_new_one(desk: Desk) -> None:
    (member,) = desk.stable(1)
    desk.leave(member.member_id)
    assert desk.answer(desk.join(fresh_id="b", protocol_type="connect"), Joined).generation == 3


# Leaving.


def test_member_that_leaves_makes_the_others_rebalance(desk: Desk) -> None:
    leader, follower = desk.stable(2)
    left = desk.answer(desk.leave(leader.member_id), Left)
    assert left.members[0].error is None
    refusal = desk.heartbeat(follower)
    assert isinstance(refusal, GoQueueError)
    assert refusal.code is Code.REBALANCE_IN_PROGRESS
    assert desk.answer(desk.join(follower.member_id), Joined).leader_id == follower.member_id


def test_several_leave_at_once_and_each_is_told_of_itself(desk: Desk) -> None:
    members = desk.stable(3)
    ids = [one.member_id for one in members]
    left = desk.answer(desk.leave(ids[0], "nobody", ids[1], ids[0]), Left)
    codes = [one.error and one.error.code for one in left.members]
    assert codes == [None, Code.UNKNOWN_MEMBER, None, Code.UNKNOWN_MEMBER]
    assert [one.member_id for one in left.members] == [ids[0], "nobody", ids[1], ids[0]]
    assert [one.member_id for one in facts(desk).members] == [ids[2]]


def test_static_member_is_removed_by_its_instance_alone(desk: Desk) -> None:
    joined = desk.answer(desk.join(instance_id="i"), Joined)
    desk.sync(joined)
    left = desk.call(LeaveGroup("g", (Leaver("", "i"), Leaver("", "j"))), Left)
    assert [one.error and one.error.code for one in left.members] == [None, Code.UNKNOWN_MEMBER]
    assert facts(desk).state is GroupState.EMPTY


def test_id_that_was_given_out_can_be_given_back(desk: Desk) -> None:
    (first,) = desk.stable(1)
    desk.join(must_know_id=True, fresh_id="b")
    rejoin = desk.join(first.member_id)
    assert desk.is_parked(rejoin)
    desk.leave("client-b")
    assert desk.answer(rejoin, Joined).generation == 2


def test_calls_of_a_member_that_leaves_are_answered(desk: Desk) -> None:
    leader, follower = two_joined(desk)
    early = desk.sync(follower)
    desk.leave(follower.member_id)
    assert desk.code(early) is Code.UNKNOWN_MEMBER
    joining = desk.join(fresh_id="c")
    desk.leave("client-c")
    assert desk.code(joining) is Code.UNKNOWN_MEMBER
    assert desk.answer(desk.join(leader.member_id), Joined).generation == 3


def test_nobody_leaves_a_group_that_is_not_there(desk: Desk) -> None:
    assert desk.refusal(LeaveGroup("g", (Leaver("m"),))) is Code.UNKNOWN_MEMBER
    assert desk.refusal(LeaveGroup("", (Leaver("m"),))) is Code.INVALID_GROUP_ID


# Commits of members.


def commit(member_id: str, generation: int, instance_id: str | None = None) -> CommitOffsets:
    return CommitOffsets("g", (NewOffset("orders", 0, 5),), member_id, generation, instance_id)


def test_member_commits_in_its_generation_and_that_is_a_sign_of_life(desk: Desk) -> None:
    (member,) = desk.stable(1)
    for at in range(5):
        desk.advance(9_000)
        assert desk.commit(at, member) is None
    assert desk.committed() == 4


def test_zombies_are_refused(desk: Desk) -> None:
    (member,) = desk.stable(1)
    static = desk.join(instance_id="i", fresh_id="1")
    member = desk.answer(desk.join(member.member_id), Joined)
    desk.sync(member)
    desk.answer(desk.sync(desk.answer(static, Joined)), Synced)
    desk.join(instance_id="i", fresh_id="2")
    refused: list[tuple[Command, Code]] = [
        (commit("nobody", 2), Code.UNKNOWN_MEMBER),
        (commit("", -1), Code.UNKNOWN_MEMBER),
        (commit(member.member_id, 1), Code.ILLEGAL_GENERATION),
        (commit(member.member_id, -1), Code.ILLEGAL_GENERATION),
        (commit("i-1", 2, "i"), Code.FENCED_INSTANCE),
        (Heartbeat("g", member.member_id, 1), Code.ILLEGAL_GENERATION),
        (Heartbeat("g", "i-1", 2, "i"), Code.FENCED_INSTANCE),
    ]
    assert [desk.refusal(command) for command, _ in refused] == [code for _, code in refused]
    assert desk.committed() == -1
    assert desk.commit(7, member) is None
    desk.restart()
    assert [desk.refusal(command) for command, _ in refused] == [code for _, code in refused]
    assert desk.committed() == 7


def test_commit_before_the_assignment_is_known_is_refused(desk: Desk) -> None:
    leader, _ = two_joined(desk)
    assert desk.commit(1, leader) is Code.REBALANCE_IN_PROGRESS


def test_member_may_commit_what_it_has_while_the_others_gather(desk: Desk) -> None:
    leader, follower = desk.stable(2)
    desk.join(leader.member_id)
    assert desk.commit(3, follower) is None


# Restarts.


def test_stable_group_goes_on_after_a_restart_without_a_rebalance(desk: Desk) -> None:
    leader, follower = desk.stable(2)
    before = facts(desk)
    desk.advance(5_000)
    desk.restart()
    assert facts(desk).members == tuple(
        type(one)(
            **{name: getattr(one, name) for name in one.__struct_fields__}
            | {"deadline_ms": desk.now_ms + 10_000}
        )
        for one in before.members
    )
    desk.advance(9_999)  # sessions began anew
    assert [desk.heartbeat(one) for one in (leader, follower)] == [Done(), Done()]
    assert desk.answer(desk.sync(follower), Synced).assignment == follower.member_id.encode()
    assert desk.answer(desk.join(follower.member_id), Joined) == follower


def test_members_that_do_not_come_back_after_a_restart_are_removed(desk: Desk) -> None:
    desk.stable(2)
    desk.restart()
    desk.advance(10_000)
    assert facts(desk).state is GroupState.EMPTY


def test_rebalance_that_was_not_finished_is_gone_after_a_restart(desk: Desk) -> None:
    (leader,) = desk.stable(1)
    saved = durable(desk.shard)
    desk.join(fresh_id="b")
    again = desk.answer(desk.join(leader.member_id), Joined)
    desk.restart()
    assert durable(desk.shard) == saved
    assert facts(desk).state is GroupState.STABLE
    assert desk.refusal(Heartbeat("g", again.member_id, again.generation)) is Code.ILLEGAL_GENERATION
    assert desk.refusal(Heartbeat("g", "client-b", again.generation)) is Code.UNKNOWN_MEMBER
    assert desk.heartbeat(leader) == Done()


def test_group_that_never_had_an_assignment_is_gone_after_a_restart(desk: Desk) -> None:
    desk.join()
    desk.restart()
    with pytest.raises(GoQueueError, match="no group"):
        facts(desk)
