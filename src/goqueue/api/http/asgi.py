"""The ASGI side of a request: reading its body within limits, sending an answer in exactly two events."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from goqueue.model.errors import RequestTooLarge

Event = dict[str, Any]  # ASGI leaves scopes and events open: any value under any name
Receive = Callable[[], Awaitable[Event]]
Send = Callable[[Event], Awaitable[None]]
Application = Callable[[Event, Receive, Send], Awaitable[None]]
Header = tuple[bytes, bytes]

JSON = "application/json"
_JSON_HEADER: Header = (b"content-type", JSON.encode())
_DIGITS_MAX = 19  # longer lengths overflow every integer on the way here


class ClientGone(Exception):
    """The client closed the connection; there is nobody to answer."""


async def read_body(scope: Event, receive: Receive, bytes_max: int) -> bytes:
    """The whole body. An announced length that is too large is refused before a byte of it is read, so that
    a client that waits for "100 Continue" never sends it."""
    for name, value in scope["headers"]:
        if name == b"content-length" and (len(value) > _DIGITS_MAX or int(value) > bytes_max):
            raise _too_large(bytes_max)
    event = await receive()
    if event["type"] == "http.request" and not event.get("more_body", False):
        body: bytes = event.get("body", b"")
        if len(body) > bytes_max:
            raise _too_large(bytes_max)
        return body
    return await _read_rest(event, receive, bytes_max)


async def _read_rest(event: Event, receive: Receive, bytes_max: int) -> bytes:
    chunks: list[bytes] = []
    size = 0
    while True:
        if event["type"] == "http.disconnect":
            raise ClientGone
        chunk: bytes = event.get("body", b"")
        size += len(chunk)
        if size > bytes_max:
            raise _too_large(bytes_max)
        chunks.append(chunk)
        if not event.get("more_body", False):
            return b"".join(chunks)
        event = await receive()


async def wait_for_disconnect(receive: Receive) -> None:
    """Return when the client has gone. Call it only when the body has been read or does not matter."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def send_json(send: Send, status: int, body: bytes) -> None:
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [_JSON_HEADER, (b"content-length", b"%d" % len(body))],
        }
    )
    await send({"type": "http.response.body", "body": body})


async def send_bytes(send: Send, status: int, body: bytes, headers: list[Header]) -> None:
    """As `send_json` for any content; `headers` must hold the content type."""
    headers = [*headers, (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _too_large(bytes_max: int) -> RequestTooLarge:
    return RequestTooLarge(f"the request body may have at most {bytes_max} bytes", bytes_max=bytes_max)
