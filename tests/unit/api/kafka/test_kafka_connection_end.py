"""How a listener stops, whom it turns away, and when it tires of a silent client."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.fuzz.messages import frame
from tests.fuzz.target import Target
from tests.support.kafka_sockets import (
    LOOPS,
    TIMEOUT_S,
    Listener,
    Streams,
    answer_of,
    leave,
    listening,
    next_id,
    request,
    run_on,
    texts,
    until,
)

from goqueue.api.kafka.call import Answer, Call, Later
from goqueue.api.kafka.connection import IDLE_S_MAX
from goqueue.model.limits import Limits
from goqueue.node.config import NodeConfig
from goqueue.sim.loop import run
from goqueue.wire.codec import Output, request_writer
from goqueue.wire.schema import request_schema

GROUPS = "delete_groups"
on_both_loops = pytest.mark.parametrize("loop", LOOPS)


async def echo(call: Call, request: Any) -> Answer:
    return answer_of("hello")


async def stuck(call: Call, request: Any) -> Answer:
    await asyncio.Event().wait()
    return answer_of("never")


@on_both_loops
@pytest.mark.parametrize("is_later", [False, True])
def test_stop_waits_for_the_answers_under_way(loop: str, is_later: bool) -> None:
    async def main() -> None:
        begun, may_end = asyncio.Event(), asyncio.Event()

        async def slow() -> Answer:
            await may_end.wait()
            return answer_of("done")

        async def handle(call: Call, request: Any) -> Answer:
            begun.set()
            if is_later:
                return Later(slow())
            await may_end.wait()
            # Also one whose answer is only now put off.
            return Later(slow())

        listener = Listener(delete_groups=handle)
        await listener.start()
        client = await listener.connect()
        client[1].write(request(GROUPS, 1, texts("a")))
        await begun.wait()
        stopping = asyncio.ensure_future(listener.server.stop(TIMEOUT_S))
        await asyncio.sleep(0)
        may_end.set()
        assert await next_id(client) == 1
        assert await next_id(client) is None
        await stopping
        with pytest.raises(ConnectionRefusedError):
            await listener.connect()
        await leave(client)

    run_on(loop, main())


@on_both_loops
def test_stop_cuts_off_what_does_not_end_within_the_grace(loop: str) -> None:
    async def main() -> None:
        listener = Listener(delete_groups=stuck)
        await listener.start()
        idle, client = await listener.connect(), await listener.connect()
        client[1].write(request(GROUPS, 1, texts("a")))
        await until(lambda: any(one._begun for one in listener.server._connections))
        await listener.server.stop(0.05)  # the time-out of the test bounds it
        assert await next_id(client) is None
        assert await next_id(idle) is None
        await leave(client)
        await leave(idle)

    run_on(loop, main())


@on_both_loops
def test_stop_does_not_wait_long_for_a_client_that_takes_nothing(loop: str) -> None:
    async def main() -> None:
        async def large(call: Call, request: Any) -> Answer:
            return answer_of("x" * 30_000)

        listener = Listener(delete_groups=large)
        await listener.start()
        client = await listener.connect()
        client[1].transport.pause_reading()  # type: ignore[attr-defined]  # typed as a write transport
        for id in range(2_000):
            client[1].write(request(GROUPS, id, texts("a")))
        await until(lambda: any(not one._can_write.is_set() for one in listener.server._connections))
        await listener.server.stop(0.1)  # the time-out of the test bounds it
        client[1].transport.abort()
        await leave(client)

    run_on(loop, main())


@on_both_loops
def test_clients_beyond_the_limit_are_turned_away_until_one_leaves(loop: str) -> None:
    async def main() -> None:
        async with listening(delete_groups=echo, connection_count_max=3) as listener:
            clients = [await listener.connect() for _ in range(3)]
            for client in clients:
                client[1].write(request(GROUPS, 1, texts("a")))
                assert await next_id(client) == 1
            refused = await listener.connect()
            refused[1].write(request(GROUPS, 1, texts("a")))
            assert await next_id(refused) is None
            await leave(refused)
            await leave(clients.pop())
            await until(lambda: len(listener.server._connections) == 2)
            client = await listener.connect()
            client[1].write(request(GROUPS, 2, texts("a")))
            assert await next_id(client) == 2
            for one in (*clients, client):
                await leave(one)

    run_on(loop, main())


@on_both_loops
def test_a_thousand_clients_are_served(loop: str) -> None:
    async def main() -> None:
        count = 1_000
        async with listening(delete_groups=echo, connection_count_max=count) as listener:
            clients: list[Streams] = []
            for _ in range(10):  # no more at a time than the queue of the system takes
                clients += await asyncio.gather(*(listener.connect() for _ in range(count // 10)))
            for id, client in enumerate(clients):
                client[1].write(request(GROUPS, id, texts("a")))
            assert await asyncio.gather(*(next_id(client) for client in clients)) == list(range(count))
            await asyncio.gather(*(leave(client) for client in clients))
            await listener.gone()

    run_on(loop, main())


@on_both_loops
def test_broker_stops_promptly_while_fetches_are_parked(loop: str, tmp_path: Path) -> None:
    async def main() -> None:
        config = NodeConfig(limits=Limits(wait_ms_max=60_000))
        async with Target(tmp_path, config) as target:
            made = request_schema("fetch").classes
            partition = made["FetchPartition"](partition=0, fetch_offset=0, partition_max_bytes=1_000)
            topic = made["FetchTopic"](topic="orders", partitions=[partition])
            out = Output()
            request_writer("fetch", 4)(
                out, made["FetchRequest"](max_wait_ms=60_000, min_bytes=1, max_bytes=1_000, topics=[topic])
            )
            peers = [await target.connect() for _ in range(20)]
            for peer in peers:
                peer.push(frame("fetch", 4, 1, bytes(out)) + frame("fetch", 4, 2, bytes(out)))
            await until(lambda: target.node.stats()["parked_reads"] == len(peers))
            await target.node.drain()
            await target.listener.stop(
                3 * TIMEOUT_S
            )  # and so would the fetches: who waits for either is too late
            for peer in peers:
                assert await peer.answer() is not None
                await peer.close()

    run_on(loop, main())


@pytest.mark.parametrize("is_deaf", [False, True])
def test_client_that_is_silent_or_deaf_for_too_long_is_disconnected(is_deaf: bool) -> None:
    async def scenario() -> None:
        async def large(call: Call, request: Any) -> Answer:
            return answer_of("x" * 30_000)

        loop = asyncio.get_running_loop()
        async with listening(delete_groups=large) as listener:
            client = await listener.connect()
            client[1].write(request(GROUPS, 1, texts("a")))
            assert await next_id(client) == 1
            if is_deaf:
                client[1].transport.pause_reading()  # type: ignore[attr-defined]  # typed as a write transport
                for id in range(100):
                    client[1].write(request(GROUPS, id, texts("a")))
            started = loop.time()
            await listener.gone()
            assert IDLE_S_MAX <= loop.time() - started <= IDLE_S_MAX + 130
            client[1].transport.abort()

    run(lambda loop: scenario(), seed=1)


def test_client_that_waits_for_an_answer_is_not_idle() -> None:
    async def scenario() -> None:
        async def patient(call: Call, request: Any) -> Answer:
            await asyncio.sleep(3 * IDLE_S_MAX)
            return answer_of("at last")

        async with listening(delete_groups=patient) as listener:
            client = await listener.connect()
            client[1].write(request(GROUPS, 1, texts("a")))
            assert await next_id(client) == 1
            client[1].transport.abort()

    run(lambda loop: scenario(), seed=1)


@on_both_loops
def test_worker_that_is_ended_before_it_begins_is_not_started_again(loop: str) -> None:
    async def main() -> None:
        async with listening(delete_groups=echo) as listener:
            client = await listener.connect()
            await until(lambda: bool(listener.server._connections))
            (connection,) = listener.server._connections
            data = request(GROUPS, 1, texts("a"))
            connection.get_buffer(len(data))[: len(data)] = data
            connection.buffer_updated(len(data))
            assert connection._worker is not None
            connection._worker.cancel()  # as when a process ends, which would end the next one, too
            assert await next_id(client) is None
            await listener.gone()
            await leave(client)

    run_on(loop, main())
