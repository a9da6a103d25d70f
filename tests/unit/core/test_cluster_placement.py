"""Where new partitions go: over racks first, evenly then."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.catalogs import CatalogRun

from goqueue.core.catalog import CreateTopic, DeleteTopic, GrowTopic, PartitionsChanged, TopicCreated
from goqueue.core.cluster.partitions import STANDALONE, PartitionState
from goqueue.model.errors import InvalidReplicaAssignment, InvalidReplicationFactor, NotEnoughReplicas


def spread(numbers: Iterable[int], nodes: Sequence[int]) -> int:
    counts = Counter(numbers)
    return max(counts[each] for each in nodes) - min(counts[each] for each in nodes)


def check_evenness(states: Sequence[PartitionState], nodes: Sequence[int]) -> None:
    assert spread((each for state in states for each in state.replicas), nodes) <= 1
    assert spread((state.replicas[0] for state in states), nodes) <= 1


@settings(max_examples=60, deadline=None)
@given(
    node_count=st.integers(1, 9),
    topics=st.lists(st.tuples(st.integers(1, 15), st.integers(1, 5)), min_size=1, max_size=4),
)
def test_replicas_and_leaders_are_even_in_each_topic_and_replicas_over_all(
    node_count: int, topics: list[tuple[int, int]]
) -> None:
    cluster = CatalogRun(node_count)
    nodes = range(1, node_count + 1)
    states: list[PartitionState] = []
    for index, (count, factor) in enumerate(topics):
        cluster.run(CreateTopic(f"t{index}", count, {}, replication_factor=min(factor, node_count)))
        own = cluster.catalog.partitions_of(f"t{index}")
        check_evenness(own, nodes)
        states += own
        assert spread((each for state in states for each in state.replicas), nodes) <= 1


@settings(max_examples=60, deadline=None)
@given(
    rack_count=st.integers(1, 4),
    rack_size=st.integers(1, 3),
    count=st.integers(1, 20),
    factor=st.integers(1, 6),
)
def test_each_partition_uses_all_racks_before_one_twice_and_equal_racks_are_even(
    rack_count: int, rack_size: int, count: int, factor: int
) -> None:
    nodes = range(1, rack_count * rack_size + 1)
    racks = {number: f"r{number % rack_count}" for number in nodes}
    factor = min(factor, len(nodes))
    cluster = CatalogRun(len(nodes), racks=racks)
    cluster.run(CreateTopic("t", count, {}, replication_factor=factor))
    states = cluster.catalog.partitions_of("t")
    for state in states:
        used = Counter(racks[each] for each in state.replicas)
        assert len(used) == min(factor, rack_count)
        assert max(used.values()) - min(used.values()) <= 1
    check_evenness(states, nodes)


@settings(max_examples=40, deadline=None)
@given(sizes=st.lists(st.integers(1, 4), min_size=2, max_size=4), factor=st.integers(1, 6))
def test_unequal_racks_are_used_as_far_as_they_go(sizes: list[int], factor: int) -> None:
    names = [f"r{index}" for index, size in enumerate(sizes) for _ in range(size)]
    racks = dict(enumerate(names, 1))
    factor = min(factor, len(names))
    cluster = CatalogRun(len(names), racks=racks)
    cluster.run(CreateTopic("t", 7, {}, replication_factor=factor))
    for state in cluster.catalog.partitions_of("t"):
        assert len({racks[each] for each in state.replicas}) == min(factor, len(sizes))
        assert len(set(state.replicas)) == factor


def test_a_grown_topic_stays_even() -> None:
    cluster = CatalogRun(5)
    cluster.run(CreateTopic("t", 3, {}, replication_factor=3))
    before = cluster.catalog.partitions_of("t")
    cluster.run(GrowTopic("t", 11))
    states = cluster.catalog.partitions_of("t")
    assert states[:3] == before
    check_evenness(states, range(1, 6))


def test_a_new_node_gets_its_share_of_a_new_topic_and_not_all_of_it() -> None:
    cluster = CatalogRun(3)
    cluster.run(CreateTopic("old", 9, {}, replication_factor=2))
    cluster.start(4)
    cluster.run(CreateTopic("new", 8, {}, replication_factor=2))
    check_evenness(cluster.catalog.partitions_of("new"), range(1, 5))


def test_topics_begin_on_different_nodes() -> None:
    cluster = CatalogRun(3)
    for index in range(3):
        cluster.run(CreateTopic(f"t{index}", 1, {}, replication_factor=1))
    assert {cluster.state(f"t{index}").leader for index in range(3)} == {1, 2, 3}


def test_what_a_deleted_topic_had_counts_no_more() -> None:
    cluster = CatalogRun(2)
    cluster.create(1, name="a")
    cluster.create(2, name="b")
    cluster.run(DeleteTopic("a"))
    cluster.run(CreateTopic("c", 1, {}, replication_factor=1))
    assert cluster.state("c").replicas == (1,)


def test_the_same_commands_give_the_same_places() -> None:
    runs = []
    for _ in range(2):
        cluster = CatalogRun(5)
        cluster.run(CreateTopic("t", 8, {}))
        runs.append(cluster.catalog.partitions_of("t"))
    assert runs[0] == runs[1]


@pytest.mark.parametrize(("node_count", "factor"), [(1, 1), (2, 2), (3, 3), (5, 3)])
def test_three_replicas_are_usual_or_as_many_as_there_are_nodes(node_count: int, factor: int) -> None:
    cluster = CatalogRun(node_count)
    cluster.run(CreateTopic("t", 1, {}))
    cluster.run(CreateTopic("__own", 1, {}, is_internal=True))
    assert len(cluster.state("t").replicas) == factor
    assert len(cluster.state("__own").replicas) == factor


def test_only_nodes_that_are_alive_get_replicas() -> None:
    cluster = CatalogRun(4)
    cluster.fence(2)
    cluster.drain(3)
    cluster.run(CreateTopic("t", 4, {}, replication_factor=2))
    assert {each for state in cluster.catalog.partitions_of("t") for each in state.replicas} == {1, 4}
    cluster.run(CreateTopic("wide", 2, {}, replication_factor=3))
    wide = cluster.catalog.partitions_of("wide")
    assert [set(state.replicas) for state in wide] == [{1, 3, 4}] * 2  # one that drains, for want of others
    assert {state.leader for state in wide} == {1, 4}


def test_a_topic_that_is_made_while_nodes_are_down_has_as_many_replicas_as_any_other() -> None:
    cluster = CatalogRun(5)
    for number in (1, 2, 4):
        cluster.fence(number)
    cluster.run(CreateTopic("wide", 4, {}))
    wide = cluster.catalog.partitions_of("wide")
    assert [len(state.replicas) for state in wide] == [3] * 4
    assert {number for state in wide for number in state.replicas} == {1, 3, 5}  # no more of them than needed
    assert [set(state.in_sync) for state in wide] == [{3, 5}] * 4
    assert {state.leader for state in wide} == {3, 5}
    assert {state.replicas[0] for state in wide} == {3, 5}
    cluster.unfence(1)
    cluster.propose(*wide[0].replicas, topic="wide")
    assert len(cluster.state("wide").in_sync) == 3


@pytest.mark.parametrize("factor", [0, -1, 5])
def test_more_replicas_than_nodes_are_refused(factor: int) -> None:
    cluster = CatalogRun(4)
    cluster.fence(1)
    with pytest.raises(InvalidReplicationFactor, match=f"factor of {factor} is not possible with 4 nodes"):
        cluster.run(CreateTopic("t", 1, {}, replication_factor=factor))


def test_without_a_node_that_is_alive_there_is_no_place() -> None:
    cluster = CatalogRun(1)
    cluster.fence(1)
    with pytest.raises(NotEnoughReplicas, match="no node is alive"):
        cluster.run(CreateTopic("t", 1, {}))


# ---------------------------------------------------------------- chosen by hand


def test_assignments_are_taken_as_they_are_given() -> None:
    cluster = CatalogRun(3)
    (event,) = cluster.run(CreateTopic("t", 2, {}, assignments=[[3, 1], [2, 3]]))
    assert isinstance(event, TopicCreated)
    assert event.assignments == [[3, 1], [2, 3]]
    assert cluster.catalog.topic("t").assignments == []
    cluster.run(GrowTopic("t", 3, [[1, 2]]))
    assert [state.replicas for state in cluster.catalog.partitions_of("t")] == [(3, 1), (2, 3), (1, 2)]


def test_a_replica_that_is_down_is_not_in_sync_from_the_start() -> None:
    cluster = CatalogRun(3)
    cluster.fence(3)
    cluster.drain(1)
    _, changed = cluster.run(CreateTopic("t", 2, {}, assignments=[[3, 1, 2], [2, 1, 3]]))
    assert isinstance(changed, PartitionsChanged)
    assert cluster.catalog.partitions_of("t") == (
        PartitionState((3, 1, 2), (1, 2), 2, leader_epoch=1, epoch=1),
        PartitionState((2, 1, 3), (2, 1), 2, leader_epoch=0, epoch=1),
    )


@pytest.mark.parametrize(
    ("assignments", "sentence"),
    [
        ([[1, 2]], "assignments for 1 partitions, but 2 are to be made"),
        ([[1], []], "names no node"),
        ([[], []], "names no node"),
        ([[1, 2], [1]], "another length than the first, which has 2"),
        ([[1, 1], [1, 2]], "names a node twice"),
        ([[1, 2], [1, 9]], "does not have; it has 1, 2, 3"),
        ([[1], [3]], "names only nodes that are down"),
    ],
)
def test_impossible_assignments_are_refused(assignments: list[list[int]], sentence: str) -> None:
    cluster = CatalogRun(3)
    cluster.fence(3)
    cluster.create(1, name="old")
    with pytest.raises(InvalidReplicaAssignment, match=sentence):
        cluster.run(CreateTopic("t", 2, {}, assignments=assignments))
    with pytest.raises(InvalidReplicaAssignment, match=sentence):
        cluster.run(GrowTopic("old", 3, assignments))


def test_assignments_that_contradict_the_replication_factor_are_refused() -> None:
    cluster = CatalogRun(3)
    with pytest.raises(InvalidReplicaAssignment, match="factor of 3 is wanted, but the assignments have 2"):
        cluster.run(CreateTopic("t", 1, {}, replication_factor=3, assignments=[[1, 2]]))


# ---------------------------------------------------------------- without a cluster


def test_a_standalone_node_has_everything() -> None:
    cluster = CatalogRun()
    cluster.run(CreateTopic("t", 2, {}, replication_factor=1))
    cluster.run(CreateTopic("u", 1, {}, assignments=[[1]]))
    cluster.run(GrowTopic("t", 3))
    assert cluster.catalog.partitions_of("t") == (STANDALONE,) * 3
    assert cluster.catalog.partitions_of("u") == (STANDALONE,)
    with pytest.raises(InvalidReplicationFactor, match="factor of 2 is not possible with 1 node"):
        cluster.run(CreateTopic("v", 1, {}, replication_factor=2))
    with pytest.raises(InvalidReplicaAssignment, match="does not have; it has 1"):
        cluster.run(CreateTopic("v", 1, {}, assignments=[[2]]))
