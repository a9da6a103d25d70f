"""From a folder on disk to a running partition."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from goqueue.log.disk import Disk
from goqueue.log.partition_log import PartitionLog
from goqueue.log.recovery import RecoveryReport, open_log
from goqueue.model.settings import TopicSettings
from goqueue.node.commit import GroupCommit, Spawn
from goqueue.node.folder import LOGS, partition_folder
from goqueue.node.metrics import Metrics
from goqueue.node.partition import Partition
from goqueue.node.producer_state import ProducerState
from goqueue.node.threads import Threads

logger = logging.getLogger(__name__)
_Recovered = tuple[PartitionLog, ProducerState, RecoveryReport]


class PartitionOpener:
    """Everything a partition needs, gathered once."""

    def __init__(
        self,
        disk: Disk,
        threads: Threads,
        metrics: Metrics,
        spawn: Spawn,
        on_write: Callable[[Partition], None],
        *,
        sync_timeout_ms: int,
        is_solo: bool = True,
    ) -> None:
        self._disk = disk
        self._threads = threads
        self._metrics = metrics
        self._spawn = spawn
        self._on_write = on_write
        self._sync_timeout_ms = sync_timeout_ms
        self._is_solo = is_solo
        self.when_damaged: Callable[[Partition], None] = lambda _: None  # of partitions that are followed

    async def open(self, topic: str, indexes: Sequence[int], settings: TopicSettings) -> list[Partition]:
        """Recover partitions of a topic, one after another in one thread."""
        opened = await self._threads.run(lambda: self._recover_all(topic, indexes, settings))
        return [self._started(topic, index, *found) for index, found in zip(indexes, opened, strict=True)]

    def _recover_all(self, topic: str, indexes: Sequence[int], settings: TopicSettings) -> list[_Recovered]:
        folders = {entry.name for entry in self._disk.list(f"{LOGS}/{topic}")}
        return [self._recover(topic, index, settings, is_there=str(index) in folders) for index in indexes]

    def _recover(self, topic: str, index: int, settings: TopicSettings, *, is_there: bool) -> _Recovered:
        state = ProducerState()
        folder = partition_folder(topic, index)
        if not is_there:  # it was made before the topic was, so somebody took it away
            self._disk.make_dir(folder)
        log, report = open_log(self._disk, folder, settings, state)
        if not is_there:
            report.note_short(f"{folder} was missing; whatever it held is lost")
        return log, state, report

    def _started(
        self, topic: str, index: int, log: PartitionLog, state: ProducerState, report: RecoveryReport
    ) -> Partition:
        for note in report.notes:
            logger.warning("recovery topic=%s partition=%d note=%r", topic, index, note)
        for damage in report.damage:
            self._metrics.damage.inc()
            logger.error("damage found topic=%s partition=%d detail=%r", topic, index, damage)
        commit = GroupCommit(log, self._threads, self._metrics, self._spawn, timeout_ms=self._sync_timeout_ms)
        partition = Partition(
            topic,
            index,
            log,
            state,
            damage=report.damage,
            commit=commit,
            threads=self._threads,
            metrics=self._metrics,
            on_write=self._on_write,
            is_solo=self._is_solo,
        )
        partition.is_short = report.is_short
        partition.damaged_from = _damaged_from(log, report)
        partition.when_damaged = self.when_damaged
        if not log.is_durable:  # after kill -9 the promise of `acks=leader` still stands
            self._on_write(partition)
        return partition


def _damaged_from(log: PartitionLog, report: RecoveryReport) -> int | None:
    """What is missing at the end is fetched again by itself. Where compaction has been, the other replicas may have forgotten
    tombstones that were in it, and what is left here has the values that those deleted."""
    if report.is_short and log.may_be_compacted:
        return log.log_start
    return min((start for start, _ in report.damaged), default=None)
