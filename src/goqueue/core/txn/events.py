"""A transactional id as its log keeps it: each event is the whole state of one id, and the newest one counts.

Joints and spare producers are kept in the same log, under keys that begin with a NUL: no transactional id does.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple, assert_never

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


class JointBatch(Struct, frozen=True):
    """What a member is enrolled in."""

    joint_id: str
    batch_id: int


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
    joint: JointBatch | None = (
        None  # whose member it is: then its verdict is the joint's, and it is forgotten after it
    )

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


class JointSaved(Struct, frozen=True):
    """The joint has committed this batch, and will commit neither it nor one before it again."""

    joint_id: str
    last_batch_id: int
    updated_ms: int


class JointForgotten(Struct, frozen=True):
    """The joint may begin again at any batch."""

    joint_id: str


class ProducerSpared(Struct, frozen=True):
    """A producer id that a member left behind: the next one may have it from this epoch on, which nobody ever had."""

    producer_id: int
    epoch: int


class SpareTaken(Struct, frozen=True):
    producer_id: int


Event = TransactionSaved | TransactionForgotten | JointSaved | JointForgotten | ProducerSpared | SpareTaken

_JOINT_KEY = b"\0joint\0"
_SPARE_KEY = b"\0spare\0"
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(TransactionSaved)
_joint_decoder = msgspec.json.Decoder(JointSaved)
_spare_decoder = msgspec.json.Decoder(ProducerSpared)


class TxnCodec:
    """Events as records of a compacted log: the key says what it is about, no value means forgotten."""

    def encode(self, event: Event) -> tuple[bytes, bytes | None]:
        is_gone = isinstance(event, TransactionForgotten | JointForgotten | SpareTaken)
        return _key(event), None if is_gone else _encoder.encode(event)

    def decode(self, key: bytes, value: bytes | None) -> Event:
        if key.startswith(_JOINT_KEY):
            joint_id = key.removeprefix(_JOINT_KEY).decode()
            return JointForgotten(joint_id) if value is None else _joint_decoder.decode(value)
        if key.startswith(_SPARE_KEY):
            producer_id = int(key.removeprefix(_SPARE_KEY))
            return SpareTaken(producer_id) if value is None else _spare_decoder.decode(value)
        return TransactionForgotten(key.decode()) if value is None else _decoder.decode(value)


def _key(event: Event) -> bytes:
    match event:
        case TransactionSaved() | TransactionForgotten():
            return event.transactional_id.encode()
        case JointSaved() | JointForgotten():
            return _JOINT_KEY + event.joint_id.encode()
        case ProducerSpared() | SpareTaken():
            return _SPARE_KEY + b"%d" % event.producer_id
        case _:
            assert_never(event)


def encoded_bytes(saved: TransactionSaved) -> int:
    """What the event takes in the log, without the few bytes around each record."""
    return len(_key(saved)) + len(_encoder.encode(saved))
