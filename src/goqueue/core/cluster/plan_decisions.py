"""Plans are made, carried on, paused and given up. Every step is a decision of its own, so any controller can take the next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from goqueue.core.cluster import planning, reassignment
from goqueue.core.cluster.commands import AdvancePlan, CancelPlan, MakePlan, PausePlan, ResumePlan
from goqueue.core.cluster.draft import Cluster, Draft
from goqueue.core.cluster.elections import can_serve
from goqueue.core.cluster.events import Event, MovesChanged, PlanChanged, PlanMade
from goqueue.core.cluster.partitions import NO_LEADER
from goqueue.core.cluster.plan_table import PlanTable
from goqueue.core.cluster.planning import Target
from goqueue.core.cluster.plans import (
    MOVE_COUNT_MAX,
    PARALLEL_MAX,
    Move,
    MoveChange,
    MoveState,
    Plan,
    PlanState,
)
from goqueue.model.cluster_errors import ReassignmentInProgress
from goqueue.model.errors import InvalidReplicaAssignment, InvalidRequest, LimitExceeded

PlanCommand = MakePlan | PausePlan | ResumePlan | CancelPlan | AdvancePlan


def decide(cluster: Cluster, plans: PlanTable, command: PlanCommand, now_ms: int) -> list[Event]:
    match command:
        case MakePlan():
            return _make(cluster, plans, command, now_ms)
        case PausePlan():
            return _change(plans.get(command.id), PlanState.PAUSED, now_ms)
        case ResumePlan():
            return _change(plans.get(command.id), PlanState.RUNNING, now_ms)
        case CancelPlan():
            return _cancel(cluster, plans, plans.get(command.id), now_ms)
        case AdvancePlan():
            return _advance(cluster, plans, command.id, now_ms)
        case _:
            assert_never(command)


# ---------------------------------------------------------------- making


def moves_of(cluster: Cluster, command: MakePlan) -> list[Move]:
    """What a plan would do. Raises where it must not be done."""
    if not 1 <= command.parallel <= PARALLEL_MAX:
        raise InvalidRequest(
            f"1 to {PARALLEL_MAX} partitions move at once, not {command.parallel}", parallel=command.parallel
        )
    if command.throttle is not None and command.throttle < 1:
        raise InvalidRequest(
            f"a throttle of {command.throttle} bytes per second copies nothing; it must be 1 or more, or none",
            throttle=command.throttle,
        )
    targets = _targets(cluster, command)
    if len(targets) > MOVE_COUNT_MAX:
        raise LimitExceeded(
            f"the plan moves {len(targets)} partitions, more than the {MOVE_COUNT_MAX} of one plan; name fewer topics"
        )
    _check_once(targets)
    return [_checked(cluster, target) for target in targets]


def _targets(cluster: Cluster, command: MakePlan) -> Sequence[Target]:
    kinds = (command.targets is not None, command.drain is not None, command.is_balance)
    if sum(kinds) != 1:
        raise InvalidRequest("a plan is given move by move, or drains a node, or balances: one of the three")
    if command.drain is not None:
        return planning.drain(cluster, cluster.nodes.get(command.drain).number)
    if command.is_balance:
        return planning.balance(cluster, command.topics)
    if not command.targets:
        raise InvalidRequest("the plan names no partition")
    return command.targets


def _check_once(targets: Sequence[Target]) -> None:
    planned: set[tuple[str, int]] = set()
    for topic, index, _ in targets:
        if (topic, index) in planned:
            raise InvalidReplicaAssignment(
                f"the plan names {topic}-{index} twice", topic=topic, partition=index
            )
        planned.add((topic, index))


def _checked(cluster: Cluster, target: Target) -> Move:
    topic, index, replicas = target
    where = f"{topic}-{index}"
    state = cluster.partitions.get(topic, index)
    states = cluster.nodes.states()
    if state.is_moving:
        raise ReassignmentInProgress(
            f"{where} is being moved already, to {reassignment.numbers(state.target)}; cancel that, or wait for it",
            topic=topic,
            partition=index,
        )
    least = reassignment.least_count(state.replicas, cluster.rules_of(topic))
    reassignment.check_target(where, replicas, states, least)
    if state.leader == NO_LEADER:
        raise InvalidReplicaAssignment(
            f"{where} has no leader that could be copied to {reassignment.numbers(replicas)}: "
            f"{reassignment.numbers(state.in_sync)} has its records and is down",
            topic=topic,
            partition=index,
        )
    return Move(topic, index, state.replicas, tuple(replicas))


def _make(cluster: Cluster, plans: PlanTable, command: MakePlan, now_ms: int) -> list[Event]:
    active = plans.active()
    if active is not None:
        raise ReassignmentInProgress(
            f"plan {active.id} is {active.state.value}; wait until it is done, or cancel it", plan=active.id
        )
    moves = moves_of(cluster, command)
    made = PlanMade(plans.next_id, moves, command.throttle, command.parallel, now_ms)
    return [made] if moves else [made, PlanChanged(made.id, PlanState.DONE, now_ms)]


# ---------------------------------------------------------------- carrying it out


def _advance(cluster: Cluster, plans: PlanTable, id: int, now_ms: int) -> list[Event]:
    """Note what has become of the moves that are under way, and begin more of them."""
    plan = plans.active()
    if plan is None or plan.id != id:
        return []
    states = cluster.nodes.states()
    changes: list[MoveChange] = []
    busy = 0
    for index, move in plans.moving():
        ended = _ended(cluster, move)
        if ended is not None:
            changes.append(MoveChange(index, *ended))
        else:  # one whose node is down takes nobody's turn
            busy += all(can_serve(states, each) for each in move.after)
    draft = Draft(cluster)
    if plan.state is PlanState.RUNNING:
        for index, move in plans.waiting():
            if busy >= plan.parallel:
                break
            begun = _begin(cluster, draft, move)
            if begun is not None:
                changes.append(MoveChange(index, *begun))
                busy += begun[0] is MoveState.MOVING
    events: list[Event] = [*draft.events()]
    if changes:
        events.append(MovesChanged(id, changes))
    return [*events, *_finished(plans, id, changes, now_ms)]


def _finished(plans: PlanTable, id: int, changes: list[MoveChange], now_ms: int) -> list[PlanChanged]:
    open_count = len(plans.moving()) + len(plans.waiting())
    begun = sum(change.state is MoveState.MOVING for change in changes)
    if open_count - len(changes) + begun > 0:
        return []
    has_failed = any(change.state is MoveState.FAILED for change in changes) or any(
        move.state is MoveState.FAILED for move in plans.get(id).moves
    )
    return [PlanChanged(id, PlanState.FAILED if has_failed else PlanState.DONE, now_ms)]


def _ended(cluster: Cluster, move: Move) -> tuple[MoveState, str] | None:
    """None while it goes on."""
    state = cluster.partitions.find(*move.key)
    if state is None:
        return MoveState.CANCELLED, "the partition is gone"
    if state.is_moving and state.target == move.after:
        return None
    if state.replicas == move.after:
        return MoveState.DONE, ""
    return MoveState.CANCELLED, f"it was given to {reassignment.numbers(state.target)} instead"


def _begin(cluster: Cluster, draft: Draft, move: Move) -> tuple[MoveState, str] | None:
    """None while it has to wait: for another move of the partition, a leader, or a node that is down."""
    state = cluster.partitions.find(*move.key)
    if state is None:
        return MoveState.CANCELLED, "the partition is gone"
    gone = [each for each in move.after if each not in draft.states]
    if gone:
        return MoveState.FAILED, f"{reassignment.numbers(gone)} is not in the cluster any more"
    is_ready = all(can_serve(draft.states, each) for each in move.after)
    if state.is_moving or state.leader == NO_LEADER or not is_ready:
        return None
    where, rules = f"{move.topic}-{move.partition}", cluster.rules_of(move.topic)
    draft.settle(*move.key, reassignment.begin(where, state, state.replicas, move.after, rules))
    is_moving = draft.state(*move.key).is_moving
    return (MoveState.MOVING if is_moving else MoveState.DONE), ""


# ---------------------------------------------------------------- stopping it


def _change(plan: Plan, wanted: PlanState, now_ms: int) -> list[Event]:
    _check_active(plan)
    return [] if plan.state is wanted else [PlanChanged(plan.id, wanted, now_ms)]


def _cancel(cluster: Cluster, plans: PlanTable, plan: Plan, now_ms: int) -> list[Event]:
    """What is on its way goes back, what is done stays. All of it or nothing."""
    if plan.state is PlanState.CANCELLED:
        return []
    _check_active(plan)
    draft = Draft(cluster)
    changes = [MoveChange(index, MoveState.CANCELLED) for index, _ in plans.waiting()]
    for index, move in plans.moving():
        ended = _ended(cluster, move)
        if ended is None:
            _turn_back(cluster, draft, move)
        changes.append(MoveChange(index, *(ended or (MoveState.CANCELLED, ""))))
    events: list[Event] = [*draft.events()]
    if changes:
        events.append(MovesChanged(plan.id, changes))
    return [*events, PlanChanged(plan.id, PlanState.CANCELLED, now_ms)]


def _turn_back(cluster: Cluster, draft: Draft, move: Move) -> None:
    state = cluster.partitions.get(*move.key)
    before = cluster.partitions.before(*move.key) or move.before
    where, rules = f"{move.topic}-{move.partition}", cluster.rules_of(move.topic)
    draft.settle(*move.key, reassignment.begin(where, state, before, before, rules))


def _check_active(plan: Plan) -> None:
    if not plan.state.is_active:
        raise InvalidRequest(f"plan {plan.id} is {plan.state.value} already", plan=plan.id)
