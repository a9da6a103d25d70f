"""What the links do when an answer does not come: in simulated time, where a time-out is never an accident."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
from tests.support.kafka_sockets import answer_of
from tests.support.peers import Links, Station

from goqueue.api.cluster.client_requests import ClientRequests
from goqueue.api.http.asgi import Event, Receive, Send, wait_for_disconnect
from goqueue.api.kafka.call import Answer, Api, Call
from goqueue.core.catalog import AlterPartitions, DeleteTopic
from goqueue.core.raft.messages import AskVote
from goqueue.model.cluster_errors import PeerUnreachable
from goqueue.model.errors import NotReady, TimedOut
from goqueue.node.cluster.ports import Beat, ReplicaRound
from goqueue.peer import requests
from goqueue.peer.backoff import DELAY_S_MAX, DELAY_S_MIN, Backoff
from goqueue.peer.dialling import LinkTimes
from goqueue.sim.loop import SimLoop, run
from goqueue.wire.schema import request_schema

QUICK = LinkTimes(connect_ms=300, message_ms=300, beat_ms=300, ask_ms=300, call_ms=300, fetch_slack_ms=300)
BEAT = Beat("n2", "i", 4, is_ready=True)
GROUPS = "delete_groups"
_DeleteGroups = request_schema(GROUPS).classes["DeleteGroupsRequest"]


def simulate(main: Callable[[], Awaitable[None]]) -> None:
    async def start(_: SimLoop) -> None:
        await main()

    for seed in range(5):
        run(start, seed=seed)


def test_silent_node_is_given_up() -> None:
    """Half open: it takes connections and never says a word."""

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            await reader.read()
        writer.close()

    async def main() -> None:
        server = await asyncio.start_server(silent, "127.0.0.1", 0)
        links = Links(address_of=lambda name: server.sockets[0].getsockname()[:2], times=QUICK)
        links.send(AskVote("n2", "n1", 1, 0, 0, is_pre=False, is_transfer=False))
        with pytest.raises(PeerUnreachable, match="no answer within"):
            await links.beat("n1", BEAT)
        with pytest.raises(PeerUnreachable, match="in time"):
            await links.fetch("n1", ReplicaRound(0, []), wait_ms=0, bytes_max=1)
        await links.close()
        server.close()
        await server.wait_closed()

    simulate(main)


def test_what_became_of_a_request_without_an_answer_is_not_known() -> None:
    asked: list[str] = []

    async def waits(scope: Event, receive: Receive, send: Send) -> None:
        asked.append(scope["method"])
        await wait_for_disconnect(receive)

    async def main() -> None:
        asked.clear()
        nobody: Any = None  # plays the use cases
        requests_of_clients = ClientRequests(waits, nobody, bytes_max=1_000)
        station = await Station("n1", client_requests=requests_of_clients).start()
        links = Links(address_of=lambda name: station.address)
        with pytest.raises(TimedOut, match="not known"):
            await links.forward("n1", "POST", "/x", {}, b"", timeout_s=0.2)
        assert asked == ["POST"]
        await links.close()
        await station.stop()

    simulate(main)


def test_control_requests_under_way_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "UNDER_WAY_COUNT_MAX", 2)

    async def main() -> None:
        station = await Station("n1").start()
        station.service.gate = asyncio.Event()
        links = Links(address_of=lambda name: station.address, times=QUICK)
        asked = [asyncio.ensure_future(links.execute("n1", DeleteTopic(str(n)))) for n in range(3)]
        found = await asyncio.gather(*asked, return_exceptions=True)
        assert [type(one) for one in found] == [PeerUnreachable] * 3
        assert len(station.service.asked) == 2
        station.service.gate.set()
        await links.close()
        await station.stop()

    simulate(main)


def test_heartbeats_and_what_this_node_leads_do_not_wait_behind_commands_of_clients(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(requests, "UNDER_WAY_COUNT_MAX", 2)

    async def main() -> None:
        station = await Station("n1").start()
        links = Links(address_of=lambda name: station.address)
        station.service.gate = asyncio.Event()
        asked = [asyncio.ensure_future(links.execute("n1", DeleteTopic(str(n)))) for n in range(12)]
        await station.service.until_asked(2)
        gate, station.service.gate = station.service.gate, None
        assert (await links.beat("n1", BEAT)).term == 7
        await links.confirmed("n1")
        await links.state("n1")
        await links.execute("n1", AlterPartitions(2, "i", []))
        assert len(station.service.asked) == 2 + 3
        assert not any(one.done() for one in asked)
        gate.set()
        await asyncio.gather(*asked)
        await links.close()
        await station.stop()

    simulate(main)


def test_commands_that_wait_have_a_bound_and_who_is_refused_is_told_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(requests, "UNDER_WAY_COUNT_MAX", 2)
    monkeypatch.setattr(requests, "WAITING_COUNT_MAX", 3)

    async def main() -> None:
        station = await Station("n1").start()
        station.service.gate = asyncio.Event()
        links = Links(address_of=lambda name: station.address)
        asked = [asyncio.ensure_future(links.execute("n1", DeleteTopic(str(n)))) for n in range(5)]
        await station.service.until_asked(2)
        with pytest.raises(NotReady, match="limit"):
            await links.execute("n1", DeleteTopic("one more"))
        station.service.gate.set()
        await asyncio.gather(*asked)
        await links.execute("n1", DeleteTopic("again"))
        await links.close()
        await station.stop()

    simulate(main)


async def wait_for_nothing(links: Links) -> None:
    with pytest.raises(PeerUnreachable, match="no answer to delete_groups"):
        await links.call("n1", GROUPS, 2, _DeleteGroups(groups_names=["a"]))


async def give_up_early(links: Links) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await links.call("n1", GROUPS, 2, _DeleteGroups(groups_names=["a"]))
    await asyncio.sleep(QUICK.call_ms / 1_000)


@pytest.mark.parametrize("ask", [wait_for_nothing, give_up_early])
def test_frame_without_an_answer_ends_the_connection_and_the_next_makes_another(
    ask: Callable[[Links], Awaitable[None]],
) -> None:
    calls: list[Call] = []

    async def first_waits(call: Call, request: object) -> Answer:
        calls.append(call)
        if len(calls) == 1:
            await asyncio.Event().wait()
        return answer_of("done")

    async def main() -> None:
        calls.clear()
        station = await Station("n1", apis=[Api(GROUPS, 2, 2, first_waits)]).start()
        links = Links(address_of=lambda name: station.address, times=QUICK)
        await ask(links)
        answer = await links.call("n1", GROUPS, 2, _DeleteGroups(groups_names=["b"]))
        assert answer.results[0].group_id == "done"
        assert calls[0].identity is not calls[1].identity
        await links.close()
        await station.stop()

    simulate(main)


def test_pauses_grow_to_their_limit_and_end_with_success() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        backoff = Backoff(lambda: 0.0)
        pauses = []
        for _ in range(8):
            backoff.failed()
            backoff.failed()  # another that was under way at the same time
            before_s = loop.time()
            await backoff.wait()
            pauses.append(round(loop.time() - before_s, 6))
        assert pauses == [DELAY_S_MIN, 0.1, 0.2, 0.4, 0.8, DELAY_S_MAX, DELAY_S_MAX, DELAY_S_MAX]
        backoff.succeeded()
        before_s = loop.time()
        await backoff.wait()
        assert loop.time() == before_s

    simulate(main)


def test_chance_shortens_a_pause_by_half_at_most() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        backoff = Backoff(lambda: 0.999)
        backoff.failed()
        before_s = loop.time()
        await backoff.wait()
        assert DELAY_S_MIN / 2 <= loop.time() - before_s < DELAY_S_MIN

    simulate(main)


def test_time_of_a_request_that_is_shorter_than_the_pause_still_suffices() -> None:
    """Otherwise a node that has failed often would never be tried again."""
    hurried = LinkTimes(connect_ms=100, message_ms=100, beat_ms=100)

    async def main() -> None:
        station = await Station("n1").start()
        address, station.address = station.address, None
        links = Links(address_of=lambda name: station.address, times=hurried)
        for _ in range(10):
            with pytest.raises(PeerUnreachable):
                await links.beat("n1", BEAT)
        station.address = address
        assert (await links.beat("n1", BEAT)).term == 7
        await links.close()
        await station.stop()

    simulate(main)
