"""The topics that are open on this node, by name. The catalogue decides what exists; this is what runs."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from goqueue.core.catalog import TopicCreated
from goqueue.core.cluster.partitions import NO_LEADER, PartitionState
from goqueue.model.cluster_errors import NotLeader
from goqueue.model.errors import PartitionNotFound, TopicNotFound
from goqueue.model.names import check_topic_name, companions_of, is_internal
from goqueue.model.settings import TopicSettings
from goqueue.node.partition import Partition

# What a partition was last told to do here: its state, the kinds of its companions, and how many must be in sync.
Assignment = tuple[PartitionState, frozenset[str], int]


@dataclass(slots=True)
class OpenTopic:
    """A topic as this node has it: of its partitions it runs those that it holds a replica of."""

    facts: TopicCreated
    settings: TopicSettings
    partition_count: int
    local: dict[int, Partition]
    states: tuple[PartitionState, ...]
    keyless_turn: int = 0
    assigned: dict[int, Assignment] = field(default_factory=dict)
    may_have_strays: bool = True  # folders of partitions that other nodes have now

    @property
    def partitions(self) -> list[Partition]:
        """Those that run here, by index."""
        return list(self.local.values())

    def next_keyless(self) -> int:
        """The partition for the keyless messages of one request: round robin, sticky within the request."""
        partition = self.keyless_turn % self.partition_count
        self.keyless_turn = partition + 1
        return partition

    def check_partition(self, index: int) -> None:
        if not 0 <= index < self.partition_count:
            raise PartitionNotFound(self.facts.name, index, self.partition_count)

    def partition(self, index: int) -> Partition:
        found = self.local.get(index)
        if found is None:
            self.check_partition(index)
            leader = self.states[index].leader
            raise NotLeader(self.facts.name, index, None if leader == NO_LEADER else leader)
        return found


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

    def any_topic(self, name: str) -> OpenTopic | None:
        """Of clients or of the broker itself."""
        return self._topics.get(name) or self._internal.get(name)

    def any_partition(self, name: str, index: int) -> Partition:
        """Of a topic, an internal one, or a companion."""
        companion = self._companions.get((name, index))
        if companion is not None:
            return companion
        topic = self.any_topic(name)
        if topic is None:
            raise TopicNotFound(name)
        return topic.partition(index)

    def companions_of(self, topic: str, index: int) -> list[Partition]:
        """Those that run here."""
        found = [self._companions.get((name, index)) for name in companions_of(topic)]
        return [one for one in found if one is not None]

    def companion(self, name: str, index: int) -> Partition | None:
        return self._companions.get((name, index))

    def put_companion(self, partition: Partition) -> None:
        self._companions[partition.topic, partition.index] = partition

    def remove_companions_of(self, topic: str, index: int) -> list[Partition]:
        """Of a partition that this node gives away."""
        found = [(name, index) for name in companions_of(topic) if (name, index) in self._companions]
        return [self._companions.pop(place) for place in found]

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

    def note_states(self, name: str, states: tuple[PartitionState, ...]) -> None:
        """Who leads counts for whoever asks at once, however long it takes until this node has followed: clients that are sent to the
        leader before would find nobody. One that has other partitions by now waits for that."""
        topic = self.any_topic(name)
        if topic is not None and topic.partition_count == len(states):
            topic.states = states

    def remove(self, name: str) -> OpenTopic | None:
        """None if the topic could not be opened."""
        topic = self._topics.pop(name, None) or self._internal.pop(name, None)
        if topic is not None:
            self._names.pop(topic.facts.id, None)
        return topic

    def all(self) -> list[OpenTopic]:
        """Those that clients may see, by name."""
        return [self._topics[name] for name in sorted(self._topics)]

    def partitions(self) -> list[Partition]:
        """Of all topics, the internal ones last."""
        internal = [self._internal[name] for name in sorted(self._internal)]
        companions = [self._companions[place] for place in sorted(self._companions)]
        return [partition for topic in self.all() + internal for partition in topic.partitions] + companions

    def counts(self) -> tuple[int, int]:
        """Of the topics that clients may see, and of all partitions that run here."""
        own = sum(len(topic.local) for table in (self._topics, self._internal) for topic in table.values())
        return len(self._topics), own + len(self._companions)

    def partition_count(self, name: str) -> int | None:
        topic = self._topics.get(name)
        return None if topic is None else topic.partition_count

    def names(self) -> list[str]:
        return sorted(self._topics)

    def all_names(self) -> list[str]:
        """The internal ones, too."""
        return sorted([*self._topics, *self._internal])
