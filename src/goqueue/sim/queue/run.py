"""The queue workload: publishers with priorities, keys and delays, and groups of members that finish, fail, stall and die,
while the broker is killed, loses power, meets a failing, full or slow disk, has its clock set and bits of its logs turned;
then it heals, everything is finished, and the whole history is checked.

Two groups share `jobs`, which has priorities and delays, with a share group and one that is sent to and fro and deleted;
another reads `steps`, which keeps the order of keys; another `fading`, where records are deleted and compacted away. At
the end a group that has seen nothing yet reads `lanes`, where every lane is full, and the dead letters are sent back
while the broker dies once more.
"""

from __future__ import annotations

import asyncio
from random import Random
from unittest.mock import patch

from goqueue.model.errors import DataCorrupt, GoQueueError
from goqueue.node.dead_letters.topics import SUFFIX
from goqueue.node.node import Node
from goqueue.node.queue import ledger
from goqueue.node.queue.ledgers import Place as Part
from goqueue.node.requests import ReadQuery
from goqueue.sim.broker import IN_FLIGHT_COUNT_MAX
from goqueue.sim.http import NoAnswer
from goqueue.sim.lives import Lives
from goqueue.sim.loop import SimLoop, run
from goqueue.sim.outcome import Outcome
from goqueue.sim.queue.checkers import queue_checkers
from goqueue.sim.queue.clock import JumpingClock
from goqueue.sim.queue.damage import Flipping
from goqueue.sim.queue.dead_letters import Conservation, DeadAtTheLimit
from goqueue.sim.queue.history import FinalRecord, Place, QueueHistory
from goqueue.sim.queue.lanes import LANES, LaneReading
from goqueue.sim.queue.meddling import Meddling
from goqueue.sim.queue.members import SimMember
from goqueue.sim.queue.publishers import SimPublisher
from goqueue.sim.queue.receipt_way import ReceiptWay
from goqueue.sim.queue.redriving import Redriving
from goqueue.sim.queue.share_way import VISIBILITY_MS, ShareWay
from goqueue.sim.queue.world import World

JOBS, STEPS, FADING = "jobs", "steps", "fading"
SHARERS = "sharers"
GROUPS = {"alpha": JOBS, "beta": JOBS, SHARERS: JOBS, "ordered": STEPS, "faders": FADING}
WANDERERS = "wanderers"  # a group that is sent to and fro
RETRIES_MAX = 3
_FINISH_TIMEOUT_S = 400.0
_LOOK_S = 0.5
_FLIP_RATE = 0.25  # of lives after which a bit turns
_FLIPPED = (f"__ledger.{JOBS}", f"__ledger.{JOBS}", f"__ledger.{STEPS}", f"__ledger.{FADING}", JOBS, STEPS)
_CHECKS = (*queue_checkers(STEPS, IN_FLIGHT_COUNT_MAX), DeadAtTheLimit(), Conservation())


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
        self._clock = JumpingClock(loop)
        self._history = QueueHistory(retries_max=RETRIES_MAX, fading={FADING})
        self._lives = Lives(loop, self._rng, self._history.violate, clock=self._clock)
        self._flipping = Flipping(self._lives.disk, self._history, self._child())
        self._world = World(loop, self._lives.broker, self._clock, self._history, self._child())
        self._partition_counts = {
            JOBS: self._rng.randint(1, 3),
            STEPS: self._rng.randint(1, 2),
            FADING: 1,
            LANES: 1,
        }

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
        meddling = self._start_meddling()
        for _ in range(self._rng.randint(1, 4)):
            if not self._history.violations:
                await self._lives.live(self._flip)
        for task in meddling:
            task.cancel()
        if not self._history.violations:
            await self._heal(publishers, members)
        clients = (*publishers, *members, *meddling)
        for task in clients:
            task.cancel()
        await asyncio.gather(*clients, return_exceptions=True)
        await self._lives.finish()
        history = self._history
        return Outcome(
            self._seed,
            history.violations,
            len(history.sent),
            len(history.deliveries),
            self._lives.names,
            self._loop.time(),
            "queue",
        )

    # ---------------------------------------------------------------- who takes part

    def _start_publishers(self) -> list[asyncio.Task[None]]:
        tasks = []
        for number in range(self._rng.randint(3, 4)):
            topic = (JOBS, STEPS, FADING, JOBS)[number]
            publisher = SimPublisher(self._world, f"p{number}", topic, is_keyed=topic != JOBS)
            tasks.append(asyncio.create_task(publisher.run(self._rng.randint(10, 30))))
        return tasks

    def _start_members(self) -> list[asyncio.Task[None]]:
        tasks = []
        self._history.groups = {group: (topic,) for group, topic in GROUPS.items()}
        for group, topic in self._all_groups.items():
            for number in range(self._rng.randint(1, 3)):
                kind = ShareWay if group == SHARERS else ReceiptWay
                way = kind(self._world, group, self._parts(topic))
                member = SimMember(self._world, group, f"{group}{number}", way)
                tasks.append(asyncio.create_task(member.run()))
        return tasks

    def _start_meddling(self) -> list[asyncio.Task[None]]:
        meddling = Meddling(self._world)
        return [
            asyncio.create_task(meddling.set_clock()),
            asyncio.create_task(meddling.send_to_and_fro(WANDERERS, self._parts(JOBS))),
            asyncio.create_task(meddling.delete_records(self._parts(FADING))),
        ]

    # ---------------------------------------------------------------- what happens

    async def _begin(self) -> None:
        """The first start and the topics, without faults."""
        await self._lives.begin()
        self._world.is_calm = True
        for topic, count in self._partition_counts.items():
            overrides = {
                "segment.bytes": str(self._rng.choice((1_024, 4_096, 20_000))),
                "max.retries": str(RETRIES_MAX),
                "retry.backoff.ms": str(self._rng.choice((100, 1_000))),
                "ordering": "key" if topic == STEPS else "none",
                "visibility.ms": str(VISIBILITY_MS),
                "cleanup.policy": "compact,delete" if topic == FADING else "delete",
                "min.cleanable.dirty.ratio": "0.1",
            }
            await self._world.call(
                lambda node, topic=topic, count=count, overrides=overrides: node.topics.create(  # type: ignore[misc]  # bound now
                    topic, partition_count=count, overrides=overrides
                )
            )
        await self._world.call(
            lambda node: node.groups.configure(SHARERS, {"share.auto.offset.reset": "earliest"})
        )
        self._world.is_calm = False

    def _flip(self) -> str:
        return self._flipping.flip(self._rng.choice(_FLIPPED)) if self._rng.random() < _FLIP_RATE else ""

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
        await self._lives.stop_soundly(self._flipping.is_known)

    async def _redrive(self) -> None:
        """The broker dies in the middle of it; each dead letter goes back once all the same."""
        redriving = Redriving(self._world, JOBS, self._parts(JOBS))
        if not await redriving.begin():
            return
        first = asyncio.create_task(redriving.run())
        await asyncio.sleep(self._rng.choice((0.001, 0.01, 0.05, 0.5)))
        self._lives.names.append(f"redrive/{await self._lives.end(is_up=True)}")
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        await self._lives.restart()
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
        behind = [
            one
            for one in node.queue.stats()
            if one.in_flight_count or one.waiting_count or one.committed_offset < one.end_offset
        ]
        return f"{behind}, {[one for one in node.scheduler.stats() if one.pending_count]}"

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
        offset = node.topics.partition(topic, index).earliest
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
