"""A whole broker as a simulated process: node, HTTP and Kafka listeners over the simulated disk and network."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, TypeVar

from goqueue.api.http.app import RestApi
from goqueue.api.http.server import HttpServer
from goqueue.api.kafka.app import KafkaListener
from goqueue.core.group.config import GroupConfig
from goqueue.model.errors import GoQueueError
from goqueue.model.limits import Limits
from goqueue.node.clock import Clock
from goqueue.node.config import DiskConfig, LogConfig, NodeConfig, QueueConfig
from goqueue.node.node import Node
from goqueue.sim.disk import SimDisk
from goqueue.sim.http import NoAnswer
from goqueue.sim.ids import SimIds
from goqueue.sim.loop import SimLoop
from goqueue.sim.process import Process

T = TypeVar("T")
HOST = "broker"
PORT = 8080
KAFKA_PORT = 9092
EPOCH_MS = 1_700_000_000_000
IN_FLIGHT_COUNT_MAX = 12  # few enough to be reached
_START_TIMEOUT_S = 120.0
_STOP_GRACE_S = 5.0

CONFIG = NodeConfig(
    node_id=HOST,
    limits=Limits(),
    disk=DiskConfig(),
    log=LogConfig(checkpoint_interval_ms=3_000, cleanup_interval_ms=2_000, sync_timeout_ms=10_000),
    queue=QueueConfig(in_flight_count_max=IN_FLIGHT_COUNT_MAX),
    groups=GroupConfig(consumer_session_ms=3_000, consumer_heartbeat_ms=700, consumer_rebalance_ms_max=4_000),
)


class SimClock:
    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop

    def now_ms(self) -> int:
        return EPOCH_MS + int(self._loop.time() * 1_000)


class SimBroker:
    """Lives of one broker, one after another, on one disk. `problems` says which of them ended as none should."""

    def __init__(
        self, loop: SimLoop, disk: SimDisk, ids: SimIds | None = None, clock: Clock | None = None
    ) -> None:
        self.problems: list[str] = []
        self.node: Node | None = None  # of the life that is ready
        self._clock = clock or SimClock(loop)
        self._loop = loop
        self._disk = disk
        self._ids = ids or SimIds(Random(0))
        self._process: Process | None = None
        self._stop_asked = asyncio.Event()
        self._running: asyncio.Task[None] | None = None

    async def start(self) -> bool:
        """Begin a life; False if it died before it was ready."""
        process = self._process = Process(self._loop, HOST, self._disk)
        ready = asyncio.Event()
        self._stop_asked = asyncio.Event()
        self._running = process.spawn(self._serve(process, ready, self._stop_asked))
        waits = [
            asyncio.ensure_future(ready.wait()),
            asyncio.ensure_future(process.died.wait()),
            self._running,
        ]
        try:
            async with asyncio.timeout(_START_TIMEOUT_S):
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits[:2]:
                wait.cancel()
        if ready.is_set() and process.is_alive:
            return True
        await self.crash(power_cut=False)
        return False

    async def _serve(self, process: Process, ready: asyncio.Event, stop_asked: asyncio.Event) -> None:
        clock = self._clock
        node = Node(CONFIG, process.disk, clock, self._ids)
        watching = asyncio.create_task(self._watch(process, node))
        try:
            await node.start()
            server = HttpServer(RestApi(node, clock), host=HOST, port=PORT, connection_count_max=100)
            await server.start()
            kafka = KafkaListener(node, host=HOST, port=KAFKA_PORT)
            await kafka.start()
            self.node = node
            ready.set()
            await stop_asked.wait()
            await node.drain()
            await kafka.stop(_STOP_GRACE_S)
            await server.stop(_STOP_GRACE_S)
            await node.stop()
        except OSError:
            return  # the disk failed, or the power: this life is over
        except GoQueueError as error:
            self.problems.append(f"the broker does not start: {error.code}: {error.sentence}")
        finally:
            watching.cancel()

    async def _watch(self, process: Process, node: Node) -> None:
        await node.failed.wait()
        if process.is_alive:
            self.problems.append("the node met what cannot happen; replay the seed for its log")

    async def call(self, use: Callable[[Node], Coroutine[Any, Any, T]], timeout_s: float) -> T:
        """Use the node as code of its process does; `NoAnswer` if that dies or takes too long."""
        process, node = self._process, self.node
        if process is None or node is None or not process.is_alive:
            raise NoAnswer("there is no broker")
        task = process.spawn(use(node))
        died = asyncio.ensure_future(process.died.wait())
        try:
            await asyncio.wait([task, died], timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            if not process.is_alive or not task.done() or task.cancelled():
                raise NoAnswer("the broker is gone, or slow")
            return task.result()
        finally:
            died.cancel()
            task.cancel()

    async def survives(self, seconds: float) -> bool:
        """Let it run for a while; False if its power was cut in between."""
        if self._process is None:
            return False
        try:
            async with asyncio.timeout(seconds):
                await self._process.died.wait()
        except TimeoutError:
            return True
        return False

    async def stop(self) -> bool:
        """A clean stop, as SIGTERM asks for; False if the power was cut before it was done."""
        self._stop_asked.set()
        if self._running is not None:
            await asyncio.wait([self._running])
        is_clean = self._process is not None and self._process.is_alive
        await self.crash(power_cut=False)
        return is_clean

    async def crash(self, *, power_cut: bool) -> None:
        self.node = None
        if self._process is not None:
            await self._process.crash(power_cut=power_cut)
            self._process = None
