"""WriteTxnMarkers: how transactions have ended, from their coordinators on other nodes. Clients are not served it."""

from __future__ import annotations

import asyncio
from typing import Any

from goqueue.api.kafka.call import Answer, Api, Call, begun
from goqueue.api.kafka.context import Context, code_of, coordinator_code
from goqueue.model.errors import GoQueueError
from goqueue.node.internal_topics import OFFSETS_TOPIC
from goqueue.node.transactions.remote import Marker
from goqueue.node.transactions.requests import ProducerEpoch, TopicPartition
from goqueue.wire.schema import responses

_W = responses("write_txn_markers")
_BUMPS_EPOCH_FROM = 2  # the version of transactions (KIP-890)


class TxnMarkersApi:
    def __init__(self, context: Context) -> None:
        self._transactions = context.node.transactions

    def apis(self) -> list[Api]:
        return [Api("write_txn_markers", 1, 2, self.write_txn_markers)]

    async def write_txn_markers(self, call: Call, request: Any) -> Answer:
        """The markers of the next request are written, whatever the partitions of this one wait for."""
        return begun(self._written(request))

    async def _written(self, request: Any) -> Answer:
        return _W.WriteTxnMarkersResponse(
            markers=list(await asyncio.gather(*(self._one(marker) for marker in request.markers)))
        )

    async def _one(self, told: Any) -> Any:
        marker = Marker(
            ProducerEpoch(told.producer_id, told.producer_epoch),
            is_commit=told.transaction_result,
            is_epoch_bumped=told.transaction_version >= _BUMPS_EPOCH_FROM,
            coordinator_epoch=told.coordinator_epoch,
        )
        parts = [
            TopicPartition(topic.name, index) for topic in told.topics for index in topic.partition_indexes
        ]
        codes = dict(
            zip(parts, await asyncio.gather(*(self._code(marker, part) for part in parts)), strict=True)
        )
        return _W.WritableTxnMarkerResult(
            producer_id=told.producer_id,
            topics=[
                _W.WritableTxnMarkerTopicResult(
                    name=topic.name,
                    partitions=[
                        _W.WritableTxnMarkerPartitionResult(
                            partition_index=index, error_code=codes[TopicPartition(topic.name, index)]
                        )
                        for index in topic.partition_indexes
                    ],
                )
                for topic in told.topics
            ],
        )

    async def _code(self, marker: Marker, part: TopicPartition) -> int:
        try:
            await self._transactions.accept_marker(marker, part)
        except GoQueueError as error:
            return coordinator_code(error) if part.topic == OFFSETS_TOPIC else code_of(error)
        return 0
