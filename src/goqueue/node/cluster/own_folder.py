"""What the data folder knows of its node, in one place: one write at a time, and none once the node has ended."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

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
        self._writing = asyncio.Lock()
        self._has_ended = False
        self._own: set[str] = set()  # incarnations of this folder, also those of processes before this one

    @property
    def cluster_id(self) -> str | None:
        """None until the node has joined a cluster."""
        return self._identity.cluster_id

    @property
    def addresses(self) -> dict[str, str]:
        """Where nodes were that are not among the configured peers."""
        return self._identity.addresses

    def has_made(self, incarnation: str) -> bool:
        return incarnation in self._own

    async def begin(self) -> None:
        """Before anything is written."""
        self._identity = await self._threads.run(lambda: self._file.begin(self._name))

    async def note_joining(self, incarnation: str) -> list[str]:
        """Before it registers; which ones the folder knew before that."""
        previous = self._identity.incarnations
        self._own |= {*previous, incarnation}
        await self._note_if_it_can(lambda: self._file.note_joining(self._identity, incarnation))
        return previous

    async def note_joined(self, incarnation: str) -> None:
        await self._note_if_it_can(lambda: self._file.note_joined(self._identity, incarnation))

    async def note_cluster(self, cluster_id: str | None) -> None:
        """On disk when this returns. Raises WrongCluster where it is another one, and what the disk says."""
        async with self._writing:
            if not self._has_ended:
                self._identity = await self._threads.run(
                    lambda: self._file.note_cluster(self._identity, cluster_id)
                )

    async def note_cluster_later(self, cluster_id: str | None) -> None:
        """Of one that had no id when the node joined it."""
        try:
            await self.note_cluster(cluster_id)
        except (OSError, StorageError) as error:
            logger.warning("the id of the cluster could not be saved error=%r", str(error))

    async def note_addresses(self, addresses: dict[str, str]) -> None:
        await self._note_if_it_can(lambda: self._file.note_addresses(self._identity, addresses))

    async def end(self) -> None:
        """Nothing is written any more: the folder may be another process's next."""
        async with self._writing:
            self._has_ended = True

    async def _note_if_it_can(self, note: Callable[[], Identity]) -> None:
        """Without it the node is found a little later, or taken for one whose folder was put back, and goes on."""
        async with self._writing:
            if self._has_ended:
                return
            try:
                self._identity = await self._threads.run(note)
            except (OSError, GoQueueError) as error:
                logger.warning("what is known of the cluster could not be saved error=%r", str(error))
