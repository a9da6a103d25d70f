"""Group commit: one fsync at a time for a log, and each covers everything appended before it began.

While one runs, appends go on and gather behind it; the next takes them all. So the number of fsyncs follows
the disk, not the number of publishers. A failed fsync stops the partition: what the kernel did with the pages
is unknown, so neither "try again" nor "assume it worked" would be true.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager

from goqueue.log.partition_log import NO_SPACE, PartitionLog
from goqueue.model.errors import DiskFull, GoQueueError, PartitionOffline, StorageError, TimedOut
from goqueue.node.metrics import Metrics
from goqueue.node.threads import Threads

logger = logging.getLogger(__name__)
Spawn = Callable[[Coroutine[None, None, None]], asyncio.Task[None]]


class GroupCommit:
    def __init__(
        self, log: PartitionLog, threads: Threads, metrics: Metrics, spawn: Spawn, *, timeout_ms: int
    ) -> None:
        self._log = log
        self._threads = threads
        self._metrics = metrics
        self._spawn = spawn
        self._timeout_s = timeout_ms / 1_000
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._checkpoints: list[asyncio.Future[None]] = []
        self._is_requested = False
        self._is_checkpoint_requested = False
        self._task: asyncio.Task[None] | None = None
        self._hold_count = 0
        self.when_synced: Callable[[], None] = _nobody  # told when more is on disk; it may not wait

    @property
    def folder(self) -> str:
        return self._log.folder

    async def wait(self, end: int, *, since: float | None = None) -> None:
        """Until everything before offset `end` is on disk. An error or a time-out means: not known to be. Who waits for
        several logs says since when, so that the time runs once for all of them."""
        if self._log.durable_end >= end:
            return
        if self._log.failure is not None:
            raise self._lost()
        future = asyncio.get_running_loop().create_future()
        self._waiters.append((end, future))
        self.request()
        await self.in_time(future, since)

    def request(self) -> None:
        """Start syncing what is not durable yet; does not wait."""
        self._is_requested = True
        if self._task is None and self._log.failure is None and not self._hold_count:
            self._task = self._spawn(self._run())

    async def checkpoint(self) -> None:
        """Sync, save the indexes and move the recovery point to the end of the log."""
        self._refuse_if_failed()
        future = asyncio.get_running_loop().create_future()
        self._checkpoints.append(future)
        self.request()
        await self.in_time(future)

    def request_checkpoint(self) -> None:
        """As `checkpoint`, without waiting and without an error: one that fails is followed by another."""
        self._is_checkpoint_requested = True
        self.request()

    async def idle(self) -> None:
        """Until no fsync is under way, so that files may be taken away."""
        while self._task is not None:
            await asyncio.wait([self._task])

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """No fsync is under way, and none begins: for whoever makes the log shorter, because one that ends afterwards would say of
        what is gone that it is on disk. What is asked for meanwhile begins then."""
        self._hold_count += 1
        try:
            await self.idle()
            yield
        finally:
            self._hold_count -= 1
            if self._log.failure is not None:
                self._release()
            elif self._is_requested or self._waiters or self._checkpoints:
                self.request()

    async def in_time(self, future: asyncio.Future[None], since: float | None = None) -> None:
        """Wait for something that is part of making a write durable, as long as a client waits for that."""
        started = asyncio.get_running_loop().time() if since is None else since
        try:
            async with asyncio.timeout_at(started + self._timeout_s):
                await future
        except TimeoutError:
            raise TimedOut(
                f"{self._log.folder} did not reach the disk within {self._timeout_s:g} s; "
                "whether the messages are stored is not known"
            ) from None

    async def _run(self) -> None:
        try:
            while self._may_go_on and (self._is_requested or self._waiters or self._checkpoints):
                self._is_requested = False
                if self._checkpoints or self._is_checkpoint_requested:
                    await self._save_checkpoint()
                else:
                    await self._sync()
                self.when_synced()
                self._release()
        except OSError as error:
            self._metrics.sync_failures.inc()
            self._log.sync_failed(error)
            logger.error("partition stopped folder=%s error=%r", self._log.folder, str(error))
        finally:
            self._task = None
        if self._log.failure is not None:  # maybe by a failed write, before the first step here
            self._release()

    @property
    def _may_go_on(self) -> bool:
        return self._log.failure is None and not self._hold_count

    async def _sync(self) -> None:
        job = self._log.begin_sync()
        started = asyncio.get_running_loop().time()
        await self._threads.run(job.run)
        self._metrics.sync_time.observe(asyncio.get_running_loop().time() - started)
        self._log.finish_sync(job)

    async def _save_checkpoint(self) -> None:
        self._is_checkpoint_requested = False
        waiting = list(self._checkpoints)
        job = self._log.begin_checkpoint()
        await self._threads.run(job.sync.run)
        error: GoQueueError | None = None
        try:
            await self._threads.run(job.save)
            self._log.finish_checkpoint(job)
        except OSError as failure:  # the data is durable and the older checkpoint still true
            self._log.abandon_checkpoint(job)
            kind = DiskFull if failure.errno in NO_SPACE else StorageError
            error = kind(f"the checkpoint of {self._log.folder} could not be saved: {failure}")
        self._checkpoints = self._checkpoints[len(waiting) :]
        _settle(waiting, error)

    def _release(self) -> None:
        """Answer those whose data is durable, and everybody if it never will be."""
        durable = self._log.durable_end
        _settle([future for end, future in self._waiters if end <= durable], None)
        self._waiters = [
            (end, future) for end, future in self._waiters if end > durable and not future.done()
        ]
        if self._log.failure is not None:
            _settle([future for _, future in self._waiters] + self._checkpoints, self._lost())
            self._waiters, self._checkpoints = [], []

    def _lost(self) -> StorageError:
        return StorageError(
            f"{self._log.folder} could not be written to disk: {self._log.failure}; "
            "whether the messages survive a restart is not known"
        )

    def _refuse_if_failed(self) -> None:
        if self._log.failure is not None:
            raise PartitionOffline(f"{self._log.folder} takes no writes: {self._log.failure}")


def _nobody() -> None:
    """Where the log is nobody's who counts what is on disk."""


def _settle(futures: list[asyncio.Future[None]], error: Exception | None) -> None:
    for future in futures:
        if future.done():  # the waiter gave up
            continue
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)
