"""A Kafka listener with APIs that the test plays itself, behind a real socket, on either event loop."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import uvloop

from goqueue.api.kafka.call import Api, Handle
from goqueue.api.kafka.dispatch import Dispatch
from goqueue.api.kafka.server import KafkaServer
from goqueue.wire.schema import api_key, responses

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
TIMEOUT_S = 30.0
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop] | None] = {
    "asyncio": None,
    "uvloop": uvloop.new_event_loop,
}
_GROUPS = responses("delete_groups")
_VERSION = {"produce": 3}  # the first that there is; of all others it is 0


def run_on(loop: str, main: Awaitable[None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(TIMEOUT_S):
            await main

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(bounded())


class Listener:
    def __init__(
        self, *, frame_bytes_max: int = 1 << 20, connection_count_max: int = 10, **handles: Handle
    ) -> None:
        self.broken: list[BaseException] = []
        self.server = KafkaServer(
            Dispatch([_played(name, handle) for name, handle in handles.items()]),
            host="127.0.0.1",
            port=0,
            connection_count_max=connection_count_max,
            frame_bytes_max=frame_bytes_max,
            on_broken=self.broken.append,
        )
        self._address = ("", 0)

    async def start(self) -> None:
        self._address = await self.server.start()

    async def connect(self) -> Streams:
        return await asyncio.open_connection(*self._address, limit=1 << 26)

    async def gone(self) -> None:
        """When no connection is left."""
        await self.server._gone.wait()


@asynccontextmanager
async def listening(**options: Any) -> AsyncIterator[Listener]:
    listener = Listener(**options)
    await listener.start()
    try:
        yield listener
    finally:
        await listener.server.stop(0.1)


def _played(api: str, handle: Handle) -> Api:
    version = _VERSION.get(api, 0)
    return Api(api, version, version, handle)


def request(api: str, id: int, body: bytes = b"") -> bytes:
    """A whole frame of the version that is played."""
    content = struct.pack(">hhih", api_key(api), _VERSION.get(api, 0), id, -1) + body
    return struct.pack(">i", len(content)) + content


def texts(*names: str) -> bytes:
    """The body of a DeleteGroups request, which any number of strings can be asked with."""
    parts = [struct.pack(">h", len(name)) + name.encode() for name in names]
    return struct.pack(">i", len(parts)) + b"".join(parts)


def answer_of(text: str) -> Any:  # a class that is made at run time
    """A DeleteGroups response with one text in it."""
    return _GROUPS.DeleteGroupsResponse(results=[_GROUPS.DeletableGroupResult(group_id=text)])


async def next_id(streams: Streams) -> int | None:
    """Which request is answered next; None at the end of the stream."""
    frame = await next_frame(streams)
    return None if frame is None else struct.unpack_from(">i", frame)[0]


async def next_frame(streams: Streams) -> bytes | None:
    try:
        length = struct.unpack(">i", await streams[0].readexactly(4))[0]
        return await streams[0].readexactly(length)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


async def leave(streams: Streams) -> None:
    streams[1].close()
    try:
        await streams[1].wait_closed()
    except OSError:
        pass


async def settle() -> None:
    """Long enough for what is ready in this process to happen: a few turns of the loop and of the sockets."""
    loop = asyncio.get_running_loop()
    for _ in range(50):
        await loop.run_in_executor(None, _nothing)


async def until(holds: Callable[[], bool]) -> None:
    """For what nobody tells: bounded by the time-out of the test."""
    while not holds():
        await asyncio.get_running_loop().run_in_executor(None, _nothing)


def _nothing() -> None:
    pass
