"""Kafka frames between two nodes: the login, several requests under way, fetches, and peers that break the rules."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest
from tests.support.kafka_sockets import LOOPS, answer_of, run_on, settle, until
from tests.support.peers import KEY, Links, Station

from goqueue.api.kafka.call import Answer, Api, Call
from goqueue.model.cluster_errors import NotLeader, PeerUnreachable, Unauthenticated
from goqueue.model.errors import FencedLeaderEpoch, GoQueueError, OffsetOutOfRange, UnknownLeaderEpoch
from goqueue.node.cluster.login import ClientLogin, ServerLogin
from goqueue.node.cluster.ports import ReplicaFound, ReplicaRound, ReplicaWant
from goqueue.node.cluster.secret import Secret
from goqueue.peer import frames
from goqueue.sim.loop import SimLoop, run
from goqueue.wire.schema import request_schema, responses

pytestmark = pytest.mark.parametrize("loop", [*LOOPS, "simulated"])
_FETCH = responses("fetch")
GROUPS = "delete_groups"
_DeleteGroups = request_schema(GROUPS).classes["DeleteGroupsRequest"]
WANT = ReplicaWant("t", 0, offset=5, last_epoch=2, leader_epoch=3, log_start=1, bytes_max=100)


def play(loop: str, main: Awaitable[None]) -> None:
    async def simulated(_: SimLoop) -> None:
        await main

    if loop == "simulated":
        run(simulated, seed=11)
    else:
        run_on(loop, main)


class Stage:
    """Serves Fetch and DeleteGroups, whose text decides how it is answered."""

    def __init__(self) -> None:
        self.calls: list[tuple[Call, Any]] = []
        self.arrived = asyncio.Event()
        self.gate = asyncio.Event()
        self.fetched: Callable[[Any], Any] = lambda request: _FETCH.FetchResponse()

    def apis(self) -> list[Api]:
        return [Api("fetch", 12, 12, self.fetch), Api(GROUPS, 0, 2, self.delete_groups)]

    async def fetch(self, call: Call, request: Any) -> Answer:
        self.calls.append((call, request))
        self.arrived.set()
        if request.max_wait_ms:
            await self.gate.wait()
        return self.fetched(request)

    async def delete_groups(self, call: Call, request: Any) -> Answer:
        text = request.groups_names[0]
        self.calls.append((call, request))
        self.arrived.set()
        if text.startswith("wait"):
            await self.gate.wait()
        return answer_of(text)


@asynccontextmanager
async def staged(**options: Any) -> AsyncIterator[tuple[Stage, Station, Links]]:
    stage = Stage()
    station = await Station("n1", apis=stage.apis()).start()
    links = Links(**{"address_of": lambda name: station.address, **options})
    try:
        yield stage, station, links
    finally:
        stage.gate.set()
        await links.close()
        await station.stop()


async def echo(links: Links, text: str) -> str:
    answer = await links.call("n1", GROUPS, 2, _DeleteGroups(groups_names=[text]))
    return str(answer.results[0].group_id)


def test_connection_is_the_peers_that_has_logged_in(loop: str) -> None:
    async def main() -> None:
        async with staged() as (stage, _, links):
            assert await echo(links, "a") == "a"
            assert await links.fetch("n1", ReplicaRound(0, [WANT]), wait_ms=0, bytes_max=1_000) == []
            assert [call.peer for call, _ in stage.calls] == ["n2", "n2"]

    play(loop, main())


def test_fetch_says_what_the_follower_has_and_who_it_is(loop: str) -> None:
    async def main() -> None:
        async with staged(number=42) as (stage, _, links):
            wants = [WANT, ReplicaWant("u", 1, 0, -1, 3, 0, 9), ReplicaWant("t", 7, 0, -1, 3, 0, 9)]
            await links.fetch("n1", ReplicaRound(0, wants), wait_ms=0, bytes_max=1_000)
            request = stage.calls[0][1]
            assert (request.replica_id, request.max_bytes, request.min_bytes) == (42, 1_000, 1)
            assert [(topic.topic, len(topic.partitions)) for topic in request.topics] == [("t", 2), ("u", 1)]
            first = request.topics[0].partitions[0]
            assert (first.fetch_offset, first.last_fetched_epoch, first.current_leader_epoch) == (5, 2, 3)
            assert (first.log_start_offset, first.partition_max_bytes) == (1, 100)

    play(loop, main())


def found(partitions: list[Any]) -> Callable[[Any], Any]:
    return lambda request: _FETCH.FetchResponse(
        responses=[_FETCH.FetchableTopicResponse(topic="t", partitions=partitions)]
    )


def test_fetch_brings_records_and_where_the_logs_diverge(loop: str) -> None:
    records = Random(1).randbytes(3_000_000)

    async def main() -> None:
        async with staged() as (stage, _, links):
            stage.fetched = found(
                [
                    _FETCH.PartitionData(
                        partition_index=0, high_watermark=7, log_start_offset=1, records=[memoryview(records)]
                    ),
                    _FETCH.PartitionData(
                        partition_index=1,
                        high_watermark=9,
                        diverging_epoch=_FETCH.EpochEndOffset(epoch=0, end_offset=0),
                    ),
                ]
            )
            first, second = await links.fetch("n1", ReplicaRound(0, [WANT]), wait_ms=0, bytes_max=1)
            assert isinstance(first.records, memoryview)
            assert bytes(first.records) == records
            assert (first.high_watermark, first.log_start, first.diverging) == (7, 1, None)
            assert second == ReplicaFound("t", 1, high_watermark=9, diverging=(0, 0))

    play(loop, main())


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (1, OffsetOutOfRange),
        (6, NotLeader),
        (74, FencedLeaderEpoch),
        (75, UnknownLeaderEpoch),
        (-1, GoQueueError),
    ],
)
def test_errors_of_a_partition_are_its_own(loop: str, code: int, kind: type[GoQueueError]) -> None:
    async def main() -> None:
        async with staged() as (stage, _, links):
            stage.fetched = found([_FETCH.PartitionData(partition_index=3, error_code=code)])
            (partition,) = await links.fetch("n1", ReplicaRound(0, [WANT]), wait_ms=0, bytes_max=1)
            assert type(partition.error) is kind
            assert "t-3" in str(partition.error)
            stage.fetched = lambda request: _FETCH.FetchResponse(error_code=code)
            with pytest.raises(kind):
                await links.fetch("n1", ReplicaRound(0, [WANT]), wait_ms=0, bytes_max=1)

    play(loop, main())


def test_nothing_waits_behind_a_fetch_that_waits(loop: str) -> None:
    async def main() -> None:
        async with staged() as (stage, _, links):
            waiting = asyncio.ensure_future(
                links.fetch("n1", ReplicaRound(0, [WANT]), wait_ms=60_000, bytes_max=1)
            )
            await stage.arrived.wait()
            assert await echo(links, "a") == "a"
            assert not waiting.done()
            stage.gate.set()
            assert await waiting == []

    play(loop, main())


def test_several_requests_are_under_way_on_one_connection(loop: str) -> None:
    async def main() -> None:
        async with staged() as (stage, _, links):
            asked = [asyncio.ensure_future(echo(links, f"wait {n}")) for n in range(20)]
            await stage.arrived.wait()
            stage.gate.set()
            assert await asyncio.gather(*asked) == [f"wait {n}" for n in range(20)]
            hosts = {id(call.identity) for call, _ in stage.calls}
            assert len(hosts) == 1

    play(loop, main())


def test_answer_to_a_request_that_was_given_up_is_dropped(loop: str) -> None:
    async def main() -> None:
        async with staged() as (stage, _, links):
            gone = asyncio.ensure_future(echo(links, "wait"))
            await stage.arrived.wait()
            gone.cancel()
            following = asyncio.ensure_future(echo(links, "next"))
            await settle()
            stage.gate.set()
            assert await following == "next"
            assert len({id(call.identity) for call, _ in stage.calls}) == 1

    play(loop, main())


def test_requests_under_way_are_bounded(loop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "UNDER_WAY_COUNT_MAX", 3)

    async def main() -> None:
        async with staged() as (stage, _, links):
            assert await echo(links, "first") == "first"
            asked = [asyncio.ensure_future(echo(links, f"wait {n}")) for n in range(5)]
            await settle()
            stage.gate.set()
            done = await asyncio.gather(*asked, return_exceptions=True)
            assert [type(one) for one in done] == [str, str, str, PeerUnreachable, PeerUnreachable]

    play(loop, main())


def test_node_logs_in_again_after_the_other_has_restarted(loop: str) -> None:
    async def main() -> None:
        async with staged() as (stage, station, links):
            assert await echo(links, "a") == "a"
            await station.stop()
            link = links._peers["n1"].calls._link
            await until(lambda: link is not None and not link.is_usable)
            again = await Station("n1", apis=stage.apis()).start()
            station.address = again.address
            assert await echo(links, "b") == "b"
            await links.close()
            await again.stop()

    play(loop, main())


Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def facing(talk: Talk) -> AsyncIterator[Links]:
    """Links to a node that the test plays byte by byte."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await talk(reader, writer)
            await reader.read()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    links = Links(address_of=lambda name: server.sockets[0].getsockname()[:2])
    try:
        yield links
    finally:
        await links.close()
        server.close()
        await server.wait_closed()


async def take(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    (length,) = struct.unpack(">i", await reader.readexactly(4))
    content = await reader.readexactly(length)
    return struct.unpack_from(">i", content, 4)[0], content


def framed(content: bytes) -> bytes:
    return struct.pack(">i", len(content)) + content


def handshake(correlation_id: int, *, error_code: int = 0) -> bytes:
    return framed(struct.pack(">ihi", correlation_id, error_code, 0))


def authenticated(correlation_id: int, data: bytes) -> bytes:
    return framed(
        struct.pack(">ibhbb", correlation_id, 0, 0, 0, len(data) + 1) + data + struct.pack(">qb", 0, 0)
    )


async def log_in(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, key: bytes = KEY) -> None:
    """As a node of the cluster does it; with another key, as one that only pretends to be."""
    login = ServerLogin(Secret(KEY), target="n1", cluster_id="c1", nonce="server-nonce")
    writer.write(handshake((await take(reader))[0]))
    correlation_id, content = await take(reader)
    at = content.index(b"[")
    first = content[at : content.rindex(b"]") + 1]
    writer.write(authenticated(correlation_id, login.challenge(first)))
    correlation_id, _ = await take(reader)
    proof = Secret(key).mac("server proof", first, login.challenge(first))
    writer.write(authenticated(correlation_id, proof))


def test_played_login_is_accepted(loop: str) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await log_in(reader, writer)
        correlation_id, _ = await take(reader)
        writer.write(framed(struct.pack(">ibibb", correlation_id, 0, 0, 1, 0)))

    async def main() -> None:
        async with facing(talk) as links:
            answer = await links.call("n1", GROUPS, 2, _DeleteGroups(groups_names=["x"]))
            assert answer.results == ()

    play(loop, main())


def test_node_that_only_pretends_is_not_believed(loop: str) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await log_in(reader, writer, b"guess")

    async def main() -> None:
        async with facing(talk) as links:
            with pytest.raises(Unauthenticated, match="does not know this cluster's secret"):
                await links.fetch("n1", ReplicaRound(0, [WANT]), wait_ms=0, bytes_max=1)

    play(loop, main())


def test_broker_without_this_login_is_refused(loop: str) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(handshake((await take(reader))[0], error_code=33))

    async def main() -> None:
        async with facing(talk) as links:
            with pytest.raises(Unauthenticated, match="GOQUEUE-PEER"):
                await links.fetch("n1", ReplicaRound(0, [WANT]), wait_ms=0, bytes_max=1)

    play(loop, main())


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        framed(b"\0\0"),
        framed(struct.pack(">ihi", 99, 0, 0)),
        handshake(1)[:-1],
        framed(struct.pack(">ihi", 1, 0, 1_000_000)),
        struct.pack(">i", 1 << 20) + b"much more than a login needs",
        b"",
    ],
    ids=["http", "short", "other request", "torn", "many mechanisms", "large", "nothing"],
)
def test_broken_answers_end_the_connection(loop: str, data: bytes) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await take(reader)
        writer.write(data)
        writer.write_eof()

    async def main() -> None:
        async with facing(talk) as links:
            with pytest.raises(PeerUnreachable):
                await links.fetch("n1", ReplicaRound(0, [WANT]), wait_ms=0, bytes_max=1)

    play(loop, main())


def test_answer_that_nobody_asked_for_fails_all_that_wait(loop: str) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await log_in(reader, writer)
        for _ in range(2):
            await take(reader)
        writer.write(framed(struct.pack(">ib", 77, 0)))

    async def main() -> None:
        async with facing(talk) as links:
            done = await asyncio.gather(echo(links, "a"), echo(links, "b"), return_exceptions=True)
            assert [type(one) for one in done] == [PeerUnreachable] * 2

    play(loop, main())


def test_second_login_on_a_connection_is_refused(loop: str) -> None:
    async def main() -> None:
        async with staged() as (_, station, _links):
            assert station.address is not None
            login = ClientLogin(Secret(KEY), source="n2", target="n1", cluster_id="c1", nonce="nonce-nonce")
            link = await frames.open_frames(
                *station.address, "n1", login, client_id="n2", scratch=bytearray(1 << 16), timeout_s=60.0
            )
            with pytest.raises(Unauthenticated):
                await link.log_in(login, 60.0)
            assert not link.is_usable

    play(loop, main())
