"""OffsetCommit, OffsetFetch and OffsetDelete: how far a group has come."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Final

from goqueue.api.kafka.call import Answer, Api, Call, Later, Message
from goqueue.api.kafka.context import Context, coordinator_code
from goqueue.model.errors import GoQueueError
from goqueue.node.groups.requests import (
    CommitOffsets,
    DeleteOffsets,
    FetchedOffset,
    FetchOffsets,
    NewOffset,
    PartitionResult,
)
from goqueue.wire.schema import responses

_C = responses("offset_commit")
_F = responses("offset_fetch")
_D = responses("offset_delete")
_SEVERAL_GROUPS_FROM = 8
_KNOWS_STALE_EPOCHS_FROM = 9
_STALE_MEMBER_EPOCH = 113
# Of the group as a whole: it cannot be answered here, or not yet.
_ASK_AGAIN = frozenset({14, 15, 16})
_PAUSE_S: Final = 0.1


class GroupOffsetsApi:
    def __init__(self, context: Context) -> None:
        self._groups = context.node.groups

    def apis(self) -> list[Api]:
        return [
            Api("offset_commit", 2, 9, self.offset_commit),
            Api("offset_fetch", 1, 9, self.offset_fetch),
            Api("offset_delete", 0, 0, self.offset_delete),
        ]

    async def offset_commit(self, call: Call, request: Any) -> Answer:
        retention_ms = (
            request.retention_time_ms if call.version < 5 and request.retention_time_ms >= 0 else None
        )
        command = CommitOffsets(
            group_id=request.group_id,
            offsets=new_offsets(request.topics),
            member_id=request.member_id,
            generation=request.generation_id_or_member_epoch,
            instance_id=request.group_instance_id,
            retention_ms=retention_ms,
        )
        try:
            results = (await self._groups.commit(command)).partitions
        except GoQueueError as error:
            results = tuple(PartitionResult(one.topic, one.partition, error) for one in command.offsets)
        return _C.OffsetCommitResponse(
            topics=[
                _C.OffsetCommitResponseTopic(
                    name=topic,
                    partitions=[
                        _C.OffsetCommitResponsePartition(
                            partition_index=one.partition, error_code=coordinator_code(one.error)
                        )
                        for one in ones
                    ],
                )
                for topic, ones in by_topic(results)
            ]
        )

    async def offset_fetch(self, call: Call, request: Any) -> Answer:
        if call.version >= _SEVERAL_GROUPS_FROM:
            groups = [
                await self._fetched_group(group, call.version, request.require_stable)
                for group in request.groups
            ]
            answer = _F.OffsetFetchResponse(groups=groups)
            is_refused = any(one.error_code in _ASK_AGAIN for one in groups)
            return Later(_after_pause(answer)) if is_refused else answer
        command = FetchOffsets(
            request.group_id, wanted=_wanted(request.topics), require_stable=request.require_stable
        )
        try:
            offsets = (await self._groups.fetch(command)).offsets
        except GoQueueError as error:
            if call.version >= 2:
                return _F.OffsetFetchResponse(error_code=coordinator_code(error))
            offsets = _refused(command, error)
        return _F.OffsetFetchResponse(
            topics=[
                _F.OffsetFetchResponseTopic(
                    name=topic,
                    partitions=[_F.OffsetFetchResponsePartition(**_fields(one)) for one in ones],
                )
                for topic, ones in by_topic(offsets)
            ]
        )

    async def _fetched_group(self, group: Any, version: int, require_stable: bool) -> Any:
        command = FetchOffsets(
            group.group_id,
            wanted=_wanted(group.topics),
            require_stable=require_stable,
            member_id=group.member_id,
            member_epoch=group.member_epoch,
        )
        try:
            offsets = (await self._groups.fetch(command)).offsets
        except GoQueueError as error:
            return _refused_group(command, version, coordinator_code(error))
        return _F.OffsetFetchResponseGroup(group_id=group.group_id, topics=_topics(offsets))

    async def offset_delete(self, call: Call, request: Any) -> Answer:
        places = tuple(
            (topic.name, one.partition_index) for topic in request.topics for one in topic.partitions
        )
        try:
            results = (await self._groups.delete_offsets(DeleteOffsets(request.group_id, places))).partitions
        except GoQueueError as error:
            return _D.OffsetDeleteResponse(error_code=coordinator_code(error))
        return _D.OffsetDeleteResponse(
            topics=[
                _D.OffsetDeleteResponseTopic(
                    name=topic,
                    partitions=[
                        _D.OffsetDeleteResponsePartition(
                            partition_index=one.partition, error_code=coordinator_code(one.error)
                        )
                        for one in ones
                    ],
                )
                for topic, ones in by_topic(results)
            ]
        )


def new_offsets(topics: Iterable[Any]) -> tuple[NewOffset, ...]:
    return tuple(
        NewOffset(
            topic.name,
            one.partition_index,
            one.committed_offset,
            one.committed_leader_epoch,
            one.committed_metadata or "",
        )
        for topic in topics
        for one in topic.partitions
    )


def by_topic(ones: Iterable[Any]) -> list[tuple[str, list[Any]]]:
    """Of anything that has a topic, in the order of first mention."""
    topics: dict[str, list[Any]] = {}
    for one in ones:
        topics.setdefault(one.topic, []).append(one)
    return list(topics.items())


def _wanted(topics: Any) -> tuple[tuple[str, tuple[int, ...]], ...] | None:
    if topics is None:
        return None
    return tuple((topic.name, tuple(topic.partition_indexes)) for topic in topics)


def _refused(command: FetchOffsets, error: GoQueueError | None) -> tuple[FetchedOffset, ...]:
    return tuple(
        FetchedOffset(topic, partition, -1, error=error)
        for topic, partitions in command.wanted or ()
        for partition in partitions
    )


def _refused_group(command: FetchOffsets, version: int, code: int) -> Any:
    """Who is told 15 or 16 finds the coordinator and asks again. librdkafka (2.16) does so only for partitions that the answer
    names, and only where they have this error; it never fetches from the others (its issue 5586)."""
    names_all = version >= _KNOWS_STALE_EPOCHS_FROM and code in _ASK_AGAIN
    topics = _topics(_refused(command, None)) if names_all else []
    for topic in topics:
        for one in topic.partitions:
            one.error_code = _STALE_MEMBER_EPOCH
    return _F.OffsetFetchResponseGroup(group_id=command.group_id, error_code=code, topics=topics)


async def _after_pause(answer: Message) -> Answer:
    """Who asks again does so at once."""
    await asyncio.sleep(_PAUSE_S)
    return answer


def _topics(offsets: Iterable[FetchedOffset]) -> list[Any]:
    return [
        _F.OffsetFetchResponseTopics(
            name=topic,
            partitions=[_F.OffsetFetchResponsePartitions(**_fields(one)) for one in ones],
        )
        for topic, ones in by_topic(offsets)
    ]


def _fields(one: FetchedOffset) -> dict[str, Any]:
    return {
        "partition_index": one.partition,
        "committed_offset": one.offset,
        "committed_leader_epoch": one.leader_epoch,
        "metadata": one.metadata,
        "error_code": coordinator_code(one.error),
    }
