"""The single-node workload: producers with every kind of acks and readers, while the broker is killed, loses
power, meets a failing, full or slow disk and has bits flipped under it; then it heals and everything is checked.

One seed decides everything. The broker is the real one, from the HTTP parser to the disk port.
"""

from __future__ import annotations

import asyncio
from random import Random

from goqueue.log.check import check_folder
from goqueue.log.recovery import QUARANTINE
from goqueue.model.acks import Acks
from goqueue.node.folder import LOGS
from goqueue.sim.broker import HOST, PORT, SimBroker
from goqueue.sim.checkers import CHECKERS, Circumstances, forget_what_is_gone
from goqueue.sim.clients import Gate, SimProducer, SimReader, TopicPlan
from goqueue.sim.disk import SimDisk
from goqueue.sim.faults import flip_bit, inject
from goqueue.sim.history import History, Place
from goqueue.sim.http import SimHttpClient
from goqueue.sim.loop import SimLoop, run
from goqueue.sim.outcome import Outcome
from goqueue.sim.read_back import check_seeks, read_back

_FINISH_TIMEOUT_S = 600.0
_START_COUNT_MAX = 10
_FLIP_RATE = 0.3


def run_seed(seed: int) -> Outcome:
    async def main(loop: SimLoop) -> Outcome:
        return await _Run(loop, seed).run()

    return run(main, seed=seed)


class _Run:
    def __init__(self, loop: SimLoop, seed: int) -> None:
        self._loop = loop
        self._seed = seed
        self._rng = Random(seed)
        self._disk = SimDisk(Random(seed + 1), stall=loop.stall)
        self._broker = SimBroker(loop, self._disk)
        self._client = SimHttpClient(HOST, PORT)
        self._history = History()
        self._gate = Gate()
        self._what = Circumstances()
        self._topics = self._plan_topics()
        self._lives: list[str] = []
        self._is_sound = True  # no bit was flipped, and no torn write had to be kept as damage

    def _plan_topics(self) -> list[TopicPlan]:
        config = {
            "segment.bytes": str(self._rng.choice((1_024, 4_096, 20_000))),
            "index.interval.bytes": str(self._rng.choice((64, 512))),
        }
        compacted = config | {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"}
        plans = [TopicPlan("plain", self._rng.randint(1, 3), False, config)]
        if self._rng.random() < 0.5:
            plans.append(TopicPlan("compacted", 1, True, compacted))
        return plans

    async def run(self) -> Outcome:
        await self._begin()
        producers = [asyncio.create_task(self._produce(number)) for number in range(self._rng.randint(2, 4))]
        readers = [
            asyncio.create_task(
                SimReader(topic.name, partition, self._history, self._gate, self._child()).run()
            )
            for topic in self._topics
            for partition in range(topic.partition_count)
        ]
        for _ in range(self._rng.randint(2, 6)):
            if not self._history.violations:
                await self._live()
        if not self._history.violations:
            await self._heal(producers)
        for task in (*producers, *readers):
            task.cancel()
        await asyncio.gather(*producers, *readers, return_exceptions=True)
        self._client.close()
        await self._broker.crash(power_cut=False)
        for problem in self._broker.problems:
            self._history.violate(problem)
        history = self._history
        return Outcome(
            self._seed,
            history.violations,
            history.acked_count,
            history.read_count,
            self._lives,
            self._loop.time(),
        )

    def _child(self) -> Random:
        return Random(self._rng.getrandbits(64))

    async def _produce(self, number: int) -> None:
        producer = SimProducer(
            f"p{number}",
            self._rng.choice(self._topics),
            self._history,
            self._gate,
            self._child(),
            acks=self._rng.choice((Acks.ALL, Acks.ALL, Acks.LEADER, Acks.NONE)),
            is_idempotent=self._rng.random() < 0.4,
        )
        await producer.run(self._rng.randint(20, 60))

    async def _begin(self) -> None:
        """The first start and the topics, without faults."""
        if not await self._broker.start():
            raise AssertionError("the broker did not start on an empty disk")
        for topic in self._topics:
            answer = await self._client.request(
                "POST",
                "/topics",
                {"name": topic.name, "num_partitions": topic.partition_count, "config": topic.config},
            )
            if answer.status != 201:
                raise AssertionError(f"creating {topic.name} failed: {answer}")
        self._gate.open()

    async def _live(self) -> None:
        """Some traffic under some fault, an end of some kind, and the next start."""
        fault = inject(self._disk, self._rng)
        self._what.flush_is_reliable = fault in ("none", "crash")
        is_up = await self._broker.survives(self._rng.uniform(0.5, 8.0))
        self._gate.close()
        self._lives.append(f"{fault}/{await self._end(is_up=is_up)}")
        if self._rng.random() < _FLIP_RATE:
            self._flip()
        await self._restart()

    async def _end(self, *, is_up: bool) -> str:
        if is_up:
            how = self._rng.choice(("kill", "power", "power", "clean"))
            if how == "clean" and not await self._broker.stop():
                how = "cut"
        else:  # the power was cut in the middle of a disk operation
            how = "cut"
        if how in ("cut", "power"):
            self._what.power_was_cut = True
            self._what.power_cut_at_s = self._loop.time()
        await self._broker.crash(power_cut=how == "power")
        return how

    def _flip(self) -> None:
        self._is_sound = False
        batch = flip_bit(self._disk, self._rng, self._rng.choice(self._topics).name)
        if batch is not None:
            self._what.flips.append(batch)
            places = (Place(batch.topic, batch.partition, offset) for offset in range(batch.start, batch.end))
            self._what.flipped.update(places)

    async def _restart(self) -> None:
        """Faults that have not struck yet may strike recovery; then the disk is calm and the log is read."""
        self._client.close()  # its connection died with the last life
        for _ in range(_START_COUNT_MAX):
            operations = self._disk.counters.operations
            if await self._broker.start():
                self._disk.calm()
                await self._read_back()
                self._gate.open()
                return
            if operations == self._disk.counters.operations:
                break
            self._what.power_was_cut = True
            self._what.power_cut_at_s = self._what.power_cut_at_s or self._loop.time()
        self._history.violate("the broker does not start any more")

    async def _heal(self, producers: list[asyncio.Task[None]]) -> None:
        """No more faults: everybody must get through, and the folder must be sound after a clean stop."""
        try:
            async with asyncio.timeout(_FINISH_TIMEOUT_S):
                await asyncio.gather(*producers)
        except TimeoutError:
            self._history.violate(f"producers were not done {_FINISH_TIMEOUT_S:g} s after the last fault")
        self._gate.close()
        await self._broker.stop()
        await self._restart()
        await self._broker.stop()
        if self._is_sound:
            for problem in check_folder(self._disk.mount()).problems:
                self._history.violate(f"check: {problem}")

    async def _read_back(self) -> None:
        self._what.quarantined = self._quarantined()
        for topic in self._topics:
            for partition in range(topic.partition_count):
                log = await read_back(self._client, topic, partition)
                for checker in CHECKERS:
                    checker.check(self._history, log, self._what)
                self._is_sound = self._is_sound and not log.holes
                forget_what_is_gone(self._history, log)
                await check_seeks(self._client, log, self._history, self._rng)
        self._what = Circumstances(flipped=self._what.flipped, started_at_s=self._loop.time())

    def _quarantined(self) -> set[tuple[str, int]]:
        found = set()
        for path in self._disk.snapshot():
            if path.startswith(f"{QUARANTINE}/{LOGS}/"):
                _, _, topic, partition, _ = path.split("/")
                found.add((topic, int(partition)))
        return found
