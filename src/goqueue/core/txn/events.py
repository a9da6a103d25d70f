"""A transactional id as its log keeps it: each event is the whole state of one id, and the newest one counts."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import msgspec
from msgspec import Struct


class TopicPartition(NamedTuple):
    topic: str
    partition: int


class ProducerEpoch(NamedTuple):
    """Who a producer is: of all that ever had the id, only the one with the newest epoch may write."""

    producer_id: int
    epoch: int


class TxnState(StrEnum):
    """Kafka's names. The last two are never stored: a fence is one step, and who is dead is forgotten."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"
    DEAD = "Dead"


PREPARED = (TxnState.PREPARE_COMMIT, TxnState.PREPARE_ABORT)  # decided, the markers are being written
COMPLETE = (TxnState.COMPLETE_COMMIT, TxnState.COMPLETE_ABORT)
ENDED = PREPARED + COMPLETE
RESTING = (TxnState.EMPTY, *COMPLETE)  # no transaction is open


class TransactionSaved(Struct, frozen=True, omit_defaults=True):
    """The state of a transactional id from here on."""

    transactional_id: str
    producer_id: int
    epoch: int
    timeout_ms: int
    state: TxnState
    updated_ms: int
    serial: int = 0  # of the transaction that is open or was the last: each has its own, whatever its epoch
    last_epoch: int | None = None  # the producer's epoch before this one, if the same producer had it
    previous_producer_id: int | None = None  # its id before this one, after an overflow of the epoch
    next_producer_id: int | None = None  # its id once the transaction is complete, after an overflow
    is_epoch_bumped: bool = (
        False  # by the end of the transaction: its markers have an epoch above that of its records
    )
    partitions: dict[str, tuple[int, ...]] = {}
    groups: tuple[str, ...] = ()
    started_ms: int | None = None  # when the transaction began, also of one that is over

    @property
    def producer(self) -> ProducerEpoch:
        return ProducerEpoch(self.producer_id, self.epoch)

    @property
    def has_participants(self) -> bool:
        return bool(self.partitions or self.groups)

    def holds(self, topic: str, partition: int) -> bool:
        return partition in self.partitions.get(topic, ())

    def topic_partitions(self) -> list[TopicPartition]:
        return [
            TopicPartition(topic, index) for topic, indexes in self.partitions.items() for index in indexes
        ]


class TransactionForgotten(Struct, frozen=True):
    """The transactional id is unknown from here on."""

    transactional_id: str


Event = TransactionSaved | TransactionForgotten

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(TransactionSaved)


class TxnCodec:
    """Events as records of a compacted log: the key is the transactional id, no value means forgotten."""

    def encode(self, event: Event) -> tuple[bytes, bytes | None]:
        key = event.transactional_id.encode()
        return key, None if isinstance(event, TransactionForgotten) else _encoder.encode(event)

    def decode(self, key: bytes, value: bytes | None) -> Event:
        return TransactionForgotten(key.decode()) if value is None else _decoder.decode(value)
