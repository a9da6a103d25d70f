"""Failovers that are kept as transcripts in `tests/golden/cluster`. `python -m tests.support.cluster_scenes` writes them anew;
read the difference before it goes in."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

from tests.support.cluster_transcript import Transcript

from goqueue.log.batch import NO_PRODUCER
from goqueue.model.record import Producer
from goqueue.node.internal_topics import TRANSACTIONS_TOPIC, transaction_partition
from goqueue.sim.cluster.client import RETRIABLE, ClusterClient
from goqueue.sim.cluster.cluster import SimCluster
from goqueue.sim.cluster.history import ClusterHistory
from goqueue.sim.cluster.host import Chance
from goqueue.sim.cluster.readers import fetch
from goqueue.sim.cluster.routing import Kind, RoutedClient
from goqueue.sim.cluster.shards import few_shards
from goqueue.sim.http import NoAnswer
from goqueue.sim.kafka.batches import new_batch
from goqueue.sim.kafka.client import requests
from goqueue.sim.kafka.history import Epoch, Part, now_ms
from goqueue.sim.latency import Latency
from goqueue.sim.loop import SimLoop, run

FOLDER = Path(__file__).parents[1] / "golden" / "cluster"
_EVEN = Latency(0.001, 0.001, 0.001, 0.0)  # every message and every job of the disk takes a millisecond
_FAR = Latency(0.1, 0.1, 0.1, 0.0)
_SHARD_COUNT = 3
_LOOK_S = 0.05
_SCENE_S_MAX = 120.0


def _chance(number: int) -> Chance:
    """The lower its number, the sooner it stands."""
    return lambda count: (number - 1) * count // 6


class Scene:
    """A cluster whose first node is the controller, and one client."""

    def __init__(self, loop: SimLoop, size: int, topics: Sequence[str]) -> None:
        loop.network.latency = loop.executor_latency = _EVEN
        chances = [_chance(number) for number in range(1, size + 1)]
        self.cluster = SimCluster(loop, size, Random(1), ClusterHistory(), chances)
        for host in self.cluster.hosts.values():
            host.disk.not_cached_rate = 0.0
        self.transcript = Transcript(loop, topics)
        self.client = ClusterClient("client", self.cluster.names, Random(1), timeout_s=3.0)
        self.network = loop.network

    def say(self, what: str) -> None:
        self.transcript.note(f"-- {what}")

    async def begin(self, topics: dict[str, list[list[int]]]) -> None:
        """Quietly. The replicas of each partition are given; the first of them leads."""
        self.transcript.is_muted = True
        self.cluster.start()
        await self.until_settled()
        kinds = requests("create_topics")
        for name, replicas in topics.items():
            wanted = kinds.CreatableTopic(
                name=name,
                num_partitions=-1,
                replication_factor=-1,
                assignments=[
                    kinds.CreatableReplicaAssignment(partition_index=index, broker_ids=numbers)
                    for index, numbers in enumerate(replicas)
                ],
                configs=[kinds.CreatableTopicConfig(name="min.insync.replicas", value="2")],
            )
            await self.client.ask("node-1", "create_topics", 7, topics=[wanted], timeout_ms=5_000)
        await asyncio.sleep(1.0)
        await self.until_settled()
        self.transcript.is_muted = False
        self.say(f"{len(self.cluster.names)} nodes; node-1 is the controller, term 1")
        for name, replicas in topics.items():
            for index, numbers in enumerate(replicas):
                names = ", ".join(f"node-{number}" for number in numbers)
                self.say(f"{name}-{index} is led by node-{numbers[0]}, epoch 0; in sync are {names}")

    async def until_settled(self) -> None:
        while self.cluster.unsettled():  # noqa: ASYNC110 - nobody calls when all of it is true
            await asyncio.sleep(_LOOK_S)

    async def until(self, is_true: Callable[[], bool]) -> None:
        while not is_true():  # noqa: ASYNC110 - as above
            await asyncio.sleep(_LOOK_S)

    async def kill(self, name: str) -> None:
        self.say(f"{name} is killed")
        await self.cluster.hosts[name].crash(power_cut=False)

    def start(self, name: str) -> None:
        self.say(f"{name} starts again")
        self.cluster.hosts[name].start()

    def leader_in_sync(self, part: Part) -> tuple[int, int]:
        """As the controller has it: who leads, and how many are in sync."""
        controller = self.cluster.controller()
        if controller is None or controller.node is None:
            return -1, 0
        state = controller.node._metadata.catalog.partitions.get(*part)
        return state.leader, len(state.in_sync)

    async def write(self, part: Part, value: str, *, tries: int = 100) -> None:
        """With acks=all, until it is stored."""
        for _ in range(tries):
            try:
                leader = await self.client.leader_of(part)
                code = await self._produce(leader.host, part, value)
                if code not in RETRIABLE:
                    return
            except NoAnswer:
                self.say(f"the client hears nothing of {value!r}")
            self.client.doubt(part)
            await asyncio.sleep(0.3)

    async def _produce(self, host: str, part: Part, value: str) -> int:
        kinds = requests("produce")
        batch = new_batch([value], Producer(NO_PRODUCER, -1, -1), now_ms(), is_transactional=False)
        answer = await self.client.ask(
            host,
            "produce",
            9,
            acks=-1,
            timeout_ms=2_000,
            topic_data=[
                kinds.TopicProduceData(
                    name=part.topic,
                    partition_data=[kinds.PartitionProduceData(index=part.partition, records=batch)],
                )
            ],
        )
        result = answer.responses[0].partition_responses[0]
        if result.error_code:
            self.say(f"the client is told by {host} that {value!r} is not stored: error {result.error_code}")
        else:
            self.say(f"the client is told by {host} that {value!r} is stored at {result.base_offset}")
        return int(result.error_code)

    async def read(self, part: Part) -> None:
        while True:
            try:
                leader = await self.client.leader_of(part)
                found = await fetch(
                    self.client, leader.host, part, 0, epoch=leader.epoch, wait_ms=0, bytes_max=1_000_000
                )
                if not isinstance(found, int):
                    values = ", ".join(found.values.values())
                    self.say(f"the client reads {part.topic}-{part.partition} from {leader.host}: {values}")
                    return
            except NoAnswer:
                pass
            self.client.doubt(part)
            await asyncio.sleep(0.3)


ORDERS = Part("orders", 0)


async def leader_dies(scene: Scene) -> None:
    """The leader of a partition dies; a replica that is in sync takes over; the dead one comes back and catches up."""
    await scene.begin({"orders": [[2, 3, 1]]})
    await scene.write(ORDERS, "a")
    await scene.kill("node-2")
    await scene.write(ORDERS, "b")
    scene.start("node-2")
    await scene.until(lambda: scene.leader_in_sync(ORDERS) == (2, 3))
    await scene.write(ORDERS, "c")
    await scene.read(ORDERS)


async def controller_dies(scene: Scene) -> None:
    """The controller dies; partitions go on without one; another is elected and only then is the dead one fenced."""
    await scene.begin({"orders": [[2, 3, 1]]})
    await scene.kill("node-1")
    await scene.write(ORDERS, "a")
    await scene.until(lambda: scene.leader_in_sync(ORDERS) == (2, 2))
    await scene.write(ORDERS, "b")
    scene.start("node-1")
    await scene.until_settled()
    await scene.read(ORDERS)


async def leading_controller_dies(scene: Scene) -> None:
    """The controller dies and with it the leader of two partitions. Nobody leads them before there is another controller; it gives each to
    a replica in sync, and what was acknowledged is read from there."""
    parts = (ORDERS, Part("orders", 1))
    await scene.begin({"orders": [[1, 2, 3], [1, 3, 2]]})
    for part in parts:
        await scene.write(part, "a")
    await scene.kill("node-1")
    for part in parts:
        await scene.write(part, "b")
    for part in parts:
        await scene.read(part)
    scene.start("node-1")
    await scene.until_settled()
    for part in parts:
        await scene.write(part, "c")
        await scene.read(part)


async def leader_isolated(scene: Scene) -> None:
    """A leader is cut off from the others and not from the client. What it takes it cannot commit; another leads; when the cable
    is back it cuts off what it has and nobody else, and the client has been told nothing that is not so."""
    await scene.begin({"orders": [[2, 3, 1]]})
    await scene.write(ORDERS, "a")
    scene.say("node-2 reaches no other node any more")
    for other in ("node-1", "node-3"):
        scene.network.partition("node-2", other)
    await scene.write(ORDERS, "lost", tries=1)
    await scene.until(lambda: scene.leader_in_sync(ORDERS)[0] == 3)
    scene.client.leaders.clear()
    scene.client._hosts = ["node-1", "node-3"]
    await scene.write(ORDERS, "b")
    scene.say("the cable of node-2 is back")
    scene.network.heal()
    await scene.until_settled()
    await scene.read(ORDERS)


async def coordinator_dies(scene: Scene) -> None:
    """The coordinator of a transaction dies after the first marker of its commit. Whoever leads the coordinator's log then finds
    there that it will be committed, and writes what is missing."""
    await scene.begin({"out": [[2, 3, 1], [3, 2, 1]]})
    client = RoutedClient("client", scene.cluster.names, Random(1))
    while True:
        try:
            answer = await client.call(
                "init_producer_id", 4, transactional_id="t1", transaction_timeout_ms=60_000
            )
            break
        except NoAnswer:
            await asyncio.sleep(0.3)
    producer = Epoch(answer.producer_id, answer.producer_epoch)
    scene.say("the client is producer of 't1' and writes to out-0 and out-1")
    for index in (0, 1):
        await _send_in_transaction(client, producer, Part("out", index), f"x{index}")
    host = client._coordinators[Kind.TRANSACTION, "t1"]
    scene.say("node-1 and node-3 are slow to hear of each other")
    scene.network.slow("node-1", "node-3", _FAR)
    dying = _kill_when(scene, host, "writes the commit marker")
    claim = {"transactional_id": "t1", "producer_id": producer.producer_id, "producer_epoch": producer.epoch}
    scene.say(f"the client asks {host} to commit")
    while True:
        try:
            code = (await client.call("end_txn", 4, **claim, committed=True)).error_code
            scene.say(f"the client is told: {'committed' if not code else f'error {code}'}")
            break
        except NoAnswer:
            scene.say("the client hears nothing of its commit and asks again")
            await asyncio.sleep(0.5)
    await dying
    scene.network.heal()
    for index in (0, 1):
        await scene.read(Part("out", index))
    client.close()


def _kill_when(scene: Scene, host: str, what: str) -> asyncio.Task[None]:
    heard = asyncio.Event()
    scene.transcript.heard.append(lambda line: heard.set() if what in line else None)

    async def wait() -> None:
        await heard.wait()
        await scene.kill(host)

    return asyncio.get_running_loop().create_task(wait())


async def _send_in_transaction(client: RoutedClient, producer: Epoch, part: Part, value: str) -> None:
    kinds = requests("produce")
    batch = new_batch([value], Producer(*producer, 0), now_ms(), is_transactional=True)
    data: Any = kinds.TopicProduceData(
        name=part.topic,
        partition_data=[kinds.PartitionProduceData(index=part.partition, records=batch)],
    )
    answer = await client.call(
        "produce", 12, transactional_id="t1", acks=-1, timeout_ms=2_000, topic_data=[data]
    )
    code = answer.responses[0].partition_responses[0].error_code
    assert code == 0, f"writing to {part} gave {code}"


async def eligible_leader(scene: Scene) -> None:
    """Both replicas of a partition are gone, one after the other. The last one that was in sync stays away for long; the other one
    stopped in good order and may lead, because the leader could not commit anything without it."""
    await scene.begin({"orders": [[2, 3]]})
    await scene.write(ORDERS, "a")
    scene.say("node-3 is stopped")
    await scene.cluster.hosts["node-3"].stop()
    await scene.write(ORDERS, "nobody", tries=2)
    await scene.kill("node-2")
    await scene.until(lambda: scene.leader_in_sync(ORDERS)[0] == -1)
    scene.start("node-3")
    await scene.until(lambda: scene.leader_in_sync(ORDERS)[0] == 3)
    scene.start("node-2")
    await scene.write(ORDERS, "b")
    await scene.until_settled()
    await scene.read(ORDERS)


_SCENES: tuple[tuple[Callable[[Scene], Awaitable[None]], int, tuple[str, ...]], ...] = (
    (leader_dies, 3, ("orders",)),
    (controller_dies, 3, ("orders",)),
    (leading_controller_dies, 3, ("orders",)),
    (leader_isolated, 3, ("orders",)),
    (coordinator_dies, 3, ("out", f"{TRANSACTIONS_TOPIC}-{transaction_partition('t1', _SHARD_COUNT)}")),
    (eligible_leader, 5, ("orders",)),
)
NAMES = tuple(play.__name__ for play, _, _ in _SCENES)


def transcript_of(name: str) -> str:
    play, size, topics = next(one for one in _SCENES if one[0].__name__ == name)

    async def main(loop: SimLoop) -> str:
        scene = Scene(loop, size, topics)
        with few_shards(_SHARD_COUNT), scene.transcript.listening(scene.cluster):
            try:
                async with asyncio.timeout(_SCENE_S_MAX):
                    await play(scene)
            except TimeoutError:
                scene.say(f"this has not come to its end: {scene.cluster.unsettled()}")
            finally:
                scene.client.close()
                await scene.cluster.end()
        title = " ".join((play.__doc__ or "").split())
        return "\n".join((f"# {title}", *scene.transcript.lines, ""))

    return run(main, seed=1)


def main() -> None:
    logging.disable(logging.CRITICAL)
    FOLDER.mkdir(exist_ok=True)
    for name in NAMES:
        (FOLDER / f"{name}.txt").write_text(transcript_of(name))


if __name__ == "__main__":
    main()
