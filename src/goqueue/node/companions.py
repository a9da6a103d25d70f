"""The broker's own logs beside a user's topic, with the same partitions: `__ledger.{topic}` and `__schedule.{topic}`.

A companion belongs to its topic and to nothing else. It is made when something is first written to it, grows with its topic,
and goes with it; one whose topic is gone is swept away at the next start, before a topic of the same name can be made. In a
cluster the catalogue says which companions a topic has: they have its replicas and its leader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from enum import StrEnum
from typing import Final

from msgspec import structs

from goqueue.core.cluster.events import CompanionKind
from goqueue.log.disk import Disk
from goqueue.model.errors import CoordinatorNotAvailable, InvalidName
from goqueue.model.names import NAME_LENGTH_MAX
from goqueue.model.settings import MESSAGE_BYTES_MAX, UNLIMITED, CleanupPolicy, TopicSettings
from goqueue.node.folder import LOGS, partition_folder
from goqueue.node.opening import PartitionOpener
from goqueue.node.partition import Partition
from goqueue.node.threads import Threads
from goqueue.node.topic_table import TopicTable


class Companion(StrEnum):
    """The prefix of its name."""

    LEDGER = "__ledger."
    SCHEDULE = "__schedule."

    @property
    def kind(self) -> CompanionKind:
        """As the catalogue calls it."""
        return "ledger" if self is Companion.LEDGER else "schedule"

    def of(self, topic: str) -> str:
        name = f"{self.value}{topic}"
        if len(name) > NAME_LENGTH_MAX:
            raise InvalidName(
                f"topic {topic!r} has {len(topic)} characters; with more than {NAME_LENGTH_MAX - len(self.value)} it "
                "cannot be read as a queue or take delayed messages",
                name=topic,
                length=len(topic),
            )
        return name


_PLAIN: Final = TopicSettings(
    retention_ms=UNLIMITED, segment_bytes=4 * 1024 * 1024, max_message_bytes=MESSAGE_BYTES_MAX
)
_SETTINGS: Mapping[Companion, TopicSettings] = {
    Companion.LEDGER: _PLAIN,
    Companion.SCHEDULE: structs.replace(
        _PLAIN,
        cleanup_policy=CleanupPolicy.COMPACT,
        segment_bytes=16 * 1024 * 1024,
        delete_retention_ms=3_600_000,  # longer than a start reads; what an index on disk lacks stays: `Scheduler.forgettable_end`
    ),
}


class Companions:
    """`ensure`, on a node of a cluster: see to it that the catalogue has the companion of a topic, and this node follows."""

    def __init__(self, disk: Disk, opener: PartitionOpener, table: TopicTable, threads: Threads) -> None:
        self._disk = disk
        self._opener = opener
        self._table = table
        self._threads = threads
        self._opening: dict[str, asyncio.Lock] = {}
        self.ensure: Callable[[str, CompanionKind], Awaitable[None]] | None = None

    def existing(self, kind: Companion) -> list[tuple[str, int]]:
        """Topics that are there and the partitions of which have this companion on disk."""
        found: list[tuple[str, int]] = []
        for topic in self._table.names():
            entries = self._disk.list(f"{LOGS}/{kind.value}{topic}")
            indexes = sorted(int(entry.name) for entry in entries if entry.is_dir and entry.name.isdigit())
            count = self._table.partition_count(topic) or 0
            found += [(topic, index) for index in indexes if index < count]
        return found

    @property
    def are_replicated(self) -> bool:
        """This node is part of a cluster: what it has of a companion may be another's to write."""
        return self.ensure is not None

    def has(self, kind: Companion, topic: str, index: int) -> bool:
        """Whether a partition has the companion, and it is open here."""
        return self._table.companion(kind.of(topic), index) is not None

    async def open(self, kind: Companion, topic: str, index: int) -> Partition:
        """Of a partition that exists; the folder is made if need be."""
        name = kind.of(topic)
        if self.ensure is not None and self._table.companion(name, index) is None:
            await self.ensure(topic, kind.kind)
            found = self._table.companion(name, index)
            if found is None:
                raise CoordinatorNotAvailable(f"{name}-{index} is not open on this node yet; try again")
            return found
        (opened,) = await self._open(kind, topic, [index], self._table.get(topic).partition)
        return opened

    async def follow(
        self, topic: str, indexes: Sequence[int], kinds: Collection[str]
    ) -> dict[int, list[Partition]]:
        """On a node of a cluster: those of the partitions that it holds, all of a kind at once."""
        found: dict[int, list[Partition]] = {index: [] for index in indexes}
        for kind in Companion:
            if kind.kind in kinds:
                for one in await self._open(kind, topic, indexes, lambda _: None):
                    found[one.index].append(one)
        return found

    async def _open(
        self, kind: Companion, topic: str, indexes: Sequence[int], check: Callable[[int], object]
    ) -> list[Partition]:
        name = kind.of(topic)
        async with self._opening.setdefault(name, asyncio.Lock()):
            for index in indexes:
                check(index)  # it may have been deleted meanwhile
            known = {index: self._table.companion(name, index) for index in indexes}
            wanted = [index for index, one in known.items() if one is None]
            if wanted:
                await self._threads.run(lambda: self._make_folders(name, wanted))
                for one in await self._opener.open(name, wanted, _SETTINGS[kind]):
                    self._table.put_companion(one)
                    known[one.index] = one
            return [one for one in known.values() if one is not None]

    def _make_folders(self, name: str, indexes: Sequence[int]) -> None:
        for index in indexes:
            self._disk.make_dir(partition_folder(name, index))
        self._disk.sync_dir(f"{LOGS}/{name}")
        self._disk.sync_dir(LOGS)
