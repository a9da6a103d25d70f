"""What the data folder knows of its node, in one place: one write at a time, and none once the node has ended.

What the disk does not take the process knows nevertheless, and writes with what it has to write next."""

from __future__ import annotations

import asyncio
import logging

from msgspec import structs

from goqueue.log.disk import Disk
from goqueue.model.errors import GoQueueError, StorageError
from goqueue.node.cluster.identity import Identity, IdentityFile
from goqueue.node.threads import Threads

logger = logging.getLogger(__name__)


class OwnFolder:
    def __init__(self, name: str, disk: Disk, threads: Threads) -> None:
        self._name = name
        self._file = IdentityFile(disk)
        self._threads = threads
        self._identity = Identity(name)
        self._saved: Identity | None = None  # what the file says, if there is one
        self._writing = asyncio.Lock()
        self._has_ended = False
        self._own: set[str] = set()  # incarnations of this folder, also those of processes before this one

    @property
    def cluster_id(self) -> str | None:
        """As it is on disk; None until the node has joined a cluster."""
        return None if self._saved is None else self._saved.cluster_id

    @property
    def addresses(self) -> dict[str, str]:
        """Where nodes were that are not among the configured peers."""
        return self._identity.addresses

    def has_made(self, incarnation: str) -> bool:
        return incarnation in self._own

    async def begin(self) -> None:
        """Before anything is written."""
        self._saved = await self._threads.run(lambda: self._file.begin(self._name))
        self._identity = self._saved or self._identity

    async def note_joining(self, incarnation: str) -> list[str]:
        """Before it registers; which ones the folder knew before that."""
        previous = self._identity.incarnations
        self._own |= {*previous, incarnation}
        self._identity = self._identity.joining(incarnation)
        await self.save_if_it_can()
        return previous

    async def note_joined(self, incarnation: str) -> None:
        self._identity = self._identity.joined(incarnation)
        await self.save_if_it_can()

    async def note_cluster(self, cluster_id: str | None) -> None:
        """On disk when this returns, also of a cluster that has no id yet: before the first topic of it is. Raises WrongCluster where it is
        another one, and what the disk says."""
        self._identity = self._identity.of_cluster(cluster_id)
        async with self._writing:
            if self._saved is None or self._saved.cluster_id != self._identity.cluster_id:
                await self._save()

    async def note_cluster_later(self, cluster_id: str | None) -> None:
        """Of one that had no id when the node joined it."""
        try:
            await self.note_cluster(cluster_id)
        except (OSError, StorageError) as error:
            logger.warning("the id of the cluster could not be saved error=%r", str(error))

    def know_addresses(self, addresses: dict[str, str]) -> None:
        """To be saved."""
        self._identity = structs.replace(self._identity, addresses=addresses)

    async def save_if_it_can(self) -> None:
        """What is known and not on disk yet; the folder of nobody is left alone. Without it the node is found a little later, or taken for
        one whose folder was put back, and goes on."""
        async with self._writing:
            if self._saved is None:
                return
            try:
                await self._save()
            except (OSError, GoQueueError) as error:
                logger.warning("what is known of the cluster could not be saved error=%r", str(error))

    async def end(self) -> None:
        """Nothing is written any more: the folder may be another process's next."""
        await self.save_if_it_can()
        async with self._writing:
            self._has_ended = True

    async def _save(self) -> None:
        identity = self._identity
        if self._has_ended or identity is self._saved:
            return
        await self._threads.run(lambda: self._file.save(identity))
        self._saved = identity
