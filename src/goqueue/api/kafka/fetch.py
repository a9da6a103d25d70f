"""Fetch: batches of many partitions, straight from their files, with or without a session."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from goqueue.api.kafka.call import Answer, Api, Call
from goqueue.api.kafka.context import Context, code_of
from goqueue.api.kafka.fetch_sessions import NO_SESSION, FetchSessions
from goqueue.api.kafka.replica_fetch import ReplicaFetchApi, replica_of
from goqueue.model.errors import GoQueueError
from goqueue.node.fetch import Fetched, FetchLimits, Wanted
from goqueue.node.requests import Isolation
from goqueue.wire.schema import NO_UUID, responses

_R = responses("fetch")
_NAMES_IDS_FROM = 13
_NAMES_RACKS_FROM = 11
_FETCH_BYTES_MAX = 55 * 1024 * 1024  # of one answer, whatever the client asks for; Kafka's fetch.max.bytes


class FetchApi:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._fetcher = context.node.fetcher
        self._wait_ms_max = context.node.config.limits.wait_ms_max
        self._sessions = FetchSessions(context.node.fetcher.new_session_id)
        self._replicas = ReplicaFetchApi(context.node)

    def apis(self) -> list[Api]:
        return [Api("fetch", 4, 17, self.fetch)]

    async def fetch(self, call: Call, request: Any) -> Answer:
        if replica_of(request) >= 0:
            return await self._replicas.fetch(call, request)
        wanted, unknown = self._wanted(call, request)
        forgotten = self._forgotten(call, request)
        try:
            session = self._sessions.begin(request.session_id, request.session_epoch, wanted, forgotten)
        except GoQueueError as error:
            return _R.FetchResponse(error_code=code_of(error))
        limits = FetchLimits(
            wait_ms=0 if unknown else min(max(request.max_wait_ms, 0), self._wait_ms_max),
            bytes_min=request.min_bytes,
            bytes_max=min(max(request.max_bytes, 0), _FETCH_BYTES_MAX),
        )
        isolation = Isolation.READ_COMMITTED if request.isolation_level == 1 else Isolation.READ_UNCOMMITTED
        rack = request.rack_id if call.version >= _NAMES_RACKS_FROM else ""
        try:
            if session is None:
                fetched = await self._fetcher.fetch(wanted, limits, isolation, rack)
                return self._answer(call, NO_SESSION, zip(wanted, fetched, strict=True), unknown)
            asked = session.wanted()
            fetched = await self._fetcher.fetch(asked, limits, isolation, rack)
        except GoQueueError as error:
            return _R.FetchResponse(error_code=code_of(error))
        return self._answer(call, session.id, session.changed(asked, fetched), unknown)

    def _wanted(self, call: Call, request: Any) -> tuple[list[Wanted], list[Any]]:
        """What to read, and the answers for topics whose ids nobody has."""
        wanted: list[Wanted] = []
        unknown: list[Any] = []
        for topic in request.topics:
            try:
                name = (
                    self._context.topic_name(topic.topic_id)
                    if call.version >= _NAMES_IDS_FROM
                    else topic.topic
                )
            except GoQueueError as error:
                unknown.append(_unknown(topic, error))
                continue
            for one in topic.partitions:
                wanted.append(
                    Wanted(
                        name,
                        one.partition,
                        one.fetch_offset,
                        one.partition_max_bytes,
                        one.current_leader_epoch,
                    )
                )
        return wanted, unknown

    def _forgotten(self, call: Call, request: Any) -> list[tuple[str, int]]:
        places: list[tuple[str, int]] = []
        for topic in request.forgotten_topics_data:
            try:
                name = (
                    self._context.topic_name(topic.topic_id)
                    if call.version >= _NAMES_IDS_FROM
                    else topic.topic
                )
            except GoQueueError:  # deleted meanwhile
                continue
            places += [(name, partition) for partition in topic.partitions]
        return places

    def _answer(
        self, call: Call, session_id: int, news: Iterable[tuple[Wanted, Fetched]], unknown: list[Any]
    ) -> Answer:
        topics: dict[str, list[Any]] = {}
        for want, found in news:
            topics.setdefault(want.topic, []).append(_partition(want, found))
        return _R.FetchResponse(
            session_id=session_id,
            responses=[
                _R.FetchableTopicResponse(topic=name, topic_id=self._id(call, name), partitions=partitions)
                for name, partitions in topics.items()
            ]
            + unknown,
        )

    def _id(self, call: Call, name: str) -> bytes:
        if call.version < _NAMES_IDS_FROM:
            return NO_UUID
        try:
            return self._context.topic_id(name)
        except GoQueueError:  # deleted while it was read
            return NO_UUID


def _partition(want: Wanted, found: Fetched) -> Any:
    return _R.PartitionData(
        partition_index=want.partition,
        error_code=code_of(found.error),
        high_watermark=found.high_watermark,
        last_stable_offset=found.last_stable_offset,
        log_start_offset=found.log_start,
        aborted_transactions=[
            _R.AbortedTransaction(producer_id=producer_id, first_offset=first)
            for producer_id, first in found.aborted
        ],
        preferred_read_replica=found.closest,
        records=found.chunks,
    )


def _unknown(topic: Any, error: GoQueueError) -> Any:
    return _R.FetchableTopicResponse(
        topic_id=topic.topic_id,
        partitions=[
            _R.PartitionData(partition_index=one.partition, error_code=code_of(error), high_watermark=-1)
            for one in topic.partitions
        ],
    )
