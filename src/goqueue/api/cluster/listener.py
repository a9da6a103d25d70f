"""The cluster's listener: one port for HTTP and for Kafka frames.

The first byte tells them apart: a frame begins with its length, whose highest byte is zero as long as it is shorter than 16 MiB, and
the first frame of a peer begins a login, which is short. No request of HTTP begins with a zero.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from typing import cast

from goqueue.api.cluster.frame_side import FrameSide
from goqueue.api.cluster.http_side import HttpSide

logger = logging.getLogger(__name__)
FIRST_BYTE_S_MAX = 10.0
SILENT_COUNT_MAX = 256  # connections that have sent nothing yet
_BACKLOG = 2_048


class ClusterListener:
    """With `context`, which should require a certificate of the other side, everything goes over TLS."""

    def __init__(
        self,
        *,
        host: str,
        port: int,
        http: HttpSide,
        frames: FrameSide,
        context: ssl.SSLContext | None = None,
    ) -> None:
        self._host = host
        self._port = port
        self._http = http
        self._frames = frames
        self._context = context
        self._silent = _Silent()
        self._server: asyncio.Server | None = None

    async def start(self) -> tuple[str, int]:
        """Listen; the address in use, which differs from the one asked for where the port was 0."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            self._connect,
            self._host,
            self._port,
            backlog=_BACKLOG,
            ssl=self._context,
            ssl_handshake_timeout=None if self._context is None else FIRST_BYTE_S_MAX,
        )
        host, port = self._server.sockets[0].getsockname()[:2]
        return host, port

    async def stop(self, grace_s: float) -> None:
        """Stop listening, let what is under way end within the grace, then close what is left."""
        if self._server is None:
            return
        self._server.close()
        self._silent.abort()
        await asyncio.gather(self._http.stop(grace_s), self._frames.stop(grace_s))
        await self._server.wait_closed()

    def _connect(self) -> _FirstByte:
        return _FirstByte(self._http, self._frames, self._silent)


class _Silent:
    """Connections that have sent nothing yet. Where there are too many, the oldest gives way: a node sends as soon as it is connected, and
    whoever does not may keep none out."""

    def __init__(self) -> None:
        self._ones: dict[_FirstByte, None] = {}  # in the order they came
        self._is_warned = False  # since there were none

    def add(self, one: _FirstByte) -> None:
        self._ones[one] = None
        if len(self._ones) <= SILENT_COUNT_MAX:
            return
        if not self._is_warned:
            self._is_warned = True
            logger.warning(
                "silent peer connections are closed reason='%d have sent nothing'", len(self._ones)
            )
        oldest = next(iter(self._ones))
        self.drop(oldest)
        oldest.abort()

    def drop(self, one: _FirstByte) -> None:
        self._ones.pop(one, None)
        if not self._ones:
            self._is_warned = False

    def abort(self) -> None:
        for one in list(self._ones):
            one.abort()


class _FirstByte(asyncio.Protocol):
    """Stands in until the first byte has come."""

    def __init__(self, http: HttpSide, frames: FrameSide, silent: _Silent) -> None:
        self._http = http
        self._frames = frames
        self._silent = silent
        self._transport: asyncio.Transport | None = None
        self._patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        self._patience = asyncio.get_running_loop().call_later(FIRST_BYTE_S_MAX, self.abort)
        self._silent.add(self)

    def data_received(self, data: bytes) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        self._leave()
        protocol = self._frames.connect() if data[0] == 0 else self._http.connect()
        # A loop chooses how it reads when it begins to: frames are received straight into their buffers.
        transport.pause_reading()
        transport.set_protocol(protocol)
        transport.resume_reading()
        protocol.connection_made(transport)
        _hand_over(protocol, data)

    def connection_lost(self, error: Exception | None) -> None:
        self._leave()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _leave(self) -> None:
        self._silent.drop(self)
        if self._patience is not None:
            self._patience.cancel()


def _hand_over(protocol: asyncio.Protocol | asyncio.BufferedProtocol, data: bytes) -> None:
    if isinstance(protocol, asyncio.Protocol):
        protocol.data_received(data)
        return
    left = memoryview(data)
    while left:
        room = memoryview(protocol.get_buffer(len(left)))
        size = min(len(room), len(left))
        room[:size] = left[:size]
        protocol.buffer_updated(size)
        left = left[size:]
