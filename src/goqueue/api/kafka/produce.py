"""Produce: a batch per partition, appended as it came."""

from __future__ import annotations

from typing import Any

from goqueue.api.kafka.call import Answer, Api, Call, Later, NoAnswer
from goqueue.api.kafka.context import Context, code_of
from goqueue.model.acks import Acks
from goqueue.model.errors import GoQueueError, InvalidBatch
from goqueue.node.publish import Placed, Transaction
from goqueue.wire.schema import responses

_R = responses("produce")
_INVALID_REQUIRED_ACKS = 21
_JOINS_TRANSACTIONS_FROM = 12  # KIP-890: the broker adds the partition to the transaction
_ACKS = {0: Acks.NONE, 1: Acks.LEADER, -1: Acks.ALL}


class ProduceApi:
    def __init__(self, context: Context) -> None:
        self._publisher = context.node.publisher

    def apis(self) -> list[Api]:
        # Versions 0 to 2 are refused, but librdkafka before 2.8 takes a broker that does not advertise them for one
        # that cannot read compressed batches.
        return [Api("produce", 3, 12, self.produce, advertised_first=0)]

    async def produce(self, call: Call, request: Any) -> Answer:
        """Batches are appended in order before the next request begins; only the wait for the disk overlaps it."""
        if request.acks not in _ACKS:
            return _R.ProduceResponse(responses=_refused(request, _INVALID_REQUIRED_ACKS))
        transaction = None
        if request.transactional_id is not None:
            may_join = call.version >= _JOINS_TRANSACTIONS_FROM
            transaction = Transaction(request.transactional_id, may_join=may_join)
        placed: list[list[Placed | GoQueueError]] = [
            [
                await self._append(topic.name, partition, _ACKS[request.acks], transaction)
                for partition in topic.partition_data
            ]
            for topic in request.topic_data
        ]
        if request.acks == 0:
            return NoAnswer()
        if request.acks == -1:
            for row in placed:
                for one in row:
                    if isinstance(one, Placed):
                        one.partition.commit.request()  # all disks work at once
            return Later(self._stored(request, placed))
        return _answer(request, placed)

    async def _append(
        self, topic: str, partition: Any, acks: Acks, transaction: Transaction | None
    ) -> Placed | GoQueueError:
        try:
            if not partition.records:
                raise InvalidBatch("a produce request without records")
            return await self._publisher.append_batch(
                topic, partition.index, partition.records, acks=acks, transaction=transaction
            )
        except GoQueueError as error:
            return error

    async def _stored(self, request: Any, placed: list[list[Placed | GoQueueError]]) -> Answer:
        for row in placed:
            for at, one in enumerate(row):
                if isinstance(one, Placed):
                    try:
                        await self._publisher.until_stored(one)
                    except GoQueueError as error:
                        row[at] = error
        return _answer(request, placed)


def _answer(request: Any, placed: list[list[Placed | GoQueueError]]) -> Any:
    return _R.ProduceResponse(
        responses=[
            _R.TopicProduceResponse(
                name=topic.name,
                partition_responses=[
                    _partition_answer(partition.index, one)
                    for partition, one in zip(topic.partition_data, row, strict=True)
                ],
            )
            for topic, row in zip(request.topic_data, placed, strict=True)
        ]
    )


def _partition_answer(index: int, one: Placed | GoQueueError) -> Any:
    if isinstance(one, GoQueueError):
        return _R.PartitionProduceResponse(
            index=index, error_code=code_of(one), base_offset=-1, error_message=one.sentence
        )
    return _R.PartitionProduceResponse(
        index=index,
        base_offset=one.stored.base_offset,
        log_append_time=-1 if one.append_ms is None else one.append_ms,
        log_start_offset=one.partition.log.log_start,
    )


def _refused(request: Any, code: int) -> list[Any]:
    return [
        _R.TopicProduceResponse(
            name=topic.name,
            partition_responses=[
                _R.PartitionProduceResponse(index=partition.index, error_code=code, base_offset=-1)
                for partition in topic.partition_data
            ],
        )
        for topic in request.topic_data
    ]
