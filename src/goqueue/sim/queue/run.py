"""The queue workload: publishers with keys, priorities and delays, and groups of members that finish, fail, stall and die,
while the broker is killed, loses power, meets a failing, full or slow disk and has its clock set; then it heals, everything
is finished, and the whole history is checked.

Two groups share `jobs`, which has priorities and delays, with a third that is sent to and fro; another reads `steps`, which
keeps the order of keys. At the end a group that has seen nothing yet reads `lanes`, where every lane is full, and the dead
letters are sent back while the broker dies once more.
"""

from __future__ import annotations

import asyncio
from random import Random
from unittest.mock import patch

from goqueue.log.check import check_folder
from goqueue.model.errors import DataCorrupt, GoQueueError
from goqueue.node.dead_letters.topics import SUFFIX
from goqueue.node.node import Node
from goqueue.node.queue import ledger
from goqueue.node.queue.ledgers import Place as Part
from goqueue.node.requests import ReadQuery
from goqueue.sim.broker import SimBroker
from goqueue.sim.disk import SimDisk
from goqueue.sim.faults import inject
from goqueue.sim.http import NoAnswer
from goqueue.sim.ids import SimIds
from goqueue.sim.loop import SimLoop, run
from goqueue.sim.outcome import Outcome
from goqueue.sim.queue.checkers import queue_checkers
from goqueue.sim.queue.clock import JumpingClock
from goqueue.sim.queue.dead_letters import Conservation, DeadAtTheLimit
from goqueue.sim.queue.history import FinalRecord, Place, QueueHistory
from goqueue.sim.queue.lanes import LANES, LaneReading
from goqueue.sim.queue.members import SimMember
from goqueue.sim.queue.publishers import SimPublisher
from goqueue.sim.queue.redriving import Redriving
from goqueue.sim.queue.world import World

JOBS, STEPS = "jobs", "steps"
GROUPS = {"alpha": JOBS, "beta": JOBS, "ordered": STEPS}
WANDERERS = "wanderers"  # a group that is sent to and fro
RETRIES_MAX = 3
_FINISH_TIMEOUT_S = 400.0
_START_COUNT_MAX = 10
_LOOK_S = 0.5
_TORN = ("the checksum does not match", "magic is 0")  # the second where the tear goes through a header
_CHECKS = (*queue_checkers(STEPS), DeadAtTheLimit(), Conservation())


def run_queue_seed(seed: int) -> Outcome:
    async def main(loop: SimLoop) -> Outcome:
        return await _Run(loop, seed).run()

    snapshot_bytes = Random(f"snapshots-{seed}").choice((500, 3_000, 1_000_000))
    with patch.object(ledger, "_SNAPSHOT_BYTES_MIN", snapshot_bytes):  # else no run would ever write one
        return run(main, seed=seed)


class _Run:
    def __init__(self, loop: SimLoop, seed: int) -> None:
        self._loop = loop
        self._seed = seed
        self._rng = Random(f"queue-{seed}")
        self._disk = SimDisk(self._child(), stall=loop.stall)
        self._clock = JumpingClock(loop)
        self._broker = SimBroker(loop, self._disk, SimIds(self._child()), self._clock)
        self._history = QueueHistory(retries_max=RETRIES_MAX)
        self._world = World(loop, self._broker, self._clock, self._history, self._child())
        self._partition_counts = {JOBS: self._rng.randint(1, 3), STEPS: self._rng.randint(1, 2), LANES: 1}
        self._lives: list[str] = []
        self._power_was_cut = False

    def _child(self) -> Random:
        return Random(self._rng.getrandbits(64))

    @property
    def _all_groups(self) -> dict[str, str]:
        return {**GROUPS, WANDERERS: JOBS}

    def _parts(self, topic: str) -> list[Part]:
        return [(topic, index) for index in range(self._partition_counts[topic])]

    async def run(self) -> Outcome:
        await self._begin()
        publishers, members = self._start_publishers(), self._start_members()
        meddling = [asyncio.create_task(self._set_clock()), asyncio.create_task(self._seek())]
        for _ in range(self._rng.randint(1, 4)):
            if not self._history.violations:
                await self._live()
        for task in meddling:
            task.cancel()
        if not self._history.violations:
            await self._heal(publishers, members)
        clients = (*publishers, *members, *meddling)
        for task in clients:
            task.cancel()
        await asyncio.gather(*clients, return_exceptions=True)
        await self._broker.crash(power_cut=False)
        for problem in self._broker.problems:
            self._history.violate(problem)
        history = self._history
        return Outcome(
            self._seed,
            history.violations,
            len(history.sent),
            len(history.deliveries),
            self._lives,
            self._loop.time(),
            "queue",
        )

    # ---------------------------------------------------------------- who takes part

    def _start_publishers(self) -> list[asyncio.Task[None]]:
        tasks = []
        for number in range(self._rng.randint(2, 4)):
            topic = (JOBS, STEPS)[number % 2]
            publisher = SimPublisher(self._world, f"p{number}", topic, is_keyed=topic == STEPS)
            tasks.append(asyncio.create_task(publisher.run(self._rng.randint(10, 30))))
        return tasks

    def _start_members(self) -> list[asyncio.Task[None]]:
        tasks = []
        self._history.groups = {group: (topic,) for group, topic in GROUPS.items()}
        for group, topic in self._all_groups.items():
            for number in range(self._rng.randint(1, 3)):
                member = SimMember(self._world, group, f"{group}{number}", self._parts(topic))
                tasks.append(asyncio.create_task(member.run()))
        return tasks

    # ---------------------------------------------------------------- what happens

    async def _begin(self) -> None:
        """The first start and the topics, without faults."""
        if not await self._broker.start():
            raise AssertionError("the broker did not start on an empty disk")
        self._world.is_calm = True
        for topic, count in self._partition_counts.items():
            overrides = {
                "segment.bytes": str(self._rng.choice((1_024, 4_096, 20_000))),
                "max.retries": str(RETRIES_MAX),
                "retry.backoff.ms": str(self._rng.choice((100, 1_000))),
                "ordering": "key" if topic == STEPS else "none",
            }
            await self._world.call(
                lambda node, topic=topic, count=count, overrides=overrides: node.topics.create(  # type: ignore[misc]  # bound now
                    topic, partition_count=count, overrides=overrides
                )
            )
        self._world.is_calm = False

    async def _set_clock(self) -> None:
        while True:
            await asyncio.sleep(self._rng.expovariate(0.15))
            by_ms = self._rng.choice((-8_000, -700, 700, 4_000, 20_000))
            self._clock.jump(by_ms)

    async def _seek(self) -> None:
        while True:
            await asyncio.sleep(self._rng.expovariate(0.3))
            topic, index = self._rng.choice(self._parts(JOBS))
            try:
                await self._world.call(
                    lambda node, topic=topic, index=index: self._send_elsewhere(node, topic, index)  # type: ignore[misc]  # bound now
                )
            except (NoAnswer, GoQueueError):
                pass

    async def _send_elsewhere(self, node: Node, topic: str, index: int) -> None:
        end = node.topics.partition(topic, index).latest
        await node.queue.seek(WANDERERS, topic, index, self._rng.randint(0, end))

    async def _live(self) -> None:
        """Some traffic under some fault, an end of some kind, and the next start."""
        fault = inject(self._disk, self._rng)
        is_up = await self._broker.survives(self._rng.uniform(2.0, 9.0))
        self._lives.append(f"{fault}/{await self._end(is_up=is_up)}")
        await self._restart()

    async def _end(self, *, is_up: bool) -> str:
        how = self._rng.choice(("kill", "power", "power", "clean")) if is_up else "cut"
        if how == "clean" and not await self._broker.stop():
            how = "cut"
        self._power_was_cut = self._power_was_cut or how in ("cut", "power")
        await self._broker.crash(power_cut=how == "power")
        return how

    async def _restart(self) -> None:
        """Faults that have not struck yet may strike recovery; then the disk is calm."""
        for _ in range(_START_COUNT_MAX):
            if await self._broker.start():
                self._disk.calm()
                return
            self._power_was_cut = True
        self._history.violate("the broker does not start any more")

    async def _heal(self, publishers: list[asyncio.Task[None]], members: list[asyncio.Task[None]]) -> None:
        """No more faults: everybody gets through, everything is finished, and the folder is sound after a clean stop."""
        self._world.is_calm = True
        try:
            async with asyncio.timeout(_FINISH_TIMEOUT_S):
                await asyncio.gather(*publishers)
                await self._until_finished()
                self._world.is_done = True
                await asyncio.gather(*members)
            async with asyncio.timeout(_FINISH_TIMEOUT_S):
                await LaneReading(self._world).run()
        except TimeoutError:
            self._history.violate(f"{_FINISH_TIMEOUT_S:g} s after the last fault: {await self._progress()}")
            return
        await self._world.call(self._read_everything)
        for checker in _CHECKS:
            checker.check(self._history, self._clock)
        await self._redrive()
        await self._broker.stop()
        for problem in check_folder(self._disk.mount()).problems:
            # What a power cut tears stays and is said (ADR 16).
            if not self._power_was_cut or not any(torn in problem for torn in _TORN):
                self._history.violate(f"check: {problem}")

    async def _redrive(self) -> None:
        """The broker dies in the middle of it; each dead letter goes back once all the same."""
        redriving = Redriving(self._world, JOBS, self._parts(JOBS))
        if not await redriving.begin():
            return
        first = asyncio.create_task(redriving.run())
        await asyncio.sleep(self._rng.choice((0.001, 0.01, 0.05, 0.5)))
        self._lives.append(f"redrive/{await self._end(is_up=True)}")
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        await self._restart()
        try:
            async with asyncio.timeout(_FINISH_TIMEOUT_S):
                await redriving.finish()
        except TimeoutError:
            self._history.violate(
                f"dead letters were not sent back {_FINISH_TIMEOUT_S:g} s after the last fault"
            )

    async def _until_finished(self) -> None:
        while True:
            try:
                if await self._world.call(self._is_finished):
                    return
            except (NoAnswer, GoQueueError):
                pass
            await asyncio.sleep(_LOOK_S)

    async def _is_finished(self, node: Node) -> bool:
        """Nothing is delayed, leased, to be retried or to be moved, and every group is at the end."""
        if any(stats.pending_count for stats in node.scheduler.stats()):
            return False
        for group, topic in self._all_groups.items():
            stats = {(one.topic, one.partition): one for one in node.queue.stats(group)}
            for part in self._parts(topic):
                one = stats.get(part)
                if one is None or one.in_flight_count or one.waiting_count:
                    return False
                if one.committed_offset < one.end_offset:
                    return False
        dead_count = sum(one.dead_count for one in node.queue.stats())
        return dead_count <= sum(node.topics.partition(*part).latest for part in self._dead_parts(node))

    async def _progress(self) -> str:
        try:
            return str(await self._world.call(self._stats))
        except (NoAnswer, GoQueueError) as error:
            return repr(error)

    async def _stats(self, node: Node) -> str:
        return f"{node.queue.stats()}, {node.scheduler.stats()}"

    async def _read_everything(self, node: Node) -> None:
        parts = [part for topic in self._partition_counts for part in self._parts(topic)]
        for topic, index in (*parts, *self._dead_parts(node)):
            await self._read(node, topic, index)

    def _dead_parts(self, node: Node) -> list[Part]:
        """Where dead letters are."""
        return [
            (facts.name, index)
            for facts in node.topics.list()
            if facts.name.endswith(SUFFIX)
            for index in range(facts.partition_count)
        ]

    async def _read(self, node: Node, topic: str, index: int) -> None:
        offset = 0
        while True:
            try:
                page = await node.reader.read(topic, index, ReadQuery(offset=offset, limit=1_000))
            except DataCorrupt as damage:
                offset = damage.end
                continue
            for record in page.records:
                self._history.final[Place(topic, index, record.offset)] = FinalRecord(
                    (record.value or b"").decode(),
                    None if record.key is None else record.key.decode(),
                    {name: (value or b"").decode() for name, value in record.headers},
                )
            offset = page.next_offset
            if offset >= page.high_watermark:
                return
