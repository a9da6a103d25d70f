"""The lists of a partition's lanes as the node keeps them: made when a group reads the partition as a queue.

Nothing is done when records are published. Whoever asks for more than is known has the log looked at: a little of it at
once, more of it in a thread, chunk by chunk, and one look serves all who wait. It goes on when they have gone away.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from goqueue.log.disk import Disk, NotCached
from goqueue.log.epochs import NO_EPOCH, LeaderEpochs
from goqueue.log.lane_scan import Looked, look
from goqueue.log.postings import (
    LaneList,
    PostingLists,
    PostingsDamaged,
    load_postings,
    remove_postings,
)
from goqueue.model.errors import GoQueueError, NotReady, StorageError, TopicNotFound
from goqueue.node.commit import Spawn
from goqueue.node.partition import Partition
from goqueue.node.threads import Threads

logger = logging.getLogger(__name__)
T = TypeVar("T")

_GLANCE_BYTES: Final = 128 * 1024  # of log, on the event loop if they are in memory
_CHUNK_BYTES: Final = 8 * 1024 * 1024  # of log, in a thread
_CHUNK_COUNT: Final = 65_536  # records of lanes
_SPILL_COUNT: Final = 16_384  # offsets that wait in memory for their file
_SAVE_BYTES: Final = 32 * 1024 * 1024  # of log that a restart may have to look at again
_FIRST_STEP_COUNT: Final = 2 + _SAVE_BYTES // _CHUNK_BYTES  # enough for what a restart has to look at again
_UNSAVED_COUNT_MAX: Final = 1_000_000  # where the disk takes no more


class LanePostings:
    """Of one partition."""

    def __init__(self, partition: Partition, disk: Disk, threads: Threads, spawn: Spawn) -> None:
        self._partition = partition
        self._disk = disk
        self._threads = threads
        self._spawn = spawn
        self._lists: PostingLists | None = None  # not looked for yet
        self._history: LeaderEpochs | None = None  # of the log that they are of; another one after it was cut
        self._goal = 0  # somebody wants to know up to here
        self._unsaved_bytes = 0  # of log looked at
        self._spill_count = _SPILL_COUNT
        self._shrunk_start = -1  # where the log began when the lists were shortened last
        self._task: asyncio.Task[None] | None = None
        self._waiters: list[asyncio.Future[None]] = []

    async def find(self, lane: int, start: int, end: int, count_max: int) -> list[int]:
        """Offsets of a lane in [start, end), lowest first. Some may be gone from the log."""
        while True:
            end = min(end, self._partition.log.high_watermark)
            known = min(end, self.known_end)
            search = partial(LaneList.find, start=start, end=known, count_max=count_max)
            found = await self._search(lane, search)
            if found is not None and (known == end or len(found) == count_max):
                return found
            await self._look_on(end)

    async def look(self, end: int) -> int:
        """Look as far as `end` if that takes no longer than a moment; how far has been looked at. The rest follows."""
        end = min(end, self._partition.log.high_watermark)
        step_count = 1
        while self.known_end < 0:
            await self._look_on(end)
            step_count = _FIRST_STEP_COUNT
        while self.known_end < end and step_count:
            await self._look_on(end)
            step_count -= 1
        return min(self.known_end, end)

    async def depth(self, lane: int, start: int, end: int) -> int:
        """How many of what has been looked at lie in [start, end)."""
        while self.known_end < 0:
            await self._look_on(0)
        return await self._search(lane, partial(LaneList.count, start=start, end=end)) or 0

    @property
    def known_end(self) -> int:
        """Up to here the lists are complete."""
        return self._lists.end if self._lists is not None and self._is_current() else -1

    def _is_current(self) -> bool:
        return self._history is self._partition.log.epochs

    async def _search(self, lane: int, search: Callable[..., T]) -> T | None:
        """In the lists as they are: at once if they are in memory, else in a thread. None if they are none of this log."""
        lists = self._lists
        if lists is None or not self._is_current():
            return None
        one = lists.lanes[lane]
        try:
            try:
                return search(one, cached_only=True)
            except NotCached:
                return await self._threads.run(lambda: search(one, cached_only=False))
        except PostingsDamaged as error:
            self._distrust(lists, str(error))
            return None
        except OSError as error:
            raise self._failed(error) from error

    def _distrust(self, lists: PostingLists, reason: str) -> None:
        """Go back to what was saved last, and behind that if it is damaged, too."""
        if self._lists is lists:  # nobody has noticed yet
            self._warn(reason)
            self._lists = None

    # ---------------------------------------------------------------- looking at the log

    async def _look_on(self, end: int) -> None:
        """Until more is known."""
        self._refuse_if_deleted()
        self._goal = max(self._goal, end)
        if self._task is None and self._glance() and self.known_end >= end:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(future)
        self._begin()
        await future

    def _glance(self) -> bool:
        """The newest records are nearly always few and in memory: worth no thread."""
        lists, log = self._lists, self._partition.log
        if lists is None or not self._is_current():
            return False
        start = max(lists.end, log.log_start)
        try:
            looked = look(
                log,
                start,
                log.high_watermark,
                bytes_max=_GLANCE_BYTES,
                count_max=_CHUNK_COUNT,
                cached_only=True,
            )
        except (NotCached, FileNotFoundError):
            return False
        except OSError as error:
            raise self._failed(error) from error
        self._take(lists, looked)
        if self._is_save_due():
            self._begin()
        return True

    def _begin(self) -> None:
        if self._task is None:
            self._task = self._spawn(self._run())

    async def _run(self) -> None:
        error: GoQueueError = NotReady("the node stops")
        try:
            while self._is_behind() or self._is_save_due():
                async with self._partition.indexing:
                    self._refuse_if_deleted()
                    await self._step()
                self._release(None)
        except OSError as failure:
            error = self._failed(failure)
        except GoQueueError as failure:
            error = failure
        finally:
            self._task = None
            self._release(error if self._is_behind() else None)

    def _is_behind(self) -> bool:
        return self.known_end < min(self._goal, self._partition.log.high_watermark)

    async def _step(self) -> None:
        log, history = self._partition.log, self._partition.log.epochs
        lists = self._lists
        if lists is None or self._history is not history:
            self._adopt(await self._threads.run(lambda: self._loaded(lists)))
            return
        if self._is_behind():
            start, end = max(lists.end, log.log_start), log.high_watermark
            looked = await self._threads.run(
                lambda: look(log, start, end, bytes_max=_CHUNK_BYTES, count_max=_CHUNK_COUNT)
            )
            if self._lists is lists and log.epochs is history:
                self._take(lists, looked)
        if self._is_save_due():
            await self._save(lists)

    def _take(self, lists: PostingLists, looked: Looked) -> None:
        lists.add(looked.offsets, max(lists.end, looked.end))
        self._unsaved_bytes += looked.size_bytes

    def _adopt(self, lists: PostingLists) -> None:
        self._lists = lists
        self._history = self._partition.log.epochs
        self._unsaved_bytes = 0
        self._spill_count = _SPILL_COUNT
        self._shrunk_start = -1

    def _loaded(self, lists: PostingLists | None) -> PostingLists:
        """What is known and still true of the log; blocks."""
        log = self._partition.log
        epoch: int | None = None
        if lists is None:
            loaded = load_postings(self._disk, log.folder)
            if isinstance(loaded, str):
                self._warn(loaded)
            elif loaded is not None:
                lists, epoch = loaded
        elif self._history is not None:
            epoch = self._history.at(lists.end - 1)
        end = _common_end(log.epochs, epoch, log.end)
        if lists is not None and lists.start <= log.log_start < end:
            try:
                lists.cut(end)
                return lists
            except PostingsDamaged as error:
                self._warn(str(error))
        remove_postings(self._disk, log.folder)
        return PostingLists(self._disk, log.folder, log.log_start)

    # ---------------------------------------------------------------- saving

    def _is_save_due(self) -> bool:
        lists = self._lists
        if lists is None or not self._is_current():
            return False
        return (
            self._unsaved_bytes >= _SAVE_BYTES
            or lists.unsaved_count >= self._spill_count
            or self._is_shrinking(lists)
        )

    def _is_shrinking(self, lists: PostingLists) -> bool:
        log_start = self._partition.log.log_start
        return log_start != self._shrunk_start and lists.is_mostly_before(log_start)

    async def _save(self, lists: PostingLists) -> None:
        """A save that fails costs another look at the log after a restart, and memory until one succeeds."""
        log = self._partition.log
        is_durable = self._unsaved_bytes >= _SAVE_BYTES or self._is_shrinking(lists)
        epoch = log.epochs.at(lists.end - 1)
        job = lists.begin_save(log.log_start, NO_EPOCH if epoch is None else epoch, is_durable=is_durable)
        if is_durable:
            self._unsaved_bytes = 0
            self._shrunk_start = log.log_start
        self._spill_count = _SPILL_COUNT
        try:
            await self._threads.run(job.run)
        except PostingsDamaged as error:
            self._distrust(lists, str(error))
        except OSError as error:
            if lists.unsaved_count > _UNSAVED_COUNT_MAX:
                raise
            self._warn(f"they could not be saved: {error}")
            self._spill_count += 2 * lists.unsaved_count
        lists.finish_save(job)

    # ---------------------------------------------------------------- pieces

    def _release(self, error: GoQueueError | None) -> None:
        waiters, self._waiters = self._waiters, []
        for future in waiters:
            if future.done():  # it has gone away
                continue
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)

    def _refuse_if_deleted(self) -> None:
        if self._partition.is_deleted:
            raise TopicNotFound(self._partition.topic)

    def _failed(self, error: OSError) -> StorageError:
        return StorageError(f"looking for priorities in {self._partition.log.folder} failed: {error}")

    def _warn(self, reason: str) -> None:
        logger.warning("lists of lanes folder=%s note=%r", self._partition.log.folder, reason)


def _common_end(epochs: LeaderEpochs, epoch: int | None, log_end: int) -> int:
    """Up to where a log is the one of which `epoch` was the last; -1 if that cannot be told."""
    if epoch is None or epoch == NO_EPOCH:
        return -1
    known, end = epochs.end_of(epoch, log_end)
    return end if known == epoch else -1
