"""The routes about the broker itself: probes, version, numbers."""

from __future__ import annotations

from msgspec import UNSET

from goqueue import __version__
from goqueue.api.http.call import Call, NoBody, Reply
from goqueue.api.http.errors import error_body
from goqueue.api.http.query import NoQuery
from goqueue.api.http.system_bodies import (
    BrokerSummary,
    Liveness,
    NotReadyError,
    Readiness,
    ReadinessQuery,
    Version,
)
from goqueue.model.duration import format_instant
from goqueue.model.errors import NotReady
from goqueue.node.node import Node

PlainCall = Call[NoQuery, NoBody]


async def live(call: PlainCall) -> Liveness:
    """A process that must be restarted says so; one that is merely starting or draining is alive."""
    health = call.node.health()
    if not health.is_live:
        raise NotReady("the broker has failed and must be restarted", state=health.state)
    return Liveness(health.state, format_instant(call.clock.now_ms()), health.uptime_ms / 1_000)


async def ready(call: Call[ReadinessQuery, NoBody]) -> Readiness | Reply:
    health = call.node.health()
    is_verbose = call.query.verbose != "false"
    checks = health.checks if is_verbose else UNSET
    broker = _summary(call.node) if is_verbose else UNSET
    if health.is_ready:
        now = format_instant(call.clock.now_ms())
        return Readiness(health.state, now, health.uptime_ms / 1_000, checks, broker)
    reason = f"it is {health.state}"
    if call.node.cluster is not None and health.checks.get("cluster") != "ok":
        reason += f"; {health.checks.get('cluster')}"
    error = error_body(NotReady(f"the broker is not ready: {reason}", state=health.state))
    body = NotReadyError(error.error, error.code, error.status, error.details, checks, broker)
    return Reply(body, status=error.status)


async def version(call: PlainCall) -> Version:
    return Version("goqueue", __version__, ["v1"])


async def stats(call: PlainCall) -> dict[str, int | float | str]:
    return call.node.stats()


async def metrics(call: PlainCall) -> Reply:
    body, content_type = call.node.metrics.render()
    return Reply(body, content_type=content_type)


async def openapi(call: PlainCall) -> Reply:
    return Reply(call.document())


def _summary(node: Node) -> BrokerSummary:
    topics = node.topics.list()
    return BrokerSummary(
        node_id=node.config.node_id,
        version=__version__,
        topics=len(topics),
        partitions=sum(topic.partition_count for topic in topics),
    )
