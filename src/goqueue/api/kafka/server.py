"""Listens for Kafka clients and stops without cutting off an answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from goqueue.api.kafka.connection import Connection
from goqueue.api.kafka.dispatch import Dispatch
from goqueue.wire.frames import SCRATCH_BYTES

logger = logging.getLogger(__name__)
_BACKLOG = 2_048
_CLOSE_S_MAX = 1.0  # for the last answers to be taken


class KafkaServer:
    def __init__(
        self,
        dispatch: Dispatch,
        *,
        host: str,
        port: int,
        connection_count_max: int,
        frame_bytes_max: int,
        on_broken: Callable[[BaseException], None],
    ) -> None:
        self._dispatch = dispatch
        self._host = host
        self._port = port
        self._connection_count_max = connection_count_max
        self._frame_bytes_max = frame_bytes_max
        self._scratch = bytearray(SCRATCH_BYTES)
        self._on_broken = on_broken
        self._connections: dict[Connection, None] = {}  # in the order they came
        self._server: asyncio.Server | None = None
        self._is_stopping = False
        self._gone = asyncio.Event()  # set while there is no connection
        self._gone.set()

    async def start(self, *, is_open: bool = True) -> tuple[str, int]:
        """Listen; the address in use, which differs from the one asked for where the port was 0. Without `is_open` it is only
        taken: nobody can connect before `open`."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            self._connect, self._host, self._port, backlog=_BACKLOG, start_serving=is_open
        )
        host, port = self._server.sockets[0].getsockname()[:2]
        return host, port

    async def open(self) -> None:
        if self._server is not None:
            await self._server.start_serving()

    async def stop(self, grace_s: float) -> None:
        """Stop listening, let what is under way end within the grace, then close what is left."""
        if self._server is None:
            return
        self._server.close()
        self._is_stopping = True
        try:
            async with asyncio.timeout(grace_s):
                await asyncio.gather(*(connection.finish() for connection in list(self._connections)))
        except TimeoutError:  # work that does not end, or a client that takes nothing
            pass
        for connection in list(self._connections):
            connection.close()
        try:
            async with asyncio.timeout(_CLOSE_S_MAX):
                await self._gone.wait()
        except TimeoutError:  # clients that do not take their answers
            for connection in list(self._connections):
                connection.abort()
            await self._gone.wait()
        await self._server.wait_closed()

    def _connect(self) -> Connection:
        return Connection(
            self._dispatch,
            frame_bytes_max=self._frame_bytes_max,
            scratch=self._scratch,
            on_made=self._made,
            on_lost=self._lost,
            on_broken=self._on_broken,
        )

    def _made(self, connection: Connection) -> bool:
        if self._is_stopping:  # it came while the listener was closing
            return False
        if len(self._connections) >= self._connection_count_max:
            logger.warning("connection refused reason='%d are open'", len(self._connections))
            return False
        self._connections[connection] = None
        self._gone.clear()
        return True

    def _lost(self, connection: Connection) -> None:
        self._connections.pop(connection, None)
        if not self._connections:
            self._gone.set()
