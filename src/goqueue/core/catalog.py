"""Topics, their partitions and settings, and the producer ids handed out: the state of `__cluster_metadata`.

`decide` turns a command into events and a reply, reading only. `apply` alone changes the state and is also how
it is rebuilt from the log: replayed state equals live state.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

import msgspec
from msgspec import Struct

from goqueue.model.errors import InvalidPartitions, LimitExceeded, TopicExists, TopicNotFound
from goqueue.model.limits import Limits
from goqueue.model.names import check_new_topic_name, check_topic_name, is_internal
from goqueue.model.settings import SETTING_NAMES, check_settings, unknown_setting


class TopicCreated(Struct, frozen=True, tag=True, tag_field="event"):
    name: str
    id: int
    partition_count: int
    overrides: dict[str, str]
    created_ms: int


class TopicAltered(Struct, frozen=True, tag=True, tag_field="event"):
    name: str
    overrides: dict[str, str]  # all of them, not only what changed


class TopicGrown(Struct, frozen=True, tag=True, tag_field="event"):
    name: str
    partition_count: int  # all of them, not only what was added


class TopicDeleted(Struct, frozen=True, tag=True, tag_field="event"):
    name: str


class ProducerIdReserved(Struct, frozen=True, tag=True, tag_field="event"):
    id: int


class ReceiptKeyMade(Struct, frozen=True, tag=True, tag_field="event"):
    """What receipts are signed with, for as long as the data lives."""

    key: str


Event = TopicCreated | TopicAltered | TopicGrown | TopicDeleted | ProducerIdReserved | ReceiptKeyMade


class CreateTopic(Struct, frozen=True):
    name: str
    partition_count: int
    overrides: Mapping[str, str]
    is_internal: bool = False


class AlterTopic(Struct, frozen=True):
    name: str
    changes: Mapping[str, str | None]  # None takes an override back


class GrowTopic(Struct, frozen=True):
    name: str
    partition_count: int  # all of them, not only what is added


class DeleteTopic(Struct, frozen=True):
    name: str


class ReserveProducerId(Struct, frozen=True):
    pass


class MakeReceiptKey(Struct, frozen=True):
    """If there is none yet."""

    key: str


Command = CreateTopic | AlterTopic | GrowTopic | DeleteTopic | ReserveProducerId | MakeReceiptKey

_decoder: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)


class Catalog:
    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._topics: dict[str, TopicCreated] = {}
        self._deleted: set[str] = set()  # only ever asked for membership
        self._next_topic_id = 1
        self._next_producer_id = 1
        self.receipt_key: str | None = None

    def topics(self) -> list[TopicCreated]:
        """Sorted by name."""
        return [self._topics[name] for name in sorted(self._topics)]

    def topic(self, name: str) -> TopicCreated:
        topic = self._topics.get(check_topic_name(name))
        if topic is None or is_internal(name):
            raise TopicNotFound(name)
        return topic

    def was_deleted(self, name: str) -> bool:
        return name in self._deleted

    def decide(self, command: Command, now_ms: int) -> list[Event]:
        match command:
            case CreateTopic():
                return [self._create(command, now_ms)]
            case AlterTopic():
                return [self._alter(command)]
            case GrowTopic():
                return [self._grow(command)]
            case DeleteTopic():
                return [TopicDeleted(self.topic(command.name).name)]
            case ReserveProducerId():
                return [ProducerIdReserved(self._next_producer_id)]
            case MakeReceiptKey():
                return [ReceiptKeyMade(self.receipt_key or command.key)]
            case _:
                assert_never(command)

    def _create(self, command: CreateTopic, now_ms: int) -> TopicCreated:
        check = check_topic_name if command.is_internal else check_new_topic_name
        name = check(command.name)
        overrides = check_settings(command.overrides)
        if name in self._topics:
            raise TopicExists(name)
        if not command.is_internal:  # limits are for clients; without its own topics the broker has no groups
            self._check_partition_count(command.partition_count, added=command.partition_count)
            if len(self._topics) >= self._limits.topic_count_max:
                raise LimitExceeded(f"there are {len(self._topics)} topics already, which is the limit")
        return TopicCreated(name, self._next_topic_id, command.partition_count, overrides, now_ms)

    def _grow(self, command: GrowTopic) -> TopicGrown:
        topic = self.topic(command.name)
        added = command.partition_count - topic.partition_count
        if added <= 0:
            raise InvalidPartitions(
                f"topic {topic.name!r} has {topic.partition_count} partitions; it can only get more, "
                f"not {command.partition_count}",
                partitions=command.partition_count,
                partition_count=topic.partition_count,
            )
        self._check_partition_count(command.partition_count, added=added)
        return TopicGrown(topic.name, command.partition_count)

    def _check_partition_count(self, partition_count: int, *, added: int) -> None:
        limits = self._limits
        if not 1 <= partition_count <= limits.partitions_per_topic_max:
            raise InvalidPartitions(
                f"a topic has 1 to {limits.partitions_per_topic_max} partitions, not {partition_count}",
                partitions=partition_count,
            )
        total = added + sum(topic.partition_count for topic in self._topics.values())
        if total > limits.partition_count_max:
            raise LimitExceeded(
                f"{total} partitions in all would be more than the limit of {limits.partition_count_max}"
            )

    def _alter(self, command: AlterTopic) -> TopicAltered:
        overrides = dict(self.topic(command.name).overrides)
        for name, text in command.changes.items():
            if text is not None:
                overrides.update(check_settings({name: text}))
            elif name in SETTING_NAMES:
                overrides.pop(name, None)
            else:
                raise unknown_setting(name)
        return TopicAltered(command.name, overrides)

    def apply(self, event: Event) -> None:
        match event:
            case TopicCreated():
                self._topics[event.name] = event
                self._deleted.discard(event.name)
                self._next_topic_id = event.id + 1
            case TopicAltered():
                before = self._topics[event.name]
                self._topics[event.name] = msgspec.structs.replace(before, overrides=event.overrides)
            case TopicGrown():
                before = self._topics[event.name]
                self._topics[event.name] = msgspec.structs.replace(
                    before, partition_count=event.partition_count
                )
            case TopicDeleted():
                del self._topics[event.name]
                self._deleted.add(event.name)
            case ProducerIdReserved():
                self._next_producer_id = event.id + 1
            case ReceiptKeyMade():
                self.receipt_key = event.key
            case _:
                assert_never(event)


def encode_event(event: Event) -> bytes:
    return msgspec.json.encode(event)


def decode_event(data: bytes) -> Event:
    return _decoder.decode(data)
