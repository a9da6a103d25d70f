"""Transactions over several partitions and nodes: producers that commit, abort, die and take over from each other, and a group that
consumes, transforms and produces, each step one transaction."""

from __future__ import annotations

import asyncio
from functools import partial

from goqueue.sim.cluster.stage import Stage
from goqueue.sim.cluster.transaction_checkers import transaction_checkers
from goqueue.sim.cluster.world import World
from goqueue.sim.kafka.client import KafkaClient
from goqueue.sim.kafka.producers import TransactionalProducer
from goqueue.sim.kafka.readers import LiveReader
from goqueue.sim.kafka.workers import Transforming, Worker

INPUT, OUTPUT = "in", "out"
TRANSFORMERS = "transformers"


class Transactions:
    """Input comes by transactions only: what is visible of it is there to stay."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._rng = world.child()
        self.topics = {INPUT: self._rng.randint(1, 3), OUTPUT: 2}
        self._stage = Stage(world, "transactions", self.topics)
        self._producers: list[asyncio.Task[None]] = []
        self._workers: list[asyncio.Task[None]] = []

    @property
    def waits_for(self) -> str:
        return self._stage.waits_for

    async def start(self) -> None:
        await self._stage.learn_topic_ids()
        self._start_producers()
        self._start_workers()
        parts = self._stage.parts(INPUT, OUTPUT)
        for name, is_committed in (("t-committed", True), ("t-all", False)):
            reader = LiveReader(self._stage.world, name, parts, is_committed=is_committed)
            self._stage.start(name, reader.run())

    def _start_producers(self) -> None:
        stage, rng = self._stage, self._rng
        for number in range(rng.randint(1, 2)):
            is_new_style = rng.random() < 0.5
            for rival in range(rng.randint(1, 2)):
                name = f"t{number}{'ab'[rival]}"
                producer = TransactionalProducer(
                    stage.world,
                    name,
                    f"t{number}",
                    stage.parts(INPUT),
                    is_new_style=is_new_style,
                    is_rival=rival > 0,
                )
                run = producer.run(rng.randint(5, 12), per_s=0.6)
                self._producers.append(stage.start(name, run))

    def _start_workers(self) -> None:
        stage, rng = self._stage, self._rng
        stage.watch(TRANSFORMERS, INPUT)
        is_classic = rng.random() < 0.5
        for name in [f"t-w{number}" for number in range(rng.randint(1, 2))]:
            worker = Worker(
                stage.world,
                name,
                TRANSFORMERS,
                partial(stage.new_member, TRANSFORMERS, INPUT, is_classic),
                partial(self._new_work, name, rng.random() < 0.5),
            )
            self._workers.append(stage.start(name, worker.run()))

    def _new_work(self, name: str, is_new_style: bool, client: KafkaClient) -> Transforming:
        return Transforming(
            self._stage.world, name, TRANSFORMERS, self._stage.parts(OUTPUT), is_new_style=is_new_style
        )

    async def finish(self) -> None:
        stage = self._stage
        stage.world.is_calm = True
        stage.waits_for = "transactions until producers are done"
        await asyncio.gather(*self._producers)
        await stage.until_consumed(TRANSFORMERS, INPUT)
        stage.world.is_done = True
        stage.waits_for = "transactions until members have left"
        await asyncio.gather(*self._workers)
        await stage.until_stable()
        await stage.read_everything()

    def check(self) -> None:
        for checker in transaction_checkers(source=INPUT, target=OUTPUT):
            checker.check(self._stage.history)

    async def end(self) -> None:
        await self._stage.end()
        self._stage.tell(self._world.history)
