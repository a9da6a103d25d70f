"""Moving partitions to other nodes, and back."""

from __future__ import annotations

import pytest
from tests.support.catalogs import CatalogRun

from goqueue.core.catalog import (
    AlterTopic,
    DeleteTopic,
    ElectLeaders,
    GrowTopic,
    PartitionsChanged,
    ReassignPartitions,
    RemoveNode,
)
from goqueue.core.cluster.commands import AdvancePlan, MakePlan
from goqueue.core.cluster.partitions import NO_LEADER, PartitionState
from goqueue.core.cluster.plans import PlanState
from goqueue.model.cluster_errors import ReassignmentNotFound
from goqueue.model.errors import GoQueueError, InvalidReplicaAssignment, InvalidRequest


@pytest.fixture
def cluster() -> CatalogRun:
    cluster = CatalogRun(6)
    cluster.create(1, 2, 3, min_in_sync=2)
    return cluster


def move(cluster: CatalogRun, *replicas: int) -> None:
    cluster.run(ReassignPartitions([("t", 0, list(replicas))]))


def cancel(cluster: CatalogRun) -> None:
    cluster.run(ReassignPartitions([("t", 0, None)]))


def test_new_and_old_replicas_are_there_while_it_moves(cluster: CatalogRun) -> None:
    move(cluster, 4, 5, 2)
    assert cluster.state() == PartitionState(
        (4, 5, 2, 1, 3), (2, 1, 3), 1, leader_epoch=0, epoch=1, adding=(4, 5), removing=(1, 3)
    )
    assert cluster.catalog.partitions.moving() == [("t", 0)]


def test_it_is_complete_when_all_new_ones_are_in_sync(cluster: CatalogRun) -> None:
    move(cluster, 4, 5, 2)
    cluster.propose(1, 2, 3, 4)
    assert cluster.state().adding == (4, 5)
    (event,) = cluster.propose(1, 2, 3, 4, 5)
    assert isinstance(event, PartitionsChanged)
    assert len(event.changes) == 1
    assert cluster.state() == PartitionState((4, 5, 2), (4, 5, 2), 4, leader_epoch=1, epoch=3)
    assert cluster.catalog.partitions.moving() == []
    assert cluster.catalog.held_by(1) == []


def test_a_leader_that_stays_goes_on_leading(cluster: CatalogRun) -> None:
    move(cluster, 4, 1)
    cluster.propose(1, 2, 3, 4)
    assert cluster.state() == PartitionState((4, 1), (4, 1), 1, leader_epoch=0, epoch=2)


def test_another_order_is_taken_at_once(cluster: CatalogRun) -> None:
    move(cluster, 3, 1, 2)
    assert cluster.state() == PartitionState((3, 1, 2), (3, 1, 2), 1, leader_epoch=0, epoch=1)


def test_fewer_replicas_are_taken_at_once_if_they_are_in_sync(cluster: CatalogRun) -> None:
    move(cluster, 2, 3)
    assert cluster.state() == PartitionState((2, 3), (2, 3), 2, leader_epoch=1, epoch=1)


def test_nobody_leaves_while_too_few_others_are_in_sync(cluster: CatalogRun) -> None:
    cluster.propose(1, 2)
    move(cluster, 2, 3)
    assert cluster.state() == PartitionState((2, 3, 1), (2, 1), 1, 0, epoch=2, removing=(1,))
    cluster.propose(1, 2, 3)
    assert cluster.state() == PartitionState((2, 3), (2, 3), 2, leader_epoch=1, epoch=3)


def test_a_move_that_waits_for_min_in_sync_ends_when_less_is_needed(cluster: CatalogRun) -> None:
    cluster.propose(1, 2)
    move(cluster, 2, 3)
    cluster.run(AlterTopic("t", {"min.insync.replicas": "1"}))
    assert cluster.state() == PartitionState((2, 3), (2,), 2, leader_epoch=1, epoch=3)


def test_a_move_to_a_node_that_goes_down_waits(cluster: CatalogRun) -> None:
    move(cluster, 4, 5)
    cluster.propose(1, 2, 3, 4)
    cluster.fence(4)
    cluster.propose(1, 2, 3, 5)
    assert cluster.state().is_moving
    cluster.unfence(4)
    cluster.propose(1, 2, 3, 4, 5)
    assert cluster.state().replicas == (4, 5)


def test_a_cancelled_move_gives_the_partition_back_as_it_was(cluster: CatalogRun) -> None:
    move(cluster, 4, 3)
    cluster.propose(1, 2, 3)
    cancel(cluster)
    assert cluster.state() == PartitionState((1, 2, 3), (1, 2, 3), 1, leader_epoch=0, epoch=3)
    with pytest.raises(ReassignmentNotFound, match="t-0 is not being moved"):
        cancel(cluster)


def test_a_cancelled_move_leads_no_more_where_it_was_going(cluster: CatalogRun) -> None:
    move(cluster, 4, 5)
    cluster.propose(1, 4)
    cluster.fence(1)
    assert (cluster.state().leader, cluster.state().in_sync, cluster.state().eligible) == (4, (4,), (1,))
    with pytest.raises(InvalidReplicaAssignment, match="nodes 1, 2, 3: none of them is in sync, only node 4"):
        cancel(cluster)
    cluster.propose(4, 2)
    cancel(cluster)
    state = cluster.state()
    assert (state.replicas, state.in_sync, state.leader) == ((1, 2, 3), (2,), 2)


@pytest.mark.parametrize("is_allowed", [False, True], ids=["by order", "by itself"])
def test_a_move_is_complete_when_its_last_replica_in_sync_is_given_up_for_the_new_one(
    is_allowed: bool,
) -> None:
    """Nobody proposes an in-sync set of one node, so nothing would ask again."""
    cluster = CatalogRun(2)
    cluster.create(1)
    cluster.run(AlterTopic("t", {"unclean.leader.election.enable": str(is_allowed).lower()}))
    cluster.run(MakePlan([("t", 0, [2])]))
    cluster.run(AdvancePlan(1))
    assert (cluster.state().adding, cluster.state().removing) == ((2,), (1,))
    cluster.fence(1)
    if not is_allowed:
        assert cluster.state().leader == NO_LEADER
        cluster.run(ElectLeaders([("t", 0)], "unclean"))
    state = cluster.state()
    assert (state.replicas, state.in_sync, state.leader, state.is_moving) == ((2,), (2,), 2, False)
    assert state.leader_epoch == state.unclean_epoch > 0
    cluster.run(AdvancePlan(1))
    assert cluster.catalog.plans.get(1).state is PlanState.DONE
    cluster.run(RemoveNode("n1"))


def test_another_target_replaces_the_one_before(cluster: CatalogRun) -> None:
    move(cluster, 4, 5)
    cluster.propose(1, 2, 3, 4)
    move(cluster, 6, 4, 1)
    assert cluster.state() == PartitionState(
        (6, 4, 1, 2, 3), (4, 1, 2, 3), 1, 0, epoch=3, adding=(6, 4), removing=(2, 3)
    )
    cancel(cluster)
    assert cluster.state().replicas == (1, 2, 3)


def test_the_same_target_again_changes_nothing(cluster: CatalogRun) -> None:
    move(cluster, 4, 5)
    assert cluster.run(ReassignPartitions([("t", 0, [4, 5])])) == []
    cancel(cluster)
    assert cluster.run(ReassignPartitions([("t", 0, [1, 2, 3])])) == []


def test_a_topic_may_grow_and_go_while_it_moves(cluster: CatalogRun) -> None:
    move(cluster, 4, 5)
    cluster.run(GrowTopic("t", 3))
    assert [len(state.replicas) for state in cluster.catalog.partitions_of("t")] == [5, 2, 2]
    cluster.run(DeleteTopic("t"))
    assert cluster.catalog.partitions.moving() == []
    assert [cluster.catalog.held_by(number) for number in range(-1, 7)] == [[]] * 8
    cluster.create(1, 2)
    with pytest.raises(ReassignmentNotFound):
        cancel(cluster)


def test_a_partition_that_nobody_leads_can_be_given_others_and_waits(cluster: CatalogRun) -> None:
    cluster.fence(3, 2, 1)
    move(cluster, 4, 5)
    assert (cluster.state().leader, cluster.state().in_sync) == (NO_LEADER, (1,))
    cluster.unfence(1)
    cluster.propose(1, 4, 5)
    assert cluster.state().replicas == (4, 5)


def test_what_has_fewer_replicas_than_its_topic_wants_may_move_with_as_many() -> None:
    cluster = CatalogRun(6)
    cluster.create(1, min_in_sync=2)
    move(cluster, 4)
    cluster.propose(1, 4)
    assert cluster.state().replicas == (4,)


@pytest.mark.parametrize(
    ("targets", "error", "sentence"),
    [
        ([], InvalidRequest, "names no partition"),
        ([("t", 0, [])], InvalidReplicaAssignment, "no replicas at all"),
        ([("t", 0, [1, 1])], InvalidReplicaAssignment, "twice on one node"),
        (
            [("t", 0, [1, 9])],
            InvalidReplicaAssignment,
            "node 9, which the cluster does not have; it has nodes 1,",
        ),
        ([("t", 0, [1, 6])], InvalidReplicaAssignment, "node 6, which is down"),
        ([("t", 0, [4])], InvalidReplicaAssignment, "on node 4 only, but its topic wants 2 in sync"),
        ([("t", 0, [1, 4]), ("t", 0, [2, 4])], InvalidReplicaAssignment, "names t-0 twice"),
        ([("t", 0, [4, 5]), ("t", 1, [1, 2])], GoQueueError, "no partition 1"),
        ([("t", 0, [4, 5]), ("x", 0, [1, 2])], GoQueueError, "topic 'x' does not exist"),
        ([("t", 0, None)], ReassignmentNotFound, "is not being moved"),
    ],
)
def test_an_impossible_plan_is_refused_as_a_whole(
    cluster: CatalogRun,
    targets: list[tuple[str, int, list[int] | None]],
    error: type[GoQueueError],
    sentence: str,
) -> None:
    cluster.fence(6)
    before = cluster.catalog.snapshot()
    with pytest.raises(error, match=sentence):
        cluster.run(ReassignPartitions(targets))
    assert cluster.catalog.snapshot() == before
