"""The Kafka workload: idempotent and transactional producers, groups of both protocols and readers, while the broker is
killed, loses power or meets a failing disk and cables are cut; then it heals, everybody gets through, and the whole
history is checked.

Input goes to `in` by transactions only. A group transforms it to `out` exactly once, each step one transaction. `side`
has plain and transactional records, which another group consumes at least once. `batches` is written by queries, each batch
by many tasks with one verdict. Which protocol a group speaks, how many members it has and which style its transactions
have is up to the seed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from random import Random

from goqueue.sim.broker import HOST
from goqueue.sim.http import NoAnswer
from goqueue.sim.kafka.checkers import KAFKA_CHECKERS
from goqueue.sim.kafka.client import KafkaClient, requests
from goqueue.sim.kafka.group_checkers import group_checkers
from goqueue.sim.kafka.history import KafkaHistory, Part
from goqueue.sim.kafka.joint_checkers import JOINT_CHECKERS
from goqueue.sim.kafka.joint_driver import JointDriver
from goqueue.sim.kafka.members import ClassicMember, ConsumerMember, Member, PlainSharing
from goqueue.sim.kafka.producers import IdempotentProducer, TransactionalProducer
from goqueue.sim.kafka.readers import LiveReader, read_everything
from goqueue.sim.kafka.workers import Consuming, Transforming, Work, Worker, read_offsets
from goqueue.sim.kafka.world import World
from goqueue.sim.lives import Lives
from goqueue.sim.loop import SimLoop, run
from goqueue.sim.outcome import Outcome

INPUT, OUTPUT, SIDE, BATCHES = "in", "out", "side", "batches"
TRANSFORMERS, CONSUMERS = "transformers", "consumers"
_FINISH_TIMEOUT_S = 240.0
_LOOK_S = 0.5
_CHECKS = (
    *KAFKA_CHECKERS,
    *JOINT_CHECKERS,
    *group_checkers(
        transforming_source=INPUT, transforming_target=OUTPUT, consuming=CONSUMERS, consuming_source=SIDE
    ),
)


def run_kafka_seed(seed: int) -> Outcome:
    async def main(loop: SimLoop) -> Outcome:
        return await _Run(loop, seed).run()

    return run(main, seed=seed)


class _Run:
    def __init__(self, loop: SimLoop, seed: int) -> None:
        self._loop = loop
        self._seed = seed
        self._rng = Random(f"kafka-{seed}")
        self._history = KafkaHistory()
        self._world = World(loop, self._history, self._child())
        self._lives = Lives(loop, self._rng, self._history.violate, self._history.note_cut)
        self._client = self._world.client("supervisor")
        self._partition_counts = {
            INPUT: self._rng.randint(1, 3),
            OUTPUT: 2,
            SIDE: self._rng.randint(1, 3),
            BATCHES: 2,
        }

    def _child(self) -> Random:
        return Random(self._rng.getrandbits(64))

    def _parts(self, *topics: str) -> list[Part]:
        return [Part(topic, index) for topic in topics for index in range(self._partition_counts[topic])]

    async def run(self) -> Outcome:
        await self._begin()
        producers = self._start_producers()
        readers, workers = self._start_readers(), self._start_workers()
        cutting = asyncio.create_task(self._cut_cables())
        for _ in range(self._rng.randint(1, 3)):
            if not self._history.violations:
                await self._lives.live()
        cutting.cancel()
        self._loop.network.heal()
        if not self._history.violations:
            await self._heal(producers, workers)
        clients = (*producers, *readers, *workers)
        for task in clients:
            task.cancel()
        await asyncio.gather(*clients, cutting, return_exceptions=True)
        for client in self._world.clients:
            client.close()
        await self._lives.finish()
        history = self._history
        return Outcome(
            self._seed,
            history.violations,
            sum(len(write.values) for write in history.writes),
            sum(len(read.values) for read in history.reads),
            self._lives.names,
            self._loop.time(),
            "kafka",
        )

    # ---------------------------------------------------------------- who takes part

    def _start_producers(self) -> list[asyncio.Task[None]]:
        rng, world = self._rng, self._world
        tasks = [
            world.start(
                name, IdempotentProducer(world, name, rng.choice(self._parts(SIDE))).run(rng.randint(8, 20))
            )
            for name in [f"p{number}" for number in range(rng.randint(1, 2))]
        ]
        for number in range(rng.randint(1, 2)):
            parts = self._parts(INPUT) if number == 0 else self._parts(INPUT, SIDE)
            is_new_style = rng.random() < 0.5
            for rival in range(rng.randint(1, 2)):
                name = f"t{number}{'ab'[rival]}"
                producer = TransactionalProducer(
                    world, name, f"t{number}", parts, is_new_style=is_new_style, is_rival=rival > 0
                )
                tasks.append(world.start(name, producer.run(rng.randint(6, 14))))
        for name in [f"q{number}" for number in range(rng.randint(1, 2))]:
            driver = JointDriver(world, name, self._parts(BATCHES))
            tasks.append(world.start(name, driver.run(rng.randint(6, 12))))
        return tasks

    def _start_readers(self) -> list[asyncio.Task[None]]:
        parts = self._parts(*self._partition_counts)
        return [
            self._world.start(name, LiveReader(self._world, name, parts, is_committed=is_committed).run())
            for name, is_committed in (("r-committed", True), ("r-all", False))
        ]

    def _start_workers(self) -> list[asyncio.Task[None]]:
        rng, world = self._rng, self._world
        tasks = []
        for group, topic in ((TRANSFORMERS, INPUT), (CONSUMERS, SIDE)):
            is_classic = rng.random() < 0.5
            for number in range(rng.choice((1, 2, 2, 3))):
                name = f"{group[0]}w{number}"
                worker = Worker(
                    world,
                    name,
                    group,
                    partial(self._new_member, group, topic, is_classic),
                    partial(self._new_work, group, name, rng.random() < 0.5),
                )
                tasks.append(world.start(name, worker.run()))
        return tasks

    def _new_member(self, group: str, topic: str, is_classic: bool, client: KafkaClient, name: str) -> Member:
        if is_classic:
            sharing = PlainSharing(self._partition_counts[topic])
            return ClassicMember(self._world, client, group, topic, sharing)
        return ConsumerMember(self._world, client, group, topic, name)

    def _new_work(self, group: str, name: str, is_new_style: bool, client: KafkaClient) -> Work:
        if group == TRANSFORMERS:
            return Transforming(self._world, name, group, self._parts(OUTPUT), is_new_style=is_new_style)
        return Consuming(self._world, client, group)

    # ---------------------------------------------------------------- what happens

    async def _begin(self) -> None:
        """The first start and the topics, without faults."""
        await self._lives.begin()
        kinds = requests("create_topics")
        configs = [
            kinds.CreatableTopicConfig(
                name="segment.bytes", value=str(self._rng.choice((1_024, 4_096, 20_000)))
            ),
            kinds.CreatableTopicConfig(name="index.interval.bytes", value="256"),
        ]
        answer = await self._client.call(
            "create_topics",
            7,
            topics=[
                kinds.CreatableTopic(name=name, num_partitions=count, replication_factor=1, configs=configs)
                for name, count in self._partition_counts.items()
            ],
        )
        for topic in answer.topics:
            if topic.error_code:
                raise AssertionError(f"creating {topic.name} failed: {topic.error_message}")
            self._world.topic_ids[topic.name] = topic.topic_id

    async def _cut_cables(self) -> None:
        network = self._loop.network
        while True:
            await asyncio.sleep(self._rng.expovariate(0.5))
            host = self._rng.choice(self._world.hosts)
            if self._rng.random() < 0.5:
                network.reset(host, HOST)
            else:
                network.partition(host, HOST, one_way=self._rng.random() < 0.3)
                await asyncio.sleep(self._rng.uniform(0.2, 5.0))
                network.heal(host, HOST)

    async def _heal(self, producers: list[asyncio.Task[None]], workers: list[asyncio.Task[None]]) -> None:
        """No more faults: everybody gets through, nothing stays open, and the folder is sound after a clean stop."""
        self._world.is_calm = True
        try:
            async with asyncio.timeout(_FINISH_TIMEOUT_S):
                await asyncio.gather(*producers)
                await self._until(self._is_consumed)
                self._world.is_done = True
                await asyncio.gather(*workers)
                await self._until(self._is_settled)
        except TimeoutError:
            self._history.violate(
                f"{_FINISH_TIMEOUT_S:g} s after the last fault: {await self._progress(producers)}"
            )
            return
        await read_everything(self._world, self._parts(*self._partition_counts))
        for checker in _CHECKS:
            checker.check(self._history)
        await self._lives.stop_soundly()

    async def _until(self, is_true: Callable[[], Awaitable[bool]]) -> None:
        while not await is_true():  # noqa: ASYNC110 - only the broker knows, and it does not call
            await asyncio.sleep(_LOOK_S)

    async def _is_settled(self) -> bool:
        """No transaction is open anywhere."""
        try:
            for topic in self._partition_counts:
                if await self._ends(topic) != await self._ends(topic, isolation_level=1):
                    return False
        except NoAnswer:
            return False
        return True

    async def _is_consumed(self) -> bool:
        """Both groups have committed the end of what they read."""
        if not await self._is_settled():
            return False
        try:
            for group, topic in ((TRANSFORMERS, INPUT), (CONSUMERS, SIDE)):
                ends = await self._ends(topic)
                found = await read_offsets(self._world, self._client, group, self._parts(topic))
                if found is None or any(found[part].offset != end for part, end in ends.items() if end):
                    return False
        except NoAnswer:
            return False
        return True

    async def _ends(self, topic: str, *, isolation_level: int = 0) -> dict[Part, int]:
        kinds = requests("list_offsets")
        answer = await self._client.call(
            "list_offsets",
            7,
            replica_id=-1,
            isolation_level=isolation_level,
            topics=[
                kinds.ListOffsetsTopic(
                    name=topic,
                    partitions=[
                        kinds.ListOffsetsPartition(partition_index=part.partition, timestamp=-1)
                        for part in self._parts(topic)
                    ],
                )
            ],
        )
        return {Part(topic, one.partition_index): one.offset for one in answer.topics[0].partitions}

    async def _progress(self, producers: list[asyncio.Task[None]]) -> str:
        facts = [f"{sum(not task.done() for task in producers)} producers wait"]
        for group, topic in ((TRANSFORMERS, INPUT), (CONSUMERS, SIDE)):
            try:
                found = await read_offsets(self._world, self._client, group, self._parts(topic))
                facts.append(f"{group} at {found}, ends {await self._ends(topic)}")
            except NoAnswer as error:
                facts.append(f"{group}: {error}")
        return "; ".join(facts)
