"""The HTTP listener, on every event loop it has to run on; where time passes, it is simulated."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from random import Random
from typing import Self

import pytest
import uvloop

from goqueue.api.http.app import RestApi
from goqueue.api.http.asgi import Application, Event, Receive, Send, read_body, send_json, wait_for_disconnect
from goqueue.api.http.connection import HEAD_BYTES_MAX, IDLE_S_MAX
from goqueue.api.http.server import HttpServer
from goqueue.node.clock import SystemClock
from goqueue.node.config import NodeConfig
from goqueue.node.node import Node
from goqueue.sim.disk import SimDisk
from goqueue.sim.loop import SimLoop, run

Main = Callable[[], Awaitable[None]]
GET = b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n"


def simulate(main: Main, *, seeds: int = 3) -> None:
    async def start(loop: SimLoop) -> None:
        await main()

    for seed in range(seeds):
        run(start, seed=seed)


def on_asyncio(main: Main) -> None:
    async def start() -> None:
        await main()

    asyncio.run(start())


def on_uvloop(main: Main) -> None:
    async def start() -> None:
        await main()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(start())


on_every_loop = pytest.mark.parametrize("play", [simulate, on_asyncio, on_uvloop])
Play = Callable[[Main], None]


class Peer:
    """A client that writes and reads HTTP by hand."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    def write(self, data: bytes) -> None:
        self._writer.write(data)

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(line.split(": ") for line in head[1:] if line)
        body = await self._reader.readexactly(int(headers["content-length"]))
        return int(head[0].split()[1]), headers, body

    async def ask(self, data: bytes) -> tuple[int, dict[str, str], bytes]:
        self.write(data)
        return await self.answer()

    async def rest(self) -> bytes:
        """What comes until the server closes."""
        return await self._reader.read()

    async def close(self) -> None:
        self._writer.close()
        with suppress(ConnectionError):
            await self._writer.wait_closed()


class Listener:
    """A server and everybody who is connected to it."""

    def __init__(self, app: Application, *, connection_count_max: int = 200) -> None:
        self.server = HttpServer(app, host="127.0.0.1", port=0, connection_count_max=connection_count_max)
        self._peers: list[Peer] = []

    async def __aenter__(self) -> Self:
        self.host, self.port = await self.server.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        for peer in self._peers:
            await peer.close()
        await self.server.stop(1.0)

    async def connect(self) -> Peer:
        peer = Peer(*await asyncio.open_connection(self.host, self.port))
        self._peers.append(peer)
        return peer


async def echo(scope: Event, receive: Receive, send: Send) -> None:
    await send_json(send, 200, await read_body(scope, receive, 1_000_000))


class Gate:
    """An application whose answers wait until they are let go."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.let_go = asyncio.Event()
        self.ended = asyncio.Event()

    async def __call__(self, scope: Event, receive: Receive, send: Send) -> None:
        self.entered.set()
        try:
            await self.let_go.wait()
            await send_json(send, 200, b"{}")
        finally:
            self.ended.set()


@on_every_loop
def test_a_connection_carries_many_requests(play: Play) -> None:
    async def main() -> None:
        async with Listener(echo) as listener:
            assert listener.port > 0
            peer = await listener.connect()
            for body in (b"{}", b'{"a":1}', b"x" * 900_000, b"{}"):
                request = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body) + body
                status, headers, answer = await peer.ask(request)
                assert (status, answer) == (200, body)
                assert headers.keys() == {"content-type", "content-length"}

    play(main)


@on_every_loop
def test_requests_may_be_sent_without_waiting_for_answers(play: Play) -> None:
    async def main() -> None:
        async with Listener(echo) as listener:
            peer = await listener.connect()
            peer.write(GET * 3_000)
            for _ in range(3_000):
                assert (await peer.answer())[0] == 200

    play(main)


@on_every_loop
def test_garbage_behind_a_request_ends_the_connection(play: Play) -> None:
    async def main() -> None:
        gate = Gate()
        async with Listener(gate) as listener:
            peer = await listener.connect()
            peer.write(GET)
            await gate.entered.wait()
            status, _, _ = await peer.ask(b"garbage\r\n\r\n")
            assert status == 400
            gate.let_go.set()
            assert await peer.rest() == b""

    play(main)


@on_every_loop
def test_stopping_lets_a_running_request_end_and_closes_idle_connections(play: Play) -> None:
    async def main() -> None:
        gate = Gate()
        async with Listener(gate) as listener:
            idle = await listener.connect()
            busy = await listener.connect()
            busy.write(GET)
            await gate.entered.wait()
            stopping = asyncio.create_task(listener.server.stop(10.0))
            assert await idle.rest() == b""
            with pytest.raises(ConnectionError):
                await listener.connect()
            gate.let_go.set()
            status, headers, _ = await busy.answer()
            assert (status, headers["connection"]) == (200, "close")
            assert await busy.rest() == b""
            await stopping

    play(main)


@on_every_loop
def test_a_server_that_never_started_can_be_stopped(play: Play) -> None:
    async def main() -> None:
        await HttpServer(echo, host="127.0.0.1", port=0, connection_count_max=1).stop(1.0)

    play(main)


def test_after_the_grace_a_request_hears_that_its_connection_is_gone() -> None:
    async def main() -> None:
        heard = asyncio.Event()

        async def waiting(scope: Event, receive: Receive, send: Send) -> None:
            await wait_for_disconnect(receive)
            heard.set()

        async with Listener(waiting) as listener:
            peer = await listener.connect()
            peer.write(GET)
            began = asyncio.get_running_loop().time()
            await asyncio.sleep(1.0)
            await listener.server.stop(10.0)
            assert heard.is_set()
            assert 11.0 <= asyncio.get_running_loop().time() - began < 12.0

    simulate(main)


def test_a_request_that_hears_nothing_is_cancelled() -> None:
    async def main() -> None:
        gate = Gate()
        async with Listener(gate) as listener:
            peer = await listener.connect()
            peer.write(GET)
            await gate.entered.wait()
            await listener.server.stop(1.0)
            assert gate.ended.is_set()

    simulate(main)


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET /health HT",
        b"GET /health HTTP/1.1\r\nhost: x\r\n",
        b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\nab",
    ],
)
def test_a_client_that_owes_bytes_is_cut_off(sent: bytes) -> None:
    async def main() -> None:
        async with Listener(echo) as listener:
            peer = await listener.connect()
            began = asyncio.get_running_loop().time()
            peer.write(sent)
            assert b"200 OK" not in await peer.rest()
            assert IDLE_S_MAX - 1 < asyncio.get_running_loop().time() - began < IDLE_S_MAX + 1

    simulate(main)


def test_a_connection_without_requests_is_closed_after_a_while() -> None:
    async def main() -> None:
        async with Listener(echo) as listener:
            peer = await listener.connect()
            assert (await peer.ask(GET))[0] == 200
            began = asyncio.get_running_loop().time()
            assert await peer.rest() == b""
            assert IDLE_S_MAX - 1 < asyncio.get_running_loop().time() - began < IDLE_S_MAX + 1

    simulate(main)


def test_a_client_that_waits_for_its_answer_is_not_cut_off() -> None:
    async def main() -> None:
        gate = Gate()
        async with Listener(gate) as listener:
            peer = await listener.connect()
            peer.write(GET)
            asyncio.get_running_loop().call_later(10 * IDLE_S_MAX, gate.let_go.set)
            assert (await peer.answer())[0] == 200

    simulate(main)


@on_every_loop
def test_a_connection_above_the_limit_is_told_so_and_others_go_on(play: Play) -> None:
    async def main() -> None:
        async with Listener(echo, connection_count_max=2) as listener:
            peers = [await listener.connect() for _ in range(2)]
            for peer in peers:
                assert (await peer.ask(GET))[0] == 200
            surplus = await listener.connect()
            status, headers, body = await surplus.ask(GET)
            assert (status, headers["connection"], json.loads(body)["code"]) == (503, "close", "NOT_READY")
            assert await surplus.rest() == b""
            for peer in peers:
                assert (await peer.ask(GET))[0] == 200

    play(main)


def test_far_above_the_limit_connections_are_just_closed() -> None:
    async def main() -> None:
        async with Listener(echo, connection_count_max=1) as listener:
            peers = [await listener.connect() for _ in range(103)]
            assert await peers[-1].rest() == b""
            assert (await peers[0].ask(GET))[0] == 200

    simulate(main, seeds=1)


@on_every_loop
@pytest.mark.parametrize(
    "sent",
    [
        b"nonsense\r\n\r\n",
        b"GET /health HTTP/1.1\r\nno colon\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nhost: x\r\n\r\n",
        b"GET /health HTTP/1.1\r\nx: " + b"y" * (HEAD_BYTES_MAX + 300_000),
        b"GET /" + b"y" * (HEAD_BYTES_MAX + 300_000),
    ],
    ids=["no request", "bad header", "bad path", "long header", "long path"],
)
def test_what_is_not_http_is_answered_400_and_closed(play: Play, sent: bytes) -> None:
    async def main() -> None:
        async with Listener(echo) as listener:
            peer = await listener.connect()
            for at in range(0, len(sent), 50_000):
                peer.write(sent[at : at + 50_000])
            status, headers, body = await peer.answer()
            assert (status, headers["content-type"]) == (400, "application/json")
            assert json.loads(body)["code"] == "INVALID_REQUEST"
            assert await peer.rest() == b""

    play(main)


def with_broker(main: Callable[[Node, Listener], Awaitable[None]]) -> None:
    """A node with one topic behind its listener, all of it simulated."""

    async def start(loop: SimLoop) -> None:
        clock = SystemClock()
        node = Node(NodeConfig(), SimDisk(Random(1), stall=loop.stall).mount(), clock)
        await node.start()
        await node.topics.create("orders", partition_count=1, overrides={})
        async with Listener(RestApi(node, clock)) as listener:
            await main(node, listener)
            await node.drain()
        await node.stop()

    run(start, seed=1)


POLL = b"GET /topics/orders/partitions/0/messages?wait=%s HTTP/1.1\r\nhost: x\r\n\r\n"


def test_an_idle_long_poll_ends_in_time_and_the_connection_goes_on() -> None:
    async def main(node: Node, listener: Listener) -> None:
        peer = await listener.connect()
        for _ in range(2):
            began = asyncio.get_running_loop().time()
            status, _, body = await peer.ask(POLL % b"30s")
            assert (status, json.loads(body)["messages"]) == (200, [])
            assert 30.0 <= asyncio.get_running_loop().time() - began < 31.0

    with_broker(main)


def test_a_long_poll_whose_client_hangs_up_stops_waiting() -> None:
    async def main(node: Node, listener: Listener) -> None:
        peer = await listener.connect()
        peer.write(POLL % b"60s")
        await asyncio.sleep(1.0)
        assert node.stats()["parked_reads"] == 1
        await peer.close()
        await asyncio.sleep(1.0)
        assert node.stats()["parked_reads"] == 0

    with_broker(main)
