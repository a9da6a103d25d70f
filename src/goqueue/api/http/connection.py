"""One HTTP connection: uvicorn's protocol with the limits that it leaves out.

Inherits where we otherwise would not, because the protocol is made to be driven by an event loop and offers no
other place to stand. What is added: a client that owes bytes (the rest of a head or of a body, or its first
request) has only so long to send them; a head has a maximum size; connections above the limit are told so.
"""

from __future__ import annotations

import asyncio

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

from goqueue.api.http.asgi import Event, Header, Receive, Send, send_bytes
from goqueue.api.http.errors import ENCODER, error_body
from goqueue.model.errors import InvalidRequest, NotReady

IDLE_S_MAX = 75
HEAD_BYTES_MAX = 64 * 1024
_LINGER_S = 2.0
_REFUSED_COUNT_MAX = 100  # connections above the limit that are told why; more are just closed

_HEADERS: list[Header] = [(b"content-type", b"application/json"), (b"connection", b"close")]


class Connection(HttpToolsProtocol):
    def __init__(self, config: Config, state: ServerState, *, serial: int, connection_count_max: int) -> None:
        super().__init__(config, state, app_state={})
        self.serial = serial
        self._connection_count_max = connection_count_max
        self._head_bytes = 0
        self._is_refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn does
        super().connection_made(transport)
        surplus = len(self.connections) - self._connection_count_max
        if surplus > _REFUSED_COUNT_MAX:
            transport.close()
        elif surplus > 0:
            self.app = _refuse
        self._watch_idleness()

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        before = self.scope
        super().data_received(data)
        cycle = self.cycle
        if cycle is None or cycle.more_body or cycle.response_complete:
            self._watch_idleness()
        # A head that was begun before this piece came and is not complete yet: its scope has no cycle so far.
        if before is not None and self.scope is before and (cycle is None or cycle.scope is not before):
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES_MAX and not self._is_refused:
                self.send_400_response(
                    f"the request line and headers may have at most {HEAD_BYTES_MAX} bytes"
                )
        else:
            self._head_bytes = 0

    def send_400_response(self, msg: str) -> None:
        """Answer and hang up, but not at once: bytes that meet a closed socket would reset the connection, and the
        client might never see the answer."""
        body = ENCODER.encode(error_body(InvalidRequest(msg)))
        lines = [name + b": " + value for name, value in (*_HEADERS, (b"content-length", b"%d" % len(body)))]
        self.transport.write(STATUS_LINE[400] + b"\r\n".join(lines) + b"\r\n\r\n" + body)
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._is_refused = True
        if self.cycle is not None:
            self.cycle.disconnected = True  # whatever it would answer now comes too late
            self.cycle.message_event.set()
        self.loop.call_later(_LINGER_S, self.transport.close)

    def _watch_idleness(self) -> None:
        if self.timeout_keep_alive_task is None and not self.transport.is_closing():
            self.timeout_keep_alive_task = self.loop.call_later(IDLE_S_MAX, self.timeout_keep_alive_handler)


async def _refuse(scope: Event, receive: Receive, send: Send) -> None:
    error = error_body(NotReady("the broker has as many connections as it may; try again later"))
    await send_bytes(send, error.status, ENCODER.encode(error), _HEADERS)
