"""The topics that are open on this node, by name. The catalogue decides what exists; this is what runs."""

from __future__ import annotations

from dataclasses import dataclass

from goqueue.core.catalog import TopicCreated
from goqueue.model.errors import PartitionNotFound, TopicNotFound
from goqueue.model.names import check_topic_name
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
    def __init__(self) -> None:
        self._topics: dict[str, OpenTopic] = {}

    def get(self, name: str) -> OpenTopic:
        topic = self._topics.get(name)
        if topic is None:
            check_topic_name(name)
            raise TopicNotFound(name)
        return topic

    def put(self, topic: OpenTopic) -> None:
        self._topics[topic.facts.name] = topic

    def remove(self, name: str) -> OpenTopic | None:
        """None if the topic could not be opened."""
        return self._topics.pop(name, None)

    def all(self) -> list[OpenTopic]:
        return [self._topics[name] for name in sorted(self._topics)]

    def partitions(self) -> list[Partition]:
        return [partition for topic in self.all() for partition in topic.partitions]
