"""The simulated network, with asyncio's streams and uvicorn's protocol unchanged on top."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

import pytest
import uvicorn.config
import uvicorn.server
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from goqueue.sim.disk import PowerLost, SimDisk
from goqueue.sim.loop import SimLoop, run
from goqueue.sim.process import Process

SEEDS = range(20)
SERVER, CLIENT, PORT = "server", "client", 9_092

Main = Callable[["Cluster"], Awaitable[None]]


class Cluster:
    """A server process, a client process and the network between them."""

    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self.network = loop.network
        self.disk = SimDisk(Random(1), stall=loop.stall)
        self.server = Process(loop, SERVER, self.disk)
        self.client = Process(loop, CLIENT, SimDisk(Random(2)))

    async def serve(self, connected: Callable[..., Awaitable[None]] | None = None) -> None:
        await self.server.spawn(self._start(connected or echo))

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await self.client.spawn(asyncio.open_connection(SERVER, PORT))

    async def _start(self, connected: Callable[..., Awaitable[None]]) -> asyncio.Server:
        return await asyncio.start_server(connected, SERVER, PORT)


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        return
    finally:
        writer.close()


def simulate(main: Main, *, seeds: range = SEEDS) -> None:
    async def start(loop: SimLoop) -> None:
        await main(Cluster(loop))

    for seed in seeds:
        run(start, seed=seed)


def test_streams_echo_every_byte_in_order() -> None:
    async def main(cluster: Cluster) -> None:
        await cluster.serve()
        reader, writer = await cluster.connect()
        sent = Random(3).randbytes(300_000)
        for start in range(0, len(sent), 10_000):
            writer.write(sent[start : start + 10_000])
        writer.write_eof()
        assert await reader.read() == sent
        writer.close()
        await writer.wait_closed()

    simulate(main)


def test_both_ends_know_their_addresses() -> None:
    async def main(cluster: Cluster) -> None:
        async def tell(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(repr(writer.get_extra_info("peername")[0]).encode())
            writer.close()

        await cluster.serve(tell)
        reader, writer = await cluster.connect()
        assert await reader.read() == b"'client'"
        assert writer.get_extra_info("peername") == (SERVER, PORT)
        assert writer.get_extra_info("socket") is None
        assert writer.get_extra_info("sslcontext") is None
        writer.close()

    simulate(main, seeds=range(1))


def test_port_zero_picks_free_ports_and_a_taken_one_is_refused() -> None:
    async def main(cluster: Cluster) -> None:
        async def start(port: int) -> int:
            server = await asyncio.start_server(echo, "127.0.0.1", port)
            name = server.sockets[0].getsockname()
            assert name[0] == SERVER
            return int(name[1])

        first = await cluster.server.spawn(start(0))
        assert await cluster.server.spawn(start(0)) != first
        with pytest.raises(OSError, match="address in use"):
            await cluster.server.spawn(start(first))

    simulate(main, seeds=range(1))


def test_a_connection_to_nobody_is_refused() -> None:
    async def main(cluster: Cluster) -> None:
        with pytest.raises(ConnectionRefusedError):
            await cluster.connect()

    simulate(main)


def test_writing_pauses_until_the_other_side_reads() -> None:
    async def main(cluster: Cluster) -> None:
        may_read = asyncio.Event()
        received: list[int] = []

        async def late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await may_read.wait()
            received.append(len(await reader.read()))
            writer.close()

        async def fill(writer: asyncio.StreamWriter) -> None:
            for _ in range(100):
                writer.write(bytes(10_000))
                await writer.drain()
            writer.close()

        await cluster.serve(late)
        _, writer = await cluster.connect()
        filling = cluster.client.spawn(fill(writer))
        await asyncio.sleep(100)
        assert not filling.done()
        may_read.set()
        await filling
        await asyncio.sleep(100)
        assert received == [1_000_000]

    simulate(main)


def test_a_reset_breaks_both_ends_and_drops_what_is_under_way() -> None:
    lengths = set()

    async def main(cluster: Cluster) -> None:
        broken: list[bytes] = []

        async def connected(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
            received = b""
            try:
                while data := await reader.read(100):
                    received += data
            except ConnectionResetError:
                broken.append(received)

        await cluster.serve(connected)
        reader, writer = await cluster.connect()
        for _ in range(50):
            writer.write(b"0123456789")
        await asyncio.sleep(0.001)
        cluster.network.reset(CLIENT)
        with pytest.raises(ConnectionResetError):
            await reader.read(1)
        await asyncio.sleep(1)
        assert (b"0123456789" * 50).startswith(broken[0])
        lengths.add(len(broken[0]))

    simulate(main)
    assert any(length % 10 for length in lengths), "some frame was cut in the middle"
    assert max(lengths) < 500


def test_bytes_sent_to_a_closed_end_are_answered_with_a_reset() -> None:
    async def main(cluster: Cluster) -> None:
        async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.close()

        await cluster.serve(hang_up)
        reader, writer = await cluster.connect()
        assert await reader.read() == b""
        writer.write(b"anybody there?")
        await asyncio.sleep(1)
        with pytest.raises(ConnectionResetError):
            await writer.drain()

    simulate(main)


def test_a_partition_holds_bytes_and_connections_until_it_heals() -> None:
    async def main(cluster: Cluster) -> None:
        await cluster.serve()
        reader, writer = await cluster.connect()
        cluster.network.partition(CLIENT, SERVER)
        writer.write(b"held")
        connecting = asyncio.create_task(cluster.connect())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(100):
                await reader.read(1)
        assert not connecting.done()
        cluster.network.heal(CLIENT, SERVER)
        assert await reader.readexactly(4) == b"held"
        _, second = await connecting
        second.close()
        writer.close()

    simulate(main)


def test_a_one_way_partition_lets_the_other_direction_pass() -> None:
    async def main(cluster: Cluster) -> None:
        received: list[bytes] = []

        async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            received.append(await reader.readexactly(4))
            writer.write(b"answer")

        await cluster.serve(take)
        reader, writer = await cluster.connect()
        cluster.network.partition(SERVER, CLIENT, one_way=True)
        writer.write(b"call")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(100):
                await reader.read(1)
        assert received == [b"call"]
        cluster.network.heal()
        assert await reader.readexactly(6) == b"answer"
        writer.close()

    simulate(main)


def test_a_resetting_partition_breaks_connections_and_refuses_new_ones() -> None:
    async def main(cluster: Cluster) -> None:
        await cluster.serve()
        reader, _ = await cluster.connect()
        cluster.network.partition(SERVER, CLIENT, reset=True)
        with pytest.raises(ConnectionResetError):
            await reader.read(1)
        with pytest.raises(ConnectionRefusedError):
            await cluster.connect()
        cluster.network.heal()
        _, writer = await cluster.connect()
        writer.close()

    simulate(main)


def test_a_protocol_that_fails_is_reported_and_loses_its_connection() -> None:
    class Broken(asyncio.Protocol):
        def data_received(self, data: bytes) -> None:
            raise ValueError("cannot parse")

    async def main(cluster: Cluster) -> None:
        await cluster.server.spawn(cluster.loop.create_server(Broken, SERVER, PORT))
        reader, writer = await cluster.connect()
        writer.write(b"x")
        with pytest.raises(ConnectionResetError):
            await reader.read(1)
        assert [str(item.error) for item in cluster.loop.unhandled] == ["cannot parse"]
        cluster.loop.unhandled.clear()

    simulate(main)


async def hello(scope: object, receive: object, send: Callable[[object], Awaitable[None]]) -> None:
    headers = [(b"content-length", b"5")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"hello"})


def test_uvicorn_serves_an_app_over_the_simulated_network() -> None:
    async def main(cluster: Cluster) -> None:
        config = uvicorn.config.Config(
            hello,
            http="httptools",
            loop="none",
            log_config=None,
            access_log=False,
            lifespan="off",
        )
        config.load()
        state = uvicorn.server.ServerState()

        def protocol() -> HttpToolsProtocol:
            return HttpToolsProtocol(config=config, server_state=state, app_state={}, _loop=cluster.loop)

        await cluster.server.spawn(cluster.loop.create_server(protocol, SERVER, PORT))
        reader, writer = await cluster.connect()
        for _ in range(3):
            writer.write(b"GET /some/path HTTP/1.1\r\nhost: server\r\n\r\n")
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 OK\r\n")
            assert await reader.readexactly(5) == b"hello"
        assert await reader.read() == b""  # after uvicorn's keep-alive timeout
        writer.close()

    simulate(main)


def test_a_crash_resets_connections_and_closes_servers() -> None:
    async def main(cluster: Cluster) -> None:
        await cluster.serve()
        reader, _ = await cluster.connect()
        await cluster.server.crash(power_cut=False)
        with pytest.raises(ConnectionResetError):
            await reader.read(1)
        with pytest.raises(ConnectionRefusedError):
            await cluster.connect()
        cluster.server = Process(cluster.loop, SERVER, cluster.disk)
        await cluster.serve()
        _, writer = await cluster.connect()
        writer.close()

    simulate(main)


def test_a_crash_ends_every_task_a_process_started_and_takes_no_time() -> None:
    async def main(cluster: Cluster) -> None:
        ended: list[str] = []

        async def child(name: str) -> None:
            try:
                await asyncio.sleep(1e6)
            finally:
                ended.append(name)
                asyncio.create_task(child("born too late"))  # noqa: RUF006  # it must not run
                await asyncio.sleep(1e6)

        async def parent() -> None:
            asyncio.get_running_loop().call_later(1, ended.append, "timer")
            async with asyncio.TaskGroup() as group:
                group.create_task(child("first"))
                group.create_task(child("second"))

        bystander = asyncio.create_task(asyncio.sleep(5, "alive"))
        task = cluster.server.spawn(parent())
        await asyncio.sleep(0.5)
        before_s = cluster.loop.time()
        await cluster.server.crash(power_cut=True)
        assert cluster.loop.time() == before_s
        assert task.done()
        assert await bystander == "alive"
        assert ended == ["first", "second"]

    simulate(main, seeds=range(1))


def test_a_crash_drops_executor_jobs_and_half_done_writes() -> None:
    contents = set()

    async def main(cluster: Cluster) -> None:
        async def write() -> None:
            file = cluster.server.disk.open("a", create=True)
            cluster.server.disk.sync_dir("")
            file.append([b"synced"])
            file.sync()
            try:
                for _ in range(100):
                    await asyncio.to_thread(file.append, [b" more"])
            finally:
                with pytest.raises(PowerLost):
                    file.append([b" last words"])

        cluster.server.spawn(write())
        await asyncio.sleep(0.01)
        await cluster.server.crash(power_cut=True)
        operations = cluster.disk.counters.operations
        await asyncio.sleep(10)
        assert cluster.disk.counters.operations == operations
        content = cluster.disk.snapshot()["a"]
        assert content.startswith(b"synced")
        contents.add(content)

    simulate(main)
    assert len(contents) > 1


def test_a_power_cut_by_the_disk_ends_the_process() -> None:
    async def main(cluster: Cluster) -> None:
        async def write() -> None:
            file = cluster.server.disk.open("a", create=True)
            while True:
                await asyncio.to_thread(file.append, [b"x"])

        await cluster.serve()
        reader, _ = await cluster.connect()
        task = cluster.server.spawn(write())
        cluster.disk.crash_after(10)
        await cluster.server.died.wait()
        assert not cluster.server.is_alive
        with pytest.raises(ConnectionResetError):
            await reader.read(1)
        await cluster.server.crash(power_cut=True)
        assert task.done()

    simulate(main)


def test_a_process_cannot_await_its_own_crash() -> None:
    async def main(cluster: Cluster) -> None:
        with pytest.raises(RuntimeError, match="its own end"):
            await cluster.server.spawn(cluster.server.crash(power_cut=True))

    simulate(main, seeds=range(1))


def test_the_same_seed_gives_the_same_conversation() -> None:
    async def conversation(loop: SimLoop) -> list[tuple[float, bytes]]:
        cluster = Cluster(loop)
        await cluster.serve()
        reader, writer = await cluster.connect()
        writer.write(bytes(range(256)) * 100)
        writer.write_eof()
        heard = []
        while data := await reader.read(1_000):
            heard.append((loop.time(), data))
        writer.close()
        return heard

    assert run(conversation, seed=5) == run(conversation, seed=5)
    assert run(conversation, seed=5) != run(conversation, seed=6)
