"""The workload `shortening`: logs lose records while things fail. One topic is kept small (retention by size or time, and somebody
who deletes records), another is compacted; all as fast as it goes, with segments of a kilobyte.

What is checked is in `shortening_checkers.py`. Each replica deletes and compacts by itself, so they need not be the same in
what is gone; but in whatever is there, and in what may be.
"""

from __future__ import annotations

import asyncio
from random import Random

from msgspec import structs

from goqueue.sim.cluster.cluster import SimCluster
from goqueue.sim.cluster.history import ClusterHistory
from goqueue.sim.cluster.logs import stamped
from goqueue.sim.cluster.loud import loud
from goqueue.sim.cluster.readers import end_of
from goqueue.sim.cluster.shards import few_shards
from goqueue.sim.cluster.shortening_checkers import CHECKERS_OF_ALL, SHORTENING_CHECKERS
from goqueue.sim.cluster.shortening_clients import (
    RecordDeleter,
    ShorteningProducer,
    ShorteningReader,
    begin_of,
    fetch,
    note_look,
)
from goqueue.sim.cluster.shortening_disks import durable_replica
from goqueue.sim.cluster.shortening_history import Begun, Final, Replica, ShorteningHistory
from goqueue.sim.cluster.weather import Weather
from goqueue.sim.cluster.world import Topic, World
from goqueue.sim.http import NoAnswer
from goqueue.sim.kafka.client import requests
from goqueue.sim.kafka.history import Part, now_s
from goqueue.sim.loop import SimLoop, run
from goqueue.sim.outcome import Outcome

FADING, TABLE = "fading", "table"
_SIZE = 3
_SHARD_COUNT = 2
_CLEANUP_MS = 1_000
_BEGIN_S_MAX = 60.0
_FINISH_S_MAX = 180.0
_LOOK_S = 0.25
_LAST_COUNT = 3
_SPOILED_DISK_RATE = 0.15
_BYTES_MAX = 10_000_000
_TIMEOUT_MS = 5_000
_EXISTS = 36


def run_shortening_seed(seed: int) -> Outcome:
    """Retention, DeleteRecords and compaction, while everything fails."""

    async def main(loop: SimLoop) -> Outcome:
        with stamped(loop), loud(), few_shards(_SHARD_COUNT):
            return await _Run(loop, seed).run()

    return run(main, seed=seed)


class _Run:
    def __init__(self, loop: SimLoop, seed: int) -> None:
        self._loop = loop
        self._seed = seed
        self._rng = rng = Random(f"shortening-{seed}")
        self._history = ShorteningHistory(ClusterHistory(), TABLE)
        self._cluster = SimCluster(loop, _SIZE, Random(rng.getrandbits(64)), self._history.cluster)
        for host in self._cluster.hosts.values():
            config = host._config
            host._config = structs.replace(
                config, log=structs.replace(config.log, cleanup_interval_ms=_CLEANUP_MS)
            )
        self._world = World(loop, self._history.cluster, self._cluster, Random(rng.getrandbits(64)))
        self._weather = Weather(self._cluster, loop.network, self._world.hosts, Random(rng.getrandbits(64)))
        self._producers: list[ShorteningProducer] = []
        self._waits_for = ""

    async def run(self) -> Outcome:
        tasks: list[asyncio.Task[None]] = []
        try:
            if await self._begin():
                readers = self._start_readers()
                writers = self._start_writers()
                tasks = [*readers, *writers]
                await self._storm()
                await self._finish(writers)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for client in self._world.clients:
                client.close()
            await self._cluster.end()
        self._check()
        return self._outcome()

    def _check(self) -> None:
        for host in self._cluster.hosts.values():
            for problem in host.problems:
                self._history.violate(problem)
        for of_all in CHECKERS_OF_ALL:
            of_all.check(self._history.cluster)
        for checker in SHORTENING_CHECKERS:
            checker.check(self._history)

    def _outcome(self) -> Outcome:
        history = self._history
        return Outcome(
            self._seed,
            history.cluster.violations,
            sum(len(acked.values) for acked in history.cluster.acked),
            sum(len(look.values) for look in history.looks),
            list(self._weather.names),
            self._loop.time(),
            "shortening",
        )

    # ---------------------------------------------------------------- who takes part

    async def _begin(self) -> bool:
        self._cluster.start()
        try:
            async with asyncio.timeout(_BEGIN_S_MAX):
                await self._until_settled()
                await self._create(FADING, self._rng.randint(1, 2), self._fading())
                await self._create(TABLE, 1, self._compacted())
        except TimeoutError:
            self._history.violate(f"there is no cluster: {self._cluster.unsettled()}")
            return False
        return True

    def _fading(self) -> dict[str, object]:
        by_size: dict[str, object] = {"retention.bytes": self._rng.choice((2_000, 5_000))}
        by_time: dict[str, object] = {"retention.ms": self._rng.choice((3_000, 10_000))}
        return self._rng.choice(({}, by_size, by_size, by_time, {**by_size, **by_time}))

    def _compacted(self) -> dict[str, object]:
        return {
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": self._rng.choice((0.0, 0.01, 0.3)),
            "delete.retention.ms": self._rng.choice((0, 1_000, 10_000)),
            "min.compaction.lag.ms": self._rng.choice((0, 0, 2_000)),
        }

    async def _create(self, name: str, partition_count: int, configs: dict[str, object]) -> None:
        """Until it is there."""
        topic = Topic(partition_count, self._rng.choice((2, 3, 3)), self._rng.choice((1, 2, 2)))
        kinds, client = requests("create_topics"), self._world.client("admin")
        configs |= {
            "min.insync.replicas": topic.min_in_sync,
            "segment.bytes": 1_024,
            "index.interval.bytes": 256,
        }
        wanted = kinds.CreatableTopic(
            name=name,
            num_partitions=partition_count,
            replication_factor=topic.replica_count,
            configs=[
                kinds.CreatableTopicConfig(name=key, value=str(value)) for key, value in configs.items()
            ],
        )
        while True:
            try:
                answer = await client.ask_any(
                    "create_topics", 7, timeout_ms=_TIMEOUT_MS, validate_only=False, topics=[wanted]
                )
                if answer.topics[0].error_code in (0, _EXISTS):
                    break
            except NoAnswer:
                pass
            await client.pause()
        self._world.topics[name] = topic

    def _start_readers(self) -> list[asyncio.Task[None]]:
        return [
            self._world.start(name, ShorteningReader(self._world, self._history, name).run())
            for name in ("r0", "r1")
        ]

    def _start_writers(self) -> list[asyncio.Task[None]]:
        tasks = []
        parts = self._world.parts()
        for at, part in enumerate([*parts, Part(TABLE, 0), self._rng.choice(parts)]):
            producer = ShorteningProducer(self._world, self._history, f"p{at}", part)
            self._producers.append(producer)
            tasks.append(self._world.start(f"p{at}", producer.run(_LAST_COUNT)))
        deleter = RecordDeleter(self._world, self._history, "deleter")
        return [*tasks, self._world.start("deleter", deleter.run(FADING))]

    async def _storm(self) -> None:
        """One thing after another, and often two at a time; and between them enough peace for cleaners."""
        counts = [self._rng.randint(2, 8) for _ in range(self._rng.choice((1, 2)))]
        async with asyncio.TaskGroup() as group:
            for count in counts:
                group.create_task(self._weather.rage(count))
        if self._rng.random() < _SPOILED_DISK_RATE:
            await self._weather.spoil_disk()
        await self._weather.calm()

    # ---------------------------------------------------------------- the end

    async def _finish(self, writers: list[asyncio.Task[None]]) -> None:
        self._world.is_calm = True
        try:
            async with asyncio.timeout(_FINISH_S_MAX):
                self._waits_for = "producers"
                await asyncio.gather(*writers)
                self._waits_for = "the cluster"
                await self._until_settled()
                for part in self._world.parts():
                    while not await self._look(part):  # noqa: ASYNC110 - nobody calls when it can be done
                        await asyncio.sleep(_LOOK_S)
        except TimeoutError:
            errors = [one.last_error for one in self._producers]
            self._history.violate(
                f"{_FINISH_S_MAX:g} s after the last fault: {self._cluster.unsettled()}; {self._waits_for} has to be waited "
                f"for; {errors}"
            )

    async def _until_settled(self) -> None:
        while self._cluster.unsettled():  # noqa: ASYNC110 - nobody calls when all of it is true
            await asyncio.sleep(_LOOK_S)

    async def _look(self, part: Part) -> bool:
        """As a client reads it and as every disk has it; False if it has to be tried again."""
        client = self._world.client("last-look")
        asked_s = now_s()
        try:
            leader = await client.leader_of(part)
            start = await begin_of(client, leader, part)
            end = await end_of(client, leader.host, part, leader.epoch)
            if start is None or end is None:
                return False
            self._history.begun.append(
                Begun("last-look", leader.host, part, start, leader.epoch, asked_s, now_s())
            )
            read: dict[int, str] = {}
            offset = start
            while offset < end:
                found = await fetch(client, leader, part, offset, wait_ms=0, bytes_max=_BYTES_MAX)
                if found.error_code or found.next_offset == offset:
                    self._waits_for = f"{part} at {offset}, which gave {found}"
                    return False
                note_look(self._history, "last-look", leader, part, offset, found, asked_s)
                read |= found.values
                offset = found.next_offset
        except NoAnswer as error:
            self._waits_for = str(error)
            return False
        finally:
            client.close()
        return self._compare(part, leader.host, end, read)

    def _compare(self, part: Part, leader: str, end: int, read: dict[int, str]) -> bool:
        """With the disks, once followers have heard where their leader begins: where little happens they hear of it late."""
        node = self._cluster.hosts[leader].node
        if node is None:
            return False
        starts: dict[str, int] = {}
        for number in node._metadata.catalog.partitions.get(*part).replicas:
            name = f"node-{number}"
            other = self._cluster.hosts[name].node
            partition = other._table.any_partition(*part) if other is not None else None
            if partition is None or partition.rewriting.locked() or partition.log.durable_end < end:
                self._waits_for = f"{name} has {part} at rest"
                return False
            starts[name] = partition.log.log_start
        if min(starts.values()) < starts[leader]:
            self._waits_for = f"{part} begins at {starts} as on {leader}"
            return False
        self._history.final[part] = Final(
            leader,
            starts[leader],
            end,
            {offset: value for offset, value in read.items() if offset >= starts[leader]},
            {name: self._replica(name, part, start) for name, start in starts.items()},
        )
        return True

    def _replica(self, name: str, part: Part, log_start: int) -> Replica:
        """With the start that it serves: the one on its disk may be a moment older."""
        replica = durable_replica(self._cluster.hosts[name].disk, part)
        replica.log_start = max(log_start, replica.log_start)
        return replica
