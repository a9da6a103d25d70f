"""One host of a simulated cluster: a disk, a clock, and the lives of a whole node on it, one after another."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, Final

from goqueue.api.cluster.assembly import cluster_listener
from goqueue.api.http.app import RestApi
from goqueue.api.http.server import HttpServer
from goqueue.api.kafka.app import KafkaListener
from goqueue.core.cluster.nodes import Endpoints
from goqueue.core.group.config import GroupConfig
from goqueue.model.errors import GoQueueError
from goqueue.node.cluster.secret import Secret
from goqueue.node.config import ClusterConfig, LogConfig, NodeConfig, Peer
from goqueue.node.node import Node
from goqueue.peer.dialling import Credentials
from goqueue.peer.links import PeerLinks
from goqueue.sim.disk import SimDisk
from goqueue.sim.ids import SimIds
from goqueue.sim.loop import SimLoop
from goqueue.sim.process import Process
from goqueue.sim.queue.clock import JumpingClock

HTTP_PORT: Final = 8080
KAFKA_PORT: Final = 9092
CLUSTER_PORT: Final = 7000
SECRET: Final = b"every node of a simulated cluster knows this"
_STOP_GRACE_S: Final = 2.0
_STOP_S_MAX: Final = 60.0
logger = logging.getLogger(__name__)

Watch = Callable[["SimHost", Node], None]
Chance = Callable[[int], int]


def node_config(name: str, names: list[str], *, has_racks: bool = False) -> NodeConfig:
    """Impatient nodes: a run has many elections in few virtual seconds. `has_racks`: each stands in one of its own, of its
    name, and clients read where they are."""
    return NodeConfig(
        node_id=name,
        log=LogConfig(checkpoint_interval_ms=3_000, cleanup_interval_ms=5_000, sync_timeout_ms=10_000),
        groups=GroupConfig(consumer_session_ms=3_000, consumer_heartbeat_ms=700, gate_wait_ms=600_000),
        cluster=ClusterConfig(
            peers=tuple(Peer(each, each, CLUSTER_PORT) for each in names),
            rack=name if has_racks else "",
            follower_reads=has_racks,
            heartbeat_ms=400,
            suspect_ms=800,
            dead_ms=1_200,
            lease_ms=2_000,
            lease_renew_ms=400,
            quorum_wait_ms=5_000,
            leave_ms=5_000,
            command_timeout_ms=8_000,
            replica_lag_ms_max=2_000,
            balance_ms=6_000,
        ),
    )


class SimHost:
    """`node` is that of the life that runs, from its first moment; `problems` says which lives ended as none should."""

    def __init__(
        self, loop: SimLoop, config: NodeConfig, rng: Random, watch: Watch, chance: Chance | None = None
    ) -> None:
        """`chance` draws a number below another, from `rng` unless it is given."""
        self.name = config.node_id
        self.clock = JumpingClock(loop)
        self.disk = SimDisk(Random(rng.getrandbits(64)), stall=loop.stall)
        self.node: Node | None = None
        self.is_ready = False
        self.is_paused = False
        self.spoiled_s: float | None = None  # when its disk last lost what was on it
        self.life_count = 0
        self.problems: list[str] = []
        self._loop = loop
        self._config = config
        self._rng = rng
        self._ids = SimIds(Random(rng.getrandbits(64)))
        self._watch = watch
        self._chance = chance
        self._process: Process | None = None
        self._stop_asked = asyncio.Event()
        self._running: asyncio.Task[None] | None = None

    @property
    def is_up(self) -> bool:
        return self._process is not None and self._process.is_alive

    @property
    def is_well(self) -> bool:
        """Ready, and no partition has stopped because of its disk."""
        return (
            self.is_up
            and self.is_ready
            and self.node is not None
            and self.node.health().checks["partitions"] == "ok"
        )

    def start(self) -> None:
        """Begin a life. When it is ready depends on the others."""
        self.life_count += 1
        process = self._process = Process(self._loop, self.name, self.disk)
        self._stop_asked = asyncio.Event()
        self._running = process.spawn(self._serve(process, self._stop_asked))

    async def stop(self) -> bool:
        """As SIGTERM asks for: leaves, drains, and ends; False if it did not come to a clean end."""
        process = self._process
        if process is None or self._running is None or not process.is_alive:
            return False
        self._stop_asked.set()
        self.resume()
        died = asyncio.ensure_future(process.died.wait())
        await asyncio.wait([self._running, died], timeout=_STOP_S_MAX, return_when=asyncio.FIRST_COMPLETED)
        died.cancel()
        is_clean = process.is_alive and self._running.done()
        if process.is_alive and not self._running.done():
            self.problems.append(f"{self.name} did not stop within {_STOP_S_MAX:g} s")
        if self._process is process:
            await self.crash(power_cut=False)
        return is_clean

    async def crash(self, *, power_cut: bool) -> None:
        self.node, self.is_ready, self.is_paused = None, False, False
        process, self._process = self._process, None
        if process is not None:
            await process.crash(power_cut=power_cut)

    def pause(self) -> None:
        if self.is_up and self._process is not None:
            self.is_paused = True
            self._process.pause()

    def resume(self) -> None:
        if self._process is not None:
            self._process.resume()
        self.is_paused = False

    # ---------------------------------------------------------------- a life

    async def _serve(self, process: Process, stop_asked: asyncio.Event) -> None:
        """As `goqueue.cli.serve` does it."""
        node, links = self._put_together(process)
        self.node = node
        self._watch(self, node)
        watching = asyncio.create_task(self._until_failed(process, node))
        try:
            await self._run(node, stop_asked)
            await links.close()
        except OSError:
            return  # the disk failed, or the power: this life is over
        except GoQueueError as error:
            if process.is_alive and not _is_of_the_disk(error):
                self.problems.append(f"{self.name} does not start: {error.code}: {error.sentence}")
        finally:
            watching.cancel()

    def _put_together(self, process: Process) -> tuple[Node, PeerLinks]:
        def cluster_id() -> str | None:
            return None if node.cluster is None else node.cluster.cluster_id

        def incarnation() -> str | None:
            return None if node.cluster is None else node.cluster.connects_as

        secret = Secret(SECRET)
        rng = Random(self._rng.getrandbits(64))
        links = PeerLinks(
            Credentials(self.name, cluster_id, incarnation, secret, self.clock, self._ids),
            number=lambda: node.directory.number,
            address_of=lambda target: (target, CLUSTER_PORT),
            chance=rng.random,
        )
        chance = self._chance or rng.randrange
        node = Node(self._config, process.disk, self.clock, self._ids, links, chance)
        return node, links

    async def _run(self, node: Node, stop_asked: asyncio.Event) -> None:
        await node.begin()
        clock, ids = self.clock, self._ids
        secret = Secret(SECRET)
        http = HttpServer(RestApi(node, clock), host=self.name, port=HTTP_PORT, connection_count_max=100)
        kafka = KafkaListener(node, host=self.name, port=KAFKA_PORT)
        listener = cluster_listener(
            node, secret=secret, clock=clock, ids=ids, host=self.name, port=CLUSTER_PORT
        )
        servers = (http, kafka, listener)
        for server in servers:
            await server.start()
        endpoints = Endpoints(
            http=f"{self.name}:{HTTP_PORT}",
            kafka=f"{self.name}:{KAFKA_PORT}",
            cluster=f"{self.name}:{CLUSTER_PORT}",
        )
        await _unless(stop_asked, node.start(endpoints))
        self.is_ready = not stop_asked.is_set()
        await stop_asked.wait()
        await node.leave()
        await node.drain()
        for server in servers:
            await server.stop(_STOP_GRACE_S)
        await node.stop()

    async def _until_failed(self, process: Process, node: Node) -> None:
        await node.failed.wait()
        if process.is_alive:
            self.problems.append(f"{self.name} met what cannot happen; replay the seed for its log")


async def _unless(asked: asyncio.Event, work: Coroutine[Any, Any, None]) -> None:
    """Do the work, but no longer than until the event."""
    working, asking = asyncio.ensure_future(work), asyncio.ensure_future(asked.wait())
    try:
        await asyncio.wait([working, asking], return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
    finally:
        working.cancel()
        asking.cancel()


def _is_of_the_disk(error: GoQueueError) -> bool:
    return error.code.value in ("storage_error", "disk_full", "partition_offline")
