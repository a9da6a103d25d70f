"""A server that sends back what it gets: the floor of the loopback device and the event loop. A child process."""

from __future__ import annotations

import asyncio

import uvloop


class Echo(asyncio.Protocol):
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # it is one, for TCP
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._transport.write(data)


async def serve() -> None:
    server = await asyncio.get_running_loop().create_server(Echo, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    print(f"ready raw={host}:{port}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve())
