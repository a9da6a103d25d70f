"""Listens for HTTP and stops without cutting off an answer."""

from __future__ import annotations

import asyncio
from itertools import count

from uvicorn.config import Config
from uvicorn.server import ServerState

from goqueue.api.http.asgi import Application
from goqueue.api.http.connection import IDLE_S_MAX, Connection

_BACKLOG = 2_048
_ABORT_S_MAX = 1.0  # for requests to notice that their connection is gone


class HttpServer:
    """uvicorn's HTTP protocol on the running loop, without uvicorn's server: the node owns signals and lifetime, and a
    simulated loop can host it."""

    def __init__(self, app: Application, *, host: str, port: int, connection_count_max: int) -> None:
        self._host = host
        self._port = port
        self._connection_count_max = connection_count_max
        self._config = configure(app)
        self._state = ServerState()
        self._serials = count()
        self._server: asyncio.Server | None = None

    async def start(self) -> tuple[str, int]:
        """Listen; the address in use, which differs from the one asked for where the port was 0."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._connect, self._host, self._port, backlog=_BACKLOG)
        host, port = self._server.sockets[0].getsockname()[:2]
        return host, port

    async def stop(self, grace_s: float) -> None:
        """Stop listening, let running requests end within the grace, then close what is left."""
        if self._server is None:
            return
        self._server.close()
        for connection in self._connections():
            connection.shutdown()
        if self._state.tasks:
            await asyncio.wait(self._state.tasks, timeout=grace_s)
        for connection in self._connections():
            connection.transport.abort()
        if self._state.tasks:
            await asyncio.wait(self._state.tasks, timeout=_ABORT_S_MAX)
        for task in list(self._state.tasks):
            task.cancel()
        await asyncio.gather(*self._state.tasks, return_exceptions=True)
        await self._server.wait_closed()

    def _connect(self) -> Connection:
        return Connection(
            self._config,
            self._state,
            serial=next(self._serials),
            connection_count_max=self._connection_count_max,
        )

    def _connections(self) -> list[Connection]:
        """In the order they were made: that of a set differs from run to run."""
        ours = [one for one in self._state.connections if isinstance(one, Connection)]
        return sorted(ours, key=lambda one: one.serial)


def configure(app: Application) -> Config:
    """uvicorn's settings for whoever serves HTTP here."""
    config = Config(
        app,
        interface="asgi3",
        loop="none",
        http="httptools",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,  # uvicorn's server keeps the date up to date, and we do not run it
        timeout_keep_alive=IDLE_S_MAX,
    )
    config.load()
    return config
