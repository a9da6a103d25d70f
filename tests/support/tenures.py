"""One node of a cluster as its queue and its schedules see it: a topic of one partition, which the node leads, or does not, as
the test says; the test plays the followers, too."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from random import Random
from typing import Any, TypeVar

from goqueue.core.catalog import TopicCreated
from goqueue.core.cluster.events import CompanionKind
from goqueue.core.cluster.partitions import new_partition
from goqueue.core.lease.events import Target
from goqueue.core.lease.policy import LeasePolicy
from goqueue.core.schedule.events import Message
from goqueue.log.batch import BatchHeader, encode_batch
from goqueue.log.recovery import cut_back
from goqueue.model.limits import Limits
from goqueue.model.record import NewRecord
from goqueue.model.settings import TopicSettings
from goqueue.node.companion_loading import CompanionLoader
from goqueue.node.companions import Companion, Companions
from goqueue.node.config import DiskConfig, QueueConfig
from goqueue.node.disk_watch import DiskWatch
from goqueue.node.folder import LOGS, partition_folder
from goqueue.node.guard import Guard, NodeState
from goqueue.node.metrics import Metrics
from goqueue.node.opening import PartitionOpener
from goqueue.node.partition import Partition, Stored
from goqueue.node.queue.ledger import OwnedLedger
from goqueue.node.queue.ledgers import Ledgers
from goqueue.node.queue.metrics import QueueMetrics
from goqueue.node.queue.polling import Poll
from goqueue.node.queue.postings import LanePostings
from goqueue.node.queue.queue import Queue
from goqueue.node.queue.receipts import Receipts
from goqueue.node.queue.requests import Delivered
from goqueue.node.schedule.scheduler import Scheduler
from goqueue.node.threads import Threads
from goqueue.node.topic_table import OpenTopic, TopicTable
from goqueue.sim.broker import SimClock
from goqueue.sim.disk import SimDisk
from goqueue.sim.loop import SimLoop, run
from goqueue.sim.process import Process

T = TypeVar("T")
TOPIC = "orders"
OTHER = 2  # the node that leads when this one does not
_KINDS: Mapping[Companion, CompanionKind] = {one: one.kind for one in Companion}


class PlayedLeadership:
    """What is appended is on all replicas at once, or only when `take` is called."""

    def __init__(self, epoch: int, *, is_prompt: bool = True) -> None:
        self.epoch = epoch
        self.has_enough = True
        self.is_cut_off = False
        self.is_prompt = is_prompt
        self._logs: list[Partition] = []

    def began(self, partition: Partition) -> None:
        self._logs.append(partition)
        self.appended(partition)

    def failed(self, partition: Partition) -> None:
        pass

    def damaged(self, partition: Partition) -> bool:
        return False

    def synced(self, partition: Partition) -> None:
        pass

    def deleted(self, partition: Partition, start: int) -> None:
        pass

    def readable_at(self, partition: Partition, offset: int) -> list[int]:
        return []

    def appended(self, partition: Partition) -> None:
        if self.is_prompt:
            partition.raise_watermark(partition.log.end)

    def take(self) -> None:
        self.is_prompt = True
        for partition in self._logs:
            self.appended(partition)


class Ids:
    """Of producers."""

    def __init__(self) -> None:
        self.count = 0

    async def init(self) -> tuple[int, int]:
        self.count += 1
        return 1_000 + self.count, 0


class PlainPolicies:
    def __init__(self, dead_letters: Target | None) -> None:
        self._dead_letters = dead_letters

    async def learn(self, group_id: str) -> None:
        pass

    def knows(self, group_id: str) -> bool:
        return True

    def policy(self, topic: str, partition: int, group_id: str) -> LeasePolicy:
        return LeasePolicy(
            retry_count_max=3,
            backoff_ms=10,
            backoff_ms_max=10,
            dead_letters=self._dead_letters,
            keeps_key_order=False,
        )

    def visibility_ms(self, topic: str, group_id: str) -> int:
        return 30_000


async def put(partition: Partition, batch: bytes, header: BatchHeader, now_ms: int) -> Stored:
    """As it is where keys are not kept in their partitions."""
    return partition.append(batch, header, now_ms=now_ms)


class Stage:
    """`when_moving` is told of ledgers that have decided to move records."""

    def __init__(self, loop: SimLoop, dead_letters: Target | None = None) -> None:
        self.loop = loop
        self.clock = SimClock(loop)
        self.process = Process(loop, "node", SimDisk(Random(1), not_cached_rate=0.0, stall=loop.stall))
        self.disk = self.process.disk
        self.threads, metrics = Threads(2), Metrics()
        self.table = TopicTable()
        self._opener = PartitionOpener(
            self.disk,
            self.threads,
            metrics,
            self.spawn,
            lambda _: None,
            sync_timeout_ms=10_000,
            is_solo=False,
        )
        self.companions = Companions(self.disk, self._opener, self.table, self.threads)
        self.companions.ensure = self._ensure
        self.watch = DiskWatch(self.disk, DiskConfig(), metrics)
        self.guard = Guard(Limits(), self.watch)
        self.guard.state = NodeState.READY
        self.ledgers = Ledgers(self.companions, self.table, self.clock, self._postings)
        self.when_moving: Callable[[OwnedLedger], None] = lambda _: None
        self.queue = Queue(
            QueueConfig(),
            self.ledgers,
            self.table,
            self.guard,
            QueueMetrics(metrics.registry),
            self.clock,
            self._receipts,
            PlainPolicies(dead_letters),
            lambda ledger: self.when_moving(ledger),
        )
        self.ids = Ids()
        self.scheduler = Scheduler(
            self.companions,
            self.table,
            self.ids,  # type: ignore[arg-type]  # all that is asked of the producers here
            self.guard,
            self.disk,
            self.threads,
            metrics,
            self.clock,
            self.spawn,
        )
        self._loaders = [
            CompanionLoader(Companion.LEDGER, self.ledgers, self.companions, self.spawn),
            CompanionLoader(Companion.SCHEDULE, self.scheduler, self.companions, self.spawn),
        ]
        self.leadership: PlayedLeadership | None = None
        self._kinds: list[Companion] = []
        self._epoch = 0

    def spawn(self, work: Coroutine[None, None, None]) -> Any:
        return self.loop.create_task(work)

    async def begin(self) -> Partition:
        self.disk.make_dir(LOGS)
        self.disk.make_dir(partition_folder(TOPIC, 0))
        (partition,) = await self._opener.open(TOPIC, [0], TopicSettings())
        facts = TopicCreated(TOPIC, 1, 1, {}, 0)
        self.table.put(OpenTopic(facts, TopicSettings(), 1, {0: partition}, (new_partition([1, OTHER]),)))
        return partition

    @property
    def source(self) -> Partition:
        return self.table.get(TOPIC).partition(0)

    def home(self, kind: Companion) -> Partition:
        found = self.table.companion(kind.of(TOPIC), 0)
        assert found is not None
        return found

    async def lead(self, *, is_prompt: bool = True) -> PlayedLeadership:
        """Anew, in the next epoch."""
        self._epoch += 1
        leadership = self.leadership = PlayedLeadership(self._epoch, is_prompt=is_prompt)
        for one in self._partitions():
            one.take_over(leadership)
            await one.lead()
        for loader in self._loaders:
            loader.note(TOPIC, 0, True)
        return leadership

    async def follow(self) -> None:
        self._epoch += 1
        self.leadership = None
        for one in self._partitions():
            one.follow(OTHER, self._epoch)
        for loader in self._loaders:
            loader.note(TOPIC, 0, False)

    async def replace(self, partition: Partition, end: int, records: list[NewRecord]) -> None:
        """As a follower: another leader had nothing from `end` on, and then wrote these."""
        await partition.commit.idle()
        cut_back(partition.log, self.disk, partition.owner, end)
        header, batch = encode_batch(records, self.clock.now_ms())
        header = header._replace(base_offset=partition.log.end, leader_epoch=self._epoch)
        partition.log.adopt_epoch(self._epoch, partition.log.end)
        await partition.commit.checkpoint()
        stamped = bytearray(batch)
        stamped[0:8] = header.base_offset.to_bytes(8, "big")
        stamped[12:16] = header.leader_epoch.to_bytes(4, "big")
        partition.replicate(memoryview(bytes(stamped)), header, now_ms=self.clock.now_ms())
        await partition.commit.wait(partition.log.end)
        partition.note_watermark(partition.log.end)

    async def publish(self, *values: bytes) -> None:
        header, batch = encode_batch([NewRecord(None, value) for value in values], self.clock.now_ms())
        await self.source.lead()
        self.source.append(batch, header, now_ms=self.clock.now_ms())

    async def poll(self, limit: int = 10, *, wait_ms: int = 0) -> list[Delivered]:
        return await self.queue.poll(Poll("workers", "anna", [(TOPIC, 0)], limit, wait_ms))

    def message(self, value: bytes, *, in_ms: int) -> Message:
        return Message(self.clock.now_ms() + in_ms, 1, NewRecord(None, value))

    def _partitions(self) -> list[Partition]:
        return [self.source, *self.table.companions_of(TOPIC, 0)]

    async def _ensure(self, topic: str, kind: CompanionKind) -> None:
        """As the controller and the catalogue would."""
        self._kinds = [one for one in Companion if one in self._kinds or one.kind == kind]
        made = await self.companions.follow(topic, [0], [_KINDS[one] for one in self._kinds])
        for one in made[0]:
            if self.leadership is not None and one.leadership is not self.leadership:
                one.take_over(self.leadership)
                await one.lead()

    def _postings(self, partition: Partition) -> LanePostings:
        return LanePostings(partition, self.disk, self.threads, self.spawn)

    async def _receipts(self) -> Receipts:
        return Receipts(b"k" * 32)


def on_stage(play: Callable[[Stage], Coroutine[Any, Any, T]], *, dead_letters: Target | None = None) -> T:
    async def main(loop: SimLoop) -> T:
        stage = Stage(loop, dead_letters)
        await stage.begin()
        return await play(stage)

    return run(main, seed=1)
