"""Probe: the loopback device with a bare echo server in another process."""

from __future__ import annotations

import asyncio
import time
from random import Random

import uvloop

from bench.child import Server
from bench.line import Line, percentile, require, spread
from bench.scale import Run

_BLOCK_BYTES = 1024 * 1024
_PING = b"p" * 64


def run(run: Run) -> list[Line]:
    rates, latencies_us, medians = [], [], []
    with Server("bench.echo_raw") as server, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        for _ in range(run.scale.round_count):
            rates.append(runner.run(_throughput(server.port, run.scale.round_s / 3)))
            found = runner.run(_round_trips(server.port, run.scale.round_s / 3))
            medians.append(percentile(sorted(found), 0.5))
            latencies_us += found
    latencies_us.sort()
    return [
        Line("probe.loopback.stream", "loopback echo of 1 MB blocks, one way", "MB/s", spread(rates)),
        Line(
            "probe.loopback.round_trip",
            "loopback echo of 64 B, one at a time, median",
            "us",
            spread(medians),
            details={"p99_us": percentile(latencies_us, 0.99)},
        ),
    ]


class _Client(asyncio.Protocol):
    """Sends a block, waits until all of it has come back, and compares."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # it is one, for TCP
        self.transport = transport
        self._sent = b""
        self._back = bytearray()
        self._done: asyncio.Future[None] | None = None

    async def send(self, block: bytes) -> None:
        self._sent = block
        self._back.clear()
        self._done = asyncio.get_running_loop().create_future()
        self.transport.write(block)
        await self._done
        require(self._back == block, "the loopback echo sent other bytes back")

    def data_received(self, data: bytes) -> None:
        self._back += data
        if len(self._back) >= len(self._sent) and self._done is not None:
            self._done.set_result(None)


async def _throughput(port: int, duration_s: float) -> float:
    block = Random(1).randbytes(_BLOCK_BYTES)
    times = await _echo(port, block, duration_s)
    return len(times) * len(block) / sum(times) / 1e6


async def _round_trips(port: int, duration_s: float) -> list[float]:
    return [seconds * 1e6 for seconds in await _echo(port, _PING, duration_s)]


async def _echo(port: int, block: bytes, duration_s: float) -> list[float]:
    _, client = await asyncio.get_running_loop().create_connection(_Client, "127.0.0.1", port)
    times: list[float] = []
    started = now = time.perf_counter()
    while now - started < duration_s:
        before = time.perf_counter()
        await client.send(block)
        now = time.perf_counter()
        times.append(now - before)
    client.transport.close()
    return times
