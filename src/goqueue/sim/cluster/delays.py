"""Delayed messages in a cluster: published over REST through any node, some of them cancelled, and looked for at the leaders.

Whoever leads the partition when they are due fires them, by its own clock; those of hosts differ, and jump.
"""

from __future__ import annotations

import asyncio

from goqueue.model.errors import GoQueueError
from goqueue.sim.cluster.delay_checkers import DELAY_CHECKERS, Seen, Sightings
from goqueue.sim.cluster.publishers import RestPublisher
from goqueue.sim.cluster.queue_world import QueueWorld, cancelled
from goqueue.sim.cluster.world import Topic, World
from goqueue.sim.http import NoAnswer
from goqueue.sim.kafka.history import Part, now_s

LATER = "later"
_LOOK_S = 0.5


class Delays:
    def __init__(self, world: World) -> None:
        self._rng = world.child()
        self._world = QueueWorld.of(world)
        self._sightings = Sightings(self._world.history, self._world.clocks)
        self._partition_count = self._rng.randint(1, 2)
        self.topics: dict[str, int] = {}  # it needs settings of its own
        self._publishers: list[asyncio.Task[None]] = []
        self._watching: list[asyncio.Task[None]] = []
        self.waits_for = ""

    async def start(self) -> None:
        size = len(self._world.world.cluster.names)
        topic = Topic(self._partition_count, self._rng.choice((2, 3, 3, size)), self._rng.choice((1, 2, 2)))
        settings = {"segment.bytes": str(self._rng.choice((1_024, 4_096, 20_000)))}
        await self._world.create(LATER, topic, settings)
        world = self._world.world
        for number in range(self._rng.randint(1, 2)):
            name = f"{LATER}-publisher{number}"
            publisher = RestPublisher(self._world, name, LATER, delay_rate=0.8)
            self._publishers.append(world.start(name, publisher.run(self._rng.randint(8, 25))))
        self._watching.append(world.start("watcher", self._watch()))

    async def _watch(self) -> None:
        """Everything from where it was on, and sometimes from the start: what fires twice may be anywhere."""
        positions: dict[int, int] = {}
        client = self._world.client()
        try:
            while True:
                await asyncio.sleep(self._rng.uniform(0.05, 0.4))
                index = self._rng.randrange(self._partition_count)
                start = 0 if self._rng.random() < 0.1 else positions.get(index, 0)
                path = f"/topics/{LATER}/partitions/{index}/messages?offset={start}&limit=1000"
                try:
                    found = await client.order("GET", path)
                except (NoAnswer, GoQueueError):
                    await client.pause()
                    continue
                self._sightings.seen += [
                    Seen(Part(LATER, index), one["offset"], one["value"], now_s())
                    for one in found["messages"]
                ]
                positions[index] = max((one["offset"] + 1 for one in found["messages"]), default=start)
        finally:
            client.close()

    async def finish(self) -> None:
        self.waits_for = "publishers of delayed messages"
        await asyncio.gather(*self._publishers)
        while unfinished := self._unfinished():
            self.waits_for = f"delays: {unfinished}"
            await asyncio.sleep(_LOOK_S)
        self.waits_for = f"reading {LATER}"
        while not await self._world.read(LATER):  # noqa: ASYNC110 - nobody calls when it can be read
            await asyncio.sleep(_LOOK_S)
        self.waits_for = ""

    async def end(self) -> None:
        await cancelled([*self._publishers, *self._watching])

    def check(self) -> None:
        for checker in DELAY_CHECKERS:
            checker.check(self._sightings)

    def _unfinished(self) -> list[str]:
        parts = self._world.parts(LATER)
        if not parts:
            return [f"nobody knows {LATER}"]
        found: list[str] = []
        for part in parts:
            node = self._world.leader(part)
            if node is None:
                found.append(f"nobody leads {part}")
            elif any(
                one.pending_count for one in node.scheduler.stats() if (one.topic, one.partition) == part
            ):
                found.append(f"some wait in {part}")
        return found
