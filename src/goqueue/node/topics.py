"""The topic use cases: create, alter, grow, delete, delete records, describe.

The catalogue decides, `LocalTopics` makes it so on this node. On a standalone node the order makes a crash harmless.
Creating: folders first, then the event; folders without an event are swept at the next start. Growing: the same, and folders
without an event stay empty until the topic grows into them. Deleting: the event first, then the folders; those of a
deleted topic are swept as well.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from goqueue.core.catalog import AlterTopic, CreateTopic, DeleteTopic, GrowTopic, TopicCreated
from goqueue.core.cluster.commands import ShrinkTopic
from goqueue.core.cluster.partitions import NO_LEADER, PartitionState
from goqueue.log.partition_log import PartitionLog
from goqueue.model.errors import (
    InvalidRequest,
    StorageError,
    TopicExists,
)
from goqueue.model.settings import as_texts, check_settings, resolve
from goqueue.node.changes import Changes
from goqueue.node.config import NodeConfig
from goqueue.node.deletion import delete_records
from goqueue.node.guard import Guard
from goqueue.node.local_topics import LocalTopics
from goqueue.node.metadata import Metadata
from goqueue.node.metrics import Metrics
from goqueue.node.requests import PartitionFacts, TopicFacts
from goqueue.node.threads import Threads
from goqueue.node.topic_folders import TopicFolders
from goqueue.node.topic_table import OpenTopic, TopicTable

logger = logging.getLogger(__name__)
Edit = Callable[[dict[str, str]], Mapping[str, str]]


class Placement(NamedTuple):
    """Where the replicas of a new topic are to be; what is None is up to the controller."""

    replication_factor: int | None = None
    assignments: Sequence[Sequence[int]] | None = None  # by partition, the preferred leader first


ANYWHERE: Final = Placement()


class Topics:
    def __init__(
        self,
        config: NodeConfig,
        folders: TopicFolders,
        table: TopicTable,
        metadata: Metadata,
        local: LocalTopics,
        guard: Guard,
        metrics: Metrics,
        threads: Threads,
        changes: Changes,
    ) -> None:
        self._config = config
        self._folders = folders
        self._table = table
        self._metadata = metadata
        self._local = local
        self._guard = guard
        self._metrics = metrics
        self._threads = threads
        self._changes = changes

    async def create(
        self,
        name: str,
        *,
        partition_count: int | None,
        overrides: Mapping[str, str],
        placement: Placement = ANYWHERE,
    ) -> TopicFacts:
        self._guard.admit_change()
        command = self._creation(name, partition_count, overrides, placement)
        return await self._changes.run(name, lambda: self._create(command))

    def check_create(
        self,
        name: str,
        *,
        partition_count: int | None,
        overrides: Mapping[str, str],
        placement: Placement = ANYWHERE,
    ) -> TopicFacts:
        """As `create` without doing it: the topic as it would be, or why it cannot be."""
        self._guard.admit_change()
        command = self._creation(name, partition_count, overrides, placement)
        created = self._metadata.try_out(command)[0]
        settings = resolve(overrides, self._config.topic_defaults)
        factor = max(map(len, created.assignments), default=1) if isinstance(created, TopicCreated) else 1
        return TopicFacts(
            name,
            command.partition_count,
            0,
            check_settings(overrides),
            as_texts(settings),
            id=0,
            replication_factor=factor,
        )

    async def create_internal(self, name: str, *, partition_count: int, overrides: Mapping[str, str]) -> None:
        """One of the broker's own topics, if it is not there yet. Clients see nothing of it."""
        self._guard.admit_change()
        command = CreateTopic(name, partition_count, overrides, is_internal=True)
        await self._changes.run(name, lambda: self._create_internal(command))

    async def alter(self, name: str, overrides: Mapping[str, str | None]) -> TopicFacts:
        """Set or (with None) take back settings; in force from the next message on."""
        self._guard.admit_relief()
        return await self._changes.run(name, lambda: self._alter(AlterTopic(name, overrides)))

    def check_alter(self, name: str, overrides: Mapping[str, str | None]) -> None:
        """As `alter` without doing it."""
        self._guard.admit_relief()
        self._metadata.try_out(AlterTopic(name, overrides))

    async def edit(self, name: str, edit: Edit) -> TopicFacts:
        """Make all of a topic's overrides from those it has. Nobody else changes them meanwhile."""
        self._guard.admit_relief()
        return await self._changes.run(name, lambda: self._alter(self._edited(name, edit)))

    def check_edit(self, name: str, edit: Edit) -> None:
        """As `edit` without doing it."""
        self._guard.admit_relief()
        self._metadata.try_out(self._edited(name, edit))

    async def grow(
        self, name: str, partition_count: int, assignments: Sequence[Sequence[int]] | None = None
    ) -> TopicFacts:
        """Add partitions until there are so many, with these replicas. Keys may belong to another partition from then on; with
        `scaling=keyed`, readers of groups see each key in order all the same."""
        self._guard.admit_change()
        command = _growth(name, partition_count, assignments)
        return await self._changes.run(name, lambda: self._grow(command))

    def check_grow(
        self, name: str, partition_count: int, assignments: Sequence[Sequence[int]] | None = None
    ) -> None:
        """As `grow` without doing it."""
        self._guard.admit_change()
        self._metadata.try_out(_growth(name, partition_count, assignments))

    async def shrink(self, name: str, partition_count: int, *, discards_read: bool = False) -> TopicFacts:
        """Begin to take partitions away until there are so few, of a topic with `scaling=keyed`. They go when every group has read
        them and retention has emptied them, or, where what is read may be discarded, when every group has read them; this
        waits for neither. May be said again, to let them go sooner."""
        self._guard.admit_relief()
        command = ShrinkTopic(name, partition_count, discards_read)
        return await self._changes.run(name, lambda: self._shrink(command))

    async def delete(self, name: str) -> None:
        self._guard.admit_relief()
        await self._changes.run(name, lambda: self._delete(DeleteTopic(name)))

    async def delete_records(self, name: str, partition: int, before_offset: int) -> int:
        """Move the start of a log, and say where it is: durably, and on every replica that may lead."""
        self._guard.admit_relief()
        topic = self._table.get(name)
        found = topic.partition(partition)
        if not topic.settings.cleanup_policy.deletes:
            raise InvalidRequest(
                f"topic {name!r} is compacted only; records can be deleted where cleanup.policy has delete",
                topic=name,
            )
        return await delete_records(found, before_offset, self._metrics)

    def _creation(
        self, name: str, partition_count: int | None, overrides: Mapping[str, str], placement: Placement
    ) -> CreateTopic:
        assignments = placement.assignments
        if assignments is not None:
            partition_count = len(assignments)
        elif partition_count is None:
            partition_count = self._config.default_partition_count
        return CreateTopic(
            name,
            partition_count,
            overrides,
            replication_factor=placement.replication_factor,
            assignments=None if assignments is None else [list(one) for one in assignments],
        )

    async def _create_internal(self, command: CreateTopic) -> None:
        if self._table.internal(command.name) is None:
            try:
                await self._make(command)
            except TopicExists:  # another node was faster
                await self._local.follow(command.name)

    async def _create(self, command: CreateTopic) -> TopicFacts:
        await self._make(command)
        return self.get(command.name)

    async def _make(self, command: CreateTopic) -> None:
        name = command.name
        try:
            if self._config.is_solo:
                self._metadata.try_out(command)  # refuse what is wrong before anything touches the disk
                indexes = range(command.partition_count)
                await self._threads.run(lambda: self._folders.make(name, indexes))
            await self._metadata.execute(command)
            await self._local.follow(name)
        except OSError as error:
            raise StorageError(f"creating topic {name!r} failed: {error}") from error

    async def _alter(self, command: AlterTopic) -> TopicFacts:
        await self._metadata.execute(command)
        await self._local.follow(command.name)
        return self.get(command.name)

    def _edited(self, name: str, edit: Edit) -> AlterTopic:
        old = self._metadata.catalog.topic(name).overrides
        new = edit(dict(old))
        taken_back: dict[str, str | None] = {each: None for each in old if each not in new}
        return AlterTopic(name, taken_back | dict(new))

    async def _grow(self, command: GrowTopic) -> TopicFacts:
        name = command.name
        try:
            if self._config.is_solo:
                await self._local.follow(name)  # what an earlier growth could not open
                self._metadata.try_out(command)  # refuse before anything touches the disk
                added = range(self._table.get(name).partition_count, command.partition_count)
                await self._threads.run(lambda: self._folders.add(name, added))
            await self._metadata.execute(command)
            await self._local.follow(name)
        except OSError as error:
            raise StorageError(f"adding partitions to topic {name!r} failed: {error}") from error
        return self.get(name)

    async def _shrink(self, command: ShrinkTopic) -> TopicFacts:
        await self._metadata.execute(command)
        return self.get(command.name)

    async def _delete(self, command: DeleteTopic) -> None:
        await self._metadata.execute(command)
        await self._local.follow(command.name)

    def get(self, name: str) -> TopicFacts:
        return self._facts(self._table.get(name))

    def id_of(self, name: str) -> int:
        return self._table.get(name).facts.id

    def name_of(self, id: int) -> str | None:
        return self._table.name_of(id)

    def partitions(self, name: str) -> Sequence[PartitionFacts]:
        topic = self._table.get(name)
        return [self._partition_facts(topic, index) for index in range(topic.partition_count)]

    def partition(self, name: str, index: int) -> PartitionFacts:
        topic = self._table.get(name)
        topic.check_partition(index)
        return self._partition_facts(topic, index)

    def _facts(self, topic: OpenTopic) -> TopicFacts:
        facts = topic.facts
        return TopicFacts(
            facts.name,
            topic.partition_count,
            facts.created_ms,
            dict(facts.overrides),
            as_texts(topic.settings),
            id=facts.id,
            replication_factor=max((len(state.replicas) for state in topic.states), default=1),
        )

    def _partition_facts(self, topic: OpenTopic, index: int) -> PartitionFacts:
        """What the catalogue says of it, and what the log says if it is here."""
        state, partition = topic.states[index], topic.local.get(index)
        log = partition.log if partition is not None else None
        return PartitionFacts(
            partition=index,
            leader=state.leader,
            replicas=state.replicas,
            in_sync=state.in_sync,
            eligible=state.eligible,
            leader_epoch=partition.leader_epoch if partition is not None else state.leader_epoch,
            earliest=log.log_start if log is not None else -1,
            latest=log.end if log is not None else -1,
            high_watermark=partition.visible_end if partition is not None else -1,
            size_bytes=log.size_bytes if log is not None else 0,
            failure=_failure(state, log),
            damage=list(partition.damage) if partition is not None else [],
        )

    def list(self) -> list[TopicFacts]:
        """Sorted by name. Last in the class: its name hides the built-in type from the annotations below it."""
        return [self._facts(topic) for topic in self._table.all()]


def _failure(state: PartitionState, log: PartitionLog | None) -> str | None:
    if log is not None and log.failure is not None:
        return log.failure
    return "no replica that has everything is there to lead it" if state.leader == NO_LEADER else None


def _growth(name: str, partition_count: int, assignments: Sequence[Sequence[int]] | None) -> GrowTopic:
    return GrowTopic(
        name, partition_count, None if assignments is None else [list(one) for one in assignments]
    )
