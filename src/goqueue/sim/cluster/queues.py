"""Queue groups in a cluster: publishers and members over REST, whichever nodes lead the partitions and coordinate the groups.

Two groups read `tasks`, which has priorities and delays; half of the time another one reads `steps`, which keeps the order of
keys. When all has healed, every record has to be acknowledged or dead in each of its groups.
"""

from __future__ import annotations

import asyncio

from goqueue.model.errors import GoQueueError
from goqueue.node.dead_letters.topics import SUFFIX
from goqueue.sim.cluster.publishers import RestPublisher
from goqueue.sim.cluster.queue_checkers import queue_checkers
from goqueue.sim.cluster.queue_world import QueueWorld, cancelled
from goqueue.sim.cluster.rest_way import RestWay
from goqueue.sim.cluster.world import Topic, World
from goqueue.sim.kafka.history import Part
from goqueue.sim.queue.members import SimMember

TASKS, STEPS = "tasks", "steps"
GROUPS = {"alpha": TASKS, "beta": TASKS, "ordered": STEPS}
RETRIES_MAX = 3
_LOOK_S = 0.5


class Queues:
    def __init__(self, world: World) -> None:
        self._rng = world.child()
        self._world = QueueWorld.of(world, RETRIES_MAX)
        self.topics: dict[str, int] = {}  # they need settings of their own
        self._topics = {TASKS: self._rng.randint(1, 3)}
        if self._rng.random() < 0.5:
            self._topics[STEPS] = 1
        self._groups = {group: topic for group, topic in GROUPS.items() if topic in self._topics}
        self._world.history.groups = {group: (topic,) for group, topic in self._groups.items()}
        self._publishers: list[asyncio.Task[None]] = []
        self._members: list[asyncio.Task[None]] = []
        self.waits_for = ""

    async def start(self) -> None:
        await self._make_topics()
        self._start_clients()

    async def _make_topics(self) -> None:
        size = len(self._world.world.cluster.names)
        for name, count in self._topics.items():
            topic = Topic(count, self._rng.choice((2, 3, 3, size)), self._rng.choice((1, 2, 2)))
            settings = {
                "segment.bytes": str(self._rng.choice((1_024, 4_096, 20_000))),
                "max.retries": str(RETRIES_MAX),
                "retry.backoff.ms": str(self._rng.choice((100, 1_000))),
                "ordering": "key" if name == STEPS else "none",
            }
            await self._world.create(name, topic, settings)

    def _start_clients(self) -> None:
        world = self._world.world
        for topic in self._topics:
            for number in range(self._rng.randint(1, 2)):
                name = f"{topic}-publisher{number}"
                publisher = RestPublisher(self._world, name, topic, is_keyed=topic == STEPS)
                self._publishers.append(world.start(name, publisher.run(self._rng.randint(8, 25))))
        for group, topic in self._groups.items():
            for number in range(self._rng.randint(1, 3)):
                name = f"{group}{number}"
                self._members.append(world.start(name, self._serve(group, topic, name)))

    async def _serve(self, group: str, topic: str, name: str) -> None:
        way = RestWay(self._world, group, topic)
        try:
            await SimMember(self._world, group, name, way).run()
        finally:
            way.close()

    # ---------------------------------------------------------------- the end

    async def finish(self) -> None:
        self.waits_for = "publishers"
        await asyncio.gather(*self._publishers)
        while unfinished := self._unfinished():
            self.waits_for = f"queues: {unfinished[:5]}"
            await asyncio.sleep(_LOOK_S)
        self._world.is_done = True
        self.waits_for = "members"
        await asyncio.gather(*self._members)
        for topic in self._topics:
            self.waits_for = f"reading {topic}"
            while not await self._world.read(topic):  # noqa: ASYNC110 - nobody calls when it can be read
                await asyncio.sleep(_LOOK_S)
        self.waits_for = ""

    async def end(self) -> None:
        await cancelled([*self._publishers, *self._members])

    def check(self) -> None:
        for checker in queue_checkers(STEPS):
            checker.check(self._world.history, self._world.clocks)

    def _unfinished(self) -> list[str]:
        """What is delayed, leased, to be given again or to be moved; empty once every group is at the end."""
        found: list[str] = []
        for topic in self._topics:
            parts = self._world.parts(topic)
            if not parts:
                return [f"nobody knows {topic}"]
            dead_count = 0
            for part in parts:
                wrong, count = self._unfinished_of(part)
                found += wrong
                dead_count += count
            stored_count = self._stored_count(f"{topic}{SUFFIX}")
            if stored_count < dead_count:
                found.append(f"{stored_count} of {dead_count} dead letters of {topic} have arrived")
        return found

    def _unfinished_of(self, part: Part) -> tuple[list[str], int]:
        node = self._world.leader(part)
        if node is None:
            return [f"nobody leads {part}"], 0
        found = [
            f"{one.pending_count} delayed in {part}"
            for one in node.scheduler.stats()
            if (one.topic, one.partition) == part and one.pending_count
        ]
        dead_count = 0
        for group in (group for group, topic in self._groups.items() if topic == part.topic):
            stats = [
                one
                for one in node.queue.stats()  # of all groups: one that it knows nothing of would be an error
                if one.group == group and (one.topic, one.partition) == part
            ]
            if not stats:
                found.append(f"{group} has not come to {part}")
            for one in stats:
                dead_count += one.dead_count
                if one.in_flight_count or one.waiting_count or one.committed_offset < one.end_offset:
                    found.append(str(one))
        return found, dead_count

    def _stored_count(self, topic: str) -> int:
        count = 0
        for part in self._world.parts(topic) or ():
            node = self._world.leader(part)
            try:
                count += 0 if node is None else node.topics.partition(*part).latest
            except GoQueueError:
                pass
        return count
