"""The folders of topics: made, thrown away in one step, and swept of what an interrupted change left."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from itertools import chain, count

from goqueue.log.disk import Disk, read_file, replace_file
from goqueue.log.recovery import QUARANTINE
from goqueue.model.errors import StorageError
from goqueue.model.names import COMPANION_PREFIXES, METADATA_TOPIC, companions_of
from goqueue.node.folder import LOGS, TRASH, partition_folder

logger = logging.getLogger(__name__)
_TOPIC_ID = "topic-id"  # beside the partitions, where topics may come and go while the node is away


class TopicFolders:
    """Everything here blocks; call it from a thread."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def make(self, name: str, indexes: Iterable[int]) -> None:
        self.throw_away_all(name)  # what a deleted topic of this name may have left
        for index in indexes:
            self._disk.make_dir(partition_folder(name, index))
        self._disk.sync_dir(f"{LOGS}/{name}")
        self._disk.sync_dir(LOGS)

    def add(self, name: str, indexes: Iterable[int]) -> None:
        for index in indexes:
            folder = partition_folder(name, index)
            if self._disk.list(folder):
                raise StorageError(
                    f"{folder} holds files although the topic has no partition {index}; move them away first",
                    folder=folder,
                )
            self._disk.make_dir(folder)
        self._disk.sync_dir(f"{LOGS}/{name}")

    def prepare(self, name: str, id: int, indexes: Iterable[int]) -> None:
        """On a node of a cluster: folders for these partitions, and none of another topic that had the same name."""
        path = f"{LOGS}/{name}/{_TOPIC_ID}"
        known = read_file(self._disk, path)
        if known is not None and known != b"%d\n" % id:
            logger.info("files of a deleted topic are removed topic=%s", name)
            self.throw_away_all(name)
            known = None
        wanted = self.absent(name, indexes)
        if known is not None and not wanted:
            return
        self._disk.make_dir(f"{LOGS}/{name}")
        for index in wanted:
            self._disk.make_dir(partition_folder(name, index))
        if known is None:
            replace_file(self._disk, path, b"%d\n" % id)
        self._disk.sync_dir(f"{LOGS}/{name}")
        self._disk.sync_dir(LOGS)

    def absent(self, name: str, indexes: Iterable[int]) -> list[int]:
        """Those that have no folder. One listing for all: it costs as much as the topic has partitions."""
        found = {entry.name for entry in self._disk.list(f"{LOGS}/{name}")}
        return [index for index in indexes if str(index) not in found]

    def throw_away_all(self, name: str) -> None:
        for one in (name, *companions_of(name)):
            self._throw_away(one)

    def throw_away_others(self, name: str, held: Collection[int]) -> None:
        """Every partition but these: other nodes have them now, or they are no more."""
        found = {
            int(entry.name)
            for one in (name, *companions_of(name))
            for entry in self._disk.list(f"{LOGS}/{one}")
            if entry.is_dir and entry.name.isdecimal()
        }
        for index in sorted(found - set(held)):
            logger.info(
                "files of a partition that is not here any more are removed topic=%s partition=%d",
                name,
                index,
            )
            self.throw_away_partition(name, index)

    def throw_away_partition(self, name: str, index: int) -> None:
        """Its companions go with it."""
        for one in (name, *companions_of(name)):
            if self.absent(one, [index]):
                continue
            gone = f"{TRASH}/{one}.{index}"
            self._disk.make_dir(TRASH)
            self._disk.remove_tree(gone)
            self._disk.rename(partition_folder(one, index), gone)
            self._disk.sync_dir(f"{LOGS}/{one}")
            self._disk.remove_tree(gone)

    def _throw_away(self, name: str) -> None:
        """In one step out of sight, then piece by piece."""
        if not self._disk.list(f"{LOGS}/{name}"):
            return
        self._disk.make_dir(TRASH)
        self._disk.remove_tree(f"{TRASH}/{name}")
        self._disk.rename(f"{LOGS}/{name}", f"{TRASH}/{name}")
        self._disk.sync_dir(LOGS)
        self._disk.remove_tree(f"{TRASH}/{name}")

    # ---------------------------------------------------------------- sweeping

    def sweep(self, topics: Collection[str], deleted: Collection[str]) -> None:
        """`topics` are those that exist; folders of others go if they were deleted or hold nothing, else aside."""
        known = set(topics) | {METADATA_TOPIC} | {one for topic in topics for one in companions_of(topic)}
        self._disk.remove_tree(TRASH)
        for entry in self._disk.list(LOGS):
            if entry.name in known or not entry.is_dir:
                continue
            if owner_of(entry.name) in deleted or not self._holds_data(entry.name):
                self._throw_away(entry.name)
                continue
            logger.error("folder of an unknown topic set aside folder=%s", f"{LOGS}/{entry.name}")
            self._set_aside(entry.name)

    def folders(self) -> list[str]:
        """The names under which there is anything."""
        return [entry.name for entry in self._disk.list(LOGS) if entry.is_dir]

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


def owner_of(folder: str) -> str:
    """The topic that a folder belongs to: its own, or the one that it stands beside."""
    for prefix in COMPANION_PREFIXES:
        if folder.startswith(prefix):
            return folder.removeprefix(prefix)
    return folder
