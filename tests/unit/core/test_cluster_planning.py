"""Plans that the cluster makes: as little as possible moves, racks are kept apart, and the result is always the same."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.catalogs import CatalogRun

from goqueue.core.catalog import CreateTopic
from goqueue.core.cluster.commands import MakePlan
from goqueue.core.cluster.plans import Move
from goqueue.model.errors import InvalidReplicaAssignment


def planned(cluster: CatalogRun, command: MakePlan) -> list[Move]:
    return cluster.catalog.foresee(command)[0]


def after(cluster: CatalogRun, moves: list[Move]) -> dict[tuple[str, int], tuple[int, ...]]:
    table = cluster.catalog.partitions
    places = {place: table.get(*place).replicas for place in table.all()}
    return {**places, **{move.key: move.after for move in moves}}


def replica_counts(places: dict[tuple[str, int], tuple[int, ...]]) -> Counter[int]:
    return Counter(number for replicas in places.values() for number in replicas)


def topic(cluster: CatalogRun, name: str, assignments: list[list[int]]) -> None:
    cluster.run(CreateTopic(name, len(assignments), {}, assignments=assignments))


# ---------------------------------------------------------------- draining


def test_a_drained_node_has_nothing_and_nothing_else_moves() -> None:
    cluster = CatalogRun(4)
    topic(cluster, "t", [[1, 2], [2, 3], [3, 1], [1, 4]])
    moves = planned(cluster, MakePlan(drain="n3"))
    assert [(move.partition, move.after) for move in moves] == [(1, (2, 4)), (2, (2, 1))]


def test_what_leaves_a_node_goes_where_there_is_least_of_it() -> None:
    cluster = CatalogRun(4)
    topic(cluster, "a", [[4]] * 3)
    topic(cluster, "t", [[1]] * 4)
    moves = planned(cluster, MakePlan(drain="n1"))
    assert [move.after for move in moves] == [(2,), (3,), (4,), (2,)]


def test_what_leaves_a_node_goes_to_a_rack_of_its_own_if_there_is_one() -> None:
    cluster = CatalogRun(4, racks={1: "a", 2: "b", 3: "b", 4: "c"})
    topic(cluster, "u", [[4]] * 5)
    topic(cluster, "t", [[1, 2]])
    (move,) = planned(cluster, MakePlan(drain="n1"))
    assert move.after == (4, 2) or move.after == (2, 4)


def test_a_dead_node_can_be_drained() -> None:
    cluster = CatalogRun(4)
    topic(cluster, "t", [[1, 2, 3]] * 3)
    cluster.fence(3)
    moves = planned(cluster, MakePlan(drain="n3"))
    assert {frozenset(move.after) for move in moves} == {frozenset({1, 2, 4})}


def test_a_node_is_not_drained_where_there_is_nobody_to_take_it() -> None:
    cluster = CatalogRun(3)
    topic(cluster, "t", [[1, 2, 3]])
    with pytest.raises(InvalidReplicaAssignment, match="t-0 cannot leave node 2: every other node"):
        planned(cluster, MakePlan(drain="n2"))


# ---------------------------------------------------------------- balancing


def test_a_new_node_gets_its_share_and_no_more_than_that_moves() -> None:
    cluster = CatalogRun(3)
    topic(cluster, "t", [[1, 2, 3]] * 8)
    cluster.start(4)
    moves = planned(cluster, MakePlan(is_balance=True))
    assert sorted(replica_counts(after(cluster, moves)).values()) == [6, 6, 6, 6]
    assert sum(len(set(move.after) - set(move.before)) for move in moves) == 6


def test_leaders_are_spread_without_copying_anything() -> None:
    cluster = CatalogRun(3)
    topic(cluster, "t", [[1, 2, 3]] * 6)
    moves = planned(cluster, MakePlan(is_balance=True))
    assert all(set(move.after) == set(move.before) for move in moves)
    assert sorted(Counter(one[0] for one in after(cluster, moves).values()).values()) == [2, 2, 2]


def test_what_is_even_stays_where_it_is() -> None:
    cluster = CatalogRun(3)
    topic(cluster, "t", [[1, 2], [2, 3], [3, 1]])
    assert planned(cluster, MakePlan(is_balance=True)) == []


def test_only_the_named_topics_move() -> None:
    cluster = CatalogRun(2)
    topic(cluster, "a", [[1]] * 4)
    topic(cluster, "b", [[1]] * 4)
    moves = planned(cluster, MakePlan(is_balance=True, topics=["b"]))
    assert {move.topic for move in moves} == {"b"}
    assert sorted(replica_counts(after(cluster, moves)).values()) == [4, 4]


def test_partitions_of_a_node_that_is_down_are_left_alone() -> None:
    cluster = CatalogRun(3)
    topic(cluster, "t", [[1, 2]] * 6)
    cluster.fence(2)
    assert planned(cluster, MakePlan(is_balance=True)) == []


def test_racks_are_not_given_up_for_balance() -> None:
    cluster = CatalogRun(3, racks={1: "a", 2: "b", 3: "b"})
    topic(cluster, "t", [[1, 2]] * 6)
    places = after(cluster, planned(cluster, MakePlan(is_balance=True)))
    assert all(1 in replicas for replicas in places.values())
    assert replica_counts(places)[2] == 3


NODE_COUNT = 5
ASSIGNMENTS = st.lists(
    st.lists(st.integers(1, NODE_COUNT), min_size=1, max_size=3, unique=True), min_size=1, max_size=12
)


@settings(max_examples=60, deadline=None)
@given(
    assignments=ASSIGNMENTS, racks=st.lists(st.sampled_from("abc"), min_size=NODE_COUNT, max_size=NODE_COUNT)
)
def test_any_cluster_is_balanced_without_doubles_and_with_as_many_racks(
    assignments: list[list[int]], racks: list[str]
) -> None:
    width = len(assignments[0])
    same = [each for each in assignments if len(each) == width]
    cluster = CatalogRun(NODE_COUNT, racks=dict(enumerate(racks, 1)))
    topic(cluster, "t", same)
    moves = planned(cluster, MakePlan(is_balance=True))
    assert moves == planned(cluster, MakePlan(is_balance=True))
    places = after(cluster, moves)
    rack_of = dict(enumerate(racks, 1))
    for move in moves:
        assert len(set(move.after)) == len(move.after) == len(move.before)
        assert len({rack_of[each] for each in move.after}) >= len({rack_of[each] for each in move.before})
    counts = replica_counts(places)
    if len(set(racks)) == 1 and width < NODE_COUNT:
        numbers = [counts[number] for number in range(1, NODE_COUNT + 1)]
        assert max(numbers) - min(numbers) <= 1


def test_what_should_be_known_before_is_said() -> None:
    cluster = CatalogRun(4, racks={1: "a", 2: "b", 3: "b", 4: "c"})
    topic(cluster, "t", [[1, 2, 4]])
    _, warnings = cluster.catalog.foresee(MakePlan([("t", 0, [2, 3])]))
    assert warnings == [
        "t-0 is to have 2 replicas instead of 3",
        "t-0 is to be more than once in one rack while there are others",
    ]
