"""The topics that are open on this node, by name. The catalogue decides what exists; this is what runs."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from goqueue.core.catalog import TopicCreated
from goqueue.model.errors import PartitionNotFound, TopicNotFound
from goqueue.model.names import check_topic_name, is_internal
from goqueue.model.settings import TopicSettings
from goqueue.node.partition import Partition


@dataclass(slots=True)
class OpenTopic:
    facts: TopicCreated
    settings: TopicSettings
    partitions: list[Partition]
    keyless_turn: int = 0

    def next_keyless(self) -> int:
        """The partition for the keyless messages of one request: round robin, sticky within the request."""
        partition = self.keyless_turn % len(self.partitions)
        self.keyless_turn = partition + 1
        return partition

    def partition(self, index: int) -> Partition:
        if not 0 <= index < len(self.partitions):
            raise PartitionNotFound(self.facts.name, index, len(self.partitions))
        return self.partitions[index]


class TopicTable:
    """Internal topics are run like all others and found only by who asks for them as such."""

    def __init__(self) -> None:
        self._topics: dict[str, OpenTopic] = {}
        self._internal: dict[str, OpenTopic] = {}
        self._companions: dict[tuple[str, int], Partition] = {}
        self._names: dict[int, str] = {}  # of topics that clients may see, by id

    def get(self, name: str) -> OpenTopic:
        topic = self._topics.get(name)
        if topic is None:
            check_topic_name(name)
            raise TopicNotFound(name)
        return topic

    def name_of(self, id: int) -> str | None:
        return self._names.get(id)

    def internal(self, name: str) -> OpenTopic | None:
        return self._internal.get(name)

    def companion(self, name: str, index: int) -> Partition | None:
        return self._companions.get((name, index))

    def put_companion(self, partition: Partition) -> None:
        self._companions[partition.topic, partition.index] = partition

    def remove_companions(self, names: Collection[str]) -> list[Partition]:
        """Of a topic that is deleted."""
        found = [place for place in self._companions if place[0] in names]
        return [self._companions.pop(place) for place in found]

    def put(self, topic: OpenTopic) -> None:
        name = topic.facts.name
        if is_internal(name):
            self._internal[name] = topic
            return
        self._topics[name] = topic
        self._names[topic.facts.id] = name

    def remove(self, name: str) -> OpenTopic | None:
        """None if the topic could not be opened."""
        topic = self._topics.pop(name, None)
        if topic is not None:
            del self._names[topic.facts.id]
        return topic

    def all(self) -> list[OpenTopic]:
        """Those that clients may see, by name."""
        return [self._topics[name] for name in sorted(self._topics)]

    def partitions(self) -> list[Partition]:
        """Of all topics, the internal ones last."""
        internal = [self._internal[name] for name in sorted(self._internal)]
        companions = [self._companions[place] for place in sorted(self._companions)]
        return [partition for topic in self.all() + internal for partition in topic.partitions] + companions

    def partition_count(self, name: str) -> int | None:
        topic = self._topics.get(name)
        return None if topic is None else len(topic.partitions)

    def names(self) -> list[str]:
        return sorted(self._topics)
