"""The listener's connections that carry Kafka frames."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Protocol

logger = logging.getLogger(__name__)
_CLOSE_S_MAX = 1.0  # for the last answers to be taken


class FrameConnection(Protocol):
    """A buffered protocol of asyncio's for one connection."""

    def close(self) -> None: ...

    def abort(self) -> None: ...

    async def finish(self) -> None: ...


# Made with whom to tell: that it is there, who says whether it may stay; and that it has gone.
MakeFrames = Callable[[Callable[[Any], bool], Callable[[Any], None]], asyncio.BufferedProtocol]


class FrameSide:
    """`make` is handed in: it knows what is served."""

    def __init__(self, make: MakeFrames, *, connection_count_max: int) -> None:
        self._make = make
        self._connection_count_max = connection_count_max
        self._connections: dict[FrameConnection, None] = {}  # in the order they came
        self._is_stopping = False
        self._gone = asyncio.Event()  # set while there is no connection
        self._gone.set()

    def connect(self) -> asyncio.BufferedProtocol:
        return self._make(self._made, self._lost)

    async def stop(self, grace_s: float) -> None:
        """Let what is under way end within the grace, then close what is left."""
        self._is_stopping = True
        try:
            async with asyncio.timeout(grace_s):
                await asyncio.gather(*(connection.finish() for connection in list(self._connections)))
        except TimeoutError:  # work that does not end, or a peer that takes nothing
            pass
        for connection in list(self._connections):
            connection.close()
        try:
            async with asyncio.timeout(_CLOSE_S_MAX):
                await self._gone.wait()
        except TimeoutError:
            for connection in list(self._connections):
                connection.abort()
            await self._gone.wait()

    def _made(self, connection: FrameConnection) -> bool:
        if self._is_stopping:
            return False
        if len(self._connections) >= self._connection_count_max:
            logger.warning("peer connection refused reason='%d are open'", len(self._connections))
            return False
        self._connections[connection] = None
        self._gone.clear()
        return True

    def _lost(self, connection: FrameConnection) -> None:
        self._connections.pop(connection, None)
        if not self._connections:
            self._gone.set()
