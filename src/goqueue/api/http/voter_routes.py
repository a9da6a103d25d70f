"""The routes about who belongs to the cluster for good, and who decides. Any node takes them; the controller carries them out."""

from __future__ import annotations

from goqueue.api.http.call import Call, NoBody
from goqueue.api.http.cluster_bodies import NodeList, NodeOrder, VoterList
from goqueue.api.http.query import NoQuery
from goqueue.api.http.route import AnyRoute, Route
from goqueue.model.cluster_errors import NodeNotFound, VotersRefused
from goqueue.model.codes import Code
from goqueue.node.cluster.member import ClusterMember
from goqueue.node.node import Node

PlainCall = Call[NoQuery, NoBody]


async def list_voters(call: PlainCall) -> VoterList:
    cluster, name = call.node.cluster, call.node.config.node_id
    return VoterList([name], name) if cluster is None else _told(cluster)


async def add_voter(call: Call[NoQuery, NodeOrder]) -> VoterList:
    cluster, name = call.node.cluster, call.body.node
    if cluster is None:
        raise VotersRefused(f"{_own(call.node, name)} votes already: it is alone", node=name)
    await cluster.operations.add_voter(name)
    return _told(cluster)


async def remove_voter(call: PlainCall) -> VoterList:
    cluster, name = call.node.cluster, call.path["node"]
    if cluster is None:
        raise VotersRefused(f"{_own(call.node, name)} is the only voter: it is alone", node=name)
    await cluster.operations.remove_voter(name)
    return _told(cluster)


async def remove_node(call: PlainCall) -> NodeList:
    cluster, name = call.node.cluster, call.path["node"]
    if cluster is None:
        raise VotersRefused(f"{_own(call.node, name)} is alone and cannot be removed", node=name)
    await cluster.operations.remove(name)
    return NodeList(await cluster.service.nodes_told())


def _own(node: Node, name: str) -> str:
    if name != node.config.node_id:
        raise NodeNotFound(name)
    return f"node {name!r}"


def _told(cluster: ClusterMember) -> VoterList:
    state = cluster.service.state()
    return VoterList(state.voters, state.leader)


_CHANGE = (Code.TIMEOUT, Code.NODE_NOT_FOUND, Code.VOTERS_REFUSED, Code.LEVEL_TOO_LOW)

VOTER_ROUTES: tuple[AnyRoute, ...] = (
    Route(
        method="GET",
        path="/cluster/voters",
        summary="The nodes that decide",
        endpoint=list_voters,
        query=NoQuery,
        body=NoBody,
        answer=VoterList,
    ),
    Route(
        method="POST",
        path="/cluster/voters",
        summary="Let a node take part in decisions",
        description="It must be alive and have caught up, and there may be five voters. From then on it does not matter which peers "
        "are configured.",
        endpoint=add_voter,
        query=NoQuery,
        body=NodeOrder,
        answer=VoterList,
        errors=(Code.REQUEST_TOO_LARGE, *_CHANGE),
    ),
    Route(
        method="DELETE",
        path="/cluster/voters/{node}",
        summary="Let a node take part in decisions no more",
        description="It stays in the cluster and keeps its replicas. Refused if too few of those that are left are alive.",
        endpoint=remove_voter,
        query=NoQuery,
        body=NoBody,
        answer=VoterList,
        errors=_CHANGE,
    ),
    Route(
        method="DELETE",
        path="/cluster/nodes/{node}",
        summary="Take a node out of the cluster",
        description="One that is stopped, holds no replicas and does not vote.",
        endpoint=remove_node,
        query=NoQuery,
        body=NoBody,
        answer=NodeList,
        errors=_CHANGE[:3],
    ),
)
