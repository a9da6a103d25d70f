"""DescribeLogDirs, ElectLeaders and DescribeProducers: a look into the broker, for tools that run it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from goqueue.api.kafka.call import Answer, Api, Call
from goqueue.api.kafka.context import Context, code_of
from goqueue.api.kafka.error_text import text_of
from goqueue.model.errors import ElectionNotNeeded, GoQueueError, InvalidRequest, PartitionOffline
from goqueue.node.folder import LOGS
from goqueue.node.requests import PartitionFacts
from goqueue.wire.schema import responses

_L = responses("describe_log_dirs")
_E = responses("elect_leaders")
_P = responses("describe_producers")
_PREFERRED, _UNCLEAN = 0, 1  # kinds of elections
_UNKNOWN_BYTES = -1
_NOT_HERE = -1  # an offset in a log that other nodes have

Place = tuple[str, int]


class ClusterAdminApi:
    def __init__(self, context: Context) -> None:
        self._node = context.node
        self._topics = context.node.topics
        self._describer = context.node.describer

    def apis(self) -> list[Api]:
        return [
            Api("describe_log_dirs", 1, 4, self.describe_log_dirs),
            Api("elect_leaders", 0, 2, self.elect_leaders),
            Api("describe_producers", 0, 0, self.describe_producers),
        ]

    async def describe_log_dirs(self, call: Call, request: Any) -> Answer:
        """There is one folder for all partitions, named as it is within the data folder."""
        try:
            usage = await self._describer.disk_usage()
        except GoQueueError as error:
            return _L.DescribeLogDirsResponse(error_code=code_of(error))
        if request.topics is None:
            topics = [self._sizes(topic.name, None) for topic in self._topics.list()]
        else:
            topics = [self._sizes(topic.topic, frozenset(topic.partitions)) for topic in request.topics]
        return _L.DescribeLogDirsResponse(
            results=[
                _L.DescribeLogDirsResult(
                    log_dir=LOGS,
                    topics=[topic for topic in topics if topic.partitions],
                    total_bytes=usage.total_bytes if usage else _UNKNOWN_BYTES,
                    usable_bytes=usage.free_bytes if usage else _UNKNOWN_BYTES,
                )
            ]
        )

    def _sizes(self, topic: str, wanted: frozenset[int] | None) -> Any:
        """What is not in the folder is not in the answer: to Kafka that is no error."""
        try:
            partitions = self._topics.partitions(topic)
        except GoQueueError:
            partitions = []
        return _L.DescribeLogDirsTopic(
            name=topic,
            partitions=[
                _L.DescribeLogDirsPartition(
                    partition_index=one.partition,
                    partition_size=one.size_bytes,
                    offset_lag=max(one.high_watermark - one.latest, 0),
                )
                for one in partitions
                if one.latest != _NOT_HERE and (wanted is None or one.partition in wanted)
            ],
        )

    async def elect_leaders(self, call: Call, request: Any) -> Answer:
        """Who asks for all partitions is told of those that needed an election."""
        error: GoQueueError | None = None
        outcomes: dict[Place, GoQueueError | None] = {}
        if request.election_type not in (_PREFERRED, _UNCLEAN):
            error = InvalidRequest(
                f"election type {request.election_type} is neither 0 (preferred) nor 1 (unclean)",
                election_type=request.election_type,
            )
        asked = request.topic_partitions
        places = None if asked is None else [(one.topic, index) for one in asked for index in one.partitions]
        if error is None:
            try:
                outcomes = await self._elect(places, is_unclean=request.election_type == _UNCLEAN)
            except GoQueueError as failure:
                error = failure
        topics: dict[str, list[Any]] = {}
        for topic, index in outcomes if places is None else places:
            topics.setdefault(topic, []).append(_elected(index, error or outcomes[topic, index]))
        return _E.ElectLeadersResponse(
            error_code=code_of(error),
            replica_election_results=[
                _E.ReplicaElectionResult(topic=topic, partition_result=results)
                for topic, results in topics.items()
            ],
        )

    async def _elect(
        self, places: Sequence[Place] | None, *, is_unclean: bool
    ) -> dict[Place, GoQueueError | None]:
        cluster = self._node.cluster
        if cluster is not None:
            return await cluster.partition_orders.elect(places, is_unclean=is_unclean)
        return {place: self._why_no_election(*place) for place in places or ()}

    def _why_no_election(self, topic: str, index: int) -> GoQueueError:
        """One node leads everything for ever."""
        try:
            facts = self._topics.partition(topic, index)
        except GoQueueError as error:
            return error
        return _refusal(topic, facts)

    async def describe_producers(self, call: Call, request: Any) -> Answer:
        return _P.DescribeProducersResponse(
            topics=[
                _P.TopicResponse(
                    name=topic.name,
                    partitions=[self._producers(topic.name, index) for index in topic.partition_indexes],
                )
                for topic in request.topics
            ]
        )

    def _producers(self, topic: str, index: int) -> Any:
        try:
            producers = self._describer.producers(topic, index)
        except GoQueueError as error:
            return _P.PartitionResponse(
                partition_index=index, error_code=code_of(error), error_message=text_of(error)
            )
        return _P.PartitionResponse(
            partition_index=index,
            active_producers=[
                _P.ProducerState(
                    producer_id=one.producer_id,
                    producer_epoch=one.epoch,
                    last_sequence=one.last_sequence,
                    last_timestamp=one.last_timestamp_ms,
                    coordinator_epoch=one.coordinator_epoch,
                    current_txn_start_offset=one.transaction_start,
                )
                for one in producers
            ],
        )


def _refusal(topic: str, facts: PartitionFacts) -> GoQueueError:
    if facts.failure is not None:
        return PartitionOffline(
            f"partition {facts.partition} of topic {topic!r} takes no writes and has no other replica: {facts.failure}",
            topic=topic,
            partition=facts.partition,
        )
    return ElectionNotNeeded(
        f"partition {facts.partition} of topic {topic!r} has its only replica as its leader",
        topic=topic,
        partition=facts.partition,
    )


def _elected(index: int, error: GoQueueError | None) -> Any:
    return _E.PartitionResult(
        partition_id=index,
        error_code=code_of(error),
        error_message=None if error is None else text_of(error),
    )
