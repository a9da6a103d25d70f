"""A client that calls an ASGI application in the same process, as an HTTP server would."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from goqueue.api.http.asgi import Application, Event

Json = Any  # whatever the tested application answers; the tests look into it


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    headers: Mapping[str, str]
    body: bytes
    events: tuple[str, ...]  # the ASGI events the answer was sent in

    def json(self) -> Json:
        return json.loads(self.body)


class Connection:
    """One request's view of its connection; `close` is what the application sees when the client goes away."""

    def __init__(self, chunks: list[bytes], *, is_complete: bool = True) -> None:
        self._chunks = chunks
        self._is_complete = is_complete
        self._closed = asyncio.Event()
        self.is_watched = asyncio.Event()  # the body has been read and the application waits for more
        self.sent: list[Event] = []

    def close(self) -> None:
        self._closed.set()

    async def receive(self) -> Event:
        if self._chunks:
            chunk = self._chunks.pop(0)
            return {
                "type": "http.request",
                "body": chunk,
                "more_body": bool(self._chunks) or not self._is_complete,
            }
        self.is_watched.set()
        await self._closed.wait()
        return {"type": "http.disconnect"}

    async def send(self, event: Event) -> None:
        self.sent.append(event)

    def response(self) -> Response:
        start = self.sent[0]
        return Response(
            status=start["status"],
            headers={name.decode(): value.decode() for name, value in start["headers"]},
            body=b"".join(event.get("body", b"") for event in self.sent[1:]),
            events=tuple(event["type"] for event in self.sent),
        )


class Client:
    def __init__(self, app: Application) -> None:
        self._app = app

    async def get(self, target: str) -> Response:
        return await self.request("GET", target)

    async def post(self, target: str, body: object) -> Response:
        return await self.request("POST", target, json.dumps(body).encode())

    async def request(
        self, method: str, target: str, *chunks: bytes, headers: Mapping[str, str] | None = None
    ) -> Response:
        connection = Connection(list(chunks) or [b""])
        await self.run(connection, method, target, headers=headers)
        return connection.response()

    async def run(
        self, connection: Connection, method: str, target: str, *, headers: Mapping[str, str] | None = None
    ) -> None:
        raw_path, _, query = target.encode().partition(b"?")
        scope: Event = {
            "type": "http",
            "method": method,
            "path": raw_path.decode(),
            "raw_path": raw_path,
            "query_string": query,
            "headers": [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()],
        }
        await self._app(scope, connection.receive, connection.send)
