"""ListTransactions and DescribeTransactions."""

from __future__ import annotations

from typing import Any

from goqueue.api.kafka.call import Answer, Api, Call
from goqueue.api.kafka.context import Context, code_of
from goqueue.model.errors import GoQueueError
from goqueue.node.transactions.requests import TxnState
from goqueue.wire.schema import responses

_L = responses("list_transactions")
_D = responses("describe_transactions")


class TransactionAdminApi:
    def __init__(self, context: Context) -> None:
        self._transactions = context.node.transactions

    def apis(self) -> list[Api]:
        return [
            Api("list_transactions", 0, 1, self.list_transactions),
            Api("describe_transactions", 0, 0, self.describe_transactions),
        ]

    async def list_transactions(self, call: Call, request: Any) -> Answer:
        known = {state.value: state for state in TxnState}
        unknown = [name for name in request.state_filters if name not in known]
        states = [known[name] for name in request.state_filters if name in known]
        running_ms_min = request.duration_filter if request.duration_filter >= 0 else None
        try:
            found = await self._transactions.list(
                states=states, producer_ids=request.producer_id_filters, running_ms_min=running_ms_min
            )
        except GoQueueError as error:
            return _L.ListTransactionsResponse(error_code=code_of(error))
        if request.state_filters and not states:  # none of those that were asked for exists
            found = []
        return _L.ListTransactionsResponse(
            unknown_state_filters=unknown,
            transaction_states=[
                _L.TransactionState(
                    transactional_id=one.transactional_id,
                    producer_id=one.producer_id,
                    transaction_state=one.state.value,
                )
                for one in found
            ],
        )

    async def describe_transactions(self, call: Call, request: Any) -> Answer:
        return _D.DescribeTransactionsResponse(
            transaction_states=[await self._described(id) for id in request.transactional_ids]
        )

    async def _described(self, transactional_id: str) -> Any:
        try:
            one = await self._transactions.describe(transactional_id)
        except GoQueueError as error:
            return _D.TransactionState(error_code=code_of(error), transactional_id=transactional_id)
        return _D.TransactionState(
            transactional_id=transactional_id,
            transaction_state=one.state.value,
            transaction_timeout_ms=one.timeout_ms,
            transaction_start_time=-1 if one.started_ms is None else one.started_ms,
            producer_id=one.producer_id,
            producer_epoch=one.epoch,
            topics=[
                _D.TopicData(topic=topic, partitions=partitions)
                for topic, partitions in one.partitions.items()
            ],
        )
