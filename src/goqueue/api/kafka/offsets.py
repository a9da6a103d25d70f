"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords: where a partition begins, ends, and was at a moment."""

from __future__ import annotations

from typing import Any

from goqueue.api.kafka.call import Answer, Api, Call
from goqueue.api.kafka.context import Context, code_of
from goqueue.model.errors import GoQueueError
from goqueue.node.requests import Isolation
from goqueue.wire.schema import responses

_L = responses("list_offsets")
_E = responses("offset_for_leader_epoch")
_D = responses("delete_records")


class OffsetsApi:
    def __init__(self, context: Context) -> None:
        self._topics = context.node.topics
        self._positions = context.node.positions

    def apis(self) -> list[Api]:
        return [
            Api("list_offsets", 1, 10, self.list_offsets),
            Api("offset_for_leader_epoch", 2, 4, self.offset_for_leader_epoch),
            Api("delete_records", 0, 2, self.delete_records),
        ]

    async def list_offsets(self, call: Call, request: Any) -> Answer:
        isolation = Isolation.READ_COMMITTED if request.isolation_level == 1 else Isolation.READ_UNCOMMITTED
        return _L.ListOffsetsResponse(
            topics=[
                _L.ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[await self._offset(topic.name, one, isolation) for one in topic.partitions],
                )
                for topic in request.topics
            ]
        )

    async def _offset(self, topic: str, one: Any, isolation: Isolation) -> Any:
        try:
            found = await self._positions.find(
                topic,
                one.partition_index,
                one.timestamp,
                isolation=isolation,
                leader_epoch=one.current_leader_epoch,
            )
        except GoQueueError as error:
            return _L.ListOffsetsPartitionResponse(
                partition_index=one.partition_index, error_code=code_of(error)
            )
        return _L.ListOffsetsPartitionResponse(
            partition_index=one.partition_index,
            timestamp=found.timestamp_ms,
            offset=found.offset,
            leader_epoch=found.leader_epoch,
        )

    async def offset_for_leader_epoch(self, call: Call, request: Any) -> Answer:
        return _E.OffsetForLeaderEpochResponse(
            topics=[
                _E.OffsetForLeaderTopicResult(
                    topic=topic.topic,
                    partitions=[self._epoch_end(topic.topic, one) for one in topic.partitions],
                )
                for topic in request.topics
            ]
        )

    def _epoch_end(self, topic: str, one: Any) -> Any:
        try:
            epoch, end = self._positions.epoch_end(
                topic, one.partition, one.leader_epoch, leader_epoch=one.current_leader_epoch
            )
        except GoQueueError as error:
            return _E.EpochEndOffset(partition=one.partition, error_code=code_of(error))
        return _E.EpochEndOffset(partition=one.partition, leader_epoch=epoch, end_offset=end)

    async def delete_records(self, call: Call, request: Any) -> Answer:
        return _D.DeleteRecordsResponse(
            topics=[
                _D.DeleteRecordsTopicResult(
                    name=topic.name,
                    partitions=[await self._delete(topic.name, one) for one in topic.partitions],
                )
                for topic in request.topics
            ]
        )

    async def _delete(self, topic: str, one: Any) -> Any:
        try:
            start = await self._topics.delete_records(topic, one.partition_index, one.offset)
        except GoQueueError as error:
            return _D.DeleteRecordsPartitionResult(
                partition_index=one.partition_index, error_code=code_of(error), low_watermark=-1
            )
        return _D.DeleteRecordsPartitionResult(partition_index=one.partition_index, low_watermark=start)
