"""The table of all routes. The router and the OpenAPI document are both made from it."""

from __future__ import annotations

from goqueue.api.http import (
    coordinators,
    publish,
    publish_body,
    read,
    read_body,
    scaling,
    system,
    system_bodies,
    topic_bodies,
    topics,
)
from goqueue.api.http.call import NoBody
from goqueue.api.http.cluster_routes import CLUSTER_ROUTES
from goqueue.api.http.group_routes import GROUP_ROUTES
from goqueue.api.http.producers import InitProducer, ProducerIdentity, init_producer
from goqueue.api.http.query import NoQuery
from goqueue.api.http.queue_routes import QUEUE_ROUTES
from goqueue.api.http.reassignment_routes import REASSIGNMENT_ROUTES
from goqueue.api.http.route import AnyRoute, Direct, Route
from goqueue.api.http.voter_routes import VOTER_ROUTES
from goqueue.api.http.where import Where
from goqueue.model.codes import Code

_NAMED = (Code.INVALID_NAME, Code.TOPIC_NOT_FOUND)
_BODY = (Code.REQUEST_TOO_LARGE,)
_CHANGE = (Code.DISK_FULL, Code.STORAGE_ERROR, Code.PARTITION_OFFLINE, Code.TIMEOUT)

_SYSTEM: tuple[AnyRoute, ...] = (
    *(
        Route(
            method="GET",
            path=path,
            summary="Is the process alive?",
            endpoint=system.live,
            query=NoQuery,
            body=NoBody,
            answer=system_bodies.Liveness,
        )
        for path in ("/health", "/healthz", "/livez")
    ),
    Route(
        method="GET",
        path="/readyz",
        summary="Does the broker take requests?",
        description="503 until it has started, and again while it drains.",
        endpoint=system.ready,
        query=system_bodies.ReadinessQuery,
        body=NoBody,
        answer=system_bodies.Readiness,
        more_answers={503: system_bodies.NotReadyError},
    ),
    Route(
        method="GET",
        path="/version",
        summary="Which release this is",
        endpoint=system.version,
        query=NoQuery,
        body=NoBody,
        answer=system_bodies.Version,
    ),
    Route(
        method="GET",
        path="/stats",
        summary="The broker in a few numbers",
        endpoint=system.stats,
        query=NoQuery,
        body=NoBody,
        answer=dict[str, int | float | str],
    ),
    Route(
        method="GET",
        path="/metrics",
        summary="Metrics in the text format of Prometheus",
        endpoint=system.metrics,
        query=NoQuery,
        body=NoBody,
        answer=None,
        media_type="text/plain",
    ),
    Route(
        method="GET",
        path="/openapi.json",
        summary="This document",
        endpoint=system.openapi,
        query=NoQuery,
        body=NoBody,
        answer=None,
    ),
)

_TOPICS: tuple[AnyRoute, ...] = (
    Route(
        method="POST",
        path="/topics",
        summary="Create a topic",
        endpoint=topics.create_topic,
        query=NoQuery,
        body=topic_bodies.NewTopic,
        answer=topic_bodies.TopicSummary,
        status=201,
        errors=(
            *_BODY,
            *_CHANGE,
            Code.INVALID_NAME,
            Code.INVALID_SETTING,
            Code.INVALID_PARTITIONS,
            Code.INVALID_REPLICATION_FACTOR,
            Code.INVALID_REPLICA_ASSIGNMENT,
            Code.NOT_ENOUGH_REPLICAS,
            Code.TOPIC_EXISTS,
            Code.LIMIT_EXCEEDED,
        ),
    ),
    Route(
        method="GET",
        path="/topics",
        summary="All topics, by name",
        endpoint=topics.list_topics,
        query=NoQuery,
        body=NoBody,
        answer=topic_bodies.TopicList,
    ),
    Route(
        method="GET",
        path="/topics/{topic}",
        summary="A topic, its offsets and its settings",
        endpoint=topics.describe_topic,
        query=NoQuery,
        body=NoBody,
        answer=topic_bodies.TopicDescription,
        errors=_NAMED,
    ),
    Route(
        method="PATCH",
        path="/topics/{topic}",
        summary="Change a topic's settings",
        endpoint=topics.alter_topic,
        query=NoQuery,
        body=topic_bodies.TopicChanges,
        answer=topic_bodies.TopicDescription,
        errors=(*_BODY, *_CHANGE, *_NAMED, Code.INVALID_SETTING),
    ),
    Route(
        method="DELETE",
        path="/topics/{topic}",
        summary="Delete a topic and its messages",
        endpoint=topics.delete_topic,
        query=NoQuery,
        body=NoBody,
        answer=topic_bodies.TopicDeleted,
        errors=(*_CHANGE, *_NAMED),
    ),
    Route(
        method="GET",
        path="/topics/{topic}/partitions",
        summary="A topic's partitions",
        endpoint=topics.list_partitions,
        query=NoQuery,
        body=NoBody,
        answer=topic_bodies.PartitionList,
        errors=_NAMED,
    ),
    Route(
        method="POST",
        path="/admin/topics/{topic}/partitions",
        summary="Give a topic more partitions, or fewer",
        description="Keys may belong to another partition from then on. Only topics with scaling=keyed can have fewer: this "
        "begins it, and the partitions go when every group has read them and retention has emptied them, or as soon as every group "
        "has read them (`discard_read`).",
        endpoint=topics.grow_topic,
        query=NoQuery,
        body=topic_bodies.NewPartitionCount,
        answer=topic_bodies.TopicGrown,
        errors=(
            *_BODY,
            *_CHANGE,
            *_NAMED,
            Code.INVALID_PARTITIONS,
            Code.INVALID_REPLICA_ASSIGNMENT,
            Code.LIMIT_EXCEEDED,
        ),
    ),
    Route(
        method="GET",
        path="/admin/topics/{topic}/partitions/scaling-status",
        summary="How far a change of a topic's partitions has come",
        description="It is complete when every partition is led and all its replicas are in sync; of a topic with "
        "scaling=keyed, when it is in stage steady. Groups may still have gates before them then: `keyed.gates`.",
        endpoint=scaling.scaling_status,
        query=NoQuery,
        body=NoBody,
        answer=scaling.ScalingStatus,
        errors=_NAMED,
    ),
)

_COORDINATORS: tuple[AnyRoute, ...] = (
    Route(
        method="GET",
        path="/admin/coordinators",
        summary="Which nodes coordinate groups and transactions",
        endpoint=coordinators.list_coordinators,
        query=NoQuery,
        body=NoBody,
        answer=coordinators.Coordinators,
    ),
    Route(
        method="GET",
        path="/admin/coordinators/groups/{group}",
        summary="Which node coordinates a group",
        endpoint=coordinators.find_coordinator,
        query=NoQuery,
        body=NoBody,
        answer=coordinators.GroupCoordinator,
        errors=(Code.INVALID_GROUP_ID, Code.COORDINATOR_NOT_AVAILABLE),
    ),
)

PUBLISH: AnyRoute = Route(
    method="POST",
    path="/topics/{topic}/messages",
    summary="Publish messages",
    description=(
        "`acks` is `all` unless the request says otherwise: the answer is sent when the messages are on every in-sync "
        "replica and fsynced. 200: all messages are stored. 207: some are. Otherwise the status is that of the first "
        "message's error."
    ),
    endpoint=Direct(publish.publish),
    query=NoQuery,
    body=publish_body.Publish,
    answer=publish.Published,
    more_answers={207: publish.Published},
    error=publish.PublishError,
    errors=(
        *_BODY,
        *_CHANGE,
        *_NAMED,
        Code.PARTITION_NOT_FOUND,
        Code.MESSAGE_TOO_LARGE,
        Code.INVALID_DELAY,
        Code.INVALID_PRIORITY,
        Code.OUT_OF_ORDER_SEQUENCE,
        Code.NOT_ENOUGH_REPLICAS,
        Code.PRODUCER_FENCED,
    ),
)

READ: AnyRoute = Route(
    method="GET",
    path="/topics/{topic}/partitions/{partition}/messages",
    summary="Read messages",
    description="From `offset` or `timestamp`, or else from the start of the log, up to exclusive bounds.",
    endpoint=Direct(read.read),
    where=Where.PARTITION,
    may_repeat=True,
    query=read_body.ReadParameters,
    body=NoBody,
    answer=read_body.Messages,
    errors=(
        *_NAMED,
        Code.PARTITION_NOT_FOUND,
        Code.OFFSET_OUT_OF_RANGE,
        Code.LIMIT_EXCEEDED,
        Code.STORAGE_ERROR,
        Code.PARTITION_OFFLINE,
        Code.DATA_CORRUPT,
        Code.TIMEOUT,
    ),
)

_PRODUCERS: AnyRoute = Route(
    method="POST",
    path="/producers/init",
    summary="Get an id for an idempotent producer",
    endpoint=init_producer,
    query=NoQuery,
    body=InitProducer,
    answer=ProducerIdentity,
    errors=(*_BODY, *_CHANGE),
)

ROUTES: tuple[AnyRoute, ...] = (
    *_SYSTEM,
    *_TOPICS,
    *_COORDINATORS,
    PUBLISH,
    READ,
    _PRODUCERS,
    *QUEUE_ROUTES,
    *GROUP_ROUTES,
    *CLUSTER_ROUTES,
    *VOTER_ROUTES,
    *REASSIGNMENT_ROUTES,
)
# What any route may answer: a query that is wrong, a bug, a broker that starts, drains or is full of connections.
COMMON_ERRORS = (Code.INVALID_REQUEST, Code.INTERNAL, Code.NOT_READY)
# And in a cluster, because other nodes take part.
CLUSTER_ERRORS = (
    Code.NOT_LEADER,
    Code.HOME_UNDECIDED,
    Code.NOT_COORDINATOR,
    Code.NOT_CONTROLLER,
    Code.COORDINATOR_LOADING,
    Code.PEER_UNREACHABLE,
    Code.TIMEOUT,
    Code.REPLICATION_UNKNOWN,
    Code.COORDINATION_UNKNOWN,
)
