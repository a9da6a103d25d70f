"""The routes about plans to move partitions. Any node takes them; the controller carries them out."""

from __future__ import annotations

from msgspec import structs

from goqueue.api.http.call import Call, NoBody, Reply
from goqueue.api.http.query import NoQuery
from goqueue.api.http.read import path_number
from goqueue.api.http.reassignment_bodies import (
    NewReassignment,
    NodeShare,
    Reassignment,
    ReassignmentMove,
    ReassignmentPreview,
    Reassignments,
)
from goqueue.api.http.route import AnyRoute, Route
from goqueue.model.cluster_errors import ReassignmentNotFound
from goqueue.model.codes import Code
from goqueue.model.errors import NotEnoughReplicas
from goqueue.model.settings import INT_MAX
from goqueue.node.cluster import reassignment
from goqueue.node.cluster.reassignment import PlanOrder, WantedMove
from goqueue.node.node import Node

PlainCall = Call[NoQuery, NoBody]


async def make(call: Call[NoQuery, NewReassignment]) -> Reassignment | Reply:
    plans = _plans(call.node)
    order = _order(call.body)
    if not call.body.dry_run:
        return _told(await plans.make(order))
    preview = await plans.foresee(order, call.node.partitions_seen)
    told = ReassignmentPreview(
        moves=[_move(one) for one in preview.moves],
        nodes=[NodeShare(**structs.asdict(one)) for one in preview.nodes],
        warnings=preview.warnings,
    )
    return Reply(told)


async def list_all(call: PlainCall) -> Reassignments:
    if call.node.cluster is None:
        return Reassignments([])
    return Reassignments([_told(plan) for plan in await call.node.cluster.reassignments.all()])


async def get(call: PlainCall) -> Reassignment:
    return _told(await _plans_with(call).get(_id(call)))


async def pause(call: PlainCall) -> Reassignment:
    return _told(await _plans_with(call).pause(_id(call)))


async def resume(call: PlainCall) -> Reassignment:
    return _told(await _plans_with(call).resume(_id(call)))


async def cancel(call: PlainCall) -> Reassignment:
    return _told(await _plans_with(call).cancel(_id(call)))


def _plans(node: Node) -> reassignment.Reassignments:
    if node.cluster is None:
        raise NotEnoughReplicas("this node is alone: there is no other that its partitions could move to")
    return node.cluster.reassignments


def _plans_with(call: PlainCall) -> reassignment.Reassignments:
    """Those that have the one in the path; a node alone has none at all."""
    if call.node.cluster is None:
        id = _id(call)
        raise ReassignmentNotFound(f"there is no plan {id}: this node is alone", plan=id)
    return call.node.cluster.reassignments


def _id(call: PlainCall) -> int:
    return path_number("plan", call.path["plan"], INT_MAX)


def _order(body: NewReassignment) -> PlanOrder:
    moves = None
    if body.plan is not None:
        moves = [WantedMove(one.topic, one.partition, list(one.replicas)) for one in body.plan]
    return PlanOrder(
        moves=moves,
        drain=body.drain,
        is_balance=body.balance or body.topics is not None,
        topics=body.topics,
        throttle=body.throttle_bytes_per_second,
        parallel=body.parallel,
    )


def _told(plan: reassignment.PlanView) -> Reassignment:
    return Reassignment(
        id=plan.id,
        state=plan.state,
        parallel=plan.parallel,
        throttle_bytes_per_second=plan.throttle,
        created_ms=plan.created_ms,
        ended_ms=plan.ended_ms,
        counts=plan.counts,
        moves=[_move(one) for one in plan.moves],
    )


def _move(move: reassignment.MoveView) -> ReassignmentMove:
    return ReassignmentMove(**structs.asdict(move))


_MAKE = (
    Code.REQUEST_TOO_LARGE,
    Code.LIMIT_EXCEEDED,
    Code.TIMEOUT,
    Code.NODE_NOT_FOUND,
    Code.TOPIC_NOT_FOUND,
    Code.PARTITION_NOT_FOUND,
    Code.INVALID_REPLICA_ASSIGNMENT,
    Code.REASSIGNMENT_IN_PROGRESS,
)
_ORDER = (Code.REASSIGNMENT_NOT_FOUND, Code.TIMEOUT, Code.INVALID_REPLICA_ASSIGNMENT)

REASSIGNMENT_ROUTES: tuple[AnyRoute, ...] = (
    Route(
        method="POST",
        path="/admin/reassignment",
        summary="Move partitions to other nodes",
        description=(
            "As planned by hand, or so that a node is empty, or so that all have the same. A few at a time; no replica goes "
            "before the new ones are in sync. 202: it has begun. 200: what `dry_run` would do."
        ),
        endpoint=make,
        query=NoQuery,
        body=NewReassignment,
        answer=Reassignment,
        status=202,
        more_answers={200: ReassignmentPreview},
        errors=_MAKE,
    ),
    Route(
        method="GET",
        path="/admin/reassignment",
        summary="The latest plans to move partitions",
        endpoint=list_all,
        query=NoQuery,
        body=NoBody,
        answer=Reassignments,
    ),
    Route(
        method="GET",
        path="/admin/reassignment/{plan}",
        summary="How far a plan has come",
        endpoint=get,
        query=NoQuery,
        body=NoBody,
        answer=Reassignment,
        errors=_ORDER[:1],
    ),
    Route(
        method="POST",
        path="/admin/reassignment/{plan}/pause",
        summary="Copy nothing more for now",
        endpoint=pause,
        query=NoQuery,
        body=NoBody,
        answer=Reassignment,
        errors=_ORDER[:2],
    ),
    Route(
        method="POST",
        path="/admin/reassignment/{plan}/resume",
        summary="Go on with a plan",
        endpoint=resume,
        query=NoQuery,
        body=NoBody,
        answer=Reassignment,
        errors=_ORDER[:2],
    ),
    Route(
        method="DELETE",
        path="/admin/reassignment/{plan}",
        summary="Give a plan up",
        description="What is on its way goes back, what is done stays.",
        endpoint=cancel,
        query=NoQuery,
        body=NoBody,
        answer=Reassignment,
        errors=_ORDER,
    ),
)
