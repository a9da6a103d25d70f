"""Each invariant of what operators do to a cluster is seen to be broken where it is."""

from __future__ import annotations

from typing import cast

import pytest

from goqueue.core.cluster.events import (
    Event,
    MovesChanged,
    NodeRegistered,
    NodeStateChanged,
    PartitionChange,
    PartitionsChanged,
    PlanChanged,
    PlanMade,
    TopicAltered,
    TopicCreated,
    encode_events,
)
from goqueue.core.cluster.nodes import Endpoints, NodeState
from goqueue.core.cluster.partitions import PartitionState
from goqueue.core.cluster.plans import Move, MoveChange, MoveState, PlanState
from goqueue.core.raft.messages import Entry, EntryKind
from goqueue.sim.cluster.cluster import SimCluster
from goqueue.sim.cluster.history import Applied, ClusterHistory, Life
from goqueue.sim.cluster.operator_checkers import (
    OPERATOR_CHECKERS,
    DrainingKeepsReplicas,
    InSyncIsAReplica,
    OldReplicasGoLast,
    OperatorChecker,
    Orders,
    OrdersLast,
    PlansEnd,
)

BEFORE, AFTER = (1, 2), (1, 3)
NODES = tuple(
    NodeRegistered(f"node-{number}", number, f"i{number}", Endpoints("h", "k", "c"), "", "1")
    for number in (1, 2, 3)
)
ALIVE = tuple(NodeStateChanged(node.name, NodeState.ALIVE) for node in NODES)
CREATED = TopicCreated("orders", 1, 1, {"min.insync.replicas": "2"}, 0, [list(BEFORE)])
PLANNED = PlanMade(1, [Move("orders", 0, BEFORE, AFTER)], None, 1, 0)
BEGUN, COPIED = (MovesChanged(1, [MoveChange(0, state)]) for state in (MoveState.MOVING, MoveState.DONE))
OVER = PlanChanged(1, PlanState.DONE, 9)
DRAINED, BACK = (NodeStateChanged("node-1", state) for state in (NodeState.DRAINING, NodeState.ALIVE))


def state(
    replicas: tuple[int, ...],
    in_sync: tuple[int, ...],
    leader: int = 1,
    *,
    eligible: tuple[int, ...] = (),
    adding: tuple[int, ...] = (),
    removing: tuple[int, ...] = (),
) -> PartitionsChanged:
    made = PartitionState(replicas, in_sync, leader, 1, 1, eligible, adding, removing)
    return PartitionsChanged([PartitionChange.of("orders", 0, made)])


MOVING, CAUGHT_UP, MOVED = (
    state((1, 2, 3), BEFORE, adding=(3,), removing=(2,)),
    state((1, 2, 3), (1, 2, 3), adding=(3,), removing=(2,)),
    state(AFTER, AFTER),
)
HANDED_ON = state(AFTER, AFTER, leader=3)
Decisions = tuple[tuple[Event, ...], ...]
SOUND: Decisions = (
    (*NODES, *ALIVE),
    (CREATED,),
    (PLANNED,),
    (BEGUN, MOVING),
    (CAUGHT_UP,),
    (COPIED, MOVED),
    (OVER,),
    (DRAINED, HANDED_ON),
    (BACK,),
    (TopicAltered("orders", {"retention.ms": "7"}),),
)


def ordered(*decisions: tuple[Event, ...]) -> Orders:
    history = ClusterHistory()
    for index, events in enumerate(decisions, 1):
        entry = Entry(index, 1, EntryKind.COMMAND, encode_events(events))
        history.applied.append(Applied(entry, Life("node-1", 1)))
    orders = Orders(cast(SimCluster, None), history)  # no checker looks at it
    orders.deleted.append("fleeting")
    orders.ask_setting("orders", "retention.ms", "7").is_done = True
    return orders


def without(*gone: Event) -> Decisions:
    return tuple(tuple(event for event in events if event not in gone) for events in SOUND)


def instead(old: Event, new: Event) -> Decisions:
    return tuple(tuple(new if event == old else event for event in events) for events in SOUND)


def test_sound_orders_are_sound_to_all() -> None:
    orders = ordered(*SOUND)
    for checker in OPERATOR_CHECKERS:
        checker.check(orders)
    assert orders.history.violations == []


@pytest.mark.parametrize(
    ("checker", "decisions"),
    [
        pytest.param(
            OldReplicasGoLast(),
            (*without(CAUGHT_UP, MOVED, HANDED_ON), (state(AFTER, (1,)),)),
            id="not in sync",
        ),
        pytest.param(OldReplicasGoLast(), instead(MOVED, state(AFTER, (3,), leader=3)), id="too few"),
        pytest.param(DrainingKeepsReplicas(), instead(HANDED_ON, state(AFTER, (3,), leader=3)), id="drained"),
        pytest.param(InSyncIsAReplica(), instead(CAUGHT_UP, state((1, 2), (1, 2, 3))), id="no replica"),
        pytest.param(InSyncIsAReplica(), instead(HANDED_ON, state(AFTER, (1,), leader=3)), id="leads"),
        pytest.param(
            InSyncIsAReplica(), instead(HANDED_ON, state(AFTER, (3,), leader=3, eligible=(2,))), id="eligible"
        ),
        pytest.param(PlansEnd(), without(OVER), id="plan runs"),
        pytest.param(PlansEnd(), without(BACK), id="stays drained"),
        pytest.param(PlansEnd(), without(MOVED, HANDED_ON), id="still moves"),
        pytest.param(PlansEnd(), instead(HANDED_ON, state(BEFORE, BEFORE)), id="elsewhere"),
        pytest.param(OrdersLast(), (*SOUND, (TopicCreated("fleeting", 2, 1, {}, 0, [[1]]),)), id="is back"),
        pytest.param(OrdersLast(), SOUND[:-1], id="setting is lost"),
    ],
)
def test_broken_orders_are_noticed(checker: OperatorChecker, decisions: Decisions) -> None:
    orders = ordered(*decisions)
    checker.check(orders)
    assert len(orders.history.violations) == 1


def test_replica_that_was_on_its_way_may_go_and_order_without_answer_may_count() -> None:
    orders = ordered(*SOUND[:4], (state(BEFORE, BEFORE),), (TopicAltered("orders", {"retention.ms": "8"}),))
    orders.ask_setting("orders", "retention.ms", "8")
    for checker in (OldReplicasGoLast(), OrdersLast()):
        checker.check(orders)
    assert orders.history.violations == []
