"""The cluster workload: idempotent producers, readers and administrators while nodes are killed, lose power, stand still, are cut
off from each other and meet failing disks and clocks; then it heals, everybody gets through, and all is checked.

Safety comes first: while things fail nothing may be wrong, but anything may take as long as it likes. Then liveness: within a
bounded time there is one controller, every partition is led and all its replicas are in sync, and every producer is done.
"""

from __future__ import annotations

import asyncio
from random import Random

from goqueue.sim.cluster.admins import ClusterAdmin
from goqueue.sim.cluster.checkers import CLUSTER_CHECKERS
from goqueue.sim.cluster.cluster import SimCluster
from goqueue.sim.cluster.cuts import Cuts
from goqueue.sim.cluster.delays import Delays
from goqueue.sim.cluster.disks import durable_batches
from goqueue.sim.cluster.groups import Groups
from goqueue.sim.cluster.history import ClusterHistory, FinalLog
from goqueue.sim.cluster.keyed import Keyed
from goqueue.sim.cluster.logs import stamped
from goqueue.sim.cluster.loud import loud
from goqueue.sim.cluster.operators import Operators
from goqueue.sim.cluster.party import NewParty, Party
from goqueue.sim.cluster.producers import ClusterProducer
from goqueue.sim.cluster.queue_world import often_saved
from goqueue.sim.cluster.queues import Queues
from goqueue.sim.cluster.readers import ClusterReader, end_of, fetch
from goqueue.sim.cluster.shards import few_shards
from goqueue.sim.cluster.transactions import Transactions
from goqueue.sim.cluster.weather import Weather
from goqueue.sim.cluster.world import Topic, World
from goqueue.sim.http import NoAnswer
from goqueue.sim.kafka.history import Part
from goqueue.sim.loop import SimLoop, run
from goqueue.sim.outcome import Outcome

_BEGIN_S_MAX = 60.0
_FINISH_S_MAX = 180.0
_LOOK_S = 0.25
_ELECTIONS = ("slow-election", "leaders")
_BYTES_MAX = 10_000_000
_SHARD_COUNT = 3

# Clients beside the plain producers and readers of every run; the seed says which of them take part.
PARTIES: tuple[NewParty, ...] = (Groups, Transactions, Queues, Delays, Operators)
_PARTY_RATE = 0.4
_SPOILED_DISK_RATE = 0.15
_OF_QUEUES: tuple[NewParty, ...] = (Queues, Delays, Operators)  # all of them in every run of that workload


def run_cluster_seed(seed: int) -> Outcome:
    return _run(seed, "cluster")


def run_queues_seed(seed: int) -> Outcome:
    """Queues, delayed messages and operators, all in one run."""
    return _run(seed, "queues")


def run_keyed_seed(seed: int) -> Outcome:
    """A topic whose partitions come and go while every key keeps its order."""
    return _run(seed, "keyed")


def run_racks_seed(seed: int) -> Outcome:
    """Clients read from the replicas that are closest to them."""
    return _run(seed, "racks")


def run_election_seed(seed: int) -> Outcome:
    """Many elections and little else: what goes wrong there is rare."""
    return _run(seed, "elections")


def run_cuts_seed(seed: int) -> Outcome:
    """A network that is cut in every shape, and nodes that fall and are elected while it is."""
    return _run(seed, "cuts")


def _run(seed: int, workload: str) -> Outcome:
    async def main(loop: SimLoop) -> Outcome:
        with stamped(loop), loud(), few_shards(_SHARD_COUNT), often_saved(seed):
            return await _Run(loop, seed, workload).run()

    return run(main, seed=seed)


class _Run:
    def __init__(self, loop: SimLoop, seed: int, workload: str) -> None:
        self._loop = loop
        self._seed = seed
        self._workload = workload
        self._is_quiet = workload == "elections"
        self._rng = rng = Random(f"{workload}-{seed}")
        self._history = ClusterHistory()
        self._size = rng.choice((3, 5, 5) if workload == "cuts" else (3, 3, 3, 5))
        self._cluster = SimCluster(
            loop, self._size, Random(rng.getrandbits(64)), self._history, has_racks=workload == "racks"
        )
        self._world = World(
            loop, self._history, self._cluster, Random(rng.getrandbits(64)), has_doubts=workload == "cuts"
        )
        self._weather = self._new_weather(Random(rng.getrandbits(64)))
        self._admin = ClusterAdmin(self._world, "admin")
        self._producers: list[ClusterProducer] = []
        self._parties: list[Party] = [new_party(self._world) for new_party in self._taking_part()]

    def _new_weather(self, rng: Random) -> Weather:
        cluster, network, clients = self._cluster, self._loop.network, self._world.hosts
        if self._workload == "cuts":
            cuts = Cuts(cluster, network, clients, Random(rng.getrandbits(64)))
            return Weather(cluster, network, clients, rng, kinds=(), more=cuts.episodes())
        return Weather(cluster, network, clients, rng, _ELECTIONS if self._is_quiet else None)

    def _taking_part(self) -> list[NewParty]:
        choice = Random(f"{self._workload}-{self._seed}-parties")
        drawn = [new_party for new_party in PARTIES if choice.random() < _PARTY_RATE]
        rosters: dict[str, list[NewParty]] = {
            "queues": list(_OF_QUEUES),
            "elections": [],
            "keyed": [Keyed],
            "racks": [Groups, Transactions],
        }
        return rosters.get(self._workload, drawn)

    async def run(self) -> Outcome:
        tasks: list[asyncio.Task[None]] = []
        try:
            if await self._begin():
                for party in self._parties:
                    await party.start()
                readers = self._start_readers()
                producers = self._start_producers()
                tasks = [*readers, *producers, self._world.start("admin", self._administrate())]
                await self._storm()
                await self._finish(tasks[len(readers) :])
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for party in self._parties:
                await party.end()
            for client in self._world.clients:
                client.close()
            await self._cluster.end()
        for host in self._cluster.hosts.values():
            for problem in host.problems:
                self._history.violate(problem)
        for checker in CLUSTER_CHECKERS:
            checker.check(self._history)
        return self._outcome()

    def _outcome(self) -> Outcome:
        history = self._history
        return Outcome(
            self._seed,
            history.violations,
            sum(len(acked.values) for acked in history.acked),
            sum(len(read.values) for read in history.reads),
            [
                f"{self._size} nodes",
                *(type(party).__name__.lower() for party in self._parties),
                *self._weather.names,
            ],
            self._loop.time(),
            self._workload,
        )

    # ---------------------------------------------------------------- who takes part

    async def _begin(self) -> bool:
        """A cluster and its first topics, without faults."""
        self._cluster.start()
        try:
            async with asyncio.timeout(_BEGIN_S_MAX):
                await self._until_settled()
                await self._admin.create("orders", self._new_topic(self._rng.randint(1, 3)))
                await self._admin.create("events", self._new_topic(1))
                for party in self._parties:
                    for name, partition_count in party.topics.items():
                        await self._admin.create(name, self._new_topic(partition_count))
        except TimeoutError:
            self._history.violate(f"there is no cluster: {self._cluster.unsettled()}")
            return False
        return True

    def _new_topic(self, partition_count: int) -> Topic:
        replica_count = self._rng.choice((2, 3, 3, self._size))
        return Topic(partition_count, replica_count, self._rng.choice((1, 2, 2)))

    def _start_producers(self) -> list[asyncio.Task[None]]:
        taken = {topic for party in self._parties for topic in party.topics}
        parts = [part for part in self._world.parts() if part.topic not in taken]
        return [
            self._start_producer(self._rng.choice(parts))
            for _ in range(self._rng.randint(1, max(1, 4 - len(self._parties))))
        ]

    def _start_producer(self, part: Part) -> asyncio.Task[None]:
        name = f"p{len(self._producers)}"
        producer = ClusterProducer(self._world, name, part)
        self._producers.append(producer)
        count = 5 if self._is_quiet else self._rng.randint(20, 60) // (1 + len(self._parties))
        return self._world.start(name, producer.run(count))

    def _start_readers(self) -> list[asyncio.Task[None]]:
        return [
            self._world.start(name, ClusterReader(self._world, name, is_roaming=is_roaming).run())
            for name, is_roaming in (("r0", False), ("r1", False), ("roamer", True))
        ]

    async def _administrate(self) -> None:
        """Something new while things fail, and somebody who uses it."""
        await asyncio.sleep(self._rng.uniform(0.0, 8.0))
        if self._rng.random() < 0.5:
            await self._admin.create("late", self._new_topic(1))
            part = Part("late", 0)
        else:
            count = self._world.topics["orders"].partition_count
            await self._admin.grow("orders", count + 1)
            part = Part("orders", count)
        await self._start_producer(part)

    async def _storm(self) -> None:
        """One thing after another, and often two at a time."""
        counts = [self._rng.randint(2, 8) for _ in range(1 if self._is_quiet else self._rng.choice((1, 2)))]
        async with asyncio.TaskGroup() as group:
            for count in counts:
                group.create_task(self._weather.rage(count))
        if Random(f"{self._workload}-{self._seed}-disks").random() < _SPOILED_DISK_RATE:
            await self._weather.spoil_disk()
        await self._weather.calm()

    # ---------------------------------------------------------------- the end

    async def _finish(self, tasks: list[asyncio.Task[None]]) -> None:
        self._world.is_calm = True
        try:
            async with asyncio.timeout(_FINISH_S_MAX):
                await asyncio.gather(*tasks)
                await asyncio.gather(*(party.finish() for party in self._parties))
                await self._until_settled()
                await self._read_everything()
            for party in self._parties:
                party.check()
        except TimeoutError:
            waiting = [
                f"{one.last_error}"
                for one, task in zip(self._producers, tasks, strict=False)
                if not task.done()
            ] + [party.waits_for for party in self._parties if party.waits_for]
            self._history.violate(
                f"{_FINISH_S_MAX:g} s after the last fault: {self._cluster.unsettled()}; these wait: {waiting}"
            )

    async def _until_settled(self) -> None:
        while self._cluster.unsettled():  # noqa: ASYNC110 - nobody calls when all of it is true
            await asyncio.sleep(_LOOK_S)

    async def _read_everything(self) -> None:
        for part in self._world.parts():
            while not await self._read(part):  # noqa: ASYNC110 - as above
                await asyncio.sleep(_LOOK_S)

    async def _read(self, part: Part) -> bool:
        """As a client does, and as the disks have it; False if it has to be tried again."""
        client = self._world.client("last-look")
        try:
            leader = await client.leader_of(part)
            end = await end_of(client, leader.host, part, leader.epoch)
            if end is None:
                return False
            log = FinalLog(end)
            offset = 0
            while offset < end:
                found = await fetch(
                    client, leader.host, part, offset, epoch=leader.epoch, wait_ms=0, bytes_max=_BYTES_MAX
                )
                if isinstance(found, int) or found.next_offset == offset:
                    return False
                log.read |= found.values
                offset = found.next_offset
        except NoAnswer:
            return False
        finally:
            client.close()
        node = self._cluster.hosts[leader.host].node
        if node is None:
            return False
        state = node._metadata.catalog.partitions.get(*part)
        for number in state.replicas:
            name = f"node-{number}"
            log.replicas[name] = durable_batches(self._cluster.hosts[name].disk, part, end=end)
        self._history.final[part] = log
        return True
