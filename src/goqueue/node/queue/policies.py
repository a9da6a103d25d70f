"""How a group is served on a topic: the topic's settings, and over them the group's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from goqueue.core.lease.policy import LeasePolicy
from goqueue.model.settings import Ordering, TopicSettings, resolve
from goqueue.node.dead_letters.topics import dead_letter_target
from goqueue.node.topic_table import TopicTable

GroupSettings = Callable[[str], Mapping[str, str]]


class TopicPolicies:
    def __init__(self, table: TopicTable, group_settings: GroupSettings) -> None:
        self._table = table
        self._group_settings = group_settings

    def policy(self, topic: str, partition: int, group_id: str) -> LeasePolicy:
        settings = self._settings(topic, group_id)
        return LeasePolicy(
            retry_count_max=settings.max_retries,
            backoff_ms=settings.retry_backoff_ms,
            backoff_ms_max=settings.retry_backoff_max_ms,
            dead_letters=dead_letter_target(topic, partition, settings, self._table.partition_count),
            keeps_key_order=settings.ordering is Ordering.KEY,
        )

    def visibility_ms(self, topic: str, group_id: str) -> int:
        return self._settings(topic, group_id).visibility_ms

    def _settings(self, topic: str, group_id: str) -> TopicSettings:
        overrides = self._group_settings(group_id)
        settings = self._table.get(topic).settings
        return resolve(overrides, settings) if overrides else settings
