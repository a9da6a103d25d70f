"""A network of TCP connections on this machine that can lose, delay and break what it carries, without anybody's permission.

Whoever at one place wants a server at another connects to the link between the two, and the link connects to the server. What
goes from one place to another has a way of its own, whichever of the two has opened the connection: an answer takes the way back.
A way that is cut acts as a network that loses packets and not as one that refuses: what was sent waits, an end of the connection is
not heard of either, and new connections get no answer, since those need both ways. When it is whole again, what has waited
arrives, as TCP sends again what was lost.

One thing is unlike a real network: connecting to a link always works, and it is the first answer that does not come.
"""

from __future__ import annotations

import asyncio
import random
import select
import socket
import struct
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Final, NamedTuple, Self

_HOST: Final = "127.0.0.1"
_CHUNK_BYTES: Final = 65_536
_HELD_COUNT_MAX: Final = 64  # chunks of a connection that are on their way; then the sender has to wait
_JITTER: Final = 0.25  # of the delay, more or less
_CONTROL_S: Final = 30.0
_HUNG_UP: Final = select.POLLHUP | getattr(select, "POLLRDHUP", 0)  # only Linux tells of half a hang-up


class FaultyNetwork:
    """Places are numbers. A thread of its own carries everything; every method returns when what it does is in force."""

    def __init__(self) -> None:
        self._ways: dict[tuple[int, int], _Way] = {}
        self._connections: dict[_Connection, tuple[int, int]] = {}
        self._chance = random.Random(1)
        self._loop = asyncio.new_event_loop()
        self._listeners: list[socket.socket] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, name="faulty network", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def link(self, source: int, target: int, address: str) -> str:
        """Where those at the source find the server that listens at this address of the target."""
        listener = socket.create_server((_HOST, 0), backlog=128)
        listener.setblocking(False)
        host, _, port = address.rpartition(":")
        way = (source, target)
        link = _Link(way, (host, int(port)), self._way(*way), self._way(target, source))
        self._listeners.append(listener)
        self._do(lambda: self._loop.add_reader(listener, self._accept, listener, link))
        return f"{_HOST}:{listener.getsockname()[1]}"

    def cut(self, source: int, target: int) -> None:
        """Nothing of what one place sends reaches the other; the other way stays open."""
        self._do(self._way(source, target).is_open.clear)

    def slow(self, source: int, target: int, delay_ms: int) -> None:
        """So much later, a little more or less, and in order."""
        self._do(lambda: self._way(source, target).slow(delay_ms))

    def reset(self, source: int, target: int) -> None:
        """Connections from one place to the other break in the middle of what is sent on them next, and both ends hear of it."""
        self._do(lambda: self._doom((source, target)))

    def heal(self) -> None:
        for way in self._ways.values():
            self._do(way.heal)
        self._do(self._spare)

    def close(self) -> None:
        """Every connection ends. No error if they have ended already."""
        if self._loop.is_closed():
            return
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(_CONTROL_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CONTROL_S)
        self._loop.close()

    # ---------------------------------------------------------------- in the thread

    def _do(self, what: Callable[[], object]) -> None:
        async def do() -> None:
            what()

        asyncio.run_coroutine_threadsafe(do(), self._loop).result(_CONTROL_S)

    def _way(self, source: int, target: int) -> _Way:
        return self._ways.setdefault((source, target), _Way(self._chance))

    def _doom(self, way: tuple[int, int]) -> None:
        for connection, its in self._connections.items():
            connection.is_doomed = connection.is_doomed or its == way

    def _spare(self) -> None:
        """Who has said nothing since it was doomed goes on."""
        for connection in self._connections:
            connection.is_doomed = False

    async def _end(self) -> None:
        for listener in self._listeners:
            self._loop.remove_reader(listener)
            listener.close()
        await asyncio.sleep(0)  # whoever was accepted just now has begun then, and closes what it has
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, listener: socket.socket, link: _Link) -> None:
        try:
            client, _ = listener.accept()
        except OSError:
            return  # it was gone before it was there
        task = self._loop.create_task(self._carry(client, link))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry(self, client: socket.socket, link: _Link) -> None:
        with client, socket.socket() as server:
            for one in (client, server):
                one.setblocking(False)
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await link.shake_hands()
            if _has_hung_up(client):
                return  # it has lost its patience, and nobody ever hears of it
            try:
                await self._loop.sock_connect(server, link.address)
            except OSError:
                _reset_when_closed(client)  # nobody listens there
                return
            connection = _Connection(client, server, link)
            self._connections[connection] = link.way
            try:
                await connection.run()
            finally:
                del self._connections[connection]


class _Way:
    """How what is sent from one place to another fares."""

    def __init__(self, chance: random.Random) -> None:
        self.is_open = asyncio.Event()
        self._delay_ms = 0
        self._chance = chance
        self.heal()

    def slow(self, delay_ms: int) -> None:
        self._delay_ms = delay_ms

    def heal(self) -> None:
        self._delay_ms = 0
        self.is_open.set()

    def delay_s(self) -> float:
        return self._delay_ms / 1_000 * self._chance.uniform(1 - _JITTER, 1 + _JITTER)


class _Link(NamedTuple):
    way: tuple[int, int]
    address: tuple[str, int]
    there: _Way
    back: _Way

    async def shake_hands(self) -> None:
        while not (self.there.is_open.is_set() and self.back.is_open.is_set()):
            await self.there.is_open.wait()
            await self.back.is_open.wait()
        await asyncio.sleep(self.there.delay_s() + self.back.delay_s())


class _Sent(NamedTuple):
    """Nothing more comes after no data; None is for a connection that its sender has broken off."""

    due_s: float
    data: bytes | None


class _Connection:
    def __init__(self, client: socket.socket, server: socket.socket, link: _Link) -> None:
        self.is_doomed = False
        self._client = client
        self._server = server
        self._link = link
        self._loop = asyncio.get_running_loop()

    async def run(self) -> None:
        """Until both sides have said all, or it broke."""
        there, back = self._link.there, self._link.back
        try:
            async with asyncio.TaskGroup() as tasks:
                for way, other_way, source, sink in (
                    (there, back, self._client, self._server),
                    (back, there, self._server, self._client),
                ):
                    held: asyncio.Queue[_Sent] = asyncio.Queue(_HELD_COUNT_MAX)
                    tasks.create_task(self._take(source, held, way))
                    tasks.create_task(self._give(sink, held, way, other_way))
        except* OSError:
            _reset_when_closed(self._client)
            _reset_when_closed(self._server)

    async def _take(self, source: socket.socket, held: asyncio.Queue[_Sent], way: _Way) -> None:
        due_s, is_over = 0.0, False
        while not is_over:
            try:
                data = await self._loop.sock_recv(source, _CHUNK_BYTES)
            except OSError:
                await held.put(_Sent(due_s, None))
                return
            is_over = not data
            due_s = max(due_s, self._loop.time() + way.delay_s())
            await held.put(_Sent(due_s, data))

    async def _give(
        self, sink: socket.socket, held: asyncio.Queue[_Sent], way: _Way, other_way: _Way
    ) -> None:
        """Raises OSError where the connection is broken."""
        while True:
            sent = await held.get()
            await asyncio.sleep(max(0.0, sent.due_s - self._loop.time()))
            await way.is_open.wait()
            if not sent.data:
                return self._finish(sink, sent)
            if self.is_doomed:
                await self._loop.sock_sendall(sink, sent.data[: len(sent.data) // 2])
                raise ConnectionResetError
            try:
                await self._loop.sock_sendall(sink, sent.data)
            except OSError:
                await other_way.is_open.wait()  # that nobody is there is an answer
                raise

    def _finish(self, sink: socket.socket, last: _Sent) -> None:
        if last.data is None:
            raise ConnectionResetError
        sink.shutdown(socket.SHUT_WR)


def _has_hung_up(client: socket.socket) -> bool:
    poll = select.poll()
    poll.register(client, _HUNG_UP)
    return bool(poll.poll(0))


def _reset_when_closed(one: socket.socket) -> None:
    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
