"""What happened to groups and offsets, and how it is written to `__consumer_offsets`.

The log is compacted by key: of each key the newest event is enough, and the order between keys does not matter. So an
event holds the whole of what its key names, and a tombstone says that it is gone.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct

from goqueue.core.group.consumer_events import (
    ConsumerEvent,
    Partition,
    decode_consumer_event,
    encode_consumer_event,
)
from goqueue.core.group.overrides import GroupConfigured
from goqueue.core.group.share_events import (
    SHARE_KEYS,
    ShareEvent,
    ShareGroupAdvanced,
    ShareGroupForgotten,
    ShareMemberRemoved,
    ShareMemberSaved,
    decode_share_event,
    encode_share_event,
)
from goqueue.model.errors import StorageError

CONSUMER_KEYS: Final = ("consumer", "member", "target", "current")


class SavedMember(Struct, frozen=True):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes


class GroupSaved(Struct, frozen=True, omit_defaults=True):
    """A generation of a classic group is complete: its members have their assignments, or there are none left."""

    group_id: str
    generation: int
    protocol_type: str
    protocol_name: str | None
    leader_id: str | None
    since_ms: int
    members: tuple[SavedMember, ...]
    withheld: tuple[Partition, ...] = ()  # what their leader assigned and they were not given: see `gates`


class GroupForgotten(Struct, frozen=True):
    group_id: str


class OffsetCommitted(Struct, frozen=True, gc=False, omit_defaults=True):
    group_id: str
    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    committed_ms: int
    expires_ms: int | None  # None = as the broker is configured
    rank: int  # counts the commits of one partition, pending ones included
    topic_id: int = 0  # 0 = of a version from before it was told: of any topic of the name


class OffsetForgotten(Struct, frozen=True, gc=False):
    group_id: str
    topic: str
    partition: int


class OffsetPended(Struct, frozen=True, gc=False, omit_defaults=True):
    """Committed in a transaction that is not complete."""

    producer_id: int
    producer_epoch: int
    group_id: str
    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    pended_ms: int
    rank: int
    topic_id: int = 0


class PendedForgotten(Struct, frozen=True, gc=False):
    producer_id: int
    group_id: str
    topic: str
    partition: int


class TransactionCompleted(Struct, frozen=True, gc=False, omit_defaults=True):
    """The newest transaction of a producer that ended here: what it sent before and arrives later is refused."""

    producer_id: int
    producer_epoch: int
    completed_ms: int
    coordinator_epoch: int = 0  # of whoever said so


class TransactionForgotten(Struct, frozen=True, gc=False):
    producer_id: int


OffsetEvent = (
    OffsetCommitted
    | OffsetForgotten
    | OffsetPended
    | PendedForgotten
    | TransactionCompleted
    | TransactionForgotten
)
Event = GroupSaved | GroupForgotten | GroupConfigured | OffsetEvent | ConsumerEvent | ShareEvent

_encode = msgspec.json.Encoder().encode
_group = msgspec.json.Decoder(GroupSaved)
_configured = msgspec.json.Decoder(GroupConfigured)
_offset = msgspec.json.Decoder(OffsetCommitted)
_pended = msgspec.json.Decoder(OffsetPended)
_transaction = msgspec.json.Decoder(TransactionCompleted)


class GroupCodec:
    """A value of None is a tombstone."""

    def encode(self, event: Event) -> tuple[bytes, bytes | None]:
        match event:
            case GroupSaved():
                return _encode(["group", event.group_id]), _encode(event)
            case GroupForgotten():
                return _encode(["group", event.group_id]), None
            case GroupConfigured():
                return _encode(["settings", event.group_id]), _encode(event) if event.overrides else None
            case OffsetCommitted():
                return _encode(["offset", event.group_id, event.topic, event.partition]), _encode(event)
            case OffsetForgotten():
                return _encode(["offset", event.group_id, event.topic, event.partition]), None
            case OffsetPended():
                return _pended_key(event), _encode(event)
            case PendedForgotten():
                return _pended_key(event), None
            case TransactionCompleted():
                return _encode(["producer", event.producer_id]), _encode(event)
            case TransactionForgotten():
                return _encode(["producer", event.producer_id]), None
            case ShareGroupAdvanced() | ShareGroupForgotten() | ShareMemberSaved() | ShareMemberRemoved():
                return encode_share_event(event)
            case _:
                return encode_consumer_event(event)

    def decode(self, key: bytes, value: bytes | None) -> Event:
        try:
            parts: list[object] = msgspec.json.decode(key, type=list[object])
            return _decoded(parts, value)
        except msgspec.DecodeError as error:
            raise StorageError(f"an event of a group cannot be read: {error}; its key is {key!r}") from error


def _pended_key(event: OffsetPended | PendedForgotten) -> bytes:
    return _encode(["pending", event.producer_id, event.group_id, event.topic, event.partition])


def _decoded(parts: list[object], value: bytes | None) -> Event:
    match parts:
        case ["group", str() as group_id]:
            return GroupForgotten(group_id) if value is None else _group.decode(value)
        case ["settings", str() as group_id]:
            return GroupConfigured(group_id, {}) if value is None else _configured.decode(value)
        case ["offset", str() as group_id, str() as topic, int() as partition]:
            return OffsetForgotten(group_id, topic, partition) if value is None else _offset.decode(value)
        case ["pending", int() as producer_id, str() as group_id, str() as topic, int() as partition]:
            if value is None:
                return PendedForgotten(producer_id, group_id, topic, partition)
            return _pended.decode(value)
        case ["producer", int() as producer_id]:
            return TransactionForgotten(producer_id) if value is None else _transaction.decode(value)
        case [kind, *_] if kind in CONSUMER_KEYS:
            return decode_consumer_event(parts, value)
        case [kind, *_] if kind in SHARE_KEYS:
            return decode_share_event(parts, value)
        case _:
            raise StorageError(f"a key that no event has: {parts}")
