"""Real nodes on a simulated disk in virtual time: one life after another, each ended as the test says."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from enum import Enum
from random import Random
from typing import Any, TypeVar

from tests.support.logs import copy_of

from goqueue.log.recovery import open_log
from goqueue.model.acks import Acks
from goqueue.model.codes import Code
from goqueue.model.record import NewRecord, Producer, StoredRecord
from goqueue.model.settings import TopicSettings
from goqueue.node.config import LogConfig, NodeConfig
from goqueue.node.folder import partition_folder
from goqueue.node.node import Node
from goqueue.node.producer_state import ProducerState
from goqueue.node.requests import NewMessage, Outcome, ReadQuery
from goqueue.sim.broker import SimClock
from goqueue.sim.disk import SimDisk
from goqueue.sim.latency import Latency
from goqueue.sim.loop import SimLoop, run
from goqueue.sim.process import Process

T = TypeVar("T")

# Latencies without a tail, so that a test can say how long something takes.
BRISK = Latency(usual_s_min=0.0005, usual_s_max=0.001, tail_s_max=0.0, tail_rate=0.0)
SLUGGISH = Latency(usual_s_min=1.0, usual_s_max=1.0, tail_s_max=0.0, tail_rate=0.0)
CONFIG = NodeConfig(default_partition_count=1, log=LogConfig(sync_timeout_ms=10_000))


class End(Enum):
    """How a life ends."""

    STOP = "a clean stop"
    KILL = "kill -9"
    POWER_CUT = "the power fails"


class Died(Exception):
    """The process was dead before its code had ended: `SimDisk.crash_after` struck."""


class World:
    """One disk, and the nodes that live on it one after another."""

    def __init__(self, loop: SimLoop, seed: int, config: NodeConfig) -> None:
        loop.executor_latency = BRISK
        self.loop = loop
        self.config = config
        self.clock = SimClock(loop)
        self.device = SimDisk(Random(seed), not_cached_rate=0.0, stall=loop.stall)
        self.alive: Process | None = None

    async def live(
        self,
        main: Callable[[Node], Awaitable[T]],
        *,
        end: End = End.STOP,
        config: NodeConfig | None = None,
        may_fail: bool = False,
    ) -> T:
        """Start a node, run `main` as part of its process, and end it. Its background tasks must be well at the end."""
        process = self.alive = Process(self.loop, "node", self.device)

        async def life() -> T:
            node = Node(config or self.config, process.disk, self.clock)
            await node.start()
            result = await main(node)
            assert may_fail or not node.failed.is_set()
            if end is End.STOP:
                await node.drain()
                await node.stop()
            return result

        task = process.spawn(life())
        await _ended(task, process)
        try:
            if not process.is_alive:
                raise Died
            return task.result()
        finally:
            await process.crash(power_cut=end is End.POWER_CUT)

    def scanned_bytes(self, topic: str, partition: int = 0) -> int:
        """What the next start would have to scan of a partition."""
        _, mount = copy_of(self.device)
        _, report = open_log(mount, partition_folder(topic, partition), TopicSettings(), ProducerState())
        return report.scanned_bytes

    def seen(self, folder: str, suffix: str) -> list[str]:
        """The files in a folder as the living node sees them."""
        assert self.alive is not None
        return [entry.name for entry in self.alive.disk.list(folder) if entry.name.endswith(suffix)]

    def files(self, folder: str) -> list[str]:
        """The durable files below a folder, by path."""
        return [path for path in self.device.snapshot() if path.startswith(f"{folder}/")]


def simulate(
    main: Callable[[World], Coroutine[Any, Any, T]], *, seed: int = 0, config: NodeConfig = CONFIG
) -> T:
    """Run a scenario to its end in virtual time."""
    return run(lambda loop: main(World(loop, seed, config)), seed=seed)


def in_one_life(life: Callable[[Node], Awaitable[None]]) -> None:
    """A scenario for which one start of a node is enough."""

    async def main(world: World) -> None:
        await world.live(life)

    simulate(main)


async def nothing(node: Node) -> None:
    """A life in which a node only starts."""


async def create(node: Node, topic: str = "orders", partition_count: int = 1, **settings: str) -> None:
    """Settings by their names with underscores."""
    overrides = {name.replace("_", "."): text for name, text in settings.items()}
    await node.topics.create(topic, partition_count=partition_count, overrides=overrides)


def messages(*values: bytes | None, key: bytes | None = None, partition: int | None = 0) -> list[NewMessage]:
    return [NewMessage(NewRecord(key, value), partition) for value in values]


async def publish(
    node: Node,
    *values: bytes | None,
    topic: str = "orders",
    partition: int | None = 0,
    key: bytes | None = None,
    acks: Acks = Acks.ALL,
    producer: Producer | None = None,
) -> list[Outcome]:
    return await node.publisher.publish(
        topic, messages(*values, key=key, partition=partition), acks=acks, producer=producer
    )


def offsets(outcomes: Sequence[Outcome]) -> list[int]:
    """Where everything is; an error if something is not stored."""
    found: list[int] = []
    for outcome in outcomes:
        assert outcome.error is None, outcome.error
        assert outcome.offset is not None
        found.append(outcome.offset)
    return found


def codes(outcomes: Sequence[Outcome]) -> list[Code | None]:
    return [None if outcome.error is None else outcome.error.code for outcome in outcomes]


async def read_all(node: Node, topic: str = "orders", partition: int = 0) -> list[StoredRecord]:
    """Every record from the start of a partition to its high watermark."""
    records: list[StoredRecord] = []
    offset = node.topics.partition(topic, partition).earliest
    while True:
        page = await node.reader.read(topic, partition, ReadQuery(offset=offset, limit=1_000))
        records += page.records
        offset = page.next_offset
        if offset >= page.high_watermark:
            return records


async def read_values(node: Node, topic: str = "orders", partition: int = 0) -> list[bytes | None]:
    return [record.value for record in await read_all(node, topic, partition)]


def counted(node: Node, name: str, **labels: str) -> float:
    """The value of a metric, by its name without the prefix."""
    value = node.metrics.registry.get_sample_value(f"goqueue_{name}", labels)
    return value or 0.0


async def _ended(task: asyncio.Task[Any], process: Process) -> None:  # of any result
    """Until the life's code has ended, or its process has died."""
    died = asyncio.ensure_future(process.died.wait())
    await asyncio.wait([task, died], return_when=asyncio.FIRST_COMPLETED)
    died.cancel()
