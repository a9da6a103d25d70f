"""One node: puts the parts together, starts them in order and stops them in the reverse one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from random import SystemRandom

from goqueue.core.cluster.commands import MakeCompanion
from goqueue.core.cluster.events import CompanionKind
from goqueue.core.cluster.nodes import Endpoints
from goqueue.core.raft.messages import Message
from goqueue.log.disk import Disk
from goqueue.model.errors import InvariantViolation, invariant
from goqueue.node.changes import Changes
from goqueue.node.clock import Clock
from goqueue.node.cluster.catching_up import CatchingUp
from goqueue.node.cluster.identity import IdentityFile
from goqueue.node.cluster.member import ClusterMember, raft_config, voters_of
from goqueue.node.cluster.ports import PeerLinks
from goqueue.node.cluster.quorum import Chance, Quorum
from goqueue.node.cluster.quorum_log import QuorumLog
from goqueue.node.companion_loading import CompanionLoader, Keeper
from goqueue.node.companions import Companion, Companions
from goqueue.node.config import NodeConfig
from goqueue.node.coordinators import Coordinators
from goqueue.node.describe import Describer
from goqueue.node.directory import Directory
from goqueue.node.disk_watch import DiskWatch
from goqueue.node.fetch import Fetcher
from goqueue.node.follower_reads import FollowerReads
from goqueue.node.forwarding import Forwarding
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
from goqueue.node.keyed_groups import KeyedGroups
from goqueue.node.local_topics import LocalTopics
from goqueue.node.metadata import Metadata
from goqueue.node.metrics import Metrics
from goqueue.node.opening import PartitionOpener
from goqueue.node.own_tasks import OwnTasks
from goqueue.node.positions import Positions
from goqueue.node.producers import Producers
from goqueue.node.publish import Publisher
from goqueue.node.queue.receipt_key import ReceiptKey
from goqueue.node.queueing import Queueing, QueueNeeds
from goqueue.node.read import Reader
from goqueue.node.requests import Health
from goqueue.node.scaling.keyed import KeyedTopics
from goqueue.node.schedule.recurring import RecurringSchedules
from goqueue.node.schedule.scheduler import Scheduler
from goqueue.node.spread.group_configs import GroupConfigs
from goqueue.node.spread.publishing import Publishing
from goqueue.node.spread.spread import Spread, UseCases
from goqueue.node.threads import Threads
from goqueue.node.topic_folders import TopicFolders
from goqueue.node.topic_table import TopicTable
from goqueue.node.topics import Topics
from goqueue.node.transactions.transactions import Transactions
from goqueue.node.vitals import Vitals

logger = logging.getLogger(__name__)


def _nobody(message: Message) -> None:
    """A node alone has nobody to send anything to."""


class Node:
    def __init__(
        self,
        config: NodeConfig,
        disk: Disk,
        clock: Clock,
        ids: Ids | None = None,
        links: PeerLinks | None = None,
        chance: Chance | None = None,
    ) -> None:
        """`links` lead to the other nodes, if there are peers in the configuration."""
        invariant((links is None) == config.is_solo, "a node has links to others if it has peers")
        self.config = config
        self.clock = clock
        self.metrics = Metrics()
        self._tasks = OwnTasks()
        self._spawn, self.fail, self.failed = self._tasks.spawn, self._tasks.fail, self._tasks.failed
        self._threads = Threads(config.log.io_thread_count)
        self._disk_watch = DiskWatch(disk, config.disk, self.metrics)
        self._guard = Guard(config.limits, self._disk_watch)
        self._table = TopicTable()
        self._metadata = Metadata(
            config.limits, config.topic_defaults, clock, config.cluster.command_timeout_ms
        )
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
            is_solo=config.is_solo,
        )
        ids = ids or RandomIds()
        self.cluster = self._join_quorum(links, clock, ids, chance or SystemRandom().randrange)
        self.directory = Directory(config, self._metadata)
        changes = Changes(self._spawn, timeout_ms=config.log.sync_timeout_ms)
        self._companions = Companions(disk, self._opener, self._table, self._threads)
        self.topics = self._make_topics(changes)
        self.producers = Producers(self._metadata, self._guard, changes, is_solo=config.is_solo)
        self.groups, self.transactions = self._coordinators(clock, ids, links)
        self.scheduler = self._make_scheduler(clock)
        self.recurring = RecurringSchedules(self.scheduler, self._table, self._guard, self._threads, clock)
        self.catching_up = CatchingUp(self._metadata, links, self._local, self._table, self._spawn)
        self.publisher = self._make_publisher(clock, links)
        self.fetcher = Fetcher(self._table, self._guard, self.metrics, ids, FollowerReads(self.directory))
        self.positions = Positions(self._table, self._guard)
        self.describer = Describer(self._table, self._guard, disk, self._threads)
        self.reader = Reader(self._table, self._guard, self.metrics, self._threads)
        key = ReceiptKey(self._metadata, changes, ids)
        self._queueing = self._make_queueing(clock, key, links)
        self._spread = self._make_spread(links, ids)
        self.receipts, self.partitions_seen = self._spread.receipts, self._spread.partitions_seen
        self.members, self.group_offsets, self.rebalances = self._make_members()
        self.keyed_groups = self._make_keyed_groups(links)
        self.group_views = GroupViews(self.groups)
        self._started_at = 0.0

    def _join_quorum(
        self, links: PeerLinks | None, clock: Clock, ids: Ids, chance: Chance
    ) -> ClusterMember | None:
        config = self.config
        self._quorum_log = QuorumLog(self._disk, self._opener, self._threads, clock)
        self._quorum = Quorum(
            raft_config(config),
            self._quorum_log,
            self._metadata,
            links.send if links is not None else _nobody,
            chance,
            self._spawn,
            timeout_ms=config.cluster.command_timeout_ms,
        )
        self._metadata.attach(self._quorum, links)
        self._vitals = Vitals(
            config, self._guard, self._table, self._disk_watch, self._metadata, self._quorum_log
        )
        if links is None:
            return None
        member = ClusterMember(
            config.cluster,
            self._metadata,
            self._quorum,
            links,
            self._table,
            self._disk,
            self._threads,
            clock,
            ids,
            self._spawn,
            self._disk_watch,
            self._guard,
        )
        self.metrics.registry.register(member.metrics)
        return member

    def _make_topics(self, changes: Changes) -> Topics:
        config, folders = self.config, TopicFolders(self._disk)
        self._local = LocalTopics(
            config.topic_defaults,
            folders,
            self._table,
            self._metadata,
            self.metrics,
            self._threads,
            self._opener,
            self._companions,
            None if self.cluster is None else self.cluster.replication,
        )
        if self.cluster is not None:
            self._companions.ensure = self._ensure_companion
        return Topics(
            config,
            folders,
            self._table,
            self._metadata,
            self._local,
            self._guard,
            self.metrics,
            self._threads,
            changes,
        )

    async def _ensure_companion(self, topic: str, kind: CompanionKind) -> None:
        if kind not in self._metadata.catalog.companions(topic):
            await self._metadata.execute(MakeCompanion(topic, kind))
        await self._local.follow(topic)

    def _coordinators(self, clock: Clock, ids: Ids, links: PeerLinks | None) -> tuple[Groups, Transactions]:
        internal = InternalTopics(self.topics, self._table, clock)
        self.coordinators = Coordinators(internal, self.directory, self._guard)
        table, guard, metrics, config = self._table, self._guard, self.metrics, self.config
        catalog = self._metadata.catalog
        confirm = None if self.cluster is None else self.cluster.confirming.until_sure
        groups = Groups(
            config.groups,
            internal,
            table,
            catalog,
            guard,
            metrics,
            clock,
            ids,
            self._spawn,
            is_solo=config.is_solo,
        )
        self._local.when_deleted(groups.topic_deleted)
        transactions = Transactions(
            config.transactions,
            internal,
            table,
            groups,
            self.producers,
            guard,
            metrics,
            clock,
            self._spawn,
            self.directory,
            None if links is None else links.transactions,
            None if links is None else catalog.was_deleted,
            lambda topic, index: catalog.partitions.find(topic, index) is not None,
            confirm,
        )
        if self.cluster is not None:
            groups.shards.confirm = confirm
            self.cluster.replication.when_leading(groups.note_leadership)
            self.cluster.replication.when_leading(transactions.note_leadership)
        return groups, transactions

    def _make_queueing(self, clock: Clock, key: ReceiptKey, links: PeerLinks | None) -> Queueing:
        queueing = Queueing(
            QueueNeeds(
                self.config.queue,
                self._metadata.catalog,
                self._table,
                self.topics,
                self._companions,
                self.groups,
                self.producers,
                self.keyed.division,
                self.directory,
                key,
                self._guard,
                self.metrics,
                self._disk,
                self._threads,
                clock,
                self._spawn,
                links,
            )
        )
        self._local.when_deleted(queueing.queue.topic_deleted)
        self._load_when_leading(Companion.LEDGER, queueing.ledgers)
        self.keyed.look_after(queueing.ledgers, queueing.open_moves)
        self.queue, self.share, self.share_offsets = queueing.queue, queueing.share, queueing.share_offsets
        self.arrivals, self.redrive = queueing.arrivals, queueing.redrive
        self.led_ledgers = queueing.led_ledgers
        return queueing

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
        self._local.when_deleted(scheduler.topic_deleted)
        self._load_when_leading(Companion.SCHEDULE, scheduler)
        self._housekeeping.ask_before_forgetting(scheduler.forgettable_end)
        return scheduler

    def _make_publisher(self, clock: Clock, links: PeerLinks | None) -> Publisher:
        self.keyed = keyed = KeyedTopics(
            self._metadata,
            self._table,
            self._local,
            self._guard,
            self.directory,
            clock,
            self.scheduler,
            self._spawn,
            None if links is None else links.parts,
        )
        if self.cluster is not None:
            self.cluster.replication.when_leading(keyed.note_leadership)
        transactions, scheduler = self.transactions, self.scheduler
        return Publisher(
            self._table, self._guard, self.metrics, clock, transactions, scheduler, keyed.division
        )

    def _load_when_leading(self, kind: Companion, keeper: Keeper) -> None:
        if self.cluster is not None:
            loader = CompanionLoader(kind, keeper, self._companions, self._spawn)
            self.cluster.replication.when_leading(loader.note)

    def _make_spread(self, links: PeerLinks | None, ids: Ids) -> Spread:
        self.forwarding = (
            None if links is None else Forwarding(self.directory, self._metadata, self.coordinators, links)
        )
        here = UseCases(
            self.publisher,
            self.reader,
            self.queue,
            self.groups,
            self.topics,
            self._table,
            self.positions,
            self._queueing.ledgers_asked,
        )
        nodes = None if links is None else links.nodes
        count_max = self.config.limits.messages_per_request_max
        return Spread(here, self.forwarding, nodes, ids, count_max=count_max)

    @property
    def group_configs(self) -> GroupConfigs:
        """Wherever the group is coordinated."""
        return self._spread.group_configs

    @property
    def publishing(self) -> Publishing:
        """To partitions of any node."""
        return self._spread.publishing

    def _make_members(self) -> tuple[Members, GroupOffsets, Rebalances]:
        groups, table, guard, config = self.groups, self._table, self._guard, self.config
        streams = StreamMembers(groups, config.groups)
        self._local.when_deleted(streams.topic_deleted)
        polling = StreamPolling(streams, self._spread.reading, table, guard, self.metrics)
        queues = QueueMembers(groups, self.queue, self._spread.queue_polls, table)
        return (
            Members(groups, streams, polling, queues, table, config.limits),
            GroupOffsets(groups, self._spread.group_places, table),
            Rebalances(
                self.metrics.registry, groups, revocation_ms_max=config.groups.consumer_rebalance_ms_max
            ),
        )

    def _make_keyed_groups(self, links: PeerLinks | None) -> KeyedGroups:
        return KeyedGroups(
            self.groups,
            self._metadata,
            self.directory,
            self._spread.reading,
            self._spread.group_places,
            self._queueing.ledgers_asked,
            self.forwarding,
            None if links is None else links.nodes,
            self._spawn,
            name=self.config.node_id,
            wait_ms=self.config.groups.gate_wait_ms,
        )

    @property
    def failure(self) -> BaseException | None:
        """What has happened that cannot, once `failed` is set."""
        return self._tasks.failure

    async def begin(self) -> None:
        """Read the metadata and take part in the quorum; a cluster's listener must be up soon after."""
        self._started_at = asyncio.get_running_loop().time()
        if self.cluster is not None:
            await self.cluster.begin()
        else:
            await self._threads.run(IdentityFile(self._disk).refuse_member)
        await self._quorum.start(voters_of(self.config))

    async def start(
        self, endpoints: Endpoints | None = None, open_doors: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """Recover everything and take requests. In a cluster, `begin` comes first, `endpoints` are where this node is found,
        and `open_doors` lets clients in who must not meet a node that does not know the cluster yet."""
        if self.cluster is None:
            await self.begin()
        else:
            if endpoints is None:
                raise InvariantViolation("a node of a cluster must say where it is found")
            for work in self.cluster.work():
                self._spawn(work)
            await self.cluster.join(endpoints)
            lost = await self._local.missing(self.cluster.replication.number)
            await self.cluster.report_lost(endpoints, lost)
            self._local.report_lost = partial(self.cluster.report_lost, endpoints)
            self._spawn(self._local.run())
        await self._local.start()
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
            *self.keyed_groups.work(),
            *self.keyed.work(),
        ):
            self._spawn(work)
        self._guard.state = NodeState.READY
        if open_doors is not None:
            await open_doors()
        if self.cluster is not None:
            await self.cluster.membership.ready()
        logger.info("node ready node_id=%s topics=%d", self.config.node_id, len(self._table.all()))

    async def leave(self) -> None:
        """Let other nodes take over what this one leads. Call it before `drain`."""
        if self.cluster is not None and self._guard.state is NodeState.READY:
            await self.cluster.leave()

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
            if self.cluster is not None:
                await self.cluster.gone()
            await self.scheduler.stop()
            await self._housekeeping.save_all(self._quorum_log.partition)
            if self.cluster is not None:
                await self.cluster.end()
        self._guard.state = NodeState.STOPPED
        await self._tasks.end()
        self._threads.close()

    def health(self) -> Health:
        return self._vitals.health(has_failed=self.failed.is_set(), started_at=self._started_at)

    def stats(self) -> dict[str, int | float | str]:
        return self._vitals.stats()
