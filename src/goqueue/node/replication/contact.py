"""Whether this node is still in contact with those who decide: a leader that is not may have been replaced, and tells those who
wait for it to commit something."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final

from goqueue.node.monotonic import monotonic_ms
from goqueue.node.replication.leadership import Leadership

logger = logging.getLogger(__name__)
_PAUSE_MS_MIN: Final = 50

Place = tuple[str, int]


class Contact:
    def __init__(
        self,
        leaderships: Mapping[Place, Leadership],
        heard_ms: Mapping[int, int],
        controller_heard_ms: Callable[[], int],
        *,
        heartbeat_ms: int,
        silent_ms: int,
    ) -> None:
        """`heard_ms` says when followers were last heard of, `controller_heard_ms` when the controller was."""
        self._leaderships = leaderships
        self._heard_ms = heard_ms
        self._controller_heard_ms = controller_heard_ms
        self._heartbeat_ms = heartbeat_ms
        self._silent_ms = silent_ms
        self._was_cut_off = False

    async def run(self) -> None:
        while True:  # noqa: ASYNC110 - silence is no event
            await asyncio.sleep(self.look(monotonic_ms()) / 1_000)

    def look(self, now_ms: int) -> int:
        """When to look again, in milliseconds."""
        silence_ms = now_ms - self._controller_heard_ms()
        is_silent = silence_ms >= self._silent_ms
        if is_silent or self._was_cut_off:
            for leadership in list(self._leaderships.values()):
                leadership.note_contact(
                    is_silent=is_silent, heard_ms=self._heard_ms, oldest_ms=now_ms - self._silent_ms
                )
            self._note(sum(one.is_cut_off for one in self._leaderships.values()))
        pause_ms = self._heartbeat_ms if is_silent else self._silent_ms - silence_ms
        return max(pause_ms, _PAUSE_MS_MIN)

    def _note(self, count: int) -> None:
        if count and not self._was_cut_off:
            logger.warning("cut off from the controller and from replicas in sync partitions=%d", count)
        elif self._was_cut_off and not count:
            logger.info("in contact again")
        self._was_cut_off = count > 0
