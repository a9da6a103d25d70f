"""Disk-full protection: writes stop before the disk is full, so that recovery, checkpoints and reads never
find it so. Writes resume by themselves when space is back."""

from __future__ import annotations

import logging
from collections.abc import Callable

from goqueue.log.disk import Disk
from goqueue.model.errors import DiskFull
from goqueue.node.config import DiskConfig
from goqueue.node.metrics import Metrics

logger = logging.getLogger(__name__)


class DiskWatch:
    def __init__(self, disk: Disk, config: DiskConfig, metrics: Metrics) -> None:
        self._disk = disk
        self._config = config
        self._metrics = metrics
        self._level = "ok"
        self.used_percent = 0.0
        self._watchers: list[Callable[[], None]] = []

    def when_changed(self, watcher: Callable[[], None]) -> None:
        """It is called when the disk becomes full, or has space again; it may not wait."""
        self._watchers.append(watcher)

    @property
    def is_full(self) -> bool:
        return self._level == "full"

    @property
    def summary(self) -> str:
        return "ok" if self._level == "ok" else f"{self._level}: {self.used_percent:.1f} % used"

    def check(self) -> None:
        """Look at the disk and remember; cheap enough to call every second."""
        total, free = self._disk.usage()
        self.used_percent = 100.0 * (total - free) / total if total else 0.0
        level = "ok"
        if self.used_percent >= self._config.warn_percent:
            level = "nearly full"
        if self.used_percent >= self._config.refuse_percent:
            level = "full"
        if level != self._level:
            logger.warning("disk is %s used_percent=%.1f", level, self.used_percent)
            self._level = level
            for watcher in self._watchers:
                watcher()
        self._metrics.disk_used_ratio.set(self.used_percent / 100.0)
        self._metrics.writes_refused.set(level == "full")

    def refuse_if_full(self) -> None:
        if self._level == "full":
            raise DiskFull(
                f"the disk is {self.used_percent:.1f} % full; writes are refused from "
                f"{self._config.refuse_percent:g} % on, reads go on",
                used_percent=round(self.used_percent, 1),
            )
