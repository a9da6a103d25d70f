"""The listener's connections that speak HTTP: uvicorn's protocol, as the API for clients uses it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count
from typing import Any, Protocol, cast

from uvicorn.config import Config
from uvicorn.server import ServerState

from goqueue.api.http.asgi import Application
from goqueue.api.http.server import configure

_ABORT_S_MAX = 1.0  # for requests to notice that their connection is gone


class HttpConnection(Protocol):
    """A protocol of asyncio's for one connection, which is entered in the state for as long as it lasts."""

    serial: int
    transport: asyncio.Transport

    def shutdown(self) -> None: ...


MakeHttp = Callable[[Config, ServerState, int], HttpConnection]  # the last is its serial number


class HttpSide:
    """`make` is handed in: it sets the limits of a connection."""

    def __init__(self, app: Application, make: MakeHttp) -> None:
        self._make = make
        self._config = configure(app)
        self._state = ServerState()
        self._serials = count()

    def connect(self) -> asyncio.Protocol:
        made: Any = self._make(self._config, self._state, next(self._serials))
        return cast(asyncio.Protocol, made)

    async def stop(self, grace_s: float) -> None:
        """Let running requests end within the grace, then close what is left."""
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

    def _connections(self) -> list[HttpConnection]:
        """In the order they were made: that of a set differs from run to run."""
        ours: list[Any] = list(self._state.connections)
        return sorted(ours, key=lambda one: cast(HttpConnection, one).serial)
