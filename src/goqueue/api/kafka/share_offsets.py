"""Describe-, Alter- and DeleteShareGroupOffsets: how far a share group has come."""

from __future__ import annotations

from typing import Any

from goqueue.api.kafka.call import Answer, Api, Call
from goqueue.api.kafka.context import Context, coordinator_code
from goqueue.api.kafka.error_text import text_of
from goqueue.api.kafka.group_offsets import by_topic
from goqueue.model.errors import GoQueueError
from goqueue.node.queue.share_requests import ShareOffset
from goqueue.wire.schema import NO_UUID, responses

_S = responses("describe_share_group_offsets")
_A = responses("alter_share_group_offsets")
_D = responses("delete_share_group_offsets")
_UNKNOWN = -1


class ShareOffsetsApi:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._offsets = context.node.share_offsets

    def apis(self) -> list[Api]:
        return [
            Api("describe_share_group_offsets", 0, 1, self.describe),
            Api("alter_share_group_offsets", 0, 0, self.alter),
            Api("delete_share_group_offsets", 0, 0, self.delete),
        ]

    async def describe(self, call: Call, request: Any) -> Answer:
        return _S.DescribeShareGroupOffsetsResponse(
            groups=[await self._described(group) for group in request.groups]
        )

    async def _described(self, group: Any) -> Any:
        places = None
        if group.topics is not None:
            places = [(topic.topic_name, index) for topic in group.topics for index in topic.partitions]
        try:
            offsets = await self._offsets.describe(group.group_id, places)
        except GoQueueError as error:
            return _S.DescribeShareGroupOffsetsResponseGroup(
                group_id=group.group_id, error_code=coordinator_code(error), error_message=text_of(error)
            )
        return _S.DescribeShareGroupOffsetsResponseGroup(
            group_id=group.group_id,
            topics=[
                _S.DescribeShareGroupOffsetsResponseTopic(
                    topic_name=topic, topic_id=self._id(topic), partitions=[_described(one) for one in ones]
                )
                for topic, ones in by_topic(offsets)
            ],
        )

    async def alter(self, call: Call, request: Any) -> Answer:
        starts = [
            ((topic.topic_name, one.partition_index), one.start_offset)
            for topic in request.topics
            for one in topic.partitions
        ]
        try:
            answers = await self._offsets.alter(request.group_id, starts)
        except GoQueueError as error:
            return _A.AlterShareGroupOffsetsResponse(
                error_code=coordinator_code(error), error_message=text_of(error)
            )
        topics: dict[str, list[Any]] = {}
        for ((topic, index), _), refusal in zip(starts, answers, strict=True):
            topics.setdefault(topic, []).append(
                _A.AlterShareGroupOffsetsResponsePartition(
                    partition_index=index,
                    error_code=coordinator_code(refusal),
                    error_message=text_of(refusal),
                )
            )
        return _A.AlterShareGroupOffsetsResponse(
            responses=[
                _A.AlterShareGroupOffsetsResponseTopic(
                    topic_name=topic, topic_id=self._id(topic), partitions=partitions
                )
                for topic, partitions in topics.items()
            ]
        )

    async def delete(self, call: Call, request: Any) -> Answer:
        topics = [topic.topic_name for topic in request.topics]
        try:
            answers = await self._offsets.delete(request.group_id, topics)
        except GoQueueError as error:
            return _D.DeleteShareGroupOffsetsResponse(
                error_code=coordinator_code(error), error_message=text_of(error)
            )
        return _D.DeleteShareGroupOffsetsResponse(
            responses=[
                _D.DeleteShareGroupOffsetsResponseTopic(
                    topic_name=topic,
                    topic_id=self._id(topic),
                    error_code=coordinator_code(error),
                    error_message=text_of(error),
                )
                for topic, error in zip(topics, answers, strict=True)
            ]
        )

    def _id(self, topic: str) -> bytes:
        try:
            return self._context.topic_id(topic)
        except GoQueueError:
            return NO_UUID


def _described(one: ShareOffset) -> Any:
    return _S.DescribeShareGroupOffsetsResponsePartition(
        partition_index=one.partition,
        start_offset=_UNKNOWN if one.start is None else one.start,
        leader_epoch=one.leader_epoch,
        lag=_UNKNOWN if one.lag is None else one.lag,
        error_code=coordinator_code(one.error),
        error_message=text_of(one.error),
    )
