"""The links of one node to another, over real sockets and in simulation: what arrives, what is refused, what is survived."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from tests.support.kafka_sockets import LOOPS, run_on, settle
from tests.support.peers import ENDPOINTS, NOW_MS, Links, Station, StillClock
from tests.support.ports import port_of_ours

from goqueue.core.catalog import AlterPartitions, DeleteTopic, RemoveNode
from goqueue.core.cluster.commands import InSyncProposal
from goqueue.core.raft.messages import AskVote, Message
from goqueue.model.cluster_errors import NotController, PeerUnreachable, Unauthenticated, WrongCluster
from goqueue.model.errors import TopicNotFound
from goqueue.node.cluster.ports import Beat, Confirmed, Done, Join, PeerLinks, ReplicaRound
from goqueue.node.cluster.secret import WINDOW_MS
from goqueue.peer import kept_links
from goqueue.sim.loop import SimLoop, run

pytestmark = pytest.mark.parametrize("loop", [*LOOPS, "simulated"])
BEAT = Beat("n2", "i", 4, is_ready=True)
JOIN = Join("n2", "i", ENDPOINTS, lost=[("t", 3)])


def play(loop: str, main: Awaitable[None]) -> None:
    async def simulated(_: SimLoop) -> None:
        await main

    if loop == "simulated":
        run(simulated, seed=5)
    else:
        run_on(loop, main)


def vote(term: int, target: str = "n1") -> AskVote:
    return AskVote("n2", target, term, 0, 0, is_pre=False, is_transfer=False)


@asynccontextmanager
async def linked(station: Station, **options: Any) -> AsyncIterator[Links]:
    links = Links(**{"address_of": lambda name: station.address, **options})
    try:
        yield links
    finally:
        await links.close()


@asynccontextmanager
async def pair(**options: Any) -> AsyncIterator[tuple[Station, Links]]:
    station = await Station("n1").start()
    async with linked(station, **options) as links:
        yield station, links
    await station.stop()


def test_links_are_what_the_node_asks_for(loop: str) -> None:
    async def main() -> None:
        links: PeerLinks = Links(address_of=lambda name: None)
        await links.close()

    play(loop, main())


def test_messages_arrive_in_order(loop: str) -> None:
    async def main() -> None:
        async with pair() as (station, links):
            sent: list[Message] = [vote(term) for term in range(1, 30)]
            for message in sent:
                links.send(message)
            await station.service.until_received(len(sent))
            assert station.service.received == [("n2", message) for message in sent]

    play(loop, main())


def test_requests_are_answered(loop: str) -> None:
    async def main() -> None:
        async with pair() as (station, links):
            assert await links.join("n1", JOIN) == Done(1, [])
            assert (await links.beat("n1", BEAT)).term == 7
            assert await links.execute("n1", DeleteTopic("t")) == Done(3, [])
            assert await links.execute("n1", RemoveNode("n9")) == Done(4, [])  # by a path of its own
            assert await links.confirmed("n1") == Confirmed(5)
            assert station.service.asked == [
                ("n2", JOIN),
                ("n2", BEAT),
                ("n2", DeleteTopic("t")),
                ("n2", "n9"),
                ("", "confirmed"),
            ]

    play(loop, main())


def test_node_may_have_lost_all_that_it_can_have_and_say_so_of_its_partitions(loop: str) -> None:
    name = "x" * 249
    join = Join("n2", "i", ENDPOINTS, lost=[(name, index) for index in range(60_000)])
    command = AlterPartitions(
        2, "i", [InSyncProposal(name, index, 1, 1, [1, 2, 3]) for index in range(5_000)]
    )

    async def main() -> None:
        async with pair() as (station, links):
            assert await links.join("n1", join) == Done(1, [])
            assert await links.execute("n1", command) == Done(2, [])
            assert station.service.asked == [("n2", join), ("n2", command)]

    play(loop, main())


def test_errors_come_back_as_what_they_were(loop: str) -> None:
    async def main() -> None:
        async with pair() as (station, links):
            station.service.error = NotController("n3")
            with pytest.raises(NotController) as refused:
                await links.beat("n1", BEAT)
            assert refused.value.details == {"controller": "n3"}
            station.service.error = TopicNotFound("t")
            with pytest.raises(TopicNotFound, match=r"'n1'.*'t'"):
                await links.execute("n1", DeleteTopic("t"))

    play(loop, main())


@pytest.mark.parametrize("key", [b"", b"another"])
def test_other_secret_is_said_so(loop: str, key: bytes) -> None:
    async def main() -> None:
        async with pair(key=key) as (station, links):
            with pytest.raises(Unauthenticated, match="all nodes must have the same"):
                await links.beat("n1", BEAT)
            with pytest.raises(Unauthenticated, match="refuses the login"):
                await links.fetch("n1", ReplicaRound(0, []), wait_ms=0, bytes_max=1)
            assert station.service.asked == []

    play(loop, main())


def test_node_that_does_not_know_the_secret_is_not_believed(loop: str) -> None:
    """It answers as a node would, but cannot sign."""

    async def impostor(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        size = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        await reader.readexactly(size)  # who hangs up on what he has not read resets the connection
        body = msgspec.json.encode(Done(1, []))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
        writer.close()

    async def main() -> None:
        server = await asyncio.start_server(impostor, "127.0.0.1", 0)
        links = Links(address_of=lambda name: server.sockets[0].getsockname()[:2])
        with pytest.raises(Unauthenticated, match="not signed"):
            await links.join("n1", JOIN)
        await links.close()
        server.close()
        await server.wait_closed()

    play(loop, main())


def test_other_cluster_is_refused_on_both_protocols(loop: str) -> None:
    async def main() -> None:
        async with pair(cluster_id="c2") as (_, links):
            with pytest.raises(WrongCluster) as refused:
                await links.beat("n1", BEAT)
            assert refused.value.details == {"cluster_id": "c1", "other": "c2"}
            with pytest.raises(Unauthenticated, match="'c2'"):
                await links.fetch("n1", ReplicaRound(0, []), wait_ms=0, bytes_max=1)

    play(loop, main())


def test_wrong_node_at_an_address_refuses(loop: str) -> None:
    async def main() -> None:
        async with pair() as (_, links):
            with pytest.raises(Unauthenticated, match="'n5'"):
                await links.beat("n5", BEAT)

    play(loop, main())


def test_clock_that_is_wrong_is_said_so(loop: str) -> None:
    async def main() -> None:
        async with pair(clock=StillClock(NOW_MS + 2 * WINDOW_MS)) as (_, links):
            with pytest.raises(Unauthenticated, match="check the clocks"):
                await links.beat("n1", BEAT)

    play(loop, main())


def test_unknown_node_is_unreachable(loop: str) -> None:
    async def main() -> None:
        async with pair(address_of=lambda name: None) as (_, links):
            links.send(vote(1))
            with pytest.raises(PeerUnreachable, match="no address"):
                await links.beat("n1", BEAT)
            with pytest.raises(PeerUnreachable, match="no address"):
                await links.fetch("n1", ReplicaRound(0, []), wait_ms=0, bytes_max=1)

    play(loop, main())


def test_node_that_comes_back_is_reached_again(loop: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "goqueue.peer")

    async def main() -> None:
        port = port_of_ours()
        first = await Station("n1").start(port=port)
        address = first.address
        async with linked(first, address_of=lambda name: address) as links:
            links.send(vote(1))
            await first.service.until_received(1)
            await links.beat("n1", BEAT)
            await first.stop()
            with pytest.raises(PeerUnreachable):
                await links.beat("n1", BEAT)
            links.send(vote(2))
            second = await Station("n1").start(port=port)
            for term in range(3, 10):
                links.send(vote(term))
            while ("n2", vote(9)) not in second.service.received:
                await second.service.until_received(len(second.service.received) + 1)
            assert await _term_told(links) == 7
            await second.stop()

    play(loop, main())


def test_failure_is_logged_when_it_begins_and_when_it_ends(
    loop: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "goqueue.peer")

    async def main() -> None:
        async with pair() as (station, links):
            address, station.address = station.address, None
            for term in range(1, 5):
                links.send(vote(term))
            await _logged(caplog, "does not take messages")
            station.address = address
            await station.service.until_received(1)
            await _logged(caplog, "answers again")
        assert [record.message.split(" node")[0] for record in caplog.records] == [
            "peer does not take messages",
            "peer answers again",
        ]

    play(loop, main())


def test_requests_do_not_wait_behind_each_other(loop: str) -> None:
    async def main() -> None:
        async with pair() as (station, links):
            station.service.gate = asyncio.Event()
            waiting = [asyncio.ensure_future(links.execute("n1", DeleteTopic(str(n)))) for n in range(10)]
            while len(station.service.asked) < 10:
                station.service.arrived.clear()
                await station.service.arrived.wait()
            station.service.gate.set()
            assert len(await asyncio.gather(*waiting)) == 10
            kept = links._peers["n1"].orders._kept
            assert len(kept) == 2

    play(loop, main())


def test_connection_that_was_not_used_for_long_is_not_used_again(
    loop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_links, "IDLE_S_MAX", -1.0)

    async def main() -> None:
        async with pair() as (_, links):
            for _ in range(3):
                await links.beat("n1", BEAT)

    play(loop, main())


def test_close_ends_everything_that_waits(loop: str) -> None:
    async def main() -> None:
        station = await Station("n1").start()
        station.service.gate = asyncio.Event()
        links = Links(address_of=lambda name: station.address if name == "n1" else None)
        waiting = [
            asyncio.ensure_future(links.beat("n1", BEAT)),
            asyncio.ensure_future(links.execute("n1", DeleteTopic("t"))),
            asyncio.ensure_future(links.fetch("n1", ReplicaRound(0, []), wait_ms=60_000, bytes_max=1)),
        ]
        links.send(vote(1))
        links.send(vote(1, "n7"))
        await station.service.until_received(1)
        await links.close()
        found = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(one) for one in found] == [PeerUnreachable] * 3
        links.send(vote(2))
        with pytest.raises(PeerUnreachable, match="stops"):
            await links.beat("n1", BEAT)
        station.service.gate.set()
        await station.stop()

    play(loop, main())


def test_sender_survives_a_bug(loop: str, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with pair() as (station, links):
            address, calls = station.address, []

            def address_of(name: str) -> tuple[str, int] | None:
                calls.append(name)
                if len(calls) == 1:
                    raise ValueError("a bug")
                return address

            links._dialler._address_of = address_of
            links.send(vote(1))
            await _logged(caplog, "raft message not sent")
            links.send(vote(2))
            await station.service.until_received(1)
            assert station.service.received == [("n2", vote(2))]

    play(loop, main())


async def _term_told(links: Links) -> int:
    """As a node does, it asks again: on a machine that is busy otherwise the pause after a failure may outlast a request."""
    while True:
        try:
            return (await links.beat("n1", BEAT)).term
        except PeerUnreachable:
            continue


async def _logged(caplog: pytest.LogCaptureFixture, text: str) -> None:
    while text not in caplog.text:
        await settle()
