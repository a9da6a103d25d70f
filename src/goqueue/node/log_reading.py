"""Reads of one partition's log that do not stop the event loop: from the page cache at once, from anywhere else in a thread."""

from __future__ import annotations

import logging

from goqueue.log.disk import NotCached
from goqueue.log.partition_log import PartitionLog, Slice
from goqueue.model.errors import DataCorrupt, StorageError
from goqueue.node.metrics import Metrics
from goqueue.node.threads import Threads

logger = logging.getLogger(__name__)
_DAMAGE_REPORTS_MAX = 1_000


class LogReading:
    """Damage is reported here, and raised for whoever asked."""

    def __init__(self, topic: str, index: int, log: PartitionLog, threads: Threads, metrics: Metrics) -> None:
        self._topic = topic
        self._index = index
        self._log = log
        self._threads = threads
        self._metrics = metrics
        self._damage_seen: set[int] = set()

    async def read(self, offset: int, *, end: int, bytes_max: int) -> Slice:
        try:
            try:
                return self._log.read(offset, end=end, bytes_max=bytes_max, cached_only=True)
            except (NotCached, FileNotFoundError):
                return await self._threads.run(lambda: self._read_blocking(offset, end, bytes_max))
        except DataCorrupt as error:
            self._report_damage(error)
            raise
        except OSError as error:
            raise StorageError(f"reading {self._log.folder} failed: {error}") from error

    async def seek(self, timestamp_ms: int) -> tuple[int, int] | None:
        """Offset and timestamp of the first record at or after an instant, if there is one."""
        try:
            return await self._threads.run(lambda: self._seek_blocking(timestamp_ms))
        except DataCorrupt as error:
            self._report_damage(error)
            raise
        except OSError as error:
            raise StorageError(f"reading {self._log.folder} failed: {error}") from error

    async def newest(self) -> tuple[int, int] | None:
        """Offset and timestamp of the record with the largest timestamp, if there is a record."""
        segments = self._log.segments
        largest = await self._threads.run(lambda: max((one.max_timestamp for one in segments), default=-1))
        return await self.seek(largest) if largest >= 0 else None

    def _read_blocking(self, offset: int, end: int, bytes_max: int) -> Slice:
        try:
            return self._log.read(offset, end=end, bytes_max=bytes_max)
        except FileNotFoundError:  # retention took the segment away; a second look says so
            return self._log.read(offset, end=end, bytes_max=bytes_max)

    def _seek_blocking(self, timestamp_ms: int) -> tuple[int, int] | None:
        try:
            return self._log.first_at_or_after(timestamp_ms)
        except FileNotFoundError:  # as above
            return self._log.first_at_or_after(timestamp_ms)

    def _report_damage(self, error: DataCorrupt) -> None:
        """Once per range: a reader that retries must not fill the operator's log."""
        if error.start not in self._damage_seen and len(self._damage_seen) < _DAMAGE_REPORTS_MAX:
            self._damage_seen.add(error.start)
            self._metrics.damage.inc()
            logger.error(
                "damaged records found topic=%s partition=%d detail=%r",
                *(self._topic, self._index, error.sentence),
            )
