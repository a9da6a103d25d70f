"""The routes about the cluster: who is in it, how it is, and the orders of those who run it. A node alone answers as a cluster of one."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from goqueue import __version__
from goqueue.api.http.call import Call, NoBody
from goqueue.api.http.cluster_bodies import (
    ClusterHealth,
    ClusterMetadata,
    MovedPartition,
    NodeList,
    NodeOrder,
    PlacedPartition,
    PlacedTopic,
    Rebalanced,
    RebalanceOrder,
    Replicas,
)
from goqueue.api.http.query import NoQuery
from goqueue.api.http.route import AnyRoute, Route
from goqueue.model.cluster_errors import NodeNotFound
from goqueue.model.codes import Code
from goqueue.model.errors import NotEnoughReplicas
from goqueue.node.cluster.member import ClusterMember
from goqueue.node.cluster.ports import ClusterState, NodeView
from goqueue.node.node import Node

PlainCall = Call[NoQuery, NoBody]
Body = TypeVar("Body", bound=Struct)


async def tell_state(call: PlainCall) -> ClusterState:
    cluster = call.node.cluster
    return _lone_state(call.node) if cluster is None else cluster.service.state()


async def list_nodes(call: PlainCall) -> NodeList:
    cluster = call.node.cluster
    return NodeList([_lone_view(call.node)] if cluster is None else await cluster.service.nodes_told())


async def tell_health(call: PlainCall) -> ClusterHealth:
    cluster = call.node.cluster
    return (
        _lone_health(call.node) if cluster is None else _convert(await cluster.health.told(), ClusterHealth)
    )


async def tell_metadata(call: PlainCall) -> ClusterMetadata:
    cluster = call.node.cluster
    if cluster is None:
        return _lone_metadata(call.node)
    return _convert(cluster.service.metadata(), ClusterMetadata)


async def drain(call: Call[NoQuery, NodeOrder]) -> NodeView:
    name, cluster = call.body.node, call.node.cluster
    if cluster is None:
        view = _lone_view_of(call.node, name)
        raise NotEnoughReplicas(
            f"node {view.name!r} is alone: there is no other that could lead its partitions", node=name
        )
    await cluster.operations.drain(name)
    return await _view_of(cluster, name)


async def undrain(call: Call[NoQuery, NodeOrder]) -> NodeView:
    name, cluster = call.body.node, call.node.cluster
    if cluster is None:
        return _lone_view_of(call.node, name)
    await cluster.operations.undrain(name)
    return await _view_of(cluster, name)


async def rebalance(call: Call[NoQuery, RebalanceOrder]) -> Rebalanced:
    cluster = call.node.cluster
    moved = [] if cluster is None else await cluster.operations.rebalance()
    name_of = call.node.directory.name_of
    return Rebalanced([MovedPartition(one.topic, one.partition, name_of(one.leader)) for one in moved])


async def _view_of(cluster: ClusterMember, name: str) -> NodeView:
    for view in await cluster.service.nodes_told():
        if view.name == name:
            return view
    raise NodeNotFound(name)


def _convert(value: dict[str, Any] | Struct, kind: type[Body]) -> Body:
    return msgspec.convert(msgspec.to_builtins(value), kind)


def _lone_state(node: Node) -> ClusterState:
    name = node.config.node_id
    return ClusterState(
        node=name,
        cluster_id=node.directory.cluster_id,
        role="leader",
        term=0,
        leader=name,
        voters=[name],
        commit_index=0,
        applied_index=0,
        last_index=0,
        level=node.config.cluster.feature_level_max,
    )


def _lone_view_of(node: Node, name: str) -> NodeView:
    if name != node.config.node_id:
        raise NodeNotFound(name)
    return _lone_view(node)


def _lone_view(node: Node) -> NodeView:
    count = sum(topic.partition_count for topic in node.topics.list())
    view = {
        "name": node.config.node_id,
        "number": node.directory.number,
        "status": "alive",
        "state": "alive",
        "is_controller": True,
        "is_voter": True,
        "endpoints": {"http": "", "kafka": "", "cluster": ""},  # it was not told: no other node has to know
        "rack": node.config.cluster.rack,
        "version": __version__,
        "incarnation": "",
        "last_heard_ms": 0,
        "leader_count": count,
        "replica_count": count,
        "level": node.config.cluster.feature_level_max,
    }
    return _convert(view, NodeView)


def _lone_health(node: Node) -> ClusterHealth:
    partitions = [one for topic in node.topics.list() for one in node.topics.partitions(topic.name)]
    offline = sum(one.failure is not None for one in partitions)
    return ClusterHealth("degraded" if offline else "ok", node.config.node_id, offline, 0, [], [])


def _lone_metadata(node: Node) -> ClusterMetadata:
    topics = [
        PlacedTopic(
            topic.name,
            topic.id,
            [
                PlacedPartition(
                    one.partition,
                    Replicas(
                        replicas=list(one.replicas),
                        in_sync=list(one.in_sync),
                        leader=one.leader,
                        leader_epoch=one.leader_epoch,
                        epoch=0,
                        eligible=[],
                        adding=[],
                        removing=[],
                    ),
                )
                for one in node.topics.partitions(topic.name)
            ],
        )
        for topic in node.topics.list()
    ]
    return ClusterMetadata(node.directory.cluster_id, 0, topics)


_ORDER = (Code.REQUEST_TOO_LARGE, Code.TIMEOUT, Code.NODE_NOT_FOUND)

CLUSTER_ROUTES: tuple[AnyRoute, ...] = (
    Route(
        method="GET",
        path="/cluster/state",
        summary="What this node believes about the quorum",
        endpoint=tell_state,
        query=NoQuery,
        body=NoBody,
        answer=ClusterState,
    ),
    Route(
        method="GET",
        path="/cluster/nodes",
        summary="The nodes of the cluster",
        description="As the controller sees them. Where it does not answer, as the node that was asked does: then `last_heard_ms` and `level` are null.",
        endpoint=list_nodes,
        query=NoQuery,
        body=NoBody,
        answer=NodeList,
    ),
    Route(
        method="GET",
        path="/cluster/health",
        summary="Is there a controller, has every partition a leader and all its replicas, does every voter count?",
        endpoint=tell_health,
        query=NoQuery,
        body=NoBody,
        answer=ClusterHealth,
    ),
    Route(
        method="GET",
        path="/cluster/metadata",
        summary="Who has and who leads each partition",
        endpoint=tell_metadata,
        query=NoQuery,
        body=NoBody,
        answer=ClusterMetadata,
    ),
    Route(
        method="POST",
        path="/cluster/drain",
        summary="Let others lead what a node leads",
        description="Until it is taken back. The node keeps its replicas and stays in sync; it leads only what nobody else can.",
        endpoint=drain,
        query=NoQuery,
        body=NodeOrder,
        answer=NodeView,
        errors=(*_ORDER, Code.NOT_ENOUGH_REPLICAS),
    ),
    Route(
        method="POST",
        path="/cluster/undrain",
        summary="Let a drained node lead again",
        endpoint=undrain,
        query=NoQuery,
        body=NodeOrder,
        answer=NodeView,
        errors=_ORDER,
    ),
    Route(
        method="POST",
        path="/cluster/rebalance",
        summary="Give partitions back to their preferred leaders",
        endpoint=rebalance,
        query=NoQuery,
        body=RebalanceOrder,
        answer=Rebalanced,
        errors=_ORDER[:2],
    ),
)
