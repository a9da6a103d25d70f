"""Share groups: members compete, each has all partitions of the topics it names, and epochs fence zombies."""

from __future__ import annotations

from typing import Any  # fields of heartbeats, checked when they are made

import pytest
from tests.support.groups import START_MS, Desk, FixedTopics, join, subscription
from tests.support.share_groups import beat, durable_shares

from goqueue.core.group.commands import (
    CommitInTransaction,
    CommitOffsets,
    ConfigureGroup,
    DeleteGroup,
    DeleteOffsets,
    Done,
    FetchOffsets,
    GroupState,
    GroupSummary,
    GroupType,
    NewOffset,
)
from goqueue.core.group.config import GroupConfig
from goqueue.core.group.consumer_events import ConsumerHeartbeat
from goqueue.core.group.facts import describe, summaries
from goqueue.core.group.share_events import (
    ShareGroupFacts,
    ShareGroupState,
    ShareHeartbeatReply,
    ShareMemberFacts,
)
from goqueue.model.codes import Code
from goqueue.model.errors import FencedMemberEpoch, GroupNotFound, UnknownMember

ORDERS = (("orders", (0, 1, 2, 3)),)
BILLS = (("bills", (0, 1)),)
SESSION_MS = GroupConfig().share_session_ms


@pytest.fixture
def desk() -> Desk:
    return Desk()


def send(
    desk: Desk, epoch: int = 0, member_id: str = "m", group: str = "g", **fields: Any
) -> ShareHeartbeatReply:
    return desk.call(beat(epoch, member_id, group, **fields), ShareHeartbeatReply)


def refusal(desk: Desk, epoch: int = 0, member_id: str = "m", group: str = "g", **fields: Any) -> Code:
    return desk.refusal(beat(epoch, member_id, group, **fields))


def members(desk: Desk, group: str = "g") -> list[str]:
    facts = describe(desk.shard, group)
    assert isinstance(facts, ShareGroupFacts)
    return [member.member_id for member in facts.members]


def test_member_that_joins_gets_every_partition_of_its_topics(desk: Desk) -> None:
    reply = send(desk, subscribed_topics=("orders", "bills", "orders"))
    assert reply == ShareHeartbeatReply("m", 1, desk.config.share_heartbeat_ms, BILLS + ORDERS)


def test_more_members_than_partitions_all_have_everything(desk: Desk) -> None:
    replies = [send(desk, member_id=f"m{number}") for number in range(9)]
    assert {reply.assignment for reply in replies} == {ORDERS}
    assert len(members(desk)) == 9


def test_member_without_an_id_is_given_one(desk: Desk) -> None:
    assert send(desk, member_id="", fresh_id="made-up").member_id == "made-up"
    assert members(desk) == ["made-up"]


def test_heartbeat_without_news_writes_nothing_and_tells_nothing(desk: Desk) -> None:
    epoch = send(desk).member_epoch
    written = len(desk.log)
    assert send(desk, epoch) == ShareHeartbeatReply("m", epoch, desk.config.share_heartbeat_ms, None)
    assert send(desk, epoch, subscribed_topics=("orders",)).assignment is None
    assert len(desk.log) == written


def test_others_who_come_and_go_leave_a_members_epoch_alone(desk: Desk) -> None:
    epoch = send(desk).member_epoch
    other = send(desk, member_id="n").member_epoch
    assert other > epoch
    send(desk, -1, member_id="n")
    assert send(desk, epoch).member_epoch == epoch


def test_topic_that_grows_comes_or_goes_reaches_every_member_in_a_new_epoch() -> None:
    topics = FixedTopics(orders=1)
    desk = Desk(topics=topics)
    first = send(desk, subscribed_topics=("later", "orders"))
    second = send(desk, member_id="n", subscribed_topics=("later", "orders"))
    assert first.assignment == (("orders", (0,)),)
    topics.counts["orders"] = 2
    topics.counts["later"] = 1
    for member_id, epoch in (("m", first.member_epoch), ("n", second.member_epoch)):
        told = send(desk, epoch, member_id)
        assert told.member_epoch > epoch
        assert told.assignment == (("later", (0,)), ("orders", (0, 1)))
        assert send(desk, told.member_epoch, member_id).assignment is None
    del topics.counts["orders"]
    assert send(desk, told.member_epoch, "n").assignment == (("later", (0,)),)


def test_member_may_name_other_topics(desk: Desk) -> None:
    epoch = send(desk).member_epoch
    reply = send(desk, epoch, subscribed_topics=("bills",))
    assert (reply.member_epoch > epoch, reply.assignment) == (True, BILLS)
    assert desk.shard.shares.member("g", "m", None).topics == ("bills",)


def test_answer_that_got_lost_is_given_again(desk: Desk) -> None:
    epoch = send(desk).member_epoch
    lost = send(desk, epoch, subscribed_topics=("bills",))
    again = send(desk, epoch)
    assert again == lost
    assert send(desk, again.member_epoch).assignment is None


@pytest.mark.parametrize("epoch", [1, 3, 99])
def test_epoch_that_is_neither_the_members_nor_the_one_before_is_fenced(desk: Desk, epoch: int) -> None:
    known = send(desk).member_epoch
    known = send(desk, known, subscribed_topics=("bills",)).member_epoch
    known = send(desk, known, subscribed_topics=("orders",)).member_epoch
    send(desk, member_id="n")
    known = send(desk, known, subscribed_topics=("bills",)).member_epoch
    assert known == 5
    if epoch == 3:
        assert send(desk, epoch).member_epoch == known
    else:
        assert refusal(desk, epoch) is Code.FENCED_MEMBER_EPOCH


def test_who_joins_again_under_its_id_fences_its_former_life(desk: Desk) -> None:
    epoch = send(desk).member_epoch
    epoch = send(desk, epoch, subscribed_topics=("bills",)).member_epoch
    again = send(desk)
    assert (again.member_epoch > epoch, again.assignment) == (True, ORDERS)
    assert members(desk) == ["m"]
    assert refusal(desk, epoch) is Code.FENCED_MEMBER_EPOCH


def test_who_is_asked_for_is_found_by_id_and_by_epoch(desk: Desk) -> None:
    shares = desk.shard.shares
    epoch = send(desk, subscribed_topics=("orders", "bills")).member_epoch
    assert shares.member("g", "m", None).topics == ("bills", "orders")
    assert shares.member("g", "m", epoch).epoch == epoch
    for wrong in (0, epoch + 1, -1):
        with pytest.raises(FencedMemberEpoch, match=f"at epoch {epoch}, not {wrong}"):
            shares.member("g", "m", wrong)
    for group, member_id in (("g", "n"), ("h", "m")):
        with pytest.raises(UnknownMember, match=f"{group!r} has no member {member_id!r}"):
            shares.member(group, member_id, None)


def test_member_leaves_and_the_group_stays(desk: Desk) -> None:
    epoch = send(desk).member_epoch
    assert send(desk, -1) == ShareHeartbeatReply("m", -1, 0, None)
    assert refusal(desk, epoch) is Code.UNKNOWN_MEMBER
    assert refusal(desk, -1) is Code.UNKNOWN_MEMBER
    desk.advance(365 * 24 * 3_600_000)
    facts = describe(desk.shard, "g")
    assert facts == ShareGroupFacts("g", ShareGroupState.EMPTY, epoch + 1, ())


def test_epochs_go_on_after_the_group_was_empty(desk: Desk) -> None:
    epoch = send(desk).member_epoch
    send(desk, -1)
    assert send(desk).member_epoch > epoch


def test_member_that_is_not_heard_of_is_removed_when_its_session_ends(desk: Desk) -> None:
    epoch = send(desk).member_epoch
    desk.advance(SESSION_MS - 1)
    send(desk, epoch)
    other = send(desk, member_id="n").member_epoch
    desk.advance(SESSION_MS - 1)
    assert members(desk) == ["m", "n"]
    send(desk, other, "n")
    desk.advance(1)
    assert members(desk) == ["n"]
    desk.advance(SESSION_MS)
    assert members(desk) == []
    assert refusal(desk, epoch) is Code.UNKNOWN_MEMBER


def test_all_members_that_fall_silent_at_once_are_removed_at_once(desk: Desk) -> None:
    for number in range(5):
        send(desk, member_id=f"m{number}")
    desk.advance(SESSION_MS)
    assert members(desk) == []
    assert durable_shares(desk.replayed()) == durable_shares(desk.shard)


def test_member_may_choose_its_session(desk: Desk) -> None:
    epoch = send(desk, session_timeout_ms=2_000).member_epoch
    desk.advance(1_999)
    send(desk, epoch)
    desk.advance(1_999)
    assert members(desk) == ["m"]
    desk.advance(1)
    assert members(desk) == []


def test_clock_that_is_set_ends_no_session(desk: Desk) -> None:
    send(desk)
    desk.now_ms += 10 * SESSION_MS
    desk.shard.clock_was_set(10 * SESSION_MS, desk.now_ms)
    desk.advance(SESSION_MS - 1)
    assert members(desk) == ["m"]
    desk.advance(1)
    assert members(desk) == []


def test_members_have_a_full_session_after_a_restart(desk: Desk) -> None:
    epoch = send(desk, rack_id="r").member_epoch
    desk.advance(SESSION_MS - 1)
    before = durable_shares(desk.shard)
    desk.restart()
    assert durable_shares(desk.shard) == before
    desk.advance(SESSION_MS - 1)
    assert send(desk, epoch).assignment is None
    desk.advance(SESSION_MS)
    assert members(desk) == []


def test_log_gives_the_group_back_also_when_compacted_and_in_any_order(desk: Desk) -> None:
    epoch = send(desk).member_epoch
    send(desk, member_id="n", subscribed_topics=("bills",))
    send(desk, epoch, subscribed_topics=("bills", "orders"))
    send(desk, -1, member_id="n")
    send(desk, group="gone")
    send(desk, -1, group="gone")
    desk.call(DeleteGroup("gone"), Done)
    kept = desk.newest_per_key()
    for records in (desk.log, kept, kept[::-1]):
        assert durable_shares(desk.replayed(records)) == durable_shares(desk.shard)
    assert list(durable_shares(desk.shard)) == ["g"]


@pytest.mark.parametrize(
    ("epoch", "fields", "code"),
    [
        (-2, {}, Code.INVALID_REQUEST),
        (0, {"subscribed_topics": None}, Code.INVALID_REQUEST),
        (0, {"subscribed_topics": ()}, Code.INVALID_REQUEST),
        (0, {"member_id": ""}, Code.INVALID_REQUEST),
        (1, {"member_id": "", "fresh_id": "made-up"}, Code.INVALID_REQUEST),
        (0, {"member_id": "x" * 1_001}, Code.INVALID_REQUEST),
        (0, {"rack_id": ""}, Code.INVALID_REQUEST),
        (0, {"subscribed_topics": ("..",)}, Code.INVALID_NAME),
        (0, {"subscribed_topics": ("a", "b", "c", "d")}, Code.LIMIT_EXCEEDED),
        (0, {"session_timeout_ms": 999}, Code.INVALID_SESSION_TIMEOUT),
        (0, {"session_timeout_ms": 1_800_001}, Code.INVALID_SESSION_TIMEOUT),
        (0, {"group": ""}, Code.INVALID_GROUP_ID),
        (0, {"group": "x" * 1_001}, Code.INVALID_GROUP_ID),
        (1, {}, Code.UNKNOWN_MEMBER),
        (-1, {}, Code.UNKNOWN_MEMBER),
    ],
)
def test_bad_heartbeat_is_refused_and_changes_nothing(epoch: int, fields: dict[str, Any], code: Code) -> None:
    desk = Desk(GroupConfig(share_topic_count_max=3))
    assert refusal(desk, epoch, **fields) is code
    assert (desk.log, desk.shard.shares.ids()) == ([], [])


def test_group_has_a_limit_of_members_and_a_shard_of_groups() -> None:
    desk = Desk(GroupConfig(member_count_max=2, group_count_max=1))
    send(desk)
    epoch = send(desk, member_id="n").member_epoch
    assert refusal(desk, member_id="o") is Code.GROUP_FULL
    assert send(desk, member_id="m").member_epoch > epoch
    assert refusal(desk, group="h") is Code.LIMIT_EXCEEDED


# One name, one kind of group.


def consumer(group: str = "g") -> ConsumerHeartbeat:
    return ConsumerHeartbeat(
        group, "m", 0, "", rebalance_timeout_ms=1, subscribed_topics=("orders",), owned=()
    )


def test_share_group_stays_one_also_without_members(desk: Desk) -> None:
    send(desk)
    for _ in range(2):
        assert desk.refusal(join(protocols=(("range", subscription("orders")),))) is (
            Code.INCONSISTENT_GROUP_PROTOCOL
        )
        assert desk.refusal(consumer()) is Code.GROUP_NOT_FOUND
        send(desk, -1) if members(desk) else None
    assert durable_shares(desk.replayed()) == durable_shares(desk.shard)


def test_group_of_another_kind_does_not_become_a_share_group(desk: Desk) -> None:
    desk.stable(1, group="classic")
    desk.send(consumer("consumer"))
    assert desk.commit(1, group="offsets") is None
    for group in ("classic", "consumer", "offsets"):
        assert refusal(desk, group=group) is Code.GROUP_NOT_FOUND
    assert desk.shard.shares.ids() == []


def test_offsets_are_not_committed_to_a_share_group(desk: Desk) -> None:
    send(desk)
    offset = NewOffset("orders", 0, 1)
    for command in (
        CommitOffsets("g", (offset,)),
        CommitInTransaction("g", 1, 0, (offset,)),
        FetchOffsets("g"),
        DeleteOffsets("g", (("orders", 0),)),
    ):
        assert desk.refusal(command) is Code.GROUP_NOT_FOUND


def test_share_groups_are_listed_and_described(desk: Desk) -> None:
    epoch = send(desk, rack_id="r").member_epoch
    send(desk, group="empty")
    send(desk, -1, group="empty")
    desk.commit(1, group="offsets")
    assert summaries(desk.shard, types=["Share"]) == [
        GroupSummary("empty", GroupType.SHARE, "share", GroupState.EMPTY),
        GroupSummary("g", GroupType.SHARE, "share", GroupState.STABLE),
    ]
    assert [one.group_id for one in summaries(desk.shard)] == ["empty", "g", "offsets"]
    member = ShareMemberFacts("m", "r", "client", "/host", ("orders",), epoch, ORDERS, SESSION_MS, START_MS)
    assert describe(desk.shard, "g") == ShareGroupFacts("g", ShareGroupState.STABLE, epoch, (member,))


def test_group_is_deleted_when_its_members_have_gone(desk: Desk) -> None:
    send(desk)
    desk.call(ConfigureGroup("g", {"max.retries": "9"}), Done)
    assert desk.refusal(DeleteGroup("g")) is Code.GROUP_NOT_EMPTY
    send(desk, -1)
    desk.call(DeleteGroup("g"), Done)
    with pytest.raises(GroupNotFound):
        describe(desk.shard, "g")
    for shard in (desk.shard, desk.replayed(), desk.replayed(desk.newest_per_key())):
        assert (durable_shares(shard), dict(shard.overrides.get("g"))) == ({}, {})
    assert desk.refusal(DeleteGroup("g")) is Code.GROUP_NOT_FOUND
    assert desk.call(consumer(), object) is not None


# Settings.


def configure(desk: Desk, changes: dict[str, str | None], *, is_whole: bool = False) -> None:
    desk.call(ConfigureGroup("g", changes, is_whole), Done)


def test_settings_are_changed_step_by_step_or_as_a_whole(desk: Desk) -> None:
    configure(desk, {"max.retries": "9", "visibility.ms": "5000"})
    configure(desk, {"max.retries": "8", "ordering": "key", "visibility.ms": None})
    assert desk.shard.overrides.get("g") == {"max.retries": "8", "ordering": "key"}
    configure(desk, {"dlq.topic": "dead"}, is_whole=True)
    assert desk.shard.overrides.get("g") == {"dlq.topic": "dead"}
    for records in (desk.log, desk.newest_per_key()):
        assert desk.replayed(records).overrides.get("g") == {"dlq.topic": "dead"}
    configure(desk, {}, is_whole=True)
    assert "g" not in desk.shard.overrides
    assert "g" not in desk.replayed().overrides


def test_settings_may_precede_the_group_and_are_no_group(desk: Desk) -> None:
    configure(desk, {"share.auto.offset.reset": "earliest"})
    assert summaries(desk.shard) == []
    send(desk)
    assert desk.shard.overrides.get("g") == {"share.auto.offset.reset": "earliest"}
    assert "h" not in desk.shard.overrides


def test_what_is_set_already_is_not_written_again(desk: Desk) -> None:
    configure(desk, {"max.retries": "9"})
    written = len(desk.log)
    configure(desk, {"max.retries": "9"})
    assert len(desk.log) == written


def test_session_and_heartbeats_of_a_group_are_its_own(desk: Desk) -> None:
    configure(desk, {"share.session.timeout.ms": "5000", "share.heartbeat.interval.ms": "1000"})
    assert send(desk).heartbeat_interval_ms == 1_000
    assert send(desk, group="h").heartbeat_interval_ms == desk.config.share_heartbeat_ms
    desk.advance(5_000)
    assert (members(desk), members(desk, "h")) == ([], ["m"])


def test_session_must_be_longer_than_the_time_between_heartbeats(desk: Desk) -> None:
    assert desk.refusal(ConfigureGroup("g", {"share.session.timeout.ms": "3000"})) is Code.INVALID_SETTING
    assert desk.refusal(ConfigureGroup("g", {"share.heartbeat.interval.ms": "45000"})) is Code.INVALID_SETTING
    assert (desk.log, "g" in desk.shard.overrides) == ([], False)


def test_shard_has_a_limit_of_groups_with_settings() -> None:
    desk = Desk(GroupConfig(group_count_max=1))
    configure(desk, {"max.retries": "9"})
    configure(desk, {"max.retries": "8"})
    assert desk.refusal(ConfigureGroup("h", {"max.retries": "9"})) is Code.LIMIT_EXCEEDED
    assert desk.refusal(ConfigureGroup("", {"max.retries": "9"})) is Code.INVALID_GROUP_ID
