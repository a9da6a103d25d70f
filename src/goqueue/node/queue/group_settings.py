"""What queue groups have set of their own, for whoever serves their members. The coordinator of a group knows it, which may
be another node: then it is asked once and again from time to time, and what it said last counts meanwhile."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, Protocol, TypeVar

from goqueue.model.errors import CoordinatorNotAvailable, GoQueueError
from goqueue.node.commit import Spawn
from goqueue.node.directory import Directory
from goqueue.node.internal_topics import OFFSETS_TOPIC, coordinator_partition
from goqueue.node.monotonic import monotonic_ms
from goqueue.node.topic_table import TopicTable

T = TypeVar("T")

logger = logging.getLogger(__name__)
_FRESH_MS: Final = 5_000  # so long after a change other nodes may not know it
_ASK_S: Final = 3.0
_PAUSE_MS_MIN: Final = 50  # before the same node is asked again that did not say
_PAUSE_MS_MAX: Final = 2_000
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


class _Unanswered(NamedTuple):
    """The last time that a coordinator was asked in vain."""

    node: str | None
    at_ms: int
    pause_ms: int


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
        self._unanswered: dict[str, _Unanswered] = {}

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
        await self._pause(group_id)
        node = self._coordinator_of(group_id)
        if not node:
            self._note_unanswered(group_id, node, "it has no coordinator")
            return
        try:
            async with asyncio.timeout(_ASK_S):
                settings = await source.group_settings(node, group_id)
        except (GoQueueError, TimeoutError) as error:
            self._note_unanswered(group_id, node, str(error))
            return
        self._unanswered.pop(group_id, None)
        self._told.pop(group_id, None)
        self._told[group_id] = _Told(settings, monotonic_ms())
        _keep_newest(self._told)

    async def _pause(self, group_id: str) -> None:
        """While a coordinator moves: not at all before a new one is asked, ever longer before the same one is asked again."""
        last = self._unanswered.get(group_id)
        if last is not None and last.node == self._coordinator_of(group_id):
            await asyncio.sleep(max(0, last.at_ms + last.pause_ms - monotonic_ms()) / 1_000)

    def _note_unanswered(self, group_id: str, node: str | None, reason: str) -> None:
        """Told once, until it is known again."""
        last = self._unanswered.pop(group_id, None)
        if last is None:
            logger.info("settings of a group are not known for now group=%r error=%r", group_id, reason)
        is_same = last is not None and last.node == node
        pause_ms = min(2 * last.pause_ms, _PAUSE_MS_MAX) if last is not None and is_same else _PAUSE_MS_MIN
        self._unanswered[group_id] = _Unanswered(node, monotonic_ms(), pause_ms)
        _keep_newest(self._unanswered)


def _keep_newest(known: dict[str, T]) -> None:
    while len(known) > _GROUP_COUNT_MAX:
        del known[next(iter(known))]
