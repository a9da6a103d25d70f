"""The cluster's listener over one node: who puts a node together, for real or in the simulation, calls this."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any

from goqueue.api.cluster.app import ClusterApp
from goqueue.api.cluster.client_requests import ClientRequests
from goqueue.api.cluster.frame_side import FrameSide
from goqueue.api.cluster.http_side import HttpSide
from goqueue.api.cluster.listener import ClusterListener
from goqueue.api.cluster.node_calls import NodeCalls
from goqueue.api.http.app import RestApi
from goqueue.api.http.connection import Connection as HttpConnection
from goqueue.api.kafka.app import served_apis
from goqueue.api.kafka.connection import Connection as FrameConnection
from goqueue.api.kafka.context import Context
from goqueue.api.kafka.dispatch import Dispatch
from goqueue.api.kafka.peer_login import PeerLogin, cluster_apis
from goqueue.api.kafka.queue_calls import QueueCallsApi
from goqueue.api.kafka.txn_markers import TxnMarkersApi
from goqueue.model.errors import InvariantViolation
from goqueue.node.clock import Clock
from goqueue.node.cluster.secret import Secret
from goqueue.node.ids import Ids
from goqueue.node.node import Node
from goqueue.wire.frames import SCRATCH_BYTES

_FRAME_BYTES_MAX = 256 * 1024 * 1024


def cluster_listener(
    node: Node,
    *,
    secret: Secret,
    clock: Clock,
    ids: Ids,
    host: str,
    port: int,
    context: ssl.SSLContext | None = None,
) -> ClusterListener:
    cluster = node.cluster
    if cluster is None:
        raise InvariantViolation("a node alone has no listener for others")
    name, limit = node.config.node_id, node.config.limits.connection_count_max

    def cluster_id() -> str | None:
        return cluster.cluster_id

    app = ClusterApp(
        cluster.service,
        secret=secret,
        name=name,
        cluster_id=cluster_id,
        clock=clock,
        on_broken=node.fail,
        client_requests=_client_requests(node, clock),
    )
    login = PeerLogin(
        secret, name=name, cluster_id=cluster_id, incarnation_of=node.directory.incarnation_of, ids=ids
    )
    kafka = Context(node)
    apis = [*served_apis(kafka), *TxnMarkersApi(kafka).apis(), *QueueCallsApi(kafka).apis()]
    dispatch = Dispatch(cluster_apis(apis, login))
    scratch = bytearray(SCRATCH_BYTES)

    def http(config: Any, state: Any, serial: int) -> HttpConnection:
        return HttpConnection(config, state, serial=serial, connection_count_max=limit)

    def frames(made: Callable[[Any], bool], lost: Callable[[Any], None]) -> asyncio.BufferedProtocol:
        return FrameConnection(
            dispatch,
            frame_bytes_max=_FRAME_BYTES_MAX,
            scratch=scratch,
            on_made=made,
            on_lost=lost,
            on_broken=node.fail,
            needs_login=True,
        )

    return ClusterListener(
        host=host,
        port=port,
        http=HttpSide(app, http),
        frames=FrameSide(frames, connection_count_max=limit),
        context=context,
    )


def _client_requests(node: Node, clock: Clock) -> ClientRequests | None:
    if node.forwarding is None:
        return None
    return ClientRequests(
        RestApi(node, clock), NodeCalls(node), bytes_max=node.config.limits.request_bytes_max
    )
