"""InitProducerId and the APIs of transactions."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping, Sequence
from functools import partial
from typing import Any

from goqueue.api.kafka.call import Answer, Api, Call, begun
from goqueue.api.kafka.context import Context, coordinator_code
from goqueue.api.kafka.group_offsets import by_topic, new_offsets
from goqueue.model.errors import GoQueueError, InvalidRequest, TransactionalProducerFenced
from goqueue.node.groups.requests import CommitInTransaction, PartitionResult
from goqueue.node.transactions.for_nodes import Joining
from goqueue.node.transactions.requests import ProducerEpoch, TopicPartition
from goqueue.wire.schema import responses

_I = responses("init_producer_id")
_P = responses("add_partitions_to_txn")
_O = responses("add_offsets_to_txn")
_E = responses("end_txn")
_C = responses("txn_offset_commit")

_SEVERAL_TRANSACTIONS_FROM = 4
_BUMPS_EPOCH_FROM = 5  # EndTxn, KIP-890
_JOINS_TRANSACTIONS_FROM = 5  # TxnOffsetCommit, KIP-890
_OPERATION_NOT_ATTEMPTED = 55
_INVALID_PRODUCER_EPOCH = 47
# Clients of older versions know only of stale epochs, not of being fenced.
_FENCED_FROM = {
    "init_producer_id": 4,
    "add_partitions_to_txn": 2,
    "add_offsets_to_txn": 2,
    "end_txn": 2,
    "txn_offset_commit": 3,
}


class TransactionsApi:
    def __init__(self, context: Context) -> None:
        self._groups = context.node.groups
        self._producers = context.node.producers
        self._transactions = context.node.transactions

    def apis(self) -> list[Api]:
        return [
            Api("init_producer_id", 0, 5, self.init_producer_id),
            Api("add_partitions_to_txn", 0, 5, self.add_partitions_to_txn),
            Api("add_offsets_to_txn", 0, 4, self.add_offsets_to_txn),
            Api("end_txn", 0, 5, self.end_txn),
            Api("txn_offset_commit", 0, 5, self.txn_offset_commit),
        ]

    async def init_producer_id(self, call: Call, request: Any) -> Answer:
        try:
            if request.transactional_id is None:
                id, epoch = await self._producers.init()
            else:
                id, epoch = await self._transactions.init_producer(
                    request.transactional_id, request.transaction_timeout_ms, _given(request)
                )
        except GoQueueError as error:
            return _I.InitProducerIdResponse(error_code=_code(call, error), producer_id=-1, producer_epoch=-1)
        return _I.InitProducerIdResponse(producer_id=id, producer_epoch=epoch)

    async def add_partitions_to_txn(self, call: Call, request: Any) -> Answer:
        return await _in_turn(call, self._partitions_added(call, request))

    async def _partitions_added(self, call: Call, request: Any) -> Answer:
        if call.version >= _SEVERAL_TRANSACTIONS_FROM:
            return _P.AddPartitionsToTxnResponse(
                results_by_transaction=[
                    _P.AddPartitionsToTxnResult(
                        transactional_id=one.transactional_id,
                        topic_results=await self._added(
                            call,
                            one.transactional_id,
                            ProducerEpoch(one.producer_id, one.producer_epoch),
                            one.topics,
                            is_check=one.verify_only,
                        ),
                    )
                    for one in request.transactions
                ]
            )
        producer = ProducerEpoch(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
        results = await self._added(
            call,
            request.v3_and_below_transactional_id,
            producer,
            request.v3_and_below_topics,
            is_check=False,
        )
        return _P.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)

    async def _added(
        self,
        call: Call,
        transactional_id: str,
        producer: ProducerEpoch,
        topics: Sequence[Any],
        *,
        is_check: bool,
    ) -> list[Any]:
        places = [TopicPartition(topic.name, index) for topic in topics for index in topic.partitions]
        joining = self._joining(call)
        change = joining.verify if is_check else joining.add_partitions
        try:
            refusals = await change(transactional_id, *producer, places)
            codes = {place: coordinator_code(error) for place, error in refusals.items()}
            # Where one partition cannot be added none is; a check answers for each alone.
            other = _OPERATION_NOT_ATTEMPTED if refusals and not is_check else 0
        except GoQueueError as error:
            codes, other = {}, _code(call, error)
        return _topic_results(topics, codes, other)

    async def add_offsets_to_txn(self, call: Call, request: Any) -> Answer:
        return await _in_turn(call, self._offsets_added(call, request))

    async def _offsets_added(self, call: Call, request: Any) -> Answer:
        try:
            await self._joining(call).add_offsets(
                request.transactional_id, request.producer_id, request.producer_epoch, request.group_id
            )
        except GoQueueError as error:
            return _O.AddOffsetsToTxnResponse(error_code=_code(call, error))
        return _O.AddOffsetsToTxnResponse()

    def _joining(self, call: Call) -> Joining:
        return self._transactions if call.peer is None else self._transactions.for_nodes

    async def end_txn(self, call: Call, request: Any) -> Answer:
        try:
            producer = await self._transactions.end(
                request.transactional_id,
                request.producer_id,
                request.producer_epoch,
                is_commit=request.committed,
                bumps_epoch=call.version >= _BUMPS_EPOCH_FROM,
            )
        except GoQueueError as error:
            return _E.EndTxnResponse(error_code=_code(call, error), producer_id=-1, producer_epoch=-1)
        return _E.EndTxnResponse(producer_id=producer.producer_id, producer_epoch=producer.epoch)

    async def txn_offset_commit(self, call: Call, request: Any) -> Answer:
        command = CommitInTransaction(
            group_id=request.group_id,
            producer_id=request.producer_id,
            producer_epoch=request.producer_epoch,
            offsets=new_offsets(request.topics),
            member_id=request.member_id,
            generation=request.generation_id,
            instance_id=request.group_instance_id,
        )
        verify = partial(
            self._transactions.verify_for_offsets,
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            request.group_id,
            may_add=call.version >= _JOINS_TRANSACTIONS_FROM,
        )
        try:
            results = (await self._groups.commit_in_transaction(command, verify)).partitions
        except GoQueueError as error:
            results = tuple(PartitionResult(one.topic, one.partition, error) for one in command.offsets)
        return _C.TxnOffsetCommitResponse(
            topics=[
                _C.TxnOffsetCommitResponseTopic(
                    name=topic,
                    partitions=[
                        _C.TxnOffsetCommitResponsePartition(
                            partition_index=one.partition,
                            error_code=0 if one.error is None else _code(call, one.error),
                        )
                        for one in ones
                    ],
                )
                for topic, ones in by_topic(results)
            ]
        )


async def _in_turn(call: Call, work: Coroutine[Any, Any, Answer]) -> Answer:
    """A client's requests come one after another. Another node asks about many transactions, of which none waits for another."""
    return await work if call.peer is None else begun(work)


def _given(request: Any) -> ProducerEpoch | None:
    """Who the producer says it is (KIP-360)."""
    if request.producer_id == -1 and request.producer_epoch == -1:
        return None
    if request.producer_id < 0 or request.producer_epoch < 0:
        raise InvalidRequest(
            f"producer id {request.producer_id} and epoch {request.producer_epoch}: give both or neither"
        )
    return ProducerEpoch(request.producer_id, request.producer_epoch)


def _topic_results(topics: Sequence[Any], codes: Mapping[TopicPartition, int], other: int) -> list[Any]:
    return [
        _P.AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                _P.AddPartitionsToTxnPartitionResult(
                    partition_index=index,
                    partition_error_code=codes.get(TopicPartition(topic.name, index), other),
                )
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]


def _code(call: Call, error: GoQueueError) -> int:
    if isinstance(error, TransactionalProducerFenced) and call.version < _FENCED_FROM[call.api]:
        return _INVALID_PRODUCER_EPOCH
    return coordinator_code(error)
