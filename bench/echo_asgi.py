"""The least that can be done behind our HTTP server: read the body, answer something fixed. A child process.

`POST` anything is answered as a publish of one message would be; `GET /bytes/N` with N bytes.
"""

from __future__ import annotations

import asyncio

import uvloop

from goqueue.api.http.asgi import Event, Receive, Send
from goqueue.api.http.server import HttpServer

ANSWER = b'{"results":[{"partition":0,"offset":12345678}]}'
_JSON = (b"content-type", b"application/json")
_bodies: dict[bytes, bytes] = {}


async def echo(scope: Event, receive: Receive, send: Send) -> None:
    event = await receive()
    while event.get("more_body", False):
        event = await receive()
    body = ANSWER if scope["method"] == "POST" else _body_of(scope["raw_path"])
    headers = [_JSON, (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _body_of(path: bytes) -> bytes:
    if path not in _bodies:
        _bodies[path] = bytes(int(path.rpartition(b"/")[2]))
    return _bodies[path]


async def serve() -> None:
    server = HttpServer(echo, host="127.0.0.1", port=0, connection_count_max=1_000)
    host, port = await server.start()
    print(f"ready http={host}:{port}", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve())
