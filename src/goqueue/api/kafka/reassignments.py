"""AlterPartitionReassignments and ListPartitionReassignments: partitions move to other nodes, each by itself. Plans, which move many
of them a few at a time, are made over REST."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from goqueue.api.kafka.call import Answer, Api, Call
from goqueue.api.kafka.context import Context, code_of
from goqueue.api.kafka.error_text import text_of
from goqueue.model.cluster_errors import ReassignmentNotFound
from goqueue.model.errors import GoQueueError, InvalidReplicaAssignment, InvalidRequest
from goqueue.node.cluster.partition_orders import Moving
from goqueue.node.directory import SOLO_NUMBER
from goqueue.wire.schema import responses

_A = responses("alter_partition_reassignments")
_L = responses("list_partition_reassignments")

Place = tuple[str, int]


class ReassignmentsApi:
    def __init__(self, context: Context) -> None:
        self._node = context.node

    def apis(self) -> list[Api]:
        return [
            Api("alter_partition_reassignments", 0, 1, self.alter),
            Api("list_partition_reassignments", 0, 0, self.list),
        ]

    async def alter(self, call: Call, request: Any) -> Answer:
        targets: dict[Place, Sequence[int] | None] = {}
        repeated: dict[Place, GoQueueError | None] = {}
        for topic in request.topics:
            for partition in topic.partitions:
                place = topic.name, partition.partition_index
                if place in targets:
                    repeated[place] = InvalidRequest(f"{place[0]}-{place[1]} is named more than once")
                targets[place] = partition.replicas
        wanted = {place: replicas for place, replicas in targets.items() if place not in repeated}
        outcomes = {
            **repeated,
            **await self._reassign(wanted, keeps_count=not request.allow_replication_factor_change),
        }
        return _A.AlterPartitionReassignmentsResponse(
            allow_replication_factor_change=request.allow_replication_factor_change,
            responses=[
                _A.ReassignableTopicResponse(
                    name=topic.name,
                    partitions=[
                        _altered(one.partition_index, outcomes[topic.name, one.partition_index])
                        for one in topic.partitions
                    ],
                )
                for topic in request.topics
            ],
        )

    async def _reassign(
        self, targets: Mapping[Place, Sequence[int] | None], *, keeps_count: bool
    ) -> dict[Place, GoQueueError | None]:
        if self._node.cluster is not None:
            return await self._node.cluster.partition_orders.reassign(targets, keeps_count=keeps_count)
        return {place: self._alone(place, replicas) for place, replicas in targets.items()}

    def _alone(self, place: Place, replicas: Sequence[int] | None) -> GoQueueError | None:
        try:
            self._node.topics.partition(*place)
        except GoQueueError as error:
            return error
        where = f"{place[0]}-{place[1]}"
        if replicas is None:
            return ReassignmentNotFound(f"{where} is not being moved", topic=place[0], partition=place[1])
        if list(replicas) != [SOLO_NUMBER]:
            return InvalidReplicaAssignment(
                f"{where} is to be on {list(replicas)}, but this node is alone and has the number {SOLO_NUMBER}",
                replicas=list(replicas),
            )
        return None

    async def list(self, call: Call, request: Any) -> Answer:
        """Those that are asked for, of those that move."""
        cluster = self._node.cluster
        try:
            moving = [] if cluster is None else cluster.partition_orders.moving()
        except GoQueueError as error:
            return _L.ListPartitionReassignmentsResponse(
                error_code=code_of(error), error_message=text_of(error), topics=[]
            )
        if request.topics is not None:
            wanted = {(topic.name, index) for topic in request.topics for index in topic.partition_indexes}
            moving = [one for one in moving if (one.topic, one.partition) in wanted]
        topics: dict[str, Any] = {}
        for one in moving:
            topics.setdefault(one.topic, []).append(_ongoing(one))
        return _L.ListPartitionReassignmentsResponse(
            topics=[
                _L.OngoingTopicReassignment(name=name, partitions=partitions)
                for name, partitions in topics.items()
            ]
        )


def _altered(index: int, error: GoQueueError | None) -> Any:
    return _A.ReassignablePartitionResponse(
        partition_index=index,
        error_code=code_of(error),
        error_message=None if error is None else text_of(error),
    )


def _ongoing(moving: Moving) -> Any:
    return _L.OngoingPartitionReassignment(
        partition_index=moving.partition,
        replicas=list(moving.replicas),
        adding_replicas=list(moving.adding),
        removing_replicas=list(moving.removing),
    )
