"""What nodes ask of each other in transactions, in Kafka's own requests: WriteTxnMarkers, AddPartitionsToTxn and
AddOffsetsToTxn.

Markers for the same node that come up together go in one request: a transaction often ends in many partitions at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

from goqueue.model.cluster_errors import CoordinatorFenced, CoordinatorLoading, NotCoordinator, NotLeader
from goqueue.model.errors import (
    ConcurrentTransactions,
    CoordinatorNotAvailable,
    Detail,
    GoQueueError,
    InvalidGroupId,
    InvalidProducerIdMapping,
    InvalidRequest,
    InvalidTransactionState,
    LimitExceeded,
    NotEnoughReplicas,
    ProducerFenced,
    StorageError,
    TimedOut,
    TopicNotFound,
    TransactionAbortable,
    TransactionalProducerFenced,
)
from goqueue.node.transactions.remote import Marker
from goqueue.node.transactions.requests import ProducerEpoch, TopicPartition
from goqueue.peer.refusals import error_told
from goqueue.wire.schema import request_schema

Call = Callable[[str, str, int, Any], Awaitable[Any]]  # target, API, version, request

MARKERS: Final = "write_txn_markers"
_MARKERS_VERSION: Final = 2
_PARTITIONS: Final = "add_partitions_to_txn"
_PARTITIONS_VERSION: Final = 5
_OFFSETS: Final = "add_offsets_to_txn"
_OFFSETS_VERSION: Final = 4
_BUMPED_VERSION: Final = 2  # of transactions: the one in which every end bumps the epoch (KIP-890)
_MARKER_COUNT_MAX: Final = 1_000  # in one request

_M: Any = SimpleNamespace(**request_schema(MARKERS).classes)  # made at run time: mypy cannot know them
_P: Any = SimpleNamespace(**request_schema(_PARTITIONS).classes)
_O: Any = SimpleNamespace(**request_schema(_OFFSETS).classes)

# By Kafka's codes, of what may be answered; several errors share a code, and the first that fits is meant.
_ERRORS: Final[dict[int, type[GoQueueError]]] = {
    3: TopicNotFound,
    6: NotLeader,
    7: TimedOut,
    14: CoordinatorLoading,
    15: CoordinatorNotAvailable,
    16: NotCoordinator,
    19: NotEnoughReplicas,
    20: TimedOut,
    24: InvalidGroupId,
    42: InvalidRequest,
    44: LimitExceeded,
    47: ProducerFenced,
    48: InvalidTransactionState,
    49: InvalidProducerIdMapping,
    51: ConcurrentTransactions,
    52: CoordinatorFenced,
    56: StorageError,
    90: TransactionalProducerFenced,
    120: TransactionAbortable,
}


class _Waiting(NamedTuple):
    marker: Marker
    part: TopicPartition
    written: asyncio.Future[None]


class RemoteTransactions:
    """`call` is that of the links."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._waiting: dict[str, list[_Waiting]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def write_marker(self, target: str, marker: Marker, part: TopicPartition) -> None:
        loop = asyncio.get_running_loop()
        one = _Waiting(marker, part, loop.create_future())
        waiting = self._waiting.setdefault(target, [])
        waiting.append(one)
        if len(waiting) == 1:
            loop.call_soon(self._send_later, target)
        await one.written

    async def add_partition(
        self,
        target: str,
        transactional_id: str,
        producer: ProducerEpoch,
        part: TopicPartition,
        *,
        is_check: bool,
    ) -> None:
        request = _P.AddPartitionsToTxnRequest(
            transactions=[
                _P.AddPartitionsToTxnTransaction(
                    transactional_id=transactional_id,
                    producer_id=producer.producer_id,
                    producer_epoch=producer.epoch,
                    verify_only=is_check,
                    topics=[_P.AddPartitionsToTxnTopic(name=part.topic, partitions=[part.partition])],
                )
            ]
        )
        answer = await self._call(target, _PARTITIONS, _PARTITIONS_VERSION, request)
        codes = [answer.error_code] + [
            one.partition_error_code
            for result in answer.results_by_transaction
            for topic in result.topic_results
            for one in topic.results_by_partition
        ]
        _raise_first(
            codes, target, f"{part.topic}-{part.partition} in transaction {transactional_id!r}", part
        )

    async def add_group(
        self, target: str, transactional_id: str, producer: ProducerEpoch, group_id: str
    ) -> None:
        request = _O.AddOffsetsToTxnRequest(
            transactional_id=transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            group_id=group_id,
        )
        answer = await self._call(target, _OFFSETS, _OFFSETS_VERSION, request)
        _raise_first([answer.error_code], target, f"group {group_id!r} in transaction {transactional_id!r}")

    # ---------------------------------------------------------------- markers

    def _send_later(self, target: str) -> None:
        """Whatever has come up by now."""
        waiting = self._waiting.pop(target, [])
        for at in range(0, len(waiting), _MARKER_COUNT_MAX):
            task = asyncio.get_running_loop().create_task(
                self._send(target, waiting[at : at + _MARKER_COUNT_MAX])
            )
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _send(self, target: str, waiting: Sequence[_Waiting]) -> None:
        """Whatever happens, everybody who waits is told."""
        try:
            answer = await self._call(target, MARKERS, _MARKERS_VERSION, _markers_request(waiting))
            codes = _codes(answer, waiting)
        except GoQueueError as error:
            _settle_all(waiting, error)
            return
        except BaseException:
            _settle_all(waiting, None)
            raise
        for one in waiting:
            code = codes.get((one.marker.producer.producer_id, one.part), 7)
            if one.written.done():
                continue
            if code:
                what = f"a marker for {one.part.topic}-{one.part.partition}"
                one.written.set_exception(_error(code, target, what, one.part))
            else:
                one.written.set_result(None)


def _settle_all(waiting: Sequence[_Waiting], error: GoQueueError | None) -> None:
    for one in waiting:
        if not one.written.done():
            if error is None:
                one.written.cancel()
            else:
                one.written.set_exception(error)


def _markers_request(waiting: Sequence[_Waiting]) -> Any:
    markers: dict[Marker, dict[str, list[int]]] = {}
    for one in waiting:
        markers.setdefault(one.marker, {}).setdefault(one.part.topic, []).append(one.part.partition)
    return _M.WriteTxnMarkersRequest(
        markers=[
            _M.WritableTxnMarker(
                producer_id=marker.producer.producer_id,
                producer_epoch=marker.producer.epoch,
                transaction_result=marker.is_commit,
                topics=[
                    _M.WritableTxnMarkerTopic(name=topic, partition_indexes=indexes)
                    for topic, indexes in topics.items()
                ],
                coordinator_epoch=marker.coordinator_epoch,
                transaction_version=_BUMPED_VERSION if marker.is_epoch_bumped else 0,
            )
            for marker, topics in markers.items()
        ]
    )


def _codes(answer: Any, waiting: Sequence[_Waiting]) -> dict[tuple[int, TopicPartition], int]:
    """The worst of each place: a producer may have two markers for one in the same request."""
    codes: dict[tuple[int, TopicPartition], int] = {}
    for marker in answer.markers:
        for topic in marker.topics:
            for one in topic.partitions:
                place = marker.producer_id, TopicPartition(topic.name, one.partition_index)
                codes[place] = codes.get(place, 0) or one.error_code
    return codes


def _raise_first(codes: Sequence[int], target: str, what: str, part: TopicPartition | None = None) -> None:
    for code in codes:
        if code:
            raise _error(code, target, what, part)


def _error(code: int, target: str, what: str, part: TopicPartition | None = None) -> GoQueueError:
    kind = _ERRORS.get(code)
    name = kind.code.value if kind is not None else "INTERNAL"
    details: dict[str, Detail] = {"node": target, "kafka_code": code}
    if part is not None:
        details |= {"topic": part.topic, "partition": part.partition}
    return error_told(name, f"node {target!r} answers {what} with Kafka's error {code} ({name})", details)
