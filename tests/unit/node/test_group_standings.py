"""Whether a group knows its gates, so that what is held may be shown: none of its members reads what it should not, or is about to."""

from __future__ import annotations

import struct

from tests.support.groups import Desk, FixedTopics

from goqueue.core.cluster import scaling
from goqueue.core.cluster.scaling import Scaling
from goqueue.core.group.commands import CommitOffsets, FollowGates, Joined, JoinGroup, NewOffset, SyncGroup
from goqueue.core.group.config import GroupConfig
from goqueue.core.group.consumer_events import Assignment, ConsumerHeartbeat, ConsumerHeartbeatReply
from goqueue.node.groups.shards import TopicsOfGroups
from goqueue.node.groups.standings import has_nothing_withheld

SESSION_MS = 60_000


def new_desk() -> Desk:
    return Desk(GroupConfig(initial_rebalance_delay_ms=0), FixedTopics(orders=2))


def shrink(desk: Desk) -> None:
    """From two partitions to one: the group has read neither to its end."""
    now = scaling.shrink("orders", scaling.begin(2), 1)
    desk.scalings["orders"] = scaling.fence(scaling.fence(now, 0, 10), 1, 20)


def is_settled(desk: Desk) -> bool:
    return has_nothing_withheld(desk.shard, "g", desk.now_ms)


def places(indexes: list[int]) -> bytes:
    if not indexes:
        return struct.pack(">i", 0)
    return struct.pack(">ih6s", 1, 6, b"orders") + struct.pack(f">i{len(indexes)}i", len(indexes), *indexes)


def assigned(*indexes: int) -> bytes:
    return struct.pack(">h", 0) + places(list(indexes)) + struct.pack(">i", -1)


class Cooperative:
    """A classic member that keeps what it has until it is told otherwise."""

    def __init__(self, desk: Desk, name: str) -> None:
        self.desk = desk
        self.name = name
        self.id = ""
        self.owned: list[int] = []

    def join(self) -> None:
        subscription = struct.pack(">hih6si", 1, 1, 6, b"orders", -1) + places(self.owned)
        self.ticket = self.desk.send(
            JoinGroup(
                "g",
                self.id,
                self.name,
                "client",
                "host",
                SESSION_MS,
                SESSION_MS,
                "consumer",
                (("cooperative-sticky", subscription),),
            )
        )

    def joined(self) -> Joined:
        found = self.desk.answer(self.ticket, Joined)
        self.id = found.member_id
        return found

    def sync(self, shares: dict[Cooperative, bytes] | None = None) -> None:
        generation = self.joined().generation
        for other in shares or ():
            other.joined()
        assignments = tuple((other.id, share) for other, share in (shares or {}).items())
        self.desk.send(SyncGroup("g", self.id, generation, assignments=assignments))


def test_member_that_has_not_heard_of_its_assignment_is_waited_for_by_the_next_coordinator_too() -> None:
    desk = new_desk()
    first, other = Cooperative(desk, "first"), Cooperative(desk, "other")
    first.join()
    first.sync({first: assigned(0, 1)})
    first.owned = [0, 1]
    other.join()
    first.join()
    first.sync({first: assigned(1), other: assigned(0)})
    other.sync()
    first.owned, other.owned = [1], [0]
    desk.call(CommitOffsets("g", (NewOffset("orders", 0, 5), NewOffset("orders", 1, 5)), "", -1), object)
    shrink(desk)
    desk.send(FollowGates("g"))
    first.join()
    other.join()
    first.sync({first: assigned(1), other: assigned(0)})  # `other` reads on until it has heard of it
    assert not is_settled(desk)
    desk.advance(9_000)
    desk.restart()
    assert not is_settled(desk)
    desk.now_ms += SESSION_MS
    assert is_settled(desk), "or it would be waited for after it was thrown out"


def beat(desk: Desk, member_id: str, epoch: int, owned: Assignment | None = None) -> ConsumerHeartbeatReply:
    desk.now_ms += 6_000
    joins = epoch == 0
    return desk.call(
        ConsumerHeartbeat(
            "g",
            member_id,
            epoch,
            "",
            rebalance_timeout_ms=SESSION_MS if joins else -1,
            subscribed_topics=("orders",) if joins else None,
            owned=() if joins else owned,
            assignor="range" if joins else None,
        ),
        ConsumerHeartbeatReply,
    )


def test_member_that_is_about_to_get_what_it_should_not_is_waited_for() -> None:
    desk = new_desk()
    first = beat(desk, "m", 0)
    desk.call(
        CommitOffsets("g", (NewOffset("orders", 0, 5), NewOffset("orders", 1, 5)), "m", first.member_epoch),
        object,
    )
    beat(desk, "a", 0)
    first = beat(desk, "m", first.member_epoch, (("orders", (0, 1)),))
    assert first.assignment == (("orders", (1,)),)
    beat(desk, "m", first.member_epoch, first.assignment)  # it has given up 0, which is for `a`
    assert is_settled(desk)
    shrink(desk)
    assert not is_settled(desk)


def test_partitions_that_the_catalogue_has_let_go_are_not_there_for_groups() -> None:
    def scaling_of(topic: str) -> Scaling | None:
        return scaling.begin(1)

    topics = TopicsOfGroups(FixedTopics(orders=2), scaling_of)  # the second is being removed from the disk
    assert topics.partition_count("orders") == 1
    assert topics.partition_count("absent") is None
    assert topics.names() == ["orders"]
