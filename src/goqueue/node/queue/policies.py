"""How a group is served on a topic: the topic's settings, and over them the group's own."""

from __future__ import annotations

from goqueue.core.lease.policy import LeasePolicy
from goqueue.model.group_settings import lease_settings
from goqueue.model.settings import Ordering, TopicSettings, resolve
from goqueue.node.dead_letters.topics import HomeOf, dead_letter_target
from goqueue.node.queue.group_settings import GroupSettings
from goqueue.node.topic_table import TopicTable


class TopicPolicies:
    def __init__(self, table: TopicTable, group_settings: GroupSettings, home_of: HomeOf) -> None:
        self._table = table
        self._group_settings = group_settings
        self._home_of = home_of

    async def learn(self, group_id: str) -> None:
        """Before anything of a group is decided."""
        if not self._group_settings.knows(group_id):
            await self._group_settings.learn(group_id)

    def knows(self, group_id: str) -> bool:
        return self._group_settings.knows(group_id)

    def policy(self, topic: str, partition: int, group_id: str) -> LeasePolicy:
        settings, count_of = self._settings(topic, group_id), self._table.partition_count
        return LeasePolicy(
            retry_count_max=settings.max_retries,
            backoff_ms=settings.retry_backoff_ms,
            backoff_ms_max=settings.retry_backoff_max_ms,
            dead_letters=dead_letter_target(topic, partition, settings, count_of, self._home_of),
            keeps_key_order=settings.ordering is Ordering.KEY,
        )

    def visibility_ms(self, topic: str, group_id: str) -> int:
        return self._settings(topic, group_id).visibility_ms

    def _settings(self, topic: str, group_id: str) -> TopicSettings:
        overrides = lease_settings(self._group_settings.of(group_id))
        settings = self._table.get(topic).settings
        return resolve(overrides, settings) if overrides else settings
