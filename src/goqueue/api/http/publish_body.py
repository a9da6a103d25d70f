"""The body of a publish request, and its messages as the node takes them.

Almost all messages are a key and a value in text. Those are decoded into a struct of only these fields, whose
decoder refuses anything else at the first message that has more; then the full struct reads the body again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, NamedTuple

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType, field

from goqueue.api.http.decoding import decode
from goqueue.api.http.message_headers import (
    DelayField,
    InstantField,
    PriorityField,
    TraceField,
    due_headers,
    priority_headers,
    trace_headers,
)
from goqueue.model.acks import Acks
from goqueue.model.errors import GoQueueError, InvalidRequest
from goqueue.model.record import Header, NewRecord, Producer
from goqueue.node.requests import NewMessage

_BASE64 = {"pattern": "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"}
_INT_MAX = 2**31 - 1

Base64 = Annotated[bytes, Meta(extra_json_schema=_BASE64)]
PartitionIndex = Annotated[int, Meta(ge=0, le=_INT_MAX)]


class PlainMessage(Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    value: str
    key: str | None = None
    partition: PartitionIndex | None = None


class Content(Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """What every message has, whenever it is sent."""

    value: str | UnsetType | None = UNSET
    value_base64: Base64 | UnsetType = UNSET
    key: str | UnsetType | None = UNSET
    key_base64: Base64 | UnsetType = UNSET
    headers: dict[str, str | list[str | None] | None] = {}
    headers_base64: dict[str, Base64 | list[Base64 | None] | None] = {}
    partition: PartitionIndex | None = None
    priority: (
        Annotated[
            PriorityField,
            Meta(description="critical (0), high (1), normal (2), low (3) or background (4)."),
        ]
        | UnsetType
    ) = UNSET


class Message(Content, frozen=True, forbid_unknown_fields=True, gc=False):
    """Exactly one of `value` and `value_base64`, and at most one of `key` and `key_base64`. A value of null is a
    tombstone. A header may occur several times: give it a list."""

    delay: Annotated[DelayField, Meta(description="How long nobody gets the message.")] | UnsetType = UNSET
    deliver_at: (
        Annotated[
            InstantField, Meta(description="Until when nobody gets it. An instant in the past is at once.")
        ]
        | UnsetType
    ) = field(default=UNSET, name="deliverAt")
    traceparent: Annotated[TraceField, Meta(description="Of W3C's trace context.")] | UnsetType = UNSET


class _Options(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    acks: Annotated[
        Acks,
        Meta(
            description="When the answer is sent. all (the default): on every in-sync replica and fsynced. leader: in the "
            "leader's log, flushed to disk within a second. none: at once."
        ),
    ] = Acks.ALL
    producer_id: Annotated[int, Meta(ge=0, le=2**62 - 1)] | UnsetType = UNSET
    epoch: Annotated[int, Meta(ge=0, le=2**15 - 1)] | UnsetType = UNSET
    sequence: (
        Annotated[int, Meta(ge=0, le=_INT_MAX, description="Of the first message, in its partition.")]
        | UnsetType
    ) = UNSET


class PlainPublish(_Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    messages: Annotated[list[PlainMessage], Meta(min_length=1)]


class Publish(_Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`producer_id`, `epoch` and `sequence` make a retry harmless: all three or none, and then all messages must
    go to one partition."""

    messages: Annotated[list[Message], Meta(min_length=1)]


_plain_decoder = msgspec.json.Decoder(PlainPublish)
_decoder = msgspec.json.Decoder(Publish)


class PublishRequest(NamedTuple):
    """`refused` has the messages with which something is wrong by themselves, by their place in the request."""

    messages: Sequence[NewMessage]
    acks: Acks
    producer: Producer | None
    refused: Mapping[int, GoQueueError] = {}


def read_publish(body: bytes, now_ms: int) -> PublishRequest:
    """The request's messages, in order, and how they are to be stored."""
    try:
        plain = _plain_decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _read_full(body, now_ms)
    messages = [
        NewMessage(
            NewRecord(None if message.key is None else message.key.encode(), message.value.encode()),
            message.partition,
        )
        for message in plain.messages
    ]
    return PublishRequest(messages, plain.acks, _producer(plain))


def _read_full(body: bytes, now_ms: int) -> PublishRequest:
    request = decode(_decoder, body)
    messages: list[NewMessage] = []
    refused: dict[int, GoQueueError] = {}
    for at, message in enumerate(request.messages):
        path = f"$.messages[{at}]"
        key, value = key_in(message, path), value_in(message, path)
        headers = headers_in(message)
        try:
            more = [
                *priority_headers(message.priority, headers),
                *due_headers(message.delay, message.deliver_at, headers, now_ms),
                *trace_headers(message.traceparent, headers),
            ]
            messages.append(NewMessage(NewRecord(key, value, (*headers, *more)), message.partition))
        except GoQueueError as error:
            refused[at] = error
    producer = _producer(request)
    if producer is not None and refused:
        raise next(iter(refused.values()))  # its sequence counts all messages, or none
    return PublishRequest(messages, request.acks, producer, refused)


def _producer(request: _Options) -> Producer | None:
    id, epoch, sequence = request.producer_id, request.epoch, request.sequence
    if isinstance(id, int) and isinstance(epoch, int) and isinstance(sequence, int):
        return Producer(id, epoch, sequence)
    if id is epoch is sequence:
        return None
    raise InvalidRequest("give producer_id, epoch and sequence together, or none of them")


def key_in(message: Content, path: str) -> bytes | None:
    """`path` is where the message is in its body, for errors."""
    if isinstance(message.key_base64, bytes):
        if message.key is not UNSET:
            raise InvalidRequest(f"{path} has key and key_base64; give one of them", path=path)
        return message.key_base64
    return message.key.encode() if isinstance(message.key, str) else None


def value_in(message: Content, path: str) -> bytes | None:
    has_text = message.value is not UNSET
    if has_text is isinstance(message.value_base64, bytes):
        found = "both value and value_base64" if has_text else "neither value nor value_base64"
        raise InvalidRequest(f"{path} has {found}; give one of them", path=path)
    if isinstance(message.value_base64, bytes):
        return message.value_base64
    return message.value.encode() if isinstance(message.value, str) else None


def headers_in(message: Content) -> list[Header]:
    headers: list[Header] = []
    for name, texts in message.headers.items():
        for text in texts if isinstance(texts, list) else (texts,):
            headers.append((name, None if text is None else text.encode()))
    for name, contents in message.headers_base64.items():
        for content in contents if isinstance(contents, list) else (contents,):
            headers.append((name, content))
    return headers
