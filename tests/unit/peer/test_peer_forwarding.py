"""Requests of clients on their way to another node: they arrive whole, once, and only from a node of the cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.support.kafka_sockets import LOOPS, run_on
from tests.support.peers import NOW_MS, Links, Station, StillClock
from tests.support.ports import port_of_ours

from goqueue.api.cluster.client_requests import ClientRequests
from goqueue.api.http.asgi import Event, Receive, Send, read_body, send_bytes, wait_for_disconnect
from goqueue.api.http.relay import PEER
from goqueue.model.cluster_errors import NotLeader, PeerUnreachable, Unauthenticated
from goqueue.model.errors import TopicNotFound
from goqueue.node.cluster.secret import WINDOW_MS
from goqueue.node.other_nodes import FACTS, READ, FactsCall, ReadCall
from goqueue.node.requests import ReadQuery, ReadResult
from goqueue.sim.loop import SimLoop, run

pytestmark = pytest.mark.parametrize("loop", [*LOOPS, "simulated"])


def play(loop: str, main: Awaitable[None]) -> None:
    async def simulated(_: SimLoop) -> None:
        await main

    if loop == "simulated":
        run(simulated, seed=5)
    else:
        run_on(loop, main)


class Rest:
    """Plays the REST API of a node."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, bytes, str, bytes]] = []
        self.began = asyncio.Event()
        self.saw_hang_up = asyncio.Event()
        self.waits = False

    async def __call__(self, scope: Event, receive: Receive, send: Send) -> None:
        body = await read_body(scope, receive, 1_000_000)
        path = scope["raw_path"].decode()
        self.asked.append((scope["method"], path, scope["query_string"], scope[PEER], body))
        self.began.set()
        if self.waits:
            await wait_for_disconnect(receive)
            self.saw_hang_up.set()
            return
        await send_bytes(send, 409, b"answer " + body, [(b"content-type", b"text/plain"), (b"allow", b"GET")])


class Calls:
    """Plays the use cases."""

    def __init__(self) -> None:
        self.answer_with: Callable[[], bytes] = lambda: b"\xc0"

    async def answer(self, path: str, body: bytes, receive: Receive) -> bytes:
        return self.answer_with()


@asynccontextmanager
async def pair(rest: Rest, calls: Calls | None = None, **options: Any) -> AsyncIterator[Links]:
    anything: Any = calls or Calls()
    station = await Station("n1", client_requests=ClientRequests(rest, anything, bytes_max=1_000)).start()
    links = Links(**{"address_of": lambda name: station.address, **options})
    try:
        yield links
    finally:
        await links.close()
        await station.stop()


def test_a_request_arrives_whole_and_so_does_its_answer(loop: str) -> None:
    async def main() -> None:
        rest = Rest()
        async with pair(rest) as links:
            for _ in range(2):
                answer = await links.forward(
                    "n1", "POST", "/v1/x/%2F?a=1&b=%20", {"content-type": "x"}, b"body", timeout_s=60
                )
                assert (answer.status, answer.body) == (409, b"answer body")
                assert (answer.headers["content-type"], answer.headers["allow"]) == ("text/plain", "GET")
        assert rest.asked == [("POST", "/v1/x/%2F", b"a=1&b=%20", "n2", b"body")] * 2

    play(loop, main())


def test_who_is_not_of_the_cluster_is_turned_away(loop: str) -> None:
    async def main() -> None:
        rest = Rest()
        async with pair(rest, key=b"another secret, as long as need be") as links:
            with pytest.raises(Exception, match="secret"):
                await links.forward("n1", "GET", "/topics", {}, b"", timeout_s=60)
        assert not rest.asked

    play(loop, main())


def test_clock_that_is_wrong_is_said_so(loop: str) -> None:
    async def main() -> None:
        rest = Rest()
        async with pair(rest, clock=StillClock(NOW_MS + 2 * WINDOW_MS)) as links:
            with pytest.raises(Unauthenticated, match="check the clocks"):
                await links.forward("n1", "GET", "/topics", {}, b"", timeout_s=60)
        assert not rest.asked

    play(loop, main())


def test_who_hangs_up_is_seen_to_hang_up_on_the_other_node(loop: str) -> None:
    async def main() -> None:
        rest = Rest()
        rest.waits = True
        async with pair(rest) as links:
            asking = asyncio.ensure_future(links.forward("n1", "GET", "/poll", {}, b"", timeout_s=60))
            await rest.began.wait()
            asking.cancel()
            await rest.saw_hang_up.wait()

    play(loop, main())


def test_nothing_was_sent_where_nobody_listens(loop: str) -> None:
    async def main() -> None:
        port = port_of_ours()
        async with pair(Rest(), address_of=lambda name: ("127.0.0.1", port)) as links:
            with pytest.raises(PeerUnreachable):
                await links.forward("n1", "POST", "/x", {}, b"", timeout_s=60)
        async with pair(Rest(), address_of=lambda name: None) as links:
            with pytest.raises(PeerUnreachable):
                await links.forward("n1", "POST", "/x", {}, b"", timeout_s=60)

    play(loop, main())


def test_what_another_node_refuses_is_the_error_that_it_is_there(loop: str) -> None:
    def refuse() -> bytes:
        raise NotLeader("t", 0, 3)

    async def main() -> None:
        calls = Calls()
        calls.answer_with = refuse
        async with pair(Rest(), calls) as links:
            with pytest.raises(NotLeader) as raised:
                await links.nodes.facts("n1", FactsCall("t"))
            assert raised.value.details == {"topic": "t", "partition": 0, "leader": 3}

            def miss() -> bytes:
                raise TopicNotFound("t")

            calls.answer_with = miss
            with pytest.raises(TopicNotFound):
                await links.nodes.read("n1", ReadCall("t", 0, ReadQuery()))

    play(loop, main())


def test_answers_between_nodes_keep_every_byte(loop: str) -> None:
    async def main() -> None:
        calls = Calls()
        calls.answer_with = lambda: (
            b"\x84\xa7records\x91\x85\xa6offset\x05\xactimestamp_ms\x00\xa3key\xc0\xa5value\xc4\x01\xff"
            b"\xa7headers\x91\x92\xa1h\xc4\x01\x00\xabnext_offset\x06\xaehigh_watermark\x06"
            b"\xb2last_stable_offset\x06"
        )
        async with pair(Rest(), calls) as links:
            found = await links.nodes.read("n1", ReadCall("t", 0, ReadQuery()))
        assert isinstance(found, ReadResult)
        (record,) = found.records
        assert (record.key, record.value, record.headers) == (None, b"\xff", (("h", b"\x00"),))
        assert FACTS != READ

    play(loop, main())
