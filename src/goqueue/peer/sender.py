"""Takes Raft messages to one node, one after another, for as long as this node lives."""

from __future__ import annotations

import asyncio
import logging

from goqueue.core.raft.messages import Message, encode_message
from goqueue.model.errors import GoQueueError
from goqueue.node.cluster.exchange import path_of
from goqueue.peer.outbox import Outbox
from goqueue.peer.requests import Requests

logger = logging.getLogger(__name__)
_BYTES_PER_S_MIN = 4 * 1024 * 1024  # a snapshot may take its time


class Sender:
    def __init__(self, target: str, requests: Requests, *, timeout_s: float) -> None:
        self._target = target
        self._requests = requests
        self._timeout_s = timeout_s
        self._outbox = Outbox()
        self._failing: str | None = (
            None  # the code of the last error: a change of it is worth a line in the log
        )
        self._task: asyncio.Task[None] | None = None

    def put(self, message: Message) -> None:
        self._outbox.put(message)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        while True:
            message = await self._outbox.take()
            try:
                await self._send(message)
                self._note(None)
            except GoQueueError as error:
                self._note(error)
            except Exception:  # the supervisor of this link: it must go on
                logger.exception("raft message not sent node=%s", self._target)

    async def _send(self, message: Message) -> None:
        body = encode_message(message)
        timeout_s = self._timeout_s + len(body) / _BYTES_PER_S_MIN
        await self._requests.ask(path_of(message), body, timeout_s=timeout_s)

    def _note(self, error: GoQueueError | None) -> None:
        code = None if error is None else error.code.value
        if code == self._failing:
            return
        self._failing = code
        if error is None:
            logger.info("peer answers again node=%s", self._target)
        else:
            logger.warning("peer does not take messages node=%s reason=%r", self._target, error.sentence)
