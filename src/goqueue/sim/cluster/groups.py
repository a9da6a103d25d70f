"""Groups that consume at least once, of both protocols: members come, commit, fall silent and go, whoever coordinates them."""

from __future__ import annotations

import asyncio
from functools import partial

from goqueue.sim.cluster.group_checkers import Ownership, group_checkers
from goqueue.sim.cluster.stage import Stage
from goqueue.sim.cluster.world import World
from goqueue.sim.kafka.client import KafkaClient
from goqueue.sim.kafka.history import NEVER, Part, now_s
from goqueue.sim.kafka.members import SESSION_S
from goqueue.sim.kafka.producers import IdempotentProducer
from goqueue.sim.kafka.workers import Consuming, Worker
from goqueue.sim.kafka.world import World as KafkaWorld

JOBS = "jobs"
_LOOK_COUNT_MAX = 6


class Groups:
    """A group of either protocol, or one of each, on one topic."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._rng = world.child()
        self.topics = {JOBS: self._rng.randint(1, 3)}
        self._stage = Stage(world, "groups", self.topics)
        protocols = self._rng.choice(((True,), (False,), (True, False)))
        self._groups = {"classic" if is_classic else "modern": is_classic for is_classic in protocols}
        self._producers: list[asyncio.Task[None]] = []
        self._workers: list[asyncio.Task[None]] = []
        self._ownership: list[Ownership] = []

    @property
    def waits_for(self) -> str:
        return self._stage.waits_for

    async def start(self) -> None:
        stage, rng = self._stage, self._rng
        await stage.learn_topic_ids()
        for name in [f"g-p{number}" for number in range(rng.randint(1, 2))]:
            producer = IdempotentProducer(stage.world, name, rng.choice(stage.parts(JOBS)))
            self._producers.append(stage.start(name, producer.run(rng.randint(10, 25), per_s=1.0)))
        for group, is_classic in self._groups.items():
            stage.watch(group, JOBS)
            for name in [f"{group}-w{number}" for number in range(rng.choice((1, 2, 2, 3)))]:
                worker = Worker(
                    stage.world,
                    name,
                    group,
                    partial(stage.new_member, group, JOBS, is_classic),
                    partial(_consuming, stage.world, group),
                )
                self._workers.append(stage.start(name, worker.run()))

    async def finish(self) -> None:
        stage = self._stage
        stage.world.is_calm = True
        stage.waits_for = "groups until producers are done"
        await asyncio.gather(*self._producers)
        for group in self._groups:
            await stage.until_consumed(group, JOBS)
        self._ownership = await asyncio.gather(*map(self._look_at_owners, self._groups))
        stage.world.is_done = True
        stage.waits_for = "groups until members have left"
        await asyncio.gather(*self._workers)
        await stage.read_everything()

    async def _look_at_owners(self, group: str) -> Ownership:
        """Until they are the same for longer than a session; who went before everything healed is missed only then."""
        for _ in range(_LOOK_COUNT_MAX):
            before = self._owners(group)
            await asyncio.sleep(1.5 * SESSION_S)
            seen = Ownership(group, before, self._owners(group), now_s())
            if seen.is_settled:
                break
        return seen

    def _owners(self, group: str) -> dict[Part, tuple[str, ...]]:
        """Who believes to have what at this moment."""
        holds = [hold for hold in self._stage.history.holds if hold.group == group and hold.end_s == NEVER]
        return {
            part: tuple(hold.member_id for hold in holds if hold.part == part)
            for part in self._stage.parts(JOBS)
        }

    def check(self) -> None:
        for checker in group_checkers(self._groups, JOBS, self._ownership):
            checker.check(self._stage.history)

    async def end(self) -> None:
        await self._stage.end()
        self._stage.tell(self._world.history)


def _consuming(world: KafkaWorld, group: str, client: KafkaClient) -> Consuming:
    return Consuming(world, client, group)
