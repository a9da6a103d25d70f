"""All that serves queues on one node, put together: leases in ledgers, share groups, and the moves to dead letters and back."""

from __future__ import annotations

from dataclasses import dataclass

from goqueue.core.catalog import Catalog
from goqueue.log.disk import Disk
from goqueue.node.clock import Clock
from goqueue.node.cluster.ports import PeerLinks
from goqueue.node.commit import Spawn
from goqueue.node.companions import Companions
from goqueue.node.config import QueueConfig
from goqueue.node.dead_letters.arrivals import Arrivals, Destinations
from goqueue.node.dead_letters.metrics import MoveMetrics
from goqueue.node.dead_letters.moves import Mover
from goqueue.node.dead_letters.open_moves import MovesHere, OpenMoves
from goqueue.node.dead_letters.redrive import Redrive
from goqueue.node.directory import Directory
from goqueue.node.groups.groups import Groups
from goqueue.node.guard import Guard
from goqueue.node.metrics import Metrics
from goqueue.node.partition import Partition
from goqueue.node.producers import Producers
from goqueue.node.queue.group_settings import GroupSettings, coordinator_finder
from goqueue.node.queue.led_ledgers import AllLedgers, LedgersAsked, LedLedgers
from goqueue.node.queue.ledgers import Ledgers
from goqueue.node.queue.metrics import QueueMetrics
from goqueue.node.queue.policies import TopicPolicies
from goqueue.node.queue.postings import LanePostings
from goqueue.node.queue.queue import Queue
from goqueue.node.queue.receipt_key import ReceiptKey
from goqueue.node.queue.share import Share
from goqueue.node.queue.share_offsets import ShareOffsets
from goqueue.node.scaling.division import Division
from goqueue.node.threads import Threads
from goqueue.node.topic_table import TopicTable
from goqueue.node.topics import Topics


@dataclass(frozen=True, slots=True)
class QueueNeeds:
    """What queues use of the node."""

    config: QueueConfig
    catalog: Catalog
    table: TopicTable
    topics: Topics
    companions: Companions
    groups: Groups
    producers: Producers
    division: Division
    directory: Directory
    key: ReceiptKey
    guard: Guard
    metrics: Metrics
    disk: Disk
    threads: Threads
    clock: Clock
    spawn: Spawn
    links: PeerLinks | None  # None where the node is alone


class Queueing:
    def __init__(self, needs: QueueNeeds) -> None:
        self._needs = needs
        table, guard, clock, links = needs.table, needs.guard, needs.clock, needs.links
        remote = None if links is None else links.ledgers
        find = coordinator_finder(table, needs.directory)
        settings = GroupSettings(needs.groups, find, remote, needs.spawn)
        policies = TopicPolicies(table, settings, needs.division.home_of)
        counted, receipts = QueueMetrics(needs.metrics.registry), needs.key.receipts
        self.ledgers = Ledgers(needs.companions, table, clock, self._postings_of)
        mover = self._make_mover()
        self.queue = Queue(
            needs.config, self.ledgers, table, guard, counted, clock, receipts, policies, mover.wake
        )
        self.share = Share(
            self.queue,
            self.ledgers,
            table,
            guard,
            counted,
            clock,
            policies,
            needs.groups,
            settings,
            needs.spawn,
        )
        moves = MovesHere(needs.catalog, table, self.ledgers, needs.division.home_of)
        self.led_ledgers = LedLedgers(self.queue, self.ledgers, table, moves)
        self.ledgers_asked = self._follow_groups(self.led_ledgers)
        self.open_moves = OpenMoves(needs.catalog, self.ledgers_asked, is_alone=links is None)
        self.share_offsets = ShareOffsets(self.queue, self.ledgers_asked, table, guard, needs.groups)

    def _make_mover(self) -> Mover:
        needs = self._needs
        table, guard, clock, division = needs.table, needs.guard, needs.clock, needs.division
        appends = None if needs.links is None else needs.links.appends
        self.arrivals = Arrivals(table, guard, clock, division.send_on)
        destinations = Destinations(clock, needs.directory, appends, division.send_on)
        counted = MoveMetrics(needs.metrics.registry)
        mover = Mover(needs.topics, table, needs.producers, destinations, guard, counted, clock, needs.spawn)
        self.redrive = Redrive(self.ledgers, table, mover, guard, clock, division.home_of)
        return mover

    def _follow_groups(self, here: LedLedgers) -> LedgersAsked:
        """What ends with a group or a member ends in all ledgers of the cluster; the answer is whom to ask for what they have."""
        needs, groups = self._needs, self._needs.groups
        if needs.links is None:
            groups.when_group_deleted(self.queue.check_forget)
            groups.when_group_gone(self.queue.forget)
            groups.when_member_left(self.share.member_left)
            return here
        companions, remote = needs.catalog.companions, needs.links.ledgers
        every = AllLedgers(here, needs.table, needs.directory, companions, remote)
        groups.when_group_deleted(every.check_forget)
        groups.when_group_gone(every.forget)
        groups.when_member_left(self.share.member_left)
        groups.when_member_left(every.member_left)
        return every

    def _postings_of(self, partition: Partition) -> LanePostings:
        return LanePostings(partition, self._needs.disk, self._needs.threads, self._needs.spawn)
