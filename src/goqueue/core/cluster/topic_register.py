"""The topics by name: what a user asked for, without who has them."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import structs

from goqueue.core.cluster.commands import AlterTopic, CreateTopic, GrowTopic
from goqueue.core.cluster.events import TopicAltered, TopicCreated, TopicGrown
from goqueue.model.errors import InvalidPartitions, InvalidSetting, LimitExceeded, TopicExists, TopicNotFound
from goqueue.model.limits import Limits
from goqueue.model.names import check_new_topic_name, check_topic_name, is_internal
from goqueue.model.settings import SETTING_NAMES, ScalingMode, check_settings, unknown_setting


class TopicRegister:
    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._topics: dict[str, TopicCreated] = {}
        self._sorted_names: list[str] | None = []  # None: to be sorted again
        self._deleted: set[str] = set()  # only ever asked for membership
        self._partition_count = 0
        self.next_id = 1

    def all(self) -> list[TopicCreated]:
        """Sorted by name."""
        if self._sorted_names is None:
            self._sorted_names = sorted(self._topics)
        return [self._topics[name] for name in self._sorted_names]

    def find(self, name: str) -> TopicCreated | None:
        """The broker's own, too."""
        return self._topics.get(name)

    def get(self, name: str) -> TopicCreated:
        topic = self._topics.get(check_topic_name(name))
        if topic is None or is_internal(name):
            raise TopicNotFound(name)
        return topic

    def was_deleted(self, name: str) -> bool:
        return name in self._deleted

    def gone_before(self, name: str) -> int:
        """Of the topics that have had the name, those with a lower id than this are deleted."""
        topic = self._topics.get(name)
        return self.next_id if topic is None else topic.id

    def deleted(self) -> list[str]:
        return sorted(self._deleted)

    # ---------------------------------------------------------------- decisions

    def create(self, command: CreateTopic, now_ms: int) -> TopicCreated:
        check = check_topic_name if command.is_internal else check_new_topic_name
        name = check(command.name)
        overrides = check_settings(command.overrides)
        if name in self._topics:
            raise TopicExists(name)
        if not command.is_internal:  # limits are for clients; without its own topics the broker has no groups
            self._check_partition_count(command.partition_count, added=command.partition_count)
            if len(self._topics) >= self._limits.topic_count_max:
                raise LimitExceeded(f"there are {len(self._topics)} topics already, which is the limit")
        return TopicCreated(name, self.next_id, command.partition_count, overrides, now_ms)

    def grow(self, command: GrowTopic) -> TopicGrown:
        topic = self.get(command.name)
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

    def alter(self, command: AlterTopic) -> TopicAltered:
        old = self.get(command.name).overrides
        overrides = dict(old)
        for name, text in command.changes.items():
            if text is not None:
                overrides.update(check_settings({name: text}))
            elif name in SETTING_NAMES:
                overrides.pop(name, None)
            else:
                raise unknown_setting(name)
        _check_keys_stay(command.name, old, overrides)
        return TopicAltered(command.name, overrides)

    def _check_partition_count(self, partition_count: int, *, added: int) -> None:
        limits = self._limits
        if not 1 <= partition_count <= limits.partitions_per_topic_max:
            raise InvalidPartitions(
                f"a topic has 1 to {limits.partitions_per_topic_max} partitions, not {partition_count}",
                partitions=partition_count,
            )
        total = added + self._partition_count
        if total > limits.partition_count_max:
            raise LimitExceeded(
                f"{total} partitions in all would be more than the limit of {limits.partition_count_max}"
            )

    # ---------------------------------------------------------------- changes

    def add(self, topic: TopicCreated) -> None:
        # Who has the partitions is known elsewhere, and changes.
        self._topics[topic.name] = structs.replace(topic, assignments=[]) if topic.assignments else topic
        self._sorted_names = None
        self._deleted.discard(topic.name)
        self._partition_count += topic.partition_count
        self.next_id = topic.id + 1

    def change_overrides(self, name: str, overrides: dict[str, str]) -> None:
        self._topics[name] = structs.replace(self._topics[name], overrides=overrides)

    def change_partition_count(self, name: str, partition_count: int) -> None:
        before = self._topics[name]
        self._partition_count += partition_count - before.partition_count
        self._topics[name] = structs.replace(before, partition_count=partition_count)

    def remove(self, name: str) -> None:
        self._partition_count -= self._topics.pop(name).partition_count
        self._sorted_names = None
        self._deleted.add(name)

    def load(self, topics: list[TopicCreated], deleted: list[str], next_id: int) -> None:
        """Into an empty register."""
        for topic in topics:
            self.add(topic)
        self._deleted.update(deleted)
        self.next_id = next_id


def _check_keys_stay(topic: str, old: Mapping[str, str], new: Mapping[str, str]) -> None:
    """Where every key is in its partition, what says so cannot change."""
    if new.get("scaling", ScalingMode.NONE) != old.get("scaling", ScalingMode.NONE):
        raise InvalidSetting(
            f"setting 'scaling' of topic {topic!r} was chosen when it was created and stays",
            setting="scaling",
        )
    if is_keyed(old) and new.get("partitioner") != old.get("partitioner"):
        raise InvalidSetting(
            f"topic {topic!r} has scaling=keyed: its setting 'partitioner' was chosen when it was created and stays",
            setting="partitioner",
        )


def is_keyed(overrides: Mapping[str, str]) -> bool:
    return overrides.get("scaling") == ScalingMode.KEYED
