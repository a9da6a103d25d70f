"""Metadata, DescribeTopicPartitions, DescribeCluster and FindCoordinator: what exists, and whom to ask."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from goqueue.api.kafka.call import Answer, Api, Call
from goqueue.api.kafka.context import Context, code_of, coordinator_code
from goqueue.model.errors import (
    CoordinatorNotAvailable,
    GoQueueError,
    InvalidRequest,
    TopicExists,
    TopicNotFound,
)
from goqueue.model.names import check_new_topic_name
from goqueue.node.coordinators import CoordinatorKind
from goqueue.node.requests import NO_LEADER, PartitionFacts
from goqueue.wire.schema import responses

_M = responses("metadata")
_C = responses("find_coordinator")
_D = responses("describe_cluster")
_P = responses("describe_topic_partitions")
_OFFLINE = 56  # Kafka's KAFKA_STORAGE_ERROR
_NO_LEADER = 5  # Kafka's LEADER_NOT_AVAILABLE
_PARTITIONS_PER_ANSWER_MAX = 2_000
_KINDS = {0: CoordinatorKind.GROUP, 1: CoordinatorKind.TRANSACTION}


class MetadataApi:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._node = context.node

    def apis(self) -> list[Api]:
        return [
            Api("metadata", 0, 13, self.metadata),
            Api("find_coordinator", 0, 6, self.find_coordinator),
            Api("describe_cluster", 0, 2, self.describe_cluster),
            Api("describe_topic_partitions", 0, 0, self.describe_topic_partitions),
        ]

    async def metadata(self, call: Call, request: Any) -> Answer:
        wants_all = request.topics is None or (call.version == 0 and not request.topics)
        if wants_all:
            topics = [self._topic(topic.name) for topic in self._node.topics.list()]
        else:
            may_create = request.allow_auto_topic_creation and self._node.config.auto_create_topics
            topics = [await self._wanted_topic(topic, may_create=may_create) for topic in request.topics]
        return _M.MetadataResponse(
            brokers=[
                _M.MetadataResponseBroker(node_id=one.number, host=one.host, port=one.port, rack=one.rack)
                for one in self._context.members()
            ],
            cluster_id=self._context.cluster_id,
            controller_id=self._node.directory.controller,
            topics=topics,
            cluster_authorized_operations=-2147483648,
        )

    async def _wanted_topic(self, wanted: Any, *, may_create: bool) -> Any:
        name = wanted.name
        try:
            if name is None:
                name = self._context.topic_name(wanted.topic_id)
            return await self._found_or_made(name, may_create=may_create)
        except GoQueueError as error:
            return _M.MetadataResponseTopic(error_code=code_of(error), name=name, topic_id=wanted.topic_id)

    async def _found_or_made(self, name: str, *, may_create: bool) -> Any:
        await self._node.catching_up.until_known(name)
        try:
            return self._topic(name)
        except TopicNotFound:
            if not may_create:
                raise
        check_new_topic_name(name)
        try:
            await self._node.topics.create(name, partition_count=None, overrides={})
        except TopicExists:  # somebody else was faster
            pass
        return self._topic(name)

    def _topic(self, name: str) -> Any:
        partitions = [
            _M.MetadataResponsePartition(
                error_code=_fault(one),
                partition_index=one.partition,
                leader_id=one.leader,
                leader_epoch=one.leader_epoch,
                replica_nodes=one.replicas,
                isr_nodes=one.in_sync,
            )
            for one in self._node.topics.partitions(name)
        ]
        return _M.MetadataResponseTopic(
            name=name, topic_id=self._context.topic_id(name), partitions=partitions
        )

    async def find_coordinator(self, call: Call, request: Any) -> Answer:
        keys = request.coordinator_keys if call.version >= 4 else (request.key,)
        found = [await self._coordinator(request.key_type, key) for key in keys]
        first = found[0] if found else _C.Coordinator()
        return _C.FindCoordinatorResponse(
            coordinators=found,
            error_code=first.error_code,
            error_message=first.error_message,
            node_id=first.node_id,
            host=first.host,
            port=first.port,
        )

    async def _coordinator(self, key_type: int, key: str) -> Any:
        try:
            number = await self._node.coordinators.find(_KINDS.get(key_type), key)
            broker = self._context.broker(number)
            if broker is None:
                raise CoordinatorNotAvailable(f"the node that coordinates {key!r} is not there; try again")
        except GoQueueError as error:
            return _C.Coordinator(
                key=key,
                node_id=-1,
                host="",
                port=-1,
                error_code=coordinator_code(error),
                error_message=error.sentence,
            )
        return _C.Coordinator(key=key, node_id=broker.number, host=broker.host, port=broker.port)

    async def describe_cluster(self, call: Call, request: Any) -> Answer:
        if request.endpoint_type != 1:
            error = InvalidRequest(f"endpoint type {request.endpoint_type} is not served; 1 (brokers) is")
            return _D.DescribeClusterResponse(error_code=code_of(error), error_message=error.sentence)
        return _D.DescribeClusterResponse(
            cluster_id=self._context.cluster_id,
            controller_id=self._node.directory.controller,
            brokers=[
                _D.DescribeClusterBroker(broker_id=one.number, host=one.host, port=one.port, rack=one.rack)
                for one in self._context.brokers()
            ],
        )

    async def describe_topic_partitions(self, call: Call, request: Any) -> Answer:
        """Page by page, in the order of the names: a topic may have more partitions than fit an answer."""
        names = sorted({topic.name for topic in request.topics}) or [
            topic.name for topic in self._node.topics.list()
        ]
        start_topic, start_partition = "", 0
        if request.cursor is not None:
            start_topic, start_partition = request.cursor.topic_name, max(request.cursor.partition_index, 0)
        left = min(max(request.response_partition_limit, 1), _PARTITIONS_PER_ANSWER_MAX)
        topics: list[Any] = []
        for name in names:
            if name < start_topic:
                continue
            if left == 0:
                return _P.DescribeTopicPartitionsResponse(
                    topics=topics, next_cursor=_P.Cursor(topic_name=name)
                )
            await self._node.catching_up.until_known(name)
            try:
                facts = self._node.topics.partitions(name)
            except GoQueueError as error:
                topics.append(_P.DescribeTopicPartitionsResponseTopic(error_code=code_of(error), name=name))
                continue
            first = start_partition if name == start_topic else 0
            page = facts[first : first + left]
            left -= len(page)
            topics.append(self._described(name, page))
            if first + len(page) < len(facts):
                cursor = _P.Cursor(topic_name=name, partition_index=first + len(page))
                return _P.DescribeTopicPartitionsResponse(topics=topics, next_cursor=cursor)
        return _P.DescribeTopicPartitionsResponse(topics=topics)

    def _described(self, name: str, page: Sequence[PartitionFacts]) -> Any:
        return _P.DescribeTopicPartitionsResponseTopic(
            name=name,
            topic_id=self._context.topic_id(name),
            partitions=[
                _P.DescribeTopicPartitionsResponsePartition(
                    error_code=_fault(one),
                    partition_index=one.partition,
                    leader_id=one.leader,
                    leader_epoch=one.leader_epoch,
                    replica_nodes=one.replicas,
                    isr_nodes=one.in_sync,
                    eligible_leader_replicas=one.eligible,  # null is allowed, and Java's admin client 3.9 fails on it
                    last_known_elr=(),
                )
                for one in page
            ],
        )


def _fault(facts: PartitionFacts) -> int:
    if facts.leader == NO_LEADER:
        return _NO_LEADER
    return _OFFLINE if facts.failure else 0
