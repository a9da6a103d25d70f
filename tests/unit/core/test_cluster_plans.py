"""Plans to move partitions: made, carried on by any controller, paused, given up."""

from __future__ import annotations

import pytest
from tests.support.catalogs import CatalogRun

from goqueue.core.catalog import Catalog, CreateTopic, DeleteTopic, ReassignPartitions, RemoveNode
from goqueue.core.cluster.commands import AdvancePlan, CancelPlan, MakePlan, PausePlan, ResumePlan
from goqueue.core.cluster.plans import FINISHED_COUNT_MAX, MoveState, Plan, PlanState
from goqueue.model.cluster_errors import NodeNotFound, ReassignmentInProgress, ReassignmentNotFound
from goqueue.model.errors import (
    GoQueueError,
    InvalidReplicaAssignment,
    InvalidRequest,
    LimitExceeded,
    PartitionNotFound,
    TopicNotFound,
)
from goqueue.model.limits import Limits


@pytest.fixture
def cluster() -> CatalogRun:
    """Four nodes; a topic with four partitions on the first three."""
    cluster = CatalogRun(4)
    overrides = {"min.insync.replicas": "2"}
    cluster.run(CreateTopic("t", 4, overrides, assignments=[[1, 2, 3]] * 4))
    return cluster


def plan_all(cluster: CatalogRun, *replicas: int, parallel: int = 2, throttle: int | None = None) -> int:
    """All of the topic to these nodes, one after the other, `parallel` at once."""
    targets = [("t", index, list(replicas)) for index in range(4)]
    cluster.run(MakePlan(targets, parallel=parallel, throttle=throttle))
    advance(cluster)
    return cluster.catalog.plans.next_id - 1


def advance(cluster: CatalogRun) -> None:
    cluster.run(AdvancePlan(cluster.catalog.plans.next_id - 1))


def arrive(cluster: CatalogRun, index: int) -> None:
    """The new replicas of a partition have caught up."""
    state = cluster.state("t", index)
    members = list(dict.fromkeys([state.leader, *state.in_sync, *state.adding]))
    cluster.propose(*members, topic="t", index=index)


def states(cluster: CatalogRun, id: int = 1) -> list[str]:
    return [move.state.value for move in cluster.catalog.plans.get(id).moves]


def state_of(cluster: CatalogRun, id: int = 1) -> PlanState:
    return cluster.catalog.plans.get(id).state


# ---------------------------------------------------------------- carrying it out


def test_as_many_move_at_once_as_is_said_and_the_next_when_one_is_there(cluster: CatalogRun) -> None:
    plan_all(cluster, 1, 2, 4)
    assert states(cluster) == ["moving", "moving", "waiting", "waiting"]
    assert cluster.catalog.partitions.moving() == [("t", 0), ("t", 1)]
    arrive(cluster, 1)
    advance(cluster)
    assert states(cluster) == ["moving", "done", "moving", "waiting"]
    assert cluster.state("t", 1).replicas == (1, 2, 4)


def test_a_plan_is_done_when_all_of_it_is(cluster: CatalogRun) -> None:
    plan_all(cluster, 4, 1, 2, parallel=4)
    for index in range(4):
        assert state_of(cluster) is PlanState.RUNNING
        arrive(cluster, index)
        advance(cluster)
    plan = cluster.catalog.plans.get(1)
    assert (plan.state, plan.ended_ms) == (PlanState.DONE, 5)
    assert cluster.catalog.plans.active() is None
    assert cluster.catalog.held_by(3) == []


def test_advancing_without_news_changes_nothing(cluster: CatalogRun) -> None:
    plan_all(cluster, 1, 2, 4)
    assert cluster.catalog.decide(AdvancePlan(1), 6) == []
    assert cluster.catalog.decide(AdvancePlan(7), 6) == []


def test_nothing_old_goes_before_the_new_is_in_sync(cluster: CatalogRun) -> None:
    plan_all(cluster, 4, 1, 2, parallel=1)
    state = cluster.state()
    assert (state.replicas, state.in_sync, state.leader) == ((4, 1, 2, 3), (1, 2, 3), 1)


def test_another_controller_goes_on_from_the_log_or_a_snapshot(cluster: CatalogRun) -> None:
    plan_all(cluster, 1, 2, 4)
    arrive(cluster, 0)
    restored = Catalog(Limits())
    restored.restore(cluster.catalog.snapshot())
    for successor in (cluster.replayed(), restored):
        assert successor.decide(AdvancePlan(1), 9) == cluster.catalog.decide(AdvancePlan(1), 9) != []


def test_what_has_only_another_order_is_done_at_once(cluster: CatalogRun) -> None:
    plan_all(cluster, 3, 2, 1, parallel=1)
    assert states(cluster) == ["done"] * 4
    assert state_of(cluster) is PlanState.DONE


def test_a_plan_that_moves_nothing_is_done_at_once(cluster: CatalogRun) -> None:
    cluster.run(MakePlan(drain="n4"))
    assert state_of(cluster) is PlanState.DONE


# ---------------------------------------------------------------- nodes that go


def test_a_move_to_a_node_that_is_down_waits_and_takes_nobodys_turn(cluster: CatalogRun) -> None:
    targets = [("t", 0, [1, 2, 4]), ("t", 1, [1, 2, 4]), ("t", 2, [2, 1, 3])]
    cluster.run(MakePlan(targets, parallel=1))
    advance(cluster)
    cluster.fence(4)
    advance(cluster)
    assert states(cluster) == ["moving", "waiting", "done"]
    cluster.unfence(4)
    arrive(cluster, 0)
    advance(cluster)
    assert states(cluster) == ["done", "moving", "done"]


def test_a_move_to_a_node_that_was_removed_fails_and_so_does_the_plan(cluster: CatalogRun) -> None:
    cluster.run(MakePlan([("t", 0, [1, 2, 3]), ("t", 1, [1, 2, 4])], parallel=1))
    cluster.fence(4)
    cluster.run(RemoveNode("n4"))
    advance(cluster)
    move = cluster.catalog.plans.get(1).moves[1]
    assert (move.state, move.reason) == (MoveState.FAILED, "node 4 is not in the cluster any more")
    assert state_of(cluster) is PlanState.FAILED


def test_a_move_that_somebody_else_has_turned_elsewhere_is_cancelled(cluster: CatalogRun) -> None:
    plan_all(cluster, 1, 2, 4)
    cluster.run(ReassignPartitions([("t", 0, None)]))
    advance(cluster)
    move = cluster.catalog.plans.get(1).moves[0]
    assert (move.state, move.reason) == (MoveState.CANCELLED, "it was given to nodes 1, 2, 3 instead")
    assert states(cluster) == ["cancelled", "moving", "moving", "waiting"]


def test_moves_of_a_topic_that_is_deleted_are_cancelled(cluster: CatalogRun) -> None:
    plan_all(cluster, 1, 2, 4)
    cluster.run(DeleteTopic("t"))
    assert states(cluster) == ["cancelled"] * 4
    advance(cluster)
    assert state_of(cluster) is PlanState.DONE


# ---------------------------------------------------------------- pausing and cancelling


def test_a_paused_plan_begins_nothing_and_copies_nothing(cluster: CatalogRun) -> None:
    plan_all(cluster, 1, 2, 4, throttle=1_000)
    assert cluster.catalog.plans.limit_of("t", 0) == 1_000
    assert cluster.catalog.plans.limit_of("t", 3) is None
    cluster.run(PausePlan(1))
    assert cluster.catalog.plans.limit_of("t", 0) == 0
    arrive(cluster, 0)
    advance(cluster)
    assert states(cluster) == ["done", "moving", "waiting", "waiting"]
    cluster.run(ResumePlan(1))
    assert cluster.catalog.plans.limit_of("t", 1) == 1_000
    advance(cluster)
    assert states(cluster) == ["done", "moving", "moving", "waiting"]


def test_pausing_and_resuming_twice_is_once(cluster: CatalogRun) -> None:
    plan_all(cluster, 1, 2, 4)
    assert cluster.run(ResumePlan(1)) == []
    cluster.run(PausePlan(1))
    assert cluster.run(PausePlan(1)) == []


def test_a_cancelled_plan_gives_back_what_is_on_its_way_and_leaves_what_is_done(cluster: CatalogRun) -> None:
    plan_all(cluster, 1, 2, 4)
    arrive(cluster, 0)
    advance(cluster)
    cluster.run(CancelPlan(1))
    assert states(cluster) == ["done", "cancelled", "cancelled", "cancelled"]
    assert state_of(cluster) is PlanState.CANCELLED
    assert cluster.catalog.partitions.moving() == []
    assert [cluster.state("t", index).replicas for index in range(4)] == [(1, 2, 4), *[(1, 2, 3)] * 3]
    assert cluster.run(CancelPlan(1)) == []


def test_what_has_arrived_when_a_plan_is_cancelled_is_done(cluster: CatalogRun) -> None:
    plan_all(cluster, 1, 2, 4)
    arrive(cluster, 0)
    cluster.run(CancelPlan(1))
    assert states(cluster) == ["done", "cancelled", "cancelled", "cancelled"]


def test_a_plan_that_is_over_stays_as_it_is(cluster: CatalogRun) -> None:
    cluster.run(MakePlan(drain="n4"))
    for command in (PausePlan(1), ResumePlan(1), CancelPlan(1)):
        with pytest.raises(InvalidRequest, match="plan 1 is done already"):
            cluster.run(command)
    with pytest.raises(ReassignmentNotFound, match="no plan 2"):
        cluster.run(PausePlan(2))


def test_only_the_latest_plans_are_remembered(cluster: CatalogRun) -> None:
    for _ in range(FINISHED_COUNT_MAX + 3):
        cluster.run(MakePlan(drain="n4"))
    plans: list[Plan] = cluster.catalog.plans.all()
    assert [plan.id for plan in plans] == list(range(4, FINISHED_COUNT_MAX + 4))


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("command", "error", "sentence"),
    [
        (
            MakePlan([("t", 0, [1, 2, 9])]),
            InvalidReplicaAssignment,
            "t-0 is to be on node 9, which the cluster",
        ),
        (MakePlan([("t", 0, [1, 1, 2])]), InvalidReplicaAssignment, "t-0 is to be twice on one node"),
        (MakePlan([("t", 0, [1, 2, 5])]), InvalidReplicaAssignment, "t-0 is to be on node 5, which is down"),
        (MakePlan([("t", 0, [])]), InvalidReplicaAssignment, "t-0 is to have no replicas"),
        (MakePlan([("t", 0, [4])]), InvalidReplicaAssignment, "t-0 would be on node 4 only, .* 2 in sync"),
        (MakePlan([("t", 0, [1, 2])] * 2), InvalidReplicaAssignment, "names t-0 twice"),
        (MakePlan([("t", 9, [1, 2])]), PartitionNotFound, "no partition 9"),
        (MakePlan([("u", 0, [1, 2])]), TopicNotFound, "u"),
        (MakePlan([]), InvalidRequest, "names no partition"),
        (MakePlan(), InvalidRequest, "one of the three"),
        (MakePlan([("t", 0, [1, 2])], drain="n1"), InvalidRequest, "one of the three"),
        (MakePlan(drain="n9"), NodeNotFound, "n9"),
        (MakePlan(is_balance=True, topics=["u"]), TopicNotFound, "u"),
        (MakePlan(drain="n1", parallel=0), InvalidRequest, "1 to 1000 partitions move at once, not 0"),
        (MakePlan(drain="n1", throttle=0), InvalidRequest, "copies nothing"),
        (MakePlan([("t", 0, [1])] * 10_001), LimitExceeded, "more than the 10000"),
    ],
)
def test_a_plan_that_must_not_be_is_refused_with_the_reason(
    cluster: CatalogRun, command: MakePlan, error: type[GoQueueError], sentence: str
) -> None:
    cluster.register(5)
    with pytest.raises(error, match=sentence):
        cluster.run(command)
    assert cluster.catalog.plans.all() == []


def test_a_partition_without_a_leader_is_not_moved(cluster: CatalogRun) -> None:
    cluster.fence(1, 2, 3)
    cluster.start(5)
    with pytest.raises(
        InvalidReplicaAssignment, match="t-0 has no leader that could be copied to nodes 4, 5"
    ):
        cluster.run(MakePlan([("t", 0, [4, 5])]))


def test_one_plan_is_carried_out_at_a_time(cluster: CatalogRun) -> None:
    plan_all(cluster, 1, 2, 4)
    with pytest.raises(ReassignmentInProgress, match="plan 1 is running"):
        cluster.run(MakePlan(drain="n3"))


def test_what_moves_without_a_plan_is_not_planned(cluster: CatalogRun) -> None:
    cluster.run(ReassignPartitions([("t", 2, [1, 2, 4])]))
    with pytest.raises(ReassignmentInProgress, match="t-2 is being moved already, to nodes 1, 2, 4"):
        cluster.run(MakePlan([("t", 2, [1, 2, 3])]))
