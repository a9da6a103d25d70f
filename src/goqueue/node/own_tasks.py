"""The tasks of a node: none is orphaned, and none fails unseen."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine

logger = logging.getLogger(__name__)


class OwnTasks:
    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self.failed = asyncio.Event()  # see `fail`
        self.failure: BaseException | None = None  # the first

    def spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def fail(self, error: BaseException) -> None:
        """Something happened that cannot: whoever runs the node must end it, and must not call it a clean stop."""
        logger.critical("the node must stop", exc_info=error)
        self.failure = self.failure or error
        self.failed.set()

    async def end(self) -> None:
        """All of them, wherever they are."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.fail(error)
