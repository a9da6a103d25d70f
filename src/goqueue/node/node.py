"""One node: puts the parts together, starts them in order and stops them in the reverse one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine

from goqueue.log.disk import Disk
from goqueue.node.changes import Changes
from goqueue.node.clock import Clock
from goqueue.node.companions import Companions
from goqueue.node.config import NodeConfig
from goqueue.node.dead_letters.metrics import MoveMetrics
from goqueue.node.dead_letters.moves import Mover
from goqueue.node.dead_letters.redrive import Redrive
from goqueue.node.describe import Describer
from goqueue.node.disk_watch import DiskWatch
from goqueue.node.fetch import Fetcher
from goqueue.node.groups.groups import Groups
from goqueue.node.groups.members import Members
from goqueue.node.groups.offsets import GroupOffsets
from goqueue.node.groups.queue_members import QueueMembers
from goqueue.node.groups.rebalances import Rebalances
from goqueue.node.groups.stream_members import StreamMembers
from goqueue.node.groups.stream_polling import StreamPolling
from goqueue.node.groups.views import GroupViews
from goqueue.node.guard import Guard, NodeState
from goqueue.node.housekeeping import Housekeeping
from goqueue.node.ids import Ids, RandomIds
from goqueue.node.internal_topics import InternalTopics
from goqueue.node.metadata import Metadata
from goqueue.node.metrics import Metrics
from goqueue.node.opening import PartitionOpener
from goqueue.node.partition import Partition
from goqueue.node.positions import Positions
from goqueue.node.producers import Producers
from goqueue.node.publish import Publisher
from goqueue.node.queue.ledgers import Ledgers
from goqueue.node.queue.metrics import QueueMetrics
from goqueue.node.queue.policies import TopicPolicies
from goqueue.node.queue.postings import LanePostings
from goqueue.node.queue.queue import Queue
from goqueue.node.queue.receipt_key import ReceiptKey
from goqueue.node.queue.share import Share
from goqueue.node.queue.share_offsets import ShareOffsets
from goqueue.node.read import Reader
from goqueue.node.requests import Health
from goqueue.node.schedule.recurring import RecurringSchedules
from goqueue.node.schedule.scheduler import Scheduler
from goqueue.node.threads import Threads
from goqueue.node.topic_table import TopicTable
from goqueue.node.topics import Topics
from goqueue.node.transactions.transactions import Transactions

logger = logging.getLogger(__name__)


class Node:
    def __init__(self, config: NodeConfig, disk: Disk, clock: Clock, ids: Ids | None = None) -> None:
        self.config = config
        self.clock = clock
        self.metrics = Metrics()
        self._tasks: set[asyncio.Task[None]] = set()
        self._threads = Threads(config.log.io_thread_count)
        self._disk_watch = DiskWatch(disk, config.disk, self.metrics)
        self._guard = Guard(config.limits, self._disk_watch)
        self._table = TopicTable()
        self._metadata = Metadata(config.limits, clock)
        self._housekeeping = Housekeeping(
            config, disk, clock, self._table, self._metadata, self._disk_watch, self.metrics, self._threads
        )
        self._disk = disk
        self._opener = PartitionOpener(
            disk,
            self._threads,
            self.metrics,
            self._spawn,
            self._housekeeping.note_write,
            sync_timeout_ms=config.log.sync_timeout_ms,
        )
        changes = Changes(self._spawn, timeout_ms=config.log.sync_timeout_ms)
        self.topics = Topics(
            config,
            disk,
            self._table,
            self._metadata,
            self._guard,
            self.metrics,
            self._threads,
            self._opener,
            changes,
        )
        self.producers = Producers(self._metadata, self._guard, changes)
        ids = ids or RandomIds()
        self.groups, self.transactions = self._coordinators(clock, ids)
        self._companions = Companions(disk, self._opener, self._table, self._threads)
        self.scheduler = self._make_scheduler(clock)
        self.recurring = RecurringSchedules(self.scheduler, self._table, self._guard, self._threads, clock)
        self.publisher = Publisher(
            self._table, self._guard, self.metrics, clock, self.transactions, self.scheduler
        )
        self.fetcher = Fetcher(self._table, self._guard, self.metrics, ids)
        self.positions = Positions(self._table, self._guard)
        self.describer = Describer(self._table, self._guard, disk, self._threads)
        self.reader = Reader(self._table, self._guard, self.metrics, self._threads)
        key = ReceiptKey(self._metadata, changes, ids)
        self.queue, self.share, self.share_offsets = self._make_queue(clock, key)
        self.members, self.group_offsets, self.rebalances = self._make_members()
        self.group_views = GroupViews(self.groups)
        self._started_at = 0.0
        self.failed: asyncio.Event = asyncio.Event()  # see `fail`

    def _coordinators(self, clock: Clock, ids: Ids) -> tuple[Groups, Transactions]:
        internal = InternalTopics(self.topics, self._table, clock)
        table, guard, metrics, config = self._table, self._guard, self.metrics, self.config
        groups = Groups(config.groups, internal, table, guard, metrics, clock, ids, self._spawn)
        self.topics.when_deleted(groups.topic_deleted)
        transactions = Transactions(
            config.transactions, internal, table, groups, self.producers, guard, metrics, clock, self._spawn
        )
        return groups, transactions

    def _make_queue(self, clock: Clock, key: ReceiptKey) -> tuple[Queue, Share, ShareOffsets]:
        ledgers = Ledgers(self._companions, self._table, clock, self._postings_of)
        table, guard, metrics = self._table, self._guard, QueueMetrics(self.metrics.registry)
        policies = TopicPolicies(table, self.groups.lease_settings_of)
        moves = MoveMetrics(self.metrics.registry)
        mover = Mover(self.topics, table, self.producers, guard, moves, clock, self._spawn)
        self.redrive = Redrive(ledgers, table, mover, guard, clock)
        queue = Queue(
            self.config.queue,
            ledgers,
            table,
            guard,
            metrics,
            clock,
            key.receipts,
            policies,
            mover.wake,
        )
        self.topics.when_deleted(queue.topic_deleted)
        self.groups.when_group_deleted(queue.check_forget)
        self.groups.when_group_gone(queue.forget)
        share = Share(queue, ledgers, table, guard, metrics, clock, policies, self.groups, self._spawn)
        self.groups.when_member_left(share.member_left)
        return queue, share, ShareOffsets(queue, ledgers, table, guard, self.groups)

    def _make_scheduler(self, clock: Clock) -> Scheduler:
        scheduler = Scheduler(
            self._companions,
            self._table,
            self.producers,
            self._guard,
            self._disk,
            self._threads,
            self.metrics,
            clock,
            self._spawn,
        )
        self.topics.when_deleted(scheduler.topic_deleted)
        return scheduler

    def _postings_of(self, partition: Partition) -> LanePostings:
        return LanePostings(partition, self._disk, self._threads, self._spawn)

    def _make_members(self) -> tuple[Members, GroupOffsets, Rebalances]:
        groups, table, guard, config = self.groups, self._table, self._guard, self.config
        streams = StreamMembers(groups, config.groups)
        self.topics.when_deleted(streams.topic_deleted)
        polling = StreamPolling(streams, self.reader, table, guard, self.metrics)
        queues = QueueMembers(groups, self.queue, table)
        return (
            Members(groups, streams, polling, queues, table, config.limits),
            GroupOffsets(groups, self.queue, table, self.positions),
            Rebalances(
                self.metrics.registry, groups, revocation_ms_max=config.groups.consumer_rebalance_ms_max
            ),
        )

    async def start(self) -> None:
        """Recover everything and take requests."""
        self._started_at = asyncio.get_running_loop().time()
        await self._metadata.start(self._disk, self._opener)
        await self.topics.start()
        self._disk_watch.check()
        await self.groups.start()
        await self.transactions.start()
        await self.queue.start()
        await self.scheduler.start()
        keeping = self._housekeeping
        for work in (
            keeping.flush(),
            keeping.save_checkpoints(),
            keeping.clean_up(),
            keeping.watch_disk(),
            keeping.watch_loop(),
            self.queue.timer.run(),
            self.scheduler.run(),
            self.scheduler.keep(),
        ):
            self._spawn(work)
        self._guard.state = NodeState.READY
        logger.info("node ready node_id=%s topics=%d", self.config.node_id, len(self._table.all()))

    async def drain(self) -> None:
        """Refuse new writes and let waiting readers go; what is under way finishes."""
        self._guard.state = NodeState.DRAINING
        for partition in self._table.partitions():
            partition.wake()
        self.groups.release()
        self.queue.release()
        self.members.release()

    async def stop(self) -> None:
        """Make everything durable and end. Call `drain` first and stop the listeners."""
        if self._guard.state in (NodeState.READY, NodeState.DRAINING):
            self._guard.state = NodeState.DRAINING
            await self.scheduler.stop()
            await self._housekeeping.save_all()
        self._guard.state = NodeState.STOPPED
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._threads.close()

    def fail(self, error: BaseException) -> None:
        """Something happened that cannot: whoever runs the node must end it, and must not call it a clean stop."""
        logger.critical("the node must stop", exc_info=error)
        self.failed.set()

    def health(self) -> Health:
        state = self._guard.state
        logs = [one.log for one in self._table.partitions()]
        if self._metadata.is_open:
            logs.append(self._metadata.partition.log)
        offline = [log.folder for log in logs if log.failure is not None]
        checks = {
            "node": "ok" if state is NodeState.READY else state.value,
            "disk": self._disk_watch.summary,
            "partitions": "ok" if not offline else f"offline: {', '.join(offline[:10])}",
        }
        return Health(
            is_live=not self.failed.is_set(),
            is_ready=state is NodeState.READY and not self.failed.is_set(),
            state=state.value,
            uptime_ms=int((asyncio.get_running_loop().time() - self._started_at) * 1_000),
            checks=checks,
        )

    def stats(self) -> dict[str, int | float | str]:
        partitions = self._table.partitions()
        return {
            "node_id": self.config.node_id,
            "state": self._guard.state.value,
            "topics": len(self._table.all()),
            "partitions": len(partitions),
            "messages": sum(one.log.end - one.log.log_start for one in partitions),
            "bytes": sum(one.log.size_bytes for one in partitions),
            "parked_reads": self._guard.parked_count,
            "disk_used_percent": round(self._disk_watch.used_percent, 1),
        }

    def _spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Start a task that the node owns: none is orphaned, and none fails unseen."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.fail(error)
