"""Committed offsets: with and without members, in transactions, and how they end."""

from __future__ import annotations

import pytest
from tests.support.groups import Desk, FixedTopics, durable, subscription

from goqueue.core.group.commands import (
    CommitInTransaction,
    CommitOffsets,
    CompleteTransaction,
    DeleteOffsets,
    Done,
    FetchedOffset,
    FetchedOffsets,
    FetchOffsets,
    ForgetTopic,
    Joined,
    NewOffset,
    PartitionResults,
)
from goqueue.core.group.config import DAY_MS, GroupConfig
from goqueue.core.group.facts import describe
from goqueue.core.group.offsets import PRODUCER_KEPT_MS
from goqueue.model.cluster_errors import CoordinatorFenced
from goqueue.model.codes import Code
from goqueue.model.errors import GoQueueError

WEEK_MS = 7 * DAY_MS


@pytest.fixture
def desk() -> Desk:
    return Desk()


def results(desk: Desk, command: CommitOffsets | CommitInTransaction | DeleteOffsets) -> list[Code | None]:
    found = desk.call(command, PartitionResults)
    return [one.error.code if one.error else None for one in found.partitions]


def fetched(desk: Desk, command: FetchOffsets) -> list[tuple[str, int, int, Code | None]]:
    found = desk.call(command, FetchedOffsets).offsets
    return [(one.topic, one.partition, one.offset, one.error.code if one.error else None) for one in found]


# Plain commits.


def test_simple_consumer_commits_to_a_group_that_nobody_is_in(desk: Desk) -> None:
    new = NewOffset("orders", 1, 42, leader_epoch=3, metadata="note")
    assert results(desk, CommitOffsets("g", (new,))) == [None]
    found = desk.call(FetchOffsets("g"), FetchedOffsets)
    assert found.offsets == (FetchedOffset("orders", 1, 42, 3, "note"),)


def test_group_may_have_an_empty_name_for_simple_consumers(desk: Desk) -> None:
    assert desk.commit(1, group="") is None
    assert desk.committed(group="") == 1


def test_operator_commits_to_a_group_whose_members_have_left(desk: Desk) -> None:
    (member,) = desk.stable(1)
    assert desk.commit(5) is Code.UNKNOWN_MEMBER
    desk.leave(member.member_id)
    assert desk.commit(5) is None
    assert desk.commit(6, member) is Code.UNKNOWN_MEMBER


def test_generation_of_a_group_that_does_not_exist_is_refused(desk: Desk) -> None:
    assert desk.refusal(CommitOffsets("g", (), "m", 1)) is Code.ILLEGAL_GENERATION
    desk.commit(1)
    assert desk.refusal(CommitOffsets("g", (), "m", 1)) is Code.UNKNOWN_MEMBER


def test_each_partition_is_refused_for_its_own_reason() -> None:
    desk = Desk(GroupConfig(offset_metadata_chars_max=3, offset_count_max=2))
    offsets = (
        NewOffset("orders", 0, 1),
        NewOffset("nothing", 0, 1),
        NewOffset("orders", 4, 1),
        NewOffset("orders", -1, 1),
        NewOffset("orders", 1, -1),
        NewOffset("orders", 1, 1, metadata="long"),
        NewOffset("orders", 1, 1, metadata="ok."),
        NewOffset("orders", 2, 1),
    )
    assert results(desk, CommitOffsets("g", offsets)) == [
        None,
        Code.TOPIC_NOT_FOUND,
        Code.PARTITION_NOT_FOUND,
        Code.PARTITION_NOT_FOUND,
        Code.INVALID_REQUEST,
        Code.OFFSET_METADATA_TOO_LARGE,
        None,
        Code.LIMIT_EXCEEDED,
    ]
    assert desk.commit(9, place=("orders", 0)) is None  # what is there may move on


def test_groups_that_only_have_offsets_are_counted_too() -> None:
    desk = Desk(GroupConfig(group_count_max=1))
    assert desk.commit(1) is None
    assert desk.commit(2) is None
    assert desk.commit(1, group="other") is Code.LIMIT_EXCEEDED


def test_fetch_answers_in_the_order_of_the_request_or_all_sorted(desk: Desk) -> None:
    desk.commit(3, place=("orders", 2))
    desk.commit(1, place=("bills", 1))
    assert fetched(desk, FetchOffsets("g", (("orders", (2, 0)), ("bills", (1,))))) == [
        ("orders", 2, 3, None),
        ("orders", 0, -1, None),
        ("bills", 1, 1, None),
    ]
    assert fetched(desk, FetchOffsets("g")) == [("bills", 1, 1, None), ("orders", 2, 3, None)]
    assert fetched(desk, FetchOffsets("other", (("orders", (0,)),))) == [("orders", 0, -1, None)]
    assert fetched(desk, FetchOffsets("other")) == []


# In transactions.


def pend(
    desk: Desk,
    offset: int,
    *,
    producer: int = 1,
    epoch: int = 0,
    member: Joined | None = None,
    partition: int = 0,
) -> Code | None:
    command = CommitInTransaction(
        "g",
        producer,
        epoch,
        (NewOffset("orders", partition, offset),),
        member.member_id if member else "",
        member.generation if member else -1,
    )
    answer = desk.answers[desk.send(command)]
    if isinstance(answer, GoQueueError):
        return answer.code
    assert isinstance(answer, PartitionResults)
    error = answer.partitions[0].error
    return error.code if error else None


def complete(desk: Desk, *, producer: int = 1, epoch: int = 0, is_commit: bool = True) -> None:
    assert desk.call(CompleteTransaction(producer, epoch, is_commit), Done) == Done()


def test_offset_in_a_transaction_counts_from_its_commit_on(desk: Desk) -> None:
    desk.commit(1)
    assert pend(desk, 10) is None
    assert desk.committed() == 1
    desk.restart()
    assert desk.committed() == 1
    complete(desk)
    assert desk.committed() == 10


def test_offset_in_a_transaction_that_is_aborted_never_counts(desk: Desk) -> None:
    desk.commit(1)
    pend(desk, 10)
    complete(desk, is_commit=False)
    complete(desk, is_commit=True)  # too late
    desk.restart()
    assert desk.committed() == 1


def test_a_coordinator_that_was_replaced_does_not_end_the_next_transaction(desk: Desk) -> None:
    desk.commit(1)
    pend(desk, 10)
    assert desk.call(CompleteTransaction(1, 0, True, coordinator_epoch=6), Done) == Done()
    pend(desk, 20)
    desk.restart()
    late = desk.answers[desk.send(CompleteTransaction(1, 0, True, coordinator_epoch=5))]
    assert isinstance(late, CoordinatorFenced)
    assert desk.committed() == 10


def test_completing_a_transaction_twice_changes_nothing(desk: Desk) -> None:
    pend(desk, 10)
    complete(desk)
    written = len(desk.log)
    complete(desk)
    assert len(desk.log) == written
    assert desk.committed() == 10


def test_pending_offset_is_unstable_for_who_asks_for_stable_ones(desk: Desk) -> None:
    desk.commit(1)
    pend(desk, 10)
    pend(desk, 20, partition=1)
    stable = FetchOffsets("g", (("orders", (0, 1, 2)),), require_stable=True)
    assert fetched(desk, stable) == [
        ("orders", 0, -1, Code.UNSTABLE_OFFSET),
        ("orders", 1, -1, Code.UNSTABLE_OFFSET),
        ("orders", 2, -1, None),
    ]
    assert [row[:3] for row in fetched(desk, FetchOffsets("g"))] == [("orders", 0, 1)]
    complete(desk)
    assert fetched(desk, FetchOffsets("g", require_stable=True)) == [
        ("orders", 0, 10, None),
        ("orders", 1, 20, None),
    ]


def test_marker_with_a_bumped_epoch_ends_the_transaction_and_fences_what_comes_late(desk: Desk) -> None:
    pend(desk, 10, epoch=4)
    complete(desk, epoch=5)
    assert desk.committed() == 10
    assert pend(desk, 11, epoch=4) is Code.PRODUCER_FENCED
    desk.restart()
    assert pend(desk, 11, epoch=4) is Code.PRODUCER_FENCED
    assert pend(desk, 12, epoch=5) is None


@pytest.mark.parametrize("is_commit", [True, False])
def test_late_copy_of_a_bumped_marker_does_not_end_the_next_transaction(desk: Desk, is_commit: bool) -> None:
    """That has the epoch of the marker: one above that of the transaction which it ended."""
    marker = CompleteTransaction(1, 5, is_commit, is_epoch_bumped=True)
    desk.commit(1)
    pend(desk, 10, epoch=4)
    assert desk.call(marker, Done) == Done()
    first = 10 if is_commit else 1
    assert desk.committed() == first
    pend(desk, 20, epoch=5)
    assert desk.call(marker, Done) == Done()
    desk.restart()
    assert desk.committed() == first
    assert desk.call(CompleteTransaction(1, 6, True, is_epoch_bumped=True), Done) == Done()
    assert desk.committed() == 20


def test_late_marker_of_an_old_epoch_does_not_end_a_newer_transaction(desk: Desk) -> None:
    pend(desk, 10, epoch=5)
    complete(desk, epoch=4)
    assert desk.committed() == -1
    complete(desk, epoch=5)
    assert desk.committed() == 10


def test_marker_fences_also_a_producer_that_had_nothing_pending(desk: Desk) -> None:
    complete(desk, epoch=1, is_commit=False)
    assert pend(desk, 10, epoch=0) is Code.PRODUCER_FENCED


def test_epoch_older_than_that_of_a_pending_offset_is_fenced(desk: Desk) -> None:
    pend(desk, 10, epoch=2)
    assert pend(desk, 11, epoch=1) is Code.PRODUCER_FENCED


def test_newer_commit_wins_whichever_becomes_final_first(desk: Desk) -> None:
    pend(desk, 10, producer=1)
    desk.commit(20)
    complete(desk, producer=1)
    assert desk.committed() == 20
    pend(desk, 30, producer=1)
    pend(desk, 40, producer=2)
    complete(desk, producer=2)
    complete(desk, producer=1)
    assert desk.committed() == 40
    assert durable(desk.replayed(reversed(desk.newest_per_key()))) == durable(desk.shard)


def test_zombie_member_cannot_commit_in_a_transaction_either(desk: Desk) -> None:
    (member,) = desk.stable(1)
    assert pend(desk, 1, member=member) is None
    desk.leave(member.member_id)
    assert pend(desk, 2, member=member) is Code.UNKNOWN_MEMBER
    (other,) = desk.stable(1)
    assert pend(desk, 3, member=Joined(other.member_id, 1, "", "", "", ())) is Code.ILLEGAL_GENERATION
    assert pend(desk, 4) is None  # an old producer does not say for whom


def test_transactional_commit_needs_a_group_name(desk: Desk) -> None:
    assert desk.refusal(CommitInTransaction("", 1, 0, ())) is Code.INVALID_GROUP_ID


def test_producer_is_forgotten_long_after_its_last_transaction(desk: Desk) -> None:
    complete(desk, epoch=3)
    desk.advance(PRODUCER_KEPT_MS - 1)
    assert pend(desk, 10, epoch=2) is Code.PRODUCER_FENCED
    desk.advance(1)
    assert pend(desk, 10, epoch=2) is None
    assert durable(desk.replayed()) == durable(desk.shard)


# Deleting.


def test_offsets_are_deleted_unless_a_member_reads_the_topic(desk: Desk) -> None:
    (member,) = desk.stable(1, protocols=(("range", subscription("orders")),))
    for place in (("orders", 0), ("bills", 0)):
        desk.commit(1, member, place=place)
    command = DeleteOffsets("g", (("orders", 0), ("bills", 0), ("bills", 1), ("nothing", 0)))
    assert results(desk, command) == [Code.GROUP_SUBSCRIBED_TO_TOPIC, None, None, Code.TOPIC_NOT_FOUND]
    assert fetched(desk, FetchOffsets("g")) == [("orders", 0, 1, None)]
    desk.leave(member.member_id)
    assert results(desk, command) == [None, None, None, Code.TOPIC_NOT_FOUND]
    assert fetched(desk, FetchOffsets("g")) == []


def test_members_whose_subscription_cannot_be_read_may_read_anything(desk: Desk) -> None:
    (member,) = desk.stable(1, protocols=(("range", b"?"),))
    desk.commit(1, member)
    assert results(desk, DeleteOffsets("g", (("orders", 0),))) == [Code.GROUP_SUBSCRIBED_TO_TOPIC]


def test_offsets_of_members_that_are_no_consumers_are_not_deleted(desk: Desk) -> None:
    desk.stable(1, protocol_type="connect")
    assert desk.refusal(DeleteOffsets("g", (("orders", 0),))) is Code.GROUP_NOT_EMPTY
    assert desk.refusal(DeleteOffsets("other", ())) is Code.GROUP_NOT_FOUND
    assert desk.refusal(DeleteOffsets("", ())) is Code.INVALID_GROUP_ID


def test_deleted_offset_takes_what_is_pending_along(desk: Desk) -> None:
    desk.commit(1)
    pend(desk, 10)
    results(desk, DeleteOffsets("g", (("orders", 0),)))
    complete(desk)
    assert desk.committed() == -1


def test_offsets_of_a_deleted_topic_go_in_every_group(desk: Desk) -> None:
    for group in ("a", "b"):
        for place in (("orders", 0), ("bills", 1)):
            desk.commit(1, group=group, place=place)
    pend(desk, 10)
    desk.call(ForgetTopic("orders"), Done)
    for group in ("a", "b"):
        assert fetched(desk, FetchOffsets(group)) == [("bills", 1, 1, None)]
    complete(desk)
    assert fetched(desk, FetchOffsets("g")) == []
    assert desk.shard.offsets.topics() == ["bills"]
    assert durable(desk.replayed()) == durable(desk.shard)


@pytest.mark.parametrize("is_restarted", [False, True])
def test_what_was_committed_for_a_topic_that_was_deleted_is_not_told_of_the_next_one_of_its_name(
    desk: Desk, is_restarted: bool
) -> None:
    desk.ids |= {"orders": 3, "bills": 4}
    desk.commit(1000)
    desk.commit(7, place=("bills", 1))
    pend(desk, 10, partition=1)
    desk.ids["orders"] = 5
    if is_restarted:
        desk.restart()
    complete(desk)
    assert desk.committed() == desk.committed(place=("orders", 1)) == -1
    assert fetched(desk, FetchOffsets("g")) == [("bills", 1, 7, None)]
    assert desk.shard.offsets.committed("g", ("orders", 0)) is None
    assert desk.shard.offsets.made_again() == ["orders"]
    desk.commit(2)
    assert desk.committed() == 2
    desk.call(ForgetTopic("orders", range(1, 5)), Done)
    assert desk.shard.offsets.made_again() == []
    assert desk.committed() == 2
    assert durable(desk.replayed()) == durable(desk.shard)


def test_an_old_topic_takes_with_it_what_was_committed_for_it_and_not_what_was_committed_for_the_next_one(
    desk: Desk,
) -> None:
    desk.commit(1, place=("orders", 2))  # by a version that does not tell of which topic
    desk.ids["orders"] = 3
    desk.commit(1000)
    pend(desk, 10, partition=1)
    desk.ids["orders"] = 5
    desk.commit(100, group="new")
    desk.call(ForgetTopic("orders", range(5)), Done)
    complete(desk)
    assert fetched(desk, FetchOffsets("g")) == []
    assert desk.committed(group="new") == 100


def test_what_was_committed_for_a_topic_that_is_not_known_yet_counts(desk: Desk) -> None:
    """Another node knew of it, and coordinated the group."""
    desk.ids["orders"] = 5
    desk.commit(100)
    for known in (3, 0):
        desk.ids["orders"] = known
        assert desk.committed() == 100
        assert desk.shard.offsets.made_again() == []


@pytest.mark.parametrize("decided", [{}, {"orders": 9}])
def test_nothing_is_committed_for_a_topic_that_is_deleted_and_still_open(
    desk: Desk, decided: dict[str, int]
) -> None:
    """It would be told of the next of its name, whether that is decided already or not."""
    desk.open_ids = {"orders": 3}
    desk.ids |= decided
    assert desk.commit(1000) is Code.TOPIC_NOT_FOUND
    assert pend(desk, 1000) is Code.TOPIC_NOT_FOUND
    complete(desk)
    desk.ids["orders"] = desk.open_ids["orders"] = 9
    assert desk.committed() == -1
    assert desk.commit(5) is None
    assert desk.committed() == 5


def test_what_was_committed_before_topics_were_told_apart_counts(desk: Desk) -> None:
    desk.commit(100)
    desk.ids["orders"] = 5
    assert desk.committed() == 100
    assert desk.shard.offsets.made_again() == []


# Expiry.


def test_offset_of_a_simple_consumer_expires_a_week_after_it_was_committed(desk: Desk) -> None:
    desk.commit(1)
    desk.advance(DAY_MS)
    desk.commit(2, place=("orders", 1))
    desk.advance(WEEK_MS - DAY_MS - 1)
    assert len(fetched(desk, FetchOffsets("g"))) == 2
    desk.advance(1)
    assert fetched(desk, FetchOffsets("g")) == [("orders", 1, 2, None)]
    desk.advance(DAY_MS)
    with pytest.raises(GoQueueError, match="no group"):
        describe(desk.shard, "g")
    assert durable(desk.replayed()) == durable(desk.shard)


def test_offset_may_have_a_retention_of_its_own(desk: Desk) -> None:
    results(desk, CommitOffsets("g", (NewOffset("orders", 0, 1),), retention_ms=5_000))
    desk.advance(4_999)
    assert desk.committed() == 1
    desk.advance(1)
    assert desk.committed() == -1


def test_offsets_of_a_group_with_members_do_not_expire(desk: Desk) -> None:
    (member,) = desk.stable(1)
    desk.commit(1, member)
    for _ in range(30):
        desk.advance(5_000)
        assert desk.heartbeat(member) == Done()
        desk.now_ms += DAY_MS
        desk.restart()  # sessions begin anew, the clock has gone on
    assert desk.committed() == 1


def test_offsets_of_a_group_expire_a_week_after_its_last_member_left(desk: Desk) -> None:
    (member,) = desk.stable(1)
    desk.commit(1, member)
    desk.now_ms += 3 * DAY_MS
    desk.restart()
    desk.leave(member.member_id)
    desk.advance(WEEK_MS - 1)
    assert desk.committed() == 1
    desk.restart()
    desk.advance(1)
    assert desk.committed() == -1
    with pytest.raises(GoQueueError, match="no group"):
        describe(desk.shard, "g")
    assert durable(desk.replayed()) == durable(desk.shard) == ({}, [], {})


def test_expiry_waits_for_a_transaction(desk: Desk) -> None:
    desk.commit(1)
    pend(desk, 10)
    desk.advance(2 * WEEK_MS)
    assert desk.committed() == 1
    complete(desk, is_commit=False)
    desk.advance(DAY_MS)
    assert desk.committed() == -1


def test_empty_group_without_offsets_is_kept_for_a_while(desk: Desk) -> None:
    (member,) = desk.stable(1)
    desk.leave(member.member_id)
    desk.advance(10 * 60_000 - 1)
    describe(desk.shard, "g")
    desk.advance(1)
    with pytest.raises(GoQueueError, match="no group"):
        describe(desk.shard, "g")
    assert durable(desk.replayed()) == durable(desk.shard)


def test_group_that_has_members_again_is_not_forgotten(desk: Desk) -> None:
    (member,) = desk.stable(1)
    desk.leave(member.member_id)
    desk.advance(5 * 60_000)
    (again,) = desk.stable(1)
    for _ in range(100):
        desk.advance(9_000)
        assert desk.heartbeat(again) == Done()


def test_topic_that_has_gone_is_no_reason_to_lose_its_other_offsets() -> None:
    topics = FixedTopics(orders=4, bills=2)
    desk = Desk(topics=topics)
    desk.commit(1)
    desk.commit(1, place=("bills", 0))
    del topics.counts["orders"]
    assert results(desk, DeleteOffsets("g", (("orders", 0),))) == [None]
    assert fetched(desk, FetchOffsets("g")) == [("bills", 0, 1, None)]
