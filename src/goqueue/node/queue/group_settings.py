"""What queue groups have set of their own, for whoever serves their members. The coordinator of a group knows it, which may
be another node: then it is asked once and again from time to time, and what it said last counts meanwhile."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, Protocol

from goqueue.model.errors import CoordinatorNotAvailable, GoQueueError
from goqueue.node.commit import Spawn
from goqueue.node.directory import Directory
from goqueue.node.internal_topics import OFFSETS_TOPIC, coordinator_partition
from goqueue.node.monotonic import monotonic_ms
from goqueue.node.topic_table import TopicTable

logger = logging.getLogger(__name__)
_FRESH_MS: Final = 5_000  # so long after a change other nodes may not know it
_ASK_S: Final = 3.0
_GROUP_COUNT_MAX: Final = 10_000
_NONE: Final[Mapping[str, str]] = {}


class Groups(Protocol):
    def coordinates(self, group_id: str) -> bool:
        """Whether this node is the one to ask."""

    def settings_of(self, group_id: str) -> dict[str, str]: ...


class SettingsSource(Protocol):
    async def group_settings(self, node: str, group_id: str) -> dict[str, str]:
        """As the node that coordinates the group has them."""


def coordinator_finder(table: TopicTable, directory: Directory) -> Callable[[str], str | None]:
    """The name of the node that coordinates a group: "" if there is none for now, None where nobody ever had a group."""

    def find(group_id: str) -> str | None:
        topic = table.internal(OFFSETS_TOPIC)
        if topic is None:
            return None
        return directory.name_of(topic.states[coordinator_partition(group_id, topic.partition_count)].leader)

    return find


class _Told(NamedTuple):
    settings: Mapping[str, str]
    at_ms: int


class GroupSettings:
    def __init__(
        self,
        groups: Groups,
        coordinator_of: Callable[[str], str | None],
        source: SettingsSource | None,
        spawn: Spawn,
    ) -> None:
        """`coordinator_of` is as of `coordinator_finder`; `source` is None where this node is alone."""
        self._groups = groups
        self._coordinator_of = coordinator_of
        self._source = source
        self._spawn = spawn
        self._told: dict[str, _Told] = {}
        self._asking: dict[str, asyncio.Task[None]] = {}

    def of(self, group_id: str) -> Mapping[str, str]:
        """By the names of `model.group_settings`; call `learn` first."""
        if self._source is None or self._groups.coordinates(group_id):
            try:
                return self._groups.settings_of(group_id)
            except GoQueueError:  # it has just become another's, or is being loaded
                pass
        told = self._told.get(group_id)
        return _NONE if told is None else told.settings

    def knows(self, group_id: str) -> bool:
        """Whether `of` can answer; if not, or what it says is old, the coordinator is asked."""
        if self._source is None or self._groups.coordinates(group_id):
            return True
        told = self._told.get(group_id)
        if told is None and self._coordinator_of(group_id) is None:
            return True
        if told is None or monotonic_ms() - told.at_ms > _FRESH_MS:
            self._ask(group_id)
        return told is not None

    async def learn(self, group_id: str) -> None:
        if self.knows(group_id):
            return
        asking = self._asking.get(group_id)
        if asking is not None:
            await asyncio.wait([asking])
        if group_id not in self._told and not self._groups.coordinates(group_id):
            raise CoordinatorNotAvailable(
                f"the coordinator of {group_id!r} does not say what the group has set; try again",
                group=group_id,
            )

    def _ask(self, group_id: str) -> None:
        if group_id not in self._asking and self._source is not None:
            task = self._asking[group_id] = self._spawn(self._learn(self._source, group_id))
            task.add_done_callback(lambda _: self._asking.pop(group_id, None))

    async def _learn(self, source: SettingsSource, group_id: str) -> None:
        node = self._coordinator_of(group_id)
        if not node:
            return
        try:
            async with asyncio.timeout(_ASK_S):
                settings = await source.group_settings(node, group_id)
        except (GoQueueError, TimeoutError) as error:
            logger.info("settings of a group are not known for now group=%r error=%r", group_id, str(error))
            return
        self._told.pop(group_id, None)
        self._told[group_id] = _Told(settings, monotonic_ms())
        while len(self._told) > _GROUP_COUNT_MAX:
            del self._told[next(iter(self._told))]
