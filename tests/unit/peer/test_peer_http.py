"""One HTTP connection to another node, against a server that the test plays byte by byte, on every event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from tests.support.kafka_sockets import LOOPS, run_on, until
from tests.support.ports import port_of_ours

from goqueue.model.cluster_errors import PeerUnreachable
from goqueue.peer.http import HttpLink, open_http
from goqueue.sim.loop import SimLoop, run

pytestmark = pytest.mark.parametrize("loop", [*LOOPS, "simulated"])
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nx-name: value\r\n\r\nok"
Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def play(loop: str, main: Awaitable[None]) -> None:
    async def simulated(_: SimLoop) -> None:
        await main

    if loop == "simulated":
        run(simulated, seed=3)
    else:
        run_on(loop, main)


@asynccontextmanager
async def linked(talk: Talk, *, answer_bytes_max: int = 1_000) -> AsyncIterator[HttpLink]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await talk(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    link = await open_http(host, port, "n2", timeout_s=60.0, answer_bytes_max=answer_bytes_max)
    try:
        yield link
    finally:
        link.abort()
        server.close()
        await server.wait_closed()


def answering(*answers: bytes) -> Talk:
    """One answer to each request; then it hangs up."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in answers:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            await writer.drain()

    return talk


async def get(link: HttpLink) -> tuple[int, bytes]:
    answer = await link.ask("GET", "/", b"", {})
    return answer.status, answer.body


def test_request_is_written_and_its_answer_read(loop: str) -> None:
    seen: list[bytes] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        seen.append(await reader.readexactly(4))
        writer.write(OK)

    async def main() -> None:
        async with linked(talk) as link:
            answer = await link.ask("POST", "/cluster/vote", b"body", {"goqueue-peer": "signature"})
            assert (answer.status, answer.headers["x-name"], answer.body) == (200, "value", b"ok")
        assert seen[0].startswith(b"POST /cluster/vote HTTP/1.1\r\n")
        assert b"\r\ncontent-length: 4\r\n" in seen[0]
        assert b"\r\ngoqueue-peer: signature\r\n" in seen[0]
        assert seen[1] == b"body"

    play(loop, main())


def test_connection_is_kept_for_the_next_request(loop: str) -> None:
    async def main() -> None:
        async with linked(answering(OK, b"HTTP/1.1 204 No Content\r\n\r\n", OK)) as link:
            assert [await get(link) for _ in range(3)] == [(200, b"ok"), (204, b""), (200, b"ok")]

    play(loop, main())


def test_chunked_answer_is_put_together(loop: str) -> None:
    chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n"

    async def main() -> None:
        async with linked(answering(chunked)) as link:
            assert await get(link) == (200, b"abc")

    play(loop, main())


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok",
        OK + b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",  # nobody asked for the second
    ],
)
def test_connection_that_cannot_go_on_is_not_kept(loop: str, answer: bytes) -> None:
    async def main() -> None:
        async with linked(answering(answer, OK)) as link:
            assert await get(link) == (200, b"ok")
            # The second answer may come in a piece of its own, after the first was taken.
            if link.is_usable:
                return
            with pytest.raises(PeerUnreachable):
                await get(link)

    play(loop, main())


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 OK\r\ncontent-le",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nabc",
        b"this is not HTTP\r\n\r\n",
        b"\x00\x00\x00\x10aaaaaaaaaaaaaaaa",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1001\r\n\r\n" + b"x" * 1_001,
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n7d0\r\n" + b"x" * 2_000,
        b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"x-long: y\r\n" * 10_000,
    ],
    ids=["hangs up", "head", "body", "no http", "frame", "long", "long chunks", "very long", "long head"],
)
def test_torn_or_unfit_answer_breaks_the_connection(loop: str, answer: bytes) -> None:
    async def main() -> None:
        async with linked(answering(answer)) as link:
            with pytest.raises(PeerUnreachable, match="'n2'"):
                await get(link)
            assert not link.is_usable

    play(loop, main())


def test_request_that_is_given_up_takes_the_connection_with_it(loop: str) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async def main() -> None:
        async with linked(silent) as link:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await get(link)
            assert not link.is_usable

    play(loop, main())


def test_connection_that_the_other_side_has_closed_is_noticed(loop: str) -> None:
    async def main() -> None:
        async with linked(answering(OK)) as link:
            assert await get(link) == (200, b"ok")
            await until(lambda: not link.is_usable)

    play(loop, main())


def test_nobody_listens(loop: str) -> None:
    async def main() -> None:
        with pytest.raises(PeerUnreachable, match="cannot be reached"):
            await open_http("127.0.0.1", port_of_ours(), "n2", timeout_s=60.0)

    play(loop, main())
