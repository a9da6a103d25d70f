"""A small HTTP client for simulated clients: one request at a time over asyncio streams."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

import msgspec

REQUEST_TIMEOUT_S = 20.0


class Answer(NamedTuple):
    status: int
    body: dict[str, object]

    @property
    def code(self) -> str:
        return str(self.body.get("code", ""))


class NoAnswer(Exception):
    """The connection broke or nothing came in time: what became of the request is not known."""


class SimHttpClient:
    """Connects again after every failure; never repeats a request by itself."""

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def request(self, method: str, path: str, body: object = None) -> Answer:
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                return await self._request(method, path, body)
        except (OSError, EOFError, TimeoutError) as error:
            self.close()
            raise NoAnswer(f"{method} {path}: {error!r}") from error

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].transport.abort()
            self._streams = None

    async def _request(self, method: str, path: str, body: object) -> Answer:
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._host, self._port)
        reader, writer = self._streams
        payload = msgspec.json.encode(body) if body is not None else b""
        writer.write(
            f"{method} {path} HTTP/1.1\r\nHost: {self._host}\r\nContent-Length: {len(payload)}\r\n\r\n".encode()
            + payload
        )
        await writer.drain()
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        status = int(head[0].split(" ")[1])
        headers = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in head[1:] if line)
        }
        content = await reader.readexactly(int(headers.get("content-length", "0")))
        if headers.get("connection") == "close":
            self.close()
        return Answer(status, msgspec.json.decode(content, type=dict[str, object]) if content else {})
