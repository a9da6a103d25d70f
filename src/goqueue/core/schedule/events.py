"""What the log of a schedule holds (docs/format/schedule.md): keyed records, of which compaction keeps the newest.

A delayed record has its id as key, which is the offset it has in this log, and goes with a tombstone when it is fired or
cancelled. Its own key and value follow its due time in the value; its headers stay headers. What the schedule is about
to fire, what idempotent producers have sent, and recurring schedules are events of their own.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import msgspec
from msgspec import Struct

from goqueue.core.schedule.recurring import Recurring, RecurringRemoved
from goqueue.model.record import NewRecord

_ID = struct.Struct(">q")
_HEAD = struct.Struct(">BBqi")  # format, lane and whether there is a value, due time, length of the key
_FORMAT = 1
_HAS_VALUE = 0x10
_LANE_MASK = 0x0F
_FIRING_KEY = b"firing"
_TAKEN_KEY = b"taken"  # and the producer id
_RECURRING_KEY = b"recurring:"  # and the name


class Scheduled(NamedTuple):
    id: int
    due_ms: int
    lane: int


class Removed(NamedTuple):
    """A pending record is cancelled, a firing one has been fired."""

    id: int


class Firing(Struct, frozen=True, array_like=True, tag="firing"):
    """These go to the partition now, in one batch of the schedule's own producer: with the same id, epoch and sequence
    whenever it is sent again, so that it is there once."""

    ids: list[int]
    now_ms: int
    producer_id: int
    epoch: int
    sequence: int


class Fired(Struct, frozen=True, array_like=True, tag="fired"):
    """They are there, and durable. The next batch has this sequence."""

    producer_id: int
    epoch: int
    sequence: int


class TakenBatch(Struct, frozen=True, array_like=True):
    """A batch of which records were taken to be scheduled: those at `positions`, with ids from `first_id` on."""

    first_sequence: int
    last_sequence: int
    first_id: int
    positions: list[int]


class Taken(Struct, frozen=True, array_like=True, tag="taken"):
    """The last of a producer's batches that had delayed records. Without any, the producer is forgotten."""

    producer_id: int
    epoch: int
    batches: list[TakenBatch]


Change = Removed | Firing | Fired | Taken | Recurring | RecurringRemoved
Event = Scheduled | Change

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Firing | Fired | Taken | Recurring] = msgspec.msgpack.Decoder(
    Firing | Fired | Taken | Recurring
)


class Message(NamedTuple):
    """A delayed record as its log has it."""

    due_ms: int
    lane: int
    record: NewRecord


def encode_message(id: int, message: Message) -> NewRecord:
    due_ms, lane, record = message
    key, value = record.key, record.value
    flags = lane | (0 if value is None else _HAS_VALUE)
    head = _HEAD.pack(_FORMAT, flags, due_ms, -1 if key is None else len(key))
    return NewRecord(_ID.pack(id), head + (key or b"") + (value or b""), record.headers)


def decode_message(value: bytes, headers: tuple[tuple[str, bytes | None], ...]) -> Message:
    format, flags, due_ms, key_length = _HEAD.unpack_from(value)
    if format != _FORMAT:
        raise ValueError(f"a delayed record has format {format}, not {_FORMAT}")
    start = _HEAD.size
    end = start + max(0, key_length)
    key = None if key_length < 0 else value[start:end]
    return Message(
        due_ms, flags & _LANE_MASK, NewRecord(key, value[end:] if flags & _HAS_VALUE else None, headers)
    )


def encode(event: Change) -> NewRecord:
    match event:
        case Removed(id):
            return NewRecord(_ID.pack(id), None)
        case Taken():
            key = _TAKEN_KEY + _ID.pack(event.producer_id)
            return NewRecord(key, _encoder.encode(event) if event.batches else None)
        case Recurring():
            return NewRecord(_RECURRING_KEY + event.name.encode(), _encoder.encode(event))
        case RecurringRemoved(name):
            return NewRecord(_RECURRING_KEY + name.encode(), None)
        case _:
            return NewRecord(_FIRING_KEY, _encoder.encode(event))


def decode(key: bytes | None, value: bytes | None) -> Event:
    """ValueError where it is none."""
    if key is None:
        raise ValueError("an event of a schedule without a key")
    if len(key) == _ID.size:
        (id,) = _ID.unpack(key)
        if value is None:
            return Removed(id)
        format, flags, due_ms, _ = _HEAD.unpack_from(value)
        if format != _FORMAT:
            raise ValueError(f"a delayed record has format {format}, not {_FORMAT}")
        return Scheduled(id, due_ms, flags & _LANE_MASK)
    if value is None and key.startswith(_RECURRING_KEY):
        return RecurringRemoved(key[len(_RECURRING_KEY) :].decode())
    if value is None:
        (producer_id,) = _ID.unpack_from(key, len(_TAKEN_KEY))
        return Taken(producer_id, -1, [])
    return _decoder.decode(value)
