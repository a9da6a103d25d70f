"""A network in memory, with the transports that asyncio protocols and streams expect.

Hosts are names. Code runs on the host of the process it belongs to (`current_life`), or on "outside". Bytes
arrive in order after a random latency, cut into pieces at random places, because a stream has no messages.
A partition holds them back, as a cable would while TCP retransmits, or resets the connections it cuts.

The write buffer of a transport is what the other side has not read yet. Closing sends what is in it, then
an end of file; bytes that reach a closed end are answered with a reset, as TCP does.
"""

from __future__ import annotations

import asyncio
import contextvars
import errno
from asyncio.transports import _FlowControlMixin
from collections import deque
from collections.abc import Callable, Iterator
from random import Random
from typing import NamedTuple, TypeVar

from goqueue.sim.latency import Latency
from goqueue.sim.life import Life, current_life

P = TypeVar("P", bound=asyncio.BaseProtocol)

OUTSIDE = "outside"

_SELF = (None, "", "localhost", "127.0.0.1", "0.0.0.0", "::", "::1")
_PORT_FIRST = 49_152  # where the range for private use begins
_SPLIT_RATE = 0.1
_SPLITS_MAX = 3
_LATENCY = Latency(tail_rate=0.002)


class Address(NamedTuple):
    host: str
    port: int


class Network:
    """The cables, and the knobs to cut them."""

    def __init__(self, loop: asyncio.AbstractEventLoop, rng: Random, latency: Latency = _LATENCY) -> None:
        self.latency = latency
        self.loop = loop
        self.rng = rng
        self.transports: dict[SimTransport, None] = {}
        self.listeners: dict[Address, SimServer] = {}
        self._port_next = _PORT_FIRST
        self._cuts: dict[tuple[str, str], bool] = {}  # (from, to) -> whether it resets
        self._slow: dict[tuple[str, str], Latency] = {}  # (from, to)
        self._heal_waiters: list[asyncio.Future[None]] = []

    def reset(self, host: str, other: str | None = None) -> None:
        """Break every connection of a host (with one other) at once; bytes under way are lost."""
        named = {name for name in (host, other) if name is not None}
        for transport in list(self.transports):
            if named <= {transport.local.host, transport.remote.host}:
                transport.sever()

    def partition(self, a: str, b: str, *, one_way: bool = False, reset: bool = False) -> None:
        """Let nothing pass between two hosts, or nothing from `a` to `b`. With `reset`, connections break
        and new ones are refused; without, all of it waits until `heal`."""
        self._cuts[a, b] = reset
        if not one_way:
            self._cuts[b, a] = reset
        if reset:
            self.reset(a, b)

    def slow(self, a: str, b: str, latency: Latency) -> None:
        """Let everything between two hosts take so long, until `heal`."""
        self._slow[a, b] = self._slow[b, a] = latency

    def draw_latency(self, source: str, target: str) -> float:
        return self._slow.get((source, target), self.latency).draw(self.rng)

    def heal(self, a: str | None = None, b: str | None = None) -> None:
        """End the partition between two hosts, or all of a host's, or all."""
        named = {host for host in (a, b) if host is not None}
        self._slow = {pair: latency for pair, latency in self._slow.items() if not named <= set(pair)}
        self._cuts = {pair: resets for pair, resets in self._cuts.items() if not named <= set(pair)}
        for transport in self.transports:
            transport.poke()
        for waiter in self._heal_waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._heal_waiters.clear()

    def shut_down(self) -> None:
        """End every connection without a word; the loop is about to close."""
        for transport in list(self.transports):
            transport.die()

    def passes(self, source: str, target: str) -> bool:
        return (source, target) not in self._cuts

    def listen(self, factory: Callable[[], asyncio.BaseProtocol], host: str | None, port: int) -> SimServer:
        here = _require_host()
        return SimServer(
            self, factory, Address(here if host in _SELF else str(host), port or self.new_port())
        )

    async def connect(self, factory: Callable[[], P], host: str | None, port: int) -> tuple[SimTransport, P]:
        here = _require_host()
        target = Address(here if host in _SELF else str(host), port)
        await asyncio.sleep(self.draw_latency(here, target.host))
        await self._wait_for_passage(here, target)
        server = self.listeners.get(target)
        if server is None:
            raise _refused(target)
        source = Address(here, self.new_port())
        near = SimTransport(self, source, target, contextvars.copy_context())
        far = SimTransport(self, target, source, server.context.copy())
        near.peer, far.peer = far, near
        far.poke(lambda: far.begin(server.factory))
        return near, near.begin(factory)

    def new_port(self) -> int:
        self._port_next += 1
        return self._port_next - 1

    async def _wait_for_passage(self, here: str, target: Address) -> None:
        """A connection needs both directions; its first packet is repeated until it gets through."""
        while cuts := [pair for pair in ((here, target.host), (target.host, here)) if pair in self._cuts]:
            if any(self._cuts[pair] for pair in cuts):
                raise _refused(target)
            waiter: asyncio.Future[None] = self.loop.create_future()
            self._heal_waiters.append(waiter)
            await waiter


class SimTransport(_FlowControlMixin):
    """One end of a connection. The base class, private to asyncio, is the flow control of every real
    transport."""

    def __init__(
        self, network: Network, local: Address, remote: Address, context: contextvars.Context
    ) -> None:
        super().__init__({"sockname": local, "peername": remote}, network.loop)
        self.local = local
        self.remote = remote
        self.peer: SimTransport = self  # until the network links the two ends
        self._network = network
        self._context = context
        self._protocol: asyncio.BaseProtocol | None = None
        self._inbox: deque[bytes | None] = deque()  # None is the end of file
        self._arrived_count = 0  # how many of the inbox the latency has let through
        self._arrival_s_last = 0.0
        self._sent_s_last = -1.0  # when the other side has written what is last in the inbox
        self._unread_bytes = 0
        self._is_reading = True
        self._is_closing = False
        self._is_lost = False
        self._is_reset = False
        self._eof_sent = False
        network.transports[self] = None
        self._life: Life | None = context.get(current_life)
        if self._life is not None:
            self._life.sockets[self] = None

    def begin(self, factory: Callable[[], P]) -> P:
        protocol = factory()
        self._protocol = protocol
        if not self._is_lost:
            protocol.connection_made(self)
            self.poke()
        return protocol

    def poke(self, callback: Callable[[], object] | None = None) -> None:
        """Call back soon, or look for something to deliver, as the code of the process on this side."""
        self._network.loop.call_soon(callback or self._pump, context=self._context)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._eof_sent:
            raise RuntimeError("Cannot call write() after write_eof()")
        if self._is_closing or not data:
            return
        self._unread_bytes += len(data)
        if not self.peer._lengthen(data):
            for chunk in _split(bytes(data), self._network.rng):
                self.peer._enqueue(chunk)
        self._maybe_pause_protocol()  # type: ignore[attr-defined]  # of the private base class

    def write_eof(self) -> None:
        if not self._eof_sent and not self._is_closing:
            self._eof_sent = True
            self.peer._enqueue(None)

    def can_write_eof(self) -> bool:
        return True

    def get_write_buffer_size(self) -> int:
        return self._unread_bytes

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = True
        self.poke()

    def is_reading(self) -> bool:
        return self._is_reading and not self._is_closing

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        if self._protocol is None:
            raise RuntimeError("the connection is not accepted yet")
        return self._protocol

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        if not self._is_closing:
            self.write_eof()
            self._is_closing = True
            self.poke(lambda: self._lose(None))

    def abort(self) -> None:
        if not self._is_lost:
            self._send_reset()
            self._stop(None)

    def sever(self) -> None:
        """Break this end, as a reset that has arrived."""
        self._stop(ConnectionResetError(errno.ECONNRESET, "connection reset by peer"))

    def die(self) -> None:
        if not self._is_lost:
            self._send_reset()
            self._is_closing = True
            self._unregister()

    def _stop(self, error: Exception | None) -> None:
        self._is_closing = True
        self._inbox.clear()
        self.poke(lambda: self._lose(error))

    def _lose(self, error: Exception | None) -> None:
        if not self._is_lost:
            self._unregister()
            if self._protocol is not None:
                self._protocol.connection_lost(error)

    def _unregister(self) -> None:
        self._is_lost = True
        self._network.transports.pop(self, None)
        if self._life is not None:
            self._life.sockets.pop(self, None)

    def _send_reset(self) -> None:
        network, peer = self._network, self.peer
        delay_s = network.draw_latency(self.local.host, peer.local.host)
        network.loop.call_later(delay_s, peer._reset, context=peer._context)

    def _reset(self) -> None:
        self._is_reset = True
        self._pump()

    def _lengthen(self, data: bytes | bytearray | memoryview) -> bool:
        """What is written at the same moment as something before it mostly travels with it: a body with its head."""
        inbox, network = self._inbox, self._network
        if self._sent_s_last != network.loop.time() or not inbox or inbox[-1] is None:
            return False
        if network.rng.random() < _SPLIT_RATE:
            return False
        inbox[-1] += data
        self._sent_s_last = -1.0
        return True

    def _enqueue(self, item: bytes | None) -> None:
        network = self._network
        self._sent_s_last = network.loop.time()
        arrival_s = self._sent_s_last + network.draw_latency(self.remote.host, self.local.host)
        self._arrival_s_last = max(arrival_s, self._arrival_s_last)
        self._inbox.append(item)
        network.loop.call_at(self._arrival_s_last, self._arrive, context=self._context)

    def _arrive(self) -> None:
        self._arrived_count += 1
        self._pump()

    def _pump(self) -> None:
        """Deliver what has arrived, as far as the partition and the reader allow."""
        if not self._network.passes(self.remote.host, self.local.host) or self._protocol is None:
            return
        if self._is_reset and not self._is_lost:
            self.sever()
        while self._arrived_count and self._inbox and (self._is_reading or self._is_closing):
            self._arrived_count -= 1
            item = self._inbox.popleft()
            if self._is_closing:
                self._refuse(item)
            else:
                self._receive(item)

    def _refuse(self, item: bytes | None) -> None:
        if item is not None:
            self._inbox.clear()
            self._send_reset()

    def _receive(self, item: bytes | None) -> None:
        protocol = self._protocol
        try:
            if not isinstance(protocol, asyncio.Protocol | asyncio.BufferedProtocol):
                raise TypeError(f"cannot deliver to {protocol!r}")
            if item is not None:
                self.peer._acknowledge(len(item))
                _hand_over(protocol, item)
            elif not protocol.eof_received():
                self.close()
        except Exception as error:  # noqa: BLE001  # as asyncio: report it and drop the connection
            details = {"message": "a protocol failed to receive", "exception": error, "transport": self}
            self._network.loop.call_exception_handler(details)
            self._send_reset()
            self._stop(error)

    def _acknowledge(self, count: int) -> None:
        self._unread_bytes -= count
        if self._protocol_paused:  # type: ignore[attr-defined]  # of the private base class
            self.poke(self._maybe_resume_protocol)  # type: ignore[attr-defined]  # as above


class ListeningSocket(NamedTuple):
    """What is asked of a server's sockets: under which port they ended up."""

    address: Address

    def getsockname(self) -> tuple[str, int]:
        return self.address


class SimServer(asyncio.AbstractServer):
    def __init__(
        self, network: Network, factory: Callable[[], asyncio.BaseProtocol], address: Address
    ) -> None:
        self.factory = factory
        self.address = address
        self.context = contextvars.copy_context()
        self._network = network
        self._life = current_life.get()

    @property
    def sockets(self) -> tuple[ListeningSocket, ...]:
        return (ListeningSocket(self.address),) if self.is_serving() else ()

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._network.loop

    def is_serving(self) -> bool:
        return self._network.listeners.get(self.address) is self

    async def start_serving(self) -> None:
        if self._network.listeners.setdefault(self.address, self) is not self:
            raise OSError(errno.EADDRINUSE, f"address in use: {self.address.host}:{self.address.port}")
        if self._life is not None:
            self._life.sockets[self] = None

    async def serve_forever(self) -> None:
        await self.start_serving()
        try:
            await self._network.loop.create_future()
        finally:
            self.close()

    def close(self) -> None:
        """Accept no more; connections that exist go on."""
        if self.is_serving():
            del self._network.listeners[self.address]
        if self._life is not None:
            self._life.sockets.pop(self, None)

    async def wait_closed(self) -> None:
        """Nothing to wait for."""

    def die(self) -> None:
        self.close()


def _require_host() -> str:
    life = current_life.get()
    if life is None:
        return OUTSIDE
    if not life.is_alive:
        raise ConnectionAbortedError(errno.ECONNABORTED, f"the process on {life.host} is dead")
    return life.host


def _refused(target: Address) -> ConnectionRefusedError:
    return ConnectionRefusedError(errno.ECONNREFUSED, f"connection refused: {target.host}:{target.port}")


def _split(data: bytes, rng: Random) -> Iterator[bytes]:
    start = 0
    if len(data) > 1 and rng.random() < _SPLIT_RATE:
        cuts = {rng.randrange(1, len(data)) for _ in range(rng.randint(1, _SPLITS_MAX))}
        for end in sorted(cuts):
            yield data[start:end]
            start = end
    yield data[start:]


def _hand_over(protocol: asyncio.Protocol | asyncio.BufferedProtocol, data: bytes) -> None:
    if isinstance(protocol, asyncio.Protocol):
        protocol.data_received(data)
        return
    while data:
        room = memoryview(protocol.get_buffer(len(data)))
        count = min(len(room), len(data))
        room[:count] = data[:count]
        protocol.buffer_updated(count)
        data = data[count:]
