"""The work that nobody waits for: flushing what `acks=leader` promised, checkpoints, retention, compaction,
watching the disk and the event loop. One supervised task each; a failing partition never stops the others."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from goqueue.log.compaction import CompactionPlan, compact, dirty_ratio, plan_compaction
from goqueue.log.disk import Disk
from goqueue.log.retention import is_active_expired, retention_start
from goqueue.model.errors import DataCorrupt, GoQueueError
from goqueue.node.clock import Clock
from goqueue.node.config import NodeConfig
from goqueue.node.disk_watch import DiskWatch
from goqueue.node.metadata import Metadata
from goqueue.node.metrics import Metrics
from goqueue.node.partition import Partition
from goqueue.node.threads import Threads
from goqueue.node.topic_folders import owner_of
from goqueue.node.topic_table import TopicTable

logger = logging.getLogger(__name__)
_LAG_INTERVAL_S = 0.5


async def _everything(partition: Partition) -> int:
    return partition.log.end


class Housekeeping:
    def __init__(
        self,
        config: NodeConfig,
        disk: Disk,
        clock: Clock,
        topics: TopicTable,
        metadata: Metadata,
        disk_watch: DiskWatch,
        metrics: Metrics,
        threads: Threads,
    ) -> None:
        self._config = config
        self._disk = disk
        self._clock = clock
        self._topics = topics
        self._metadata = metadata
        self._disk_watch = disk_watch
        self._metrics = metrics
        self._threads = threads
        # Dictionaries as ordered sets: written since the last flush, and since the last checkpoint.
        self._unflushed: dict[Partition, None] = {}
        self._unsaved: dict[Partition, None] = {}
        self._forgettable_end: Callable[[Partition], Awaitable[int]] = _everything

    def ask_before_forgetting(self, forgettable_end: Callable[[Partition], Awaitable[int]]) -> None:
        """Before which offset of a log nobody on this node has yet to hear of what is deleted."""
        self._forgettable_end = forgettable_end

    def note_write(self, partition: Partition) -> None:
        self._unflushed[partition] = None
        self._unsaved[partition] = None

    async def flush(self) -> None:
        """Twice per interval, so that no write is older than the interval when its fsync begins."""
        while True:
            await asyncio.sleep(self._config.log.flush_interval_ms / 2_000)
            unflushed, self._unflushed = self._unflushed, {}
            for partition in unflushed:
                if partition.is_deleted:
                    continue
                if partition.log.has_unsaved_segments:  # so that a start never has to scan a sealed segment
                    partition.commit.request_checkpoint()
                elif not partition.log.is_durable:
                    partition.commit.request()

    async def save_checkpoints(self) -> None:
        while True:
            await asyncio.sleep(self._config.log.checkpoint_interval_ms / 1_000)
            unsaved, self._unsaved = self._unsaved, {}
            for partition in unsaved:
                if not partition.is_deleted:
                    partition.forget_idle_producers(self._clock.now_ms())
                    await self._checkpoint(partition)

    async def clean_up(self) -> None:
        while True:
            await asyncio.sleep(self._config.log.cleanup_interval_ms / 1_000)
            for partition in self._topics.partitions():
                try:
                    await self.apply_retention(partition)
                    if partition.log.settings.cleanup_policy.compacts:
                        await self.apply_compaction(partition)
                except (GoQueueError, OSError) as error:
                    logger.error("cleanup failed folder=%s error=%r", partition.log.folder, str(error))
            self._metrics.log_bytes.set(sum(one.log.size_bytes for one in self._topics.partitions()))

    async def watch_disk(self) -> None:
        while True:
            try:
                self._disk_watch.check()
            except OSError as error:
                logger.warning("disk usage is unknown error=%r", str(error))
            await asyncio.sleep(self._config.disk.check_interval_ms / 1_000)

    async def watch_loop(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + _LAG_INTERVAL_S
            await asyncio.sleep(_LAG_INTERVAL_S)
            self._metrics.loop_lag.observe(max(0.0, loop.time() - due))

    async def apply_retention(self, partition: Partition) -> None:
        log = partition.log
        if (
            partition.is_deleted
            or log.failure is not None
            or not log.segments
            or partition.rewriting.locked()
        ):
            return
        now_ms = self._clock.now_ms()
        if is_active_expired(log, now_ms):
            log.roll(now_ms)
        new_start = await self._threads.run(lambda: retention_start(log, now_ms))
        if new_start > log.log_start and not partition.is_deleted and not partition.rewriting.locked():
            size_before = log.size_bytes
            log.delete_before(new_start)
            self._metrics.deleted_bytes.inc(size_before - log.size_bytes)
            logger.info("retention deleted folder=%s log_start=%d", log.folder, new_start)
            await partition.commit.checkpoint()

    async def apply_compaction(self, partition: Partition) -> None:
        log = partition.log
        if partition.is_deleted or log.failure is not None:
            return
        stable_end = partition.last_stable_offset
        if dirty_ratio(log, stable_end=stable_end) <= log.settings.min_cleanable_dirty_ratio:
            return
        now_ms = self._clock.now_ms()
        forget_before = await self._forgettable_end(partition) if self._is_everywhere(partition) else 0
        plan = await self._threads.run(
            lambda: plan_compaction(log, now_ms, stable_end=stable_end, forget_before=forget_before)
        )
        if plan is None or partition.is_deleted:
            return
        await partition.commit.checkpoint()  # what is rewritten is durable and indexed before
        async with partition.rewriting:
            # Records may have been deleted since, and segments with them: the next pass plans anew.
            if not partition.is_deleted and set(plan.segments) <= set(log.segments):
                try:
                    await self._compact(partition, plan)
                except DataCorrupt as error:
                    if not partition.is_solo:
                        partition.found_damage(error)
                    raise
        if not partition.is_deleted:
            await partition.commit.checkpoint()

    def _is_everywhere(self, partition: Partition) -> bool:
        """Whether all replicas have what is committed. One that has not would never hear of what is deleted if the others forgot it, and
        bring it back when it leads."""
        if partition.is_solo:
            return True
        state = self._metadata.catalog.partitions.find(owner_of(partition.topic), partition.index)
        return state is not None and set(state.in_sync) == set(state.replicas)

    async def _compact(self, partition: Partition, plan: CompactionPlan) -> None:
        log = partition.log
        result = await self._threads.run(lambda: compact(self._disk, log.folder, plan))
        for old, new in result.replaced:
            log.replace_segments(old, new)
        log.aborted.forget(result.forgotten)
        if result.failure is not None:
            raise result.failure
        log.clean_end = max(log.clean_end, result.clean_end)
        self._metrics.compacted_bytes.inc(result.bytes_before)
        logger.info(
            "compacted folder=%s records_before=%d records_after=%d bytes_before=%d bytes_after=%d",
            log.folder,
            result.records_before,
            result.records_after,
            result.bytes_before,
            result.bytes_after,
        )

    async def save_all(self, *others: Partition) -> None:
        """The last act of a clean stop: the next start has nothing to scan. `others` are not in the table of topics."""
        for partition in [*self._topics.partitions(), *others]:
            if partition.is_led or partition in self._unsaved:
                await self._checkpoint(partition)

    async def _checkpoint(self, partition: Partition) -> None:
        try:
            await partition.commit.checkpoint()
        except GoQueueError as error:
            logger.warning("checkpoint failed folder=%s error=%r", partition.log.folder, str(error))
