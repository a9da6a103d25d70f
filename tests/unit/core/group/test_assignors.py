"""Assignors: everything is assigned once, to one who asked for it, evenly, and as little as possible moves."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.core.group.assignors import (
    ASSIGNORS,
    Assignments,
    MemberSubscription,
    range_,
    roundrobin,
    sticky,
)
from goqueue.core.group.consumer_events import Partition, unpack

TOPICS = ["a", "b", "c", "d"]
MEMBERS = [f"m{number}" for number in range(8)]

topic_counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 9))
member_ids = st.lists(st.sampled_from(MEMBERS), unique=True)


@st.composite
def equal_subscriptions(draw: st.DrawFn) -> list[MemberSubscription]:
    topics = tuple(draw(st.lists(st.sampled_from(TOPICS), unique=True)))
    return [MemberSubscription(member, topics) for member in draw(member_ids)]


@st.composite
def any_subscriptions(draw: st.DrawFn) -> list[MemberSubscription]:
    topics = st.lists(st.sampled_from([*TOPICS, "missing"]), unique=True).map(tuple)
    instance = st.sampled_from([None, *(f"i{number}" for number in range(9))])
    return [MemberSubscription(member, draw(topics), draw(instance)) for member in draw(member_ids)]


def owners(assignments: Assignments) -> dict[Partition, str]:
    found: dict[Partition, str] = {}
    for member, assignment in assignments.items():
        for partition in unpack(assignment):
            assert partition not in found
            found[partition] = member
    return found


def loads(assignments: Assignments) -> dict[str, int]:
    return {member: len(unpack(assignment)) for member, assignment in assignments.items()}


def check_sound(
    members: Sequence[MemberSubscription], topics: Mapping[str, int], assignments: Assignments
) -> None:
    subscriptions = {member.member_id: member.topics for member in members}
    assert assignments.keys() == subscriptions.keys()
    found = owners(assignments)
    for (topic, _), member in found.items():
        assert topic in subscriptions[member]
    wanted = {topic for member in members for topic in member.topics}
    assert set(found) == {(t, index) for t, count in topics.items() if t in wanted for index in range(count)}
    for assignment in assignments.values():
        assert list(assignment) == sorted(assignment)
        assert all(list(indexes) == sorted(indexes) and indexes for _, indexes in assignment)


def check_level(members: Sequence[MemberSubscription], assignments: Assignments) -> None:
    """Equal subscriptions, equal loads but for one."""
    by_subscription: dict[tuple[str, ...], list[int]] = {}
    for member in members:
        load = loads(assignments)[member.member_id]
        by_subscription.setdefault(tuple(sorted(member.topics)), []).append(load)
    for group in by_subscription.values():
        assert max(group) - min(group) <= 1


@pytest.mark.parametrize("assignor", sorted(ASSIGNORS))
@given(members=any_subscriptions(), topics=topic_counts)
def test_every_partition_goes_once_to_one_who_asked_for_it(
    assignor: str, members: list[MemberSubscription], topics: dict[str, int]
) -> None:
    check_sound(members, topics, ASSIGNORS[assignor](members, topics, {}))


@pytest.mark.parametrize("assignor", sorted(ASSIGNORS))
@given(members=any_subscriptions(), topics=topic_counts, data=st.data())
def test_order_of_members_and_topics_does_not_matter(
    assignor: str, members: list[MemberSubscription], topics: dict[str, int], data: st.DataObject
) -> None:
    assign = ASSIGNORS[assignor]
    shuffled = data.draw(st.permutations(members))
    turned = dict(data.draw(st.permutations(list(topics.items()))))
    assert assign(shuffled, turned, {}) == assign(members, topics, {})


@given(before=any_subscriptions(), now=any_subscriptions(), old=topic_counts, new=topic_counts)
def test_sticky_is_sound_and_level_from_any_previous_assignment(
    before: list[MemberSubscription],
    now: list[MemberSubscription],
    old: dict[str, int],
    new: dict[str, int],
) -> None:
    assignments = sticky(now, new, sticky(before, old, {}))
    check_sound(now, new, assignments)
    check_level(now, assignments)


@given(members=any_subscriptions(), topics=topic_counts, previous=st.data())
def test_sticky_survives_a_previous_assignment_that_contradicts_itself(
    members: list[MemberSubscription], topics: dict[str, int], previous: st.DataObject
) -> None:
    everything = tuple((topic, tuple(range(12))) for topic in sorted([*TOPICS, "missing"]))
    claims = dict.fromkeys(previous.draw(member_ids), everything)
    assignments = sticky(members, topics, claims)
    check_sound(members, topics, assignments)
    check_level(members, assignments)


@given(members=any_subscriptions(), topics=topic_counts)
def test_sticky_leaves_its_own_work_alone(members: list[MemberSubscription], topics: dict[str, int]) -> None:
    assignments = sticky(members, topics, {})
    assert sticky(members, topics, assignments) == assignments


@given(before=equal_subscriptions(), now=equal_subscriptions(), old=topic_counts, new=topic_counts)
def test_sticky_makes_the_fewest_moves_that_balance_allows(
    before: list[MemberSubscription],
    now: list[MemberSubscription],
    old: dict[str, int],
    new: dict[str, int],
) -> None:
    previous = sticky(before, old, {})
    assignments = sticky(now, new, previous)
    found = owners(assignments)
    if not now:
        return
    had = {
        partition: member
        for partition, member in owners(previous).items()
        if member in assignments and partition in found
    }
    held = sorted(Counter(had.values()).values(), reverse=True)
    each, rest = divmod(len(found), len(now))
    kept_at_best = sum(min(count, each + (position < rest)) for position, count in enumerate(held))
    assert sum(found[partition] == member for partition, member in had.items()) == kept_at_best


@given(members=equal_subscriptions().filter(bool), topics=topic_counts, data=st.data())
def test_leaving_member_moves_only_its_own_partitions(
    members: list[MemberSubscription], topics: dict[str, int], data: st.DataObject
) -> None:
    leaver = data.draw(st.sampled_from(members))
    before = sticky(members, topics, {})
    after = sticky([member for member in members if member is not leaver], topics, before)
    for member, assignment in after.items():
        assert set(unpack(before[member])) <= set(unpack(assignment))


@given(members=equal_subscriptions().filter(bool), topics=topic_counts)
def test_joining_member_takes_no_more_than_its_share(
    members: list[MemberSubscription], topics: dict[str, int]
) -> None:
    before = sticky(members, topics, {})
    after = sticky([*members, MemberSubscription("new", members[0].topics)], topics, before)
    moved = [
        partition for partition, owner in owners(after).items() if owners(before).get(partition) != owner
    ]
    assert len(moved) <= -(-len(owners(after)) // (len(members) + 1))
    assert {owners(after)[partition] for partition in moved} <= {"new"}


def test_sticky_spreads_each_topic_over_the_members() -> None:
    members = [MemberSubscription("m1", ("a", "b"))]
    before = sticky(members, {"a": 4, "b": 4}, {})
    after = sticky([*members, MemberSubscription("m2", ("a", "b"))], {"a": 4, "b": 4}, before)
    assert after == {"m1": (("a", (0, 1)), ("b", (0, 1))), "m2": (("a", (2, 3)), ("b", (2, 3)))}


def test_sticky_gives_shared_topics_to_those_that_have_little_else() -> None:
    members = [MemberSubscription("m1", ("a", "b")), MemberSubscription("m2", ("b",))]
    assert sticky(members, {"a": 3, "b": 3}, {}) == {"m1": (("a", (0, 1, 2)),), "m2": (("b", (0, 1, 2)),)}


def test_sticky_moves_from_those_that_have_too_much_where_subscriptions_differ() -> None:
    members = [MemberSubscription("m1", ("a", "b")), MemberSubscription("m2", ("b",))]
    previous = {"m1": (("a", (0, 1)), ("b", (0, 1, 2, 3)))}
    assert sticky(members, {"a": 2, "b": 4}, previous) == {
        "m1": (("a", (0, 1)), ("b", (0,))),
        "m2": (("b", (1, 2, 3)),),
    }


def test_range_gives_neighbours_of_each_topic() -> None:
    members = [MemberSubscription(name, ("a", "b")) for name in ("m1", "m2", "m3")]
    assert range_(members, {"a": 5, "b": 2}, {}) == {
        "m1": (("a", (0, 1)), ("b", (0,))),
        "m2": (("a", (2, 3)), ("b", (1,))),
        "m3": (("a", (4,)),),
    }


def test_roundrobin_skips_who_is_not_subscribed() -> None:
    members = [
        MemberSubscription("m1", ("a", "b")),
        MemberSubscription("m2", ("b",)),
        MemberSubscription("m3", ("a", "b")),
    ]
    assert roundrobin(members, {"a": 3, "b": 3}, {}) == {
        "m1": (("a", (0, 2)), ("b", (2,))),
        "m2": (("b", (0,)),),
        "m3": (("a", (1,)), ("b", (1,))),
    }


@pytest.mark.parametrize("assignor", ["range", "roundrobin"])
def test_static_instance_keeps_its_place_under_a_new_member_id(assignor: str) -> None:
    topics = {"a": 3}
    before = [MemberSubscription(f"m{number}", ("a",), f"i{number}") for number in range(3)]
    after = [MemberSubscription("z", ("a",), "i0"), *before[1:]]
    assign = ASSIGNORS[assignor]
    assert assign(after, topics, {})["z"] == assign(before, topics, {})["m0"]


@pytest.mark.parametrize("assignor", sorted(ASSIGNORS))
@pytest.mark.parametrize("topic_count", [1, 100, 10_000])
@pytest.mark.parametrize("class_count", [1, 50])
def test_a_thousand_members_and_ten_thousand_partitions_take_less_than_two_seconds(
    assignor: str, topic_count: int, class_count: int
) -> None:
    topics = {f"t{number:05}": 10_000 // topic_count for number in range(topic_count)}
    names = tuple(topics)
    members = [
        MemberSubscription(f"m{number:04}", names[number % class_count :: class_count] or names)
        for number in range(1_000)
    ]
    assign = ASSIGNORS[assignor]
    start = time.process_time()
    before = assign(members, topics, {})
    after = assign(members[10:], topics, before)
    assert time.process_time() - start < 2 * 2
    check_sound(members[10:], topics, after)
