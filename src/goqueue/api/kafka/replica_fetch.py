"""Fetch as other nodes of the cluster send it: from the log's end and not the high watermark, and with the follower's place in
the history of leaders. Only a connection that has logged in as a node may say that it is one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from goqueue.api.kafka.call import Answer, Call, begun
from goqueue.api.kafka.context import code_of
from goqueue.model.cluster_errors import Unauthenticated
from goqueue.model.errors import FetchSessionNotFound, GoQueueError
from goqueue.node.cluster.ports import ReplicaFound, ReplicaRound, ReplicaWant
from goqueue.node.node import Node
from goqueue.wire.codec import Malformed
from goqueue.wire.schema import responses

_R = responses("fetch")
_NOBODY = -1


def replica_of(request: Any) -> int:
    """The node that a request claims to come from; -1 for a client."""
    number: int = request.replica_id
    return number if number != _NOBODY else request.replica_state.replica_id


class ReplicaFetchApi:
    def __init__(self, node: Node) -> None:
        self._node = node

    async def fetch(self, call: Call, request: Any) -> Answer:
        """Only the answer waits for data: a later request of the same follower ends an earlier one."""
        if self._is_of_another_process(call):
            raise Malformed(f"this is not a connection of the process of {call.peer} that has joined last")
        return begun(self._answer(call, request))

    def _is_of_another_process(self, call: Call) -> bool:
        """What a process has sent may be read only after the next one has joined, whose disk may have lost what the first one says it
        has; and one that stood still may go on, and connect, after the next one has. So a connection is of the process that made
        it, and who joins makes others."""
        if call.peer is None:
            return False
        joined = self._node.directory.incarnation_of(call.peer)
        return joined is not None and joined != call.identity.incarnation

    async def _answer(self, call: Call, request: Any) -> Answer:
        try:
            found = await self._fetch(call, request)
        except GoQueueError as error:
            return _R.FetchResponse(error_code=code_of(error))
        topics: dict[str, list[Any]] = {}
        for one in found:
            topics.setdefault(one.topic, []).append(_partition(one))
        return _R.FetchResponse(
            responses=[
                _R.FetchableTopicResponse(topic=name, partitions=partitions)
                for name, partitions in topics.items()
            ]
        )

    async def _fetch(self, call: Call, request: Any) -> Sequence[ReplicaFound]:
        number, cluster = replica_of(request), self._node.cluster
        if cluster is None or call.peer is None or self._node.directory.number_of(call.peer) != number:
            who = "nobody" if call.peer is None else repr(call.peer)
            raise Unauthenticated(f"{who} fetches as node {number}, which it has not proven to be")
        wants = [
            ReplicaWant(
                topic.topic,
                one.partition,
                one.fetch_offset,
                one.last_fetched_epoch,
                one.current_leader_epoch,
                one.log_start_offset,
                one.partition_max_bytes,
            )
            for topic in request.topics
            for one in topic.partitions
        ]
        forgotten = [
            (topic.topic, index) for topic in request.forgotten_topics_data for index in topic.partitions
        ]
        if self._is_of_another_process(call):  # it may have joined since the request was taken
            raise FetchSessionNotFound(f"{call.peer} has joined anew meanwhile")
        server = cluster.replication.server
        call.closing.add(self, lambda: server.end(number, call.identity))
        return await server.fetch(
            number,
            ReplicaRound(max(request.session_epoch, 0), wants, forgotten),
            wait_ms=request.max_wait_ms,
            bytes_max=request.max_bytes,
            stream=call.identity,
        )


def _partition(found: ReplicaFound) -> Any:
    diverging = _R.EpochEndOffset()
    if found.diverging is not None:
        diverging = _R.EpochEndOffset(epoch=found.diverging[0], end_offset=found.diverging[1])
    return _R.PartitionData(
        partition_index=found.partition,
        error_code=code_of(found.error),
        high_watermark=found.high_watermark,
        last_stable_offset=-1,
        log_start_offset=found.log_start,
        diverging_epoch=diverging,
        records=found.records or None,
    )
