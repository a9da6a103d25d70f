"""The topic use cases: create, alter, grow, delete, delete records, describe.

The order makes a crash harmless. Creating: folders first, then the event; folders without an event are swept
at the next start. Growing: the same, and folders without an event stay empty until the topic grows into them.
Deleting: the event first, then the folders; those of a deleted topic are swept as well.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from itertools import chain, count

from goqueue.core.catalog import AlterTopic, CreateTopic, DeleteTopic, GrowTopic, TopicCreated
from goqueue.log.disk import Disk
from goqueue.log.recovery import QUARANTINE
from goqueue.model.errors import (
    InvalidRequest,
    OffsetOutOfRange,
    PartitionOffline,
    StorageError,
    TopicNotFound,
)
from goqueue.model.names import COMPANION_PREFIXES, METADATA_TOPIC, companions_of
from goqueue.model.settings import as_texts, check_settings, resolve
from goqueue.node.changes import Changes
from goqueue.node.config import NodeConfig
from goqueue.node.folder import LOGS, TRASH, partition_folder
from goqueue.node.guard import Guard
from goqueue.node.metadata import Metadata
from goqueue.node.metrics import Metrics
from goqueue.node.opening import PartitionOpener
from goqueue.node.partition import Partition
from goqueue.node.requests import PartitionFacts, TopicFacts
from goqueue.node.threads import Threads
from goqueue.node.topic_table import OpenTopic, TopicTable

logger = logging.getLogger(__name__)
HIGH_WATERMARK = -1  # as the offset to delete records before
Edit = Callable[[dict[str, str]], Mapping[str, str]]


class Topics:
    def __init__(
        self,
        config: NodeConfig,
        disk: Disk,
        table: TopicTable,
        metadata: Metadata,
        guard: Guard,
        metrics: Metrics,
        threads: Threads,
        opener: PartitionOpener,
        changes: Changes,
    ) -> None:
        self._config = config
        self._disk = disk
        self._table = table
        self._metadata = metadata
        self._guard = guard
        self._metrics = metrics
        self._threads = threads
        self._opener = opener
        self._changes = changes
        self._tell_deleted: tuple[Callable[[str], Awaitable[None]], ...] = ()

    def when_deleted(self, tell: Callable[[str], Awaitable[None]]) -> None:
        """Whoever keeps something about a topic hears when it is gone."""
        self._tell_deleted += (tell,)

    async def start(self) -> None:
        """Open every topic of the catalogue, and clear away what an interrupted create or delete left."""
        await self._threads.run(self._sweep)
        for topic in self._metadata.catalog.topics():
            await self._open(topic)
        self._count()

    async def create(
        self, name: str, *, partition_count: int | None, overrides: Mapping[str, str]
    ) -> TopicFacts:
        self._guard.admit_change()
        command = self._creation(name, partition_count, overrides)
        return await self._changes.run(name, lambda: self._create(command))

    def check_create(
        self, name: str, *, partition_count: int | None, overrides: Mapping[str, str]
    ) -> TopicFacts:
        """As `create` without doing it: the topic as it would be, or why it cannot be."""
        self._guard.admit_change()
        command = self._creation(name, partition_count, overrides)
        self._metadata.catalog.decide(command, 0)
        settings = resolve(overrides, self._config.topic_defaults)
        return TopicFacts(
            name, command.partition_count, 0, check_settings(overrides), as_texts(settings), id=0
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
        self._metadata.catalog.decide(AlterTopic(name, overrides), 0)

    async def edit(self, name: str, edit: Edit) -> TopicFacts:
        """Make all of a topic's overrides from those it has. Nobody else changes them meanwhile."""
        self._guard.admit_relief()
        return await self._changes.run(name, lambda: self._alter(self._edited(name, edit)))

    def check_edit(self, name: str, edit: Edit) -> None:
        """As `edit` without doing it."""
        self._guard.admit_relief()
        self._metadata.catalog.decide(self._edited(name, edit), 0)

    async def grow(self, name: str, partition_count: int) -> TopicFacts:
        """Add partitions until there are so many. Keys may belong to another partition from then on."""
        self._guard.admit_change()
        return await self._changes.run(name, lambda: self._grow(GrowTopic(name, partition_count)))

    def check_grow(self, name: str, partition_count: int) -> None:
        """As `grow` without doing it."""
        self._guard.admit_change()
        self._metadata.catalog.decide(GrowTopic(name, partition_count), 0)

    async def delete(self, name: str) -> None:
        self._guard.admit_relief()
        await self._changes.run(name, lambda: self._delete(DeleteTopic(name)))

    async def delete_records(self, name: str, partition: int, before_offset: int) -> int:
        """Move the start of a log, and say durably where it is. What starts later already stays as it is."""
        self._guard.admit_relief()
        topic = self._table.get(name)
        found = topic.partition(partition)
        if not topic.settings.cleanup_policy.deletes:
            raise InvalidRequest(
                f"topic {name!r} is compacted only; records can be deleted where cleanup.policy has delete",
                topic=name,
            )
        self._move_log_start(found, before_offset)
        await found.commit.checkpoint()  # also if nothing moved: an earlier attempt may not be on disk
        return found.log.log_start

    def _creation(self, name: str, partition_count: int | None, overrides: Mapping[str, str]) -> CreateTopic:
        if partition_count is None:
            partition_count = self._config.default_partition_count
        return CreateTopic(name, partition_count, overrides)

    async def _create_internal(self, command: CreateTopic) -> None:
        if self._table.internal(command.name) is None:
            await self._make(command)

    async def _create(self, command: CreateTopic) -> TopicFacts:
        await self._make(command)
        return self.get(command.name)

    async def _make(self, command: CreateTopic) -> None:
        self._metadata.catalog.decide(command, 0)  # refuse what is wrong before anything touches the disk
        name = command.name
        try:
            await self._threads.run(lambda: self._make_folders(name, command.partition_count))
            (event,) = await self._metadata.execute(command)
            if isinstance(event, TopicCreated):
                await self._open(event)
        except OSError as error:
            raise StorageError(f"creating topic {name!r} failed: {error}") from error
        self._count()

    async def _alter(self, command: AlterTopic) -> TopicFacts:
        name = command.name
        topic = self._table.get(name)
        await self._metadata.execute(command)
        topic.facts = self._metadata.catalog.topic(name)
        topic.settings = resolve(topic.facts.overrides, self._config.topic_defaults)
        for partition in topic.partitions:
            partition.log.settings = topic.settings
        return self.get(name)

    def _edited(self, name: str, edit: Edit) -> AlterTopic:
        old = self._metadata.catalog.topic(name).overrides
        new = edit(dict(old))
        taken_back: dict[str, str | None] = {each: None for each in old if each not in new}
        return AlterTopic(name, taken_back | dict(new))

    async def _grow(self, command: GrowTopic) -> TopicFacts:
        name = command.name
        topic = self._table.get(name)
        try:
            await self._open_added(topic)  # what an earlier growth could not open
            self._metadata.catalog.decide(command, 0)  # refuse before anything touches the disk
            added = range(len(topic.partitions), command.partition_count)
            await self._threads.run(lambda: self._add_folders(name, added))
            await self._metadata.execute(command)
            await self._open_added(topic)
        except OSError as error:
            raise StorageError(f"adding partitions to topic {name!r} failed: {error}") from error
        return self.get(name)

    async def _open_added(self, topic: OpenTopic) -> None:
        """Open what the catalogue has and does not run yet."""
        facts = self._metadata.catalog.topic(topic.facts.name)
        more = await self._opener.open(
            facts.name, facts.partition_count, topic.settings, first=len(topic.partitions)
        )
        topic.facts, topic.partitions = facts, topic.partitions + more
        self._count()

    def _move_log_start(self, partition: Partition, before_offset: int) -> None:
        log = partition.log
        if partition.is_deleted:
            raise TopicNotFound(partition.topic)
        if log.failure is not None:
            raise PartitionOffline(f"{log.folder} takes no changes: {log.failure}", folder=log.folder)
        offset = log.high_watermark if before_offset == HIGH_WATERMARK else before_offset
        if not 0 <= offset <= log.high_watermark:
            raise OffsetOutOfRange(offset, earliest=log.log_start, latest=log.high_watermark)
        if offset <= log.log_start:
            return
        size_before = log.size_bytes
        if partition.rewriting.locked():
            # The segments stay until retention comes by: compaction rewrites them.
            log.log_start = offset
            log.epochs.forget_before(offset)
        else:
            log.delete_before(offset)
        self._metrics.deleted_bytes.inc(size_before - log.size_bytes)
        logger.info("records deleted folder=%s log_start=%d", log.folder, offset)

    async def _delete(self, command: DeleteTopic) -> None:
        await self._metadata.execute(command)
        topic = self._table.remove(command.name)
        for tell in self._tell_deleted:
            await tell(command.name)
        partitions = topic.partitions if topic else []
        partitions = partitions + self._table.remove_companions(companions_of(command.name))
        for partition in partitions:
            partition.retire()
        self._count()
        for partition in partitions:
            await partition.close()
        try:
            await self._threads.run(lambda: self._throw_away_all(command.name))
        except OSError as error:  # the topic is gone all the same; the next start sweeps
            logger.warning("files of a deleted topic remain topic=%s error=%r", command.name, str(error))

    def get(self, name: str) -> TopicFacts:
        return self._facts(self._table.get(name))

    def id_of(self, name: str) -> int:
        return self._table.get(name).facts.id

    def name_of(self, id: int) -> str | None:
        return self._table.name_of(id)

    def partitions(self, name: str) -> list[PartitionFacts]:
        return [self._partition_facts(partition) for partition in self._table.get(name).partitions]

    def partition(self, name: str, index: int) -> PartitionFacts:
        return self._partition_facts(self._table.get(name).partition(index))

    async def _open(self, topic: TopicCreated) -> None:
        settings = resolve(topic.overrides, self._config.topic_defaults)
        partitions = await self._opener.open(topic.name, topic.partition_count, settings)
        self._table.put(OpenTopic(topic, settings, partitions))

    def _make_folders(self, name: str, partition_count: int) -> None:
        self._throw_away_all(name)  # what a deleted topic of this name may have left
        for index in range(partition_count):
            self._disk.make_dir(partition_folder(name, index))
        self._disk.sync_dir(f"{LOGS}/{name}")
        self._disk.sync_dir(LOGS)

    def _add_folders(self, name: str, indexes: range) -> None:
        for index in indexes:
            folder = partition_folder(name, index)
            if self._disk.list(folder):
                raise StorageError(
                    f"{folder} holds files although the topic has no partition {index}; move them away first",
                    folder=folder,
                )
            self._disk.make_dir(folder)
        self._disk.sync_dir(f"{LOGS}/{name}")

    def _throw_away_all(self, name: str) -> None:
        for one in (name, *companions_of(name)):
            self._throw_away(one)

    def _throw_away(self, name: str) -> None:
        """In one step out of sight, then piece by piece."""
        if not self._disk.list(f"{LOGS}/{name}"):
            return
        self._disk.make_dir(TRASH)
        self._disk.remove_tree(f"{TRASH}/{name}")
        self._disk.rename(f"{LOGS}/{name}", f"{TRASH}/{name}")
        self._disk.sync_dir(LOGS)
        self._disk.remove_tree(f"{TRASH}/{name}")

    def _sweep(self) -> None:
        topics = {topic.name for topic in self._metadata.catalog.topics()}
        known = topics | {METADATA_TOPIC} | {one for topic in topics for one in companions_of(topic)}
        self._disk.remove_tree(TRASH)
        for entry in self._disk.list(LOGS):
            if entry.name in known or not entry.is_dir:
                continue
            owner = _owner(entry.name)
            if self._metadata.catalog.was_deleted(owner) or not self._holds_data(entry.name):
                self._throw_away(entry.name)
                continue
            logger.error("folder of an unknown topic set aside folder=%s", f"{LOGS}/{entry.name}")
            self._set_aside(entry.name)

    def _set_aside(self, name: str) -> None:
        """Next to what may be there: recovery keeps what it cuts off under the name of the topic, too."""
        folder = f"{QUARANTINE}/{LOGS}"
        self._disk.make_dir(folder)
        self._disk.sync_dir(QUARANTINE)
        self._disk.sync_dir("")  # the new place is durable before the old one is given up
        taken = {entry.name for entry in self._disk.list(folder)}
        free = next(free for free in chain([name], (f"{name}.{at}" for at in count(1))) if free not in taken)
        self._disk.rename(f"{LOGS}/{name}", f"{folder}/{free}")
        self._disk.sync_dir(folder)
        self._disk.sync_dir(LOGS)

    def _holds_data(self, name: str) -> bool:
        folders = [entry.name for entry in self._disk.list(f"{LOGS}/{name}") if entry.is_dir]
        return any(
            file.name.endswith(".log") and file.size
            for folder in folders
            for file in self._disk.list(f"{LOGS}/{name}/{folder}")
        )

    def _facts(self, topic: OpenTopic) -> TopicFacts:
        facts = topic.facts
        return TopicFacts(
            facts.name,
            len(topic.partitions),
            facts.created_ms,
            dict(facts.overrides),
            as_texts(topic.settings),
            id=facts.id,
        )

    def _partition_facts(self, partition: Partition) -> PartitionFacts:
        log = partition.log
        return PartitionFacts(
            partition=partition.index,
            leader=self._config.node_id,
            replicas=[self._config.node_id],
            in_sync=[self._config.node_id],
            leader_epoch=partition.leader_epoch,
            earliest=log.log_start,
            latest=log.end,
            high_watermark=log.high_watermark,
            size_bytes=log.size_bytes,
            failure=log.failure,
            damage=list(partition.damage),
        )

    def _count(self) -> None:
        self._metrics.topics.set(len(self._table.all()))
        self._metrics.partitions.set(len(self._table.partitions()))

    def list(self) -> list[TopicFacts]:
        """Sorted by name. Last in the class: its name hides the built-in type from the annotations below it."""
        return [self._facts(topic) for topic in self._table.all()]


def _owner(folder: str) -> str:
    """The topic that a folder belongs to: its own, or the one that it stands beside."""
    for prefix in COMPANION_PREFIXES:
        if folder.startswith(prefix):
            return folder.removeprefix(prefix)
    return folder
