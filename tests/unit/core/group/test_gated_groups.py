"""Groups of every kind that read a keyed topic while its partitions change: what their members are given, and when."""

from __future__ import annotations

import struct

import pytest
from tests.support.groups import Desk, FixedTopics, durable

from goqueue.core.cluster import scaling
from goqueue.core.cluster.scaling import Gate
from goqueue.core.group.commands import (
    Done,
    FetchedOffsets,
    FetchOffsets,
    FollowGates,
    ForgetPartitions,
    GroupState,
    Joined,
    Synced,
)
from goqueue.core.group.consumer_events import Assignment, ConsumerHeartbeat, ConsumerHeartbeatReply
from goqueue.core.group.protocol_assignment import assigned_partitions
from goqueue.model.codes import Code
from goqueue.model.errors import RebalanceInProgress


@pytest.fixture
def desk() -> Desk:
    """`orders` has grown from 2 to 4 partitions; both old ones ended at 10."""
    desk = Desk(topics=FixedTopics(orders=4, bills=2))
    now = scaling.grow("orders", scaling.begin(2), 4)
    desk.scalings["orders"] = scaling.fence(scaling.fence(now, 0, 10), 1, 10)
    return desk


def assignment(topic: str, *indexes: int) -> bytes:
    name = topic.encode()
    return (
        struct.pack(">hih", 1, 1, len(name))
        + name
        + struct.pack(f">i{len(indexes)}i", len(indexes), *indexes)
        + struct.pack(">i", -1)
    )


def formed(desk: Desk, *parts: bytes) -> list[Joined]:
    """A stable group with a member for each part, which its leader wants it to have."""
    members = desk.stable(len(parts))
    return again(desk, members, *parts)


def again(desk: Desk, members: list[Joined], *parts: bytes) -> list[Joined]:
    """The members join once more, and the leader assigns."""
    tickets = [desk.join(one.member_id) for one in members]
    members = [desk.answer(ticket, Joined) for ticket in tickets]
    members.sort(key=lambda one: one.member_id != one.leader_id)
    wanted = {one.member_id: part for one, part in zip(members, parts, strict=True)}
    for ticket in [desk.sync(one, wanted if one.members else {}) for one in members]:
        desk.answer(ticket, Synced)
    return members


def given(desk: Desk) -> list[list[int]]:
    group = desk.shard.classic["g"]
    return [[index for _, index in assigned_partitions(one.assignment)] for one in group.members.values()]


def is_rebalancing(desk: Desk, member: Joined) -> bool:
    return isinstance(desk.heartbeat(member), RebalanceInProgress)


# ---------------------------------------------------------------- classic groups


def test_members_are_not_given_what_is_behind_a_gate_whatever_their_leader_assigned(desk: Desk) -> None:
    members = formed(desk, assignment("orders", 0, 1), assignment("orders", 2, 3))
    assert sorted(given(desk)) == [[], [0, 1]]
    assert desk.shard.classic["g"].withheld == (("orders", 2), ("orders", 3))
    assert not desk.shard.is_astray("g")
    assert not any(is_rebalancing(desk, one) for one in members)


def test_group_rebalances_when_a_gate_opens_and_then_has_the_partition(desk: Desk) -> None:
    members = formed(desk, assignment("orders", 0, 1), assignment("orders", 2, 3))
    desk.commit(9, members[0], place=("orders", 0))
    assert not desk.shard.is_astray("g")
    desk.commit(10, members[0], place=("orders", 0))
    assert desk.shard.is_astray("g")
    desk.call(FollowGates("g"), Done)
    assert all(is_rebalancing(desk, one) for one in members)
    again(desk, members, assignment("orders", 0, 1), assignment("orders", 2, 3))
    assert sorted(given(desk)) == [[0, 1], [2]]
    desk.call(FollowGates("g"), Done)
    assert desk.shard.classic["g"].state is GroupState.STABLE


def test_what_was_withheld_is_known_after_a_restart(desk: Desk) -> None:
    members = formed(desk, assignment("orders", 0, 1, 2, 3))
    before = durable(desk.shard)
    desk.restart()
    assert durable(desk.shard) == before
    desk.commit(10, members[0], place=("orders", 1))
    assert desk.shard.is_astray("g")


def test_leader_that_does_not_know_of_new_partitions_is_left_alone(desk: Desk) -> None:
    members = formed(desk, assignment("orders", 0, 1))
    desk.commit(10, members[0], place=("orders", 0))
    assert not desk.shard.is_astray("g"), "it will join again when it has heard of them"


def test_partition_that_the_coordinator_has_not_heard_of_is_withheld_until_it_has(desk: Desk) -> None:
    grown = desk.scalings["orders"]
    desk.scalings["orders"] = scaling.begin(2)
    members = formed(desk, assignment("orders", 0, 1, 2, 3))
    assert given(desk) == [[0, 1]]
    desk.scalings["orders"] = grown
    assert not desk.shard.is_astray("g")
    desk.commit(10, members[0], place=("orders", 0))
    assert desk.shard.is_astray("g")


def test_members_lose_what_gets_a_gate_while_the_topic_shrinks(desk: Desk) -> None:
    members = formed(desk, assignment("orders", 0, 1))
    for index in range(4):
        desk.commit(10, members[0], place=("orders", index))
    now = scaling.shrink("orders", desk.scalings["orders"], 2)
    for partition in range(4):
        now = scaling.fence(now, partition, 20)
    desk.scalings["orders"] = now
    assert desk.shard.is_astray("g")
    desk.call(FollowGates("g"), Done)
    members = again(desk, members, assignment("orders", 0, 1, 2, 3))
    assert given(desk) == [[2, 3]]
    desk.commit(20, members[0], place=("orders", 2))
    desk.call(FollowGates("g"), Done)
    again(desk, members, assignment("orders", 0, 1, 2, 3))
    assert given(desk) == [[0, 2, 3]]


def test_groups_of_other_protocols_and_topics_are_not_touched(desk: Desk) -> None:
    other = desk.stable(1, protocol_type="connect", protocols=(("p", b""),))
    wanted = assignment("orders", 3)
    ticket = desk.join(other[0].member_id, protocol_type="connect", protocols=(("p", b"x"),))
    joined = desk.answer(ticket, Joined)
    assert desk.answer(desk.sync(joined, {joined.member_id: wanted}), Synced).assignment == wanted
    del desk.scalings["orders"]
    assert desk.shard.gates.withheld("g", [("orders", 3)]) == []


# ---------------------------------------------------------------- groups of the consumer protocol


def beat(desk: Desk, member_id: str, epoch: int, owned: Assignment | None = None) -> ConsumerHeartbeatReply:
    is_join = epoch == 0
    return desk.call(
        ConsumerHeartbeat(
            "g",
            member_id,
            epoch,
            "fresh",
            rebalance_timeout_ms=60_000 if is_join else -1,
            subscribed_topics=("orders",) if is_join else None,
            owned=() if is_join else owned,
        ),
        ConsumerHeartbeatReply,
    )


def test_assignor_leaves_out_what_is_behind_a_gate_until_it_opens(desk: Desk) -> None:
    first = beat(desk, "m1", 0)
    assert first.assignment == (("orders", (0, 1)),)
    second = beat(desk, "m2", 0)
    kept = beat(desk, "m1", second.member_epoch - 1, first.assignment).assignment
    assert kept is not None
    ((_, (one,)),) = kept
    beat(desk, "m1", first.member_epoch, kept)
    beat(desk, "m2", second.member_epoch)
    epoch = desk.shard.consumers.get("g")
    assert epoch is not None
    before = epoch.describe()
    assert sorted(len(member.assigned) for member in before.members) == [1, 1]

    from_m1 = before.members[0]
    assert desk.commit_as("m1", from_m1.epoch, 10, place=("orders", one)) is None
    assert desk.shard.is_astray("g")
    desk.call(FollowGates("g"), Done)
    assert not desk.shard.is_astray("g")
    for member in before.members:
        beat(desk, member.member_id, member.epoch)
    after = epoch.describe()
    targets = sorted(index for member in after.members for _, part in member.target for index in part)
    assert targets == sorted([0, 1, one + 2])


# ---------------------------------------------------------------- offsets


def test_group_that_knows_the_old_partition_begins_at_the_start_of_the_new_one(desk: Desk) -> None:
    members = desk.stable(1)
    wanted = FetchOffsets("g", (("orders", (0, 2, 3)),))
    found = desk.call(wanted, FetchedOffsets).offsets
    assert [(one.offset, one.is_beginning) for one in found] == [(-1, False)] * 3
    desk.commit(4, members[0], place=("orders", 0))
    found = desk.call(wanted, FetchedOffsets).offsets
    assert [(one.offset, one.is_beginning) for one in found] == [(4, False), (0, True), (-1, False)]
    desk.commit(1, members[0], place=("orders", 2))
    found = desk.call(wanted, FetchedOffsets).offsets
    assert [(one.offset, one.is_beginning) for one in found] == [(4, False), (1, False), (-1, False)]
    everything = desk.call(FetchOffsets("g"), FetchedOffsets).offsets
    assert [one.partition for one in everything] == [0, 2], "what is not committed is not listed"


def test_offsets_of_partitions_that_are_no_more_are_forgotten(desk: Desk) -> None:
    for index in range(4):
        assert desk.commit(5, place=("orders", index)) is None
    assert desk.commit(5, place=("bills", 1)) is None
    desk.call(ForgetPartitions("orders", 2), Done)
    found = desk.call(FetchOffsets("g"), FetchedOffsets).offsets
    assert [(one.topic, one.partition) for one in found] == [("bills", 1), ("orders", 0), ("orders", 1)]
    desk.topics.counts["orders"] = 2
    assert desk.commit(5, place=("orders", 2)) is Code.PARTITION_NOT_FOUND


def test_group_that_never_commits_is_let_through(desk: Desk) -> None:
    formed(desk, assignment("orders", 0, 1, 2, 3))
    desk.notes.note_waived("g", "orders", Gate(2, 0, 10))
    assert desk.shard.is_astray("g")
