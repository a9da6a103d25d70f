"""Everything that makes a node part of a cluster, put together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Coroutine, Sequence

from goqueue import __version__
from goqueue.core.catalog import AlterPartitions, Event, NodeRegistered, NodeRemoved, NodeStateChanged
from goqueue.core.cluster.commands import InSyncProposal
from goqueue.core.cluster.events import ClusterNamed
from goqueue.core.cluster.nodes import Endpoints, NodeEntry, NodeState
from goqueue.core.cluster.partitions import NEVER
from goqueue.core.raft.config import RaftConfig
from goqueue.log.disk import Disk
from goqueue.model.cluster_errors import NameTaken
from goqueue.node.clock import Clock
from goqueue.node.cluster.confirming import Confirming
from goqueue.node.cluster.controller import Controller
from goqueue.node.cluster.health import Health
from goqueue.node.cluster.membership import Membership
from goqueue.node.cluster.metrics import ClusterMetrics
from goqueue.node.cluster.operations import Operations
from goqueue.node.cluster.own_folder import OwnFolder
from goqueue.node.cluster.partition_orders import PartitionOrders
from goqueue.node.cluster.ports import Copying, PeerLinks
from goqueue.node.cluster.quorum import Quorum
from goqueue.node.cluster.reassignment import Reassignments
from goqueue.node.cluster.service import Service
from goqueue.node.commit import Spawn
from goqueue.node.config import ClusterConfig, NodeConfig
from goqueue.node.disk_watch import DiskWatch
from goqueue.node.guard import Guard
from goqueue.node.ids import Ids
from goqueue.node.metadata import Metadata
from goqueue.node.replication.replication import Replication
from goqueue.node.threads import Threads
from goqueue.node.topic_folders import owner_of
from goqueue.node.topic_table import TopicTable

logger = logging.getLogger(__name__)
VOTER_COUNT_MAX = 5
_COPYING_COUNT_MAX = 1_000  # in a heartbeat


def voters_of(config: NodeConfig) -> tuple[str, ...]:
    """Those who decide. Everybody must be configured with the same peers in the same order."""
    peers = [peer.name for peer in config.cluster.peers] or [config.node_id]
    return tuple(peers[:VOTER_COUNT_MAX])


def raft_config(config: NodeConfig) -> RaftConfig:
    cluster = config.cluster
    return RaftConfig(
        name=config.node_id,
        heartbeat_ms=min(cluster.heartbeat_ms, cluster.lease_renew_ms),
        election_ms_min=cluster.dead_ms,
        election_ms_max=2 * cluster.dead_ms,
        lease_ms=cluster.lease_ms,
    )


class ClusterMember:
    def __init__(
        self,
        config: ClusterConfig,
        metadata: Metadata,
        quorum: Quorum,
        links: PeerLinks,
        table: TopicTable,
        disk: Disk,
        threads: Threads,
        clock: Clock,
        ids: Ids,
        spawn: Spawn,
        disk_watch: DiskWatch,
        guard: Guard,
    ) -> None:
        self._metadata = metadata
        self._quorum = quorum
        self._ids = ids
        self._folder = OwnFolder(quorum.name, disk, threads)
        self.controller = Controller(config, metadata, quorum, ids)
        self.membership = Membership(
            config, metadata, quorum, self.controller, links, ids.fresh(), __version__
        )
        self.connects_as = self.membership.incarnation  # until a controller has heard of the next
        self.health = Health(metadata, quorum, links, spawn)
        self.service = Service(metadata, quorum, self.controller, self.health, links, spawn)
        self.operations = Operations(metadata)
        self.partition_orders = PartitionOrders(metadata, guard)
        self.reassignments = Reassignments(metadata, self.controller, links, guard, spawn)
        self.replication = Replication(
            config,
            table,
            links,
            disk,
            threads,
            clock,
            spawn,
            name_of=self._name_of,
            propose=self._propose,
            fenced=self._fenced,
            limit_of=self._limit_of,
            unclean_epoch_of=self._unclean_epoch_of,
            controller_heard_ms=self.membership.controller_heard_ms,
        )
        self.metrics = ClusterMetrics(
            metadata, quorum, self.controller, self.health, self.service, self.replication, links
        )
        self.confirming = Confirming(metadata, links, self.replication, spawn)
        self._configured = {peer.name for peer in config.peers}
        self._reporting = asyncio.Lock()
        self._address = ""  # where this node listens for others
        self._spawn = spawn
        metadata.when_applied(self._note_nodes)
        metadata.when_restored(self._note_all_nodes)
        self.membership.copying = self._copying
        self.membership.is_full = lambda: disk_watch.is_full
        self.service.incarnation = lambda: self.membership.incarnation
        disk_watch.when_changed(self.membership.wake)
        disk_watch.when_changed(self._save_folder)

    @property
    def cluster_id(self) -> str | None:
        """Of the cluster that the data folder belongs to; None until it has joined one."""
        return self._folder.cluster_id

    async def begin(self) -> None:
        """Before anything is written."""
        await self._folder.begin()

    async def join(self, endpoints: Endpoints) -> None:
        """Become one of them, fenced; the catalogue is known when this returns."""
        self._address = endpoints.cluster
        node = await self._register(endpoints, self.membership.incarnation, lost=[])
        self.replication.number = node.number
        self._remember()

    async def _register(
        self, endpoints: Endpoints, incarnation: str, *, lost: list[tuple[str, int]]
    ) -> NodeEntry:
        previous = await self._folder.note_joining(incarnation)
        if incarnation != self.membership.incarnation:
            self.membership.begin_again(incarnation)
        node = await self.membership.join(endpoints, lost=lost, previous=previous)
        self.connects_as = incarnation
        await self._folder.note_cluster(self._metadata.catalog.cluster_id)
        await self._folder.note_joined(incarnation)
        return node

    async def report_lost(self, endpoints: Endpoints, lost: list[tuple[str, int]]) -> None:
        """Partitions are not here, or damaged, that should be whole: nobody may count on them. One report after the other, for each
        is another incarnation."""
        if lost:
            logger.error("partitions are missing or damaged count=%d first=%s-%d", len(lost), *lost[0])
            async with self._reporting:
                await self._register(endpoints, self._ids.fresh(), lost=lost)

    def work(self) -> list[Coroutine[None, None, None]]:
        """What has to run all the time."""
        return [self.controller.run(), self.membership.run(), *self.replication.work()]

    async def leave(self) -> None:
        await self.membership.leave(lambda: not self.replication.led())

    async def gone(self) -> None:
        """The last word to the others: this node follows nobody any more."""
        await self.replication.stop()
        await self.membership.gone()

    async def end(self) -> None:
        """Nothing is written any more: the folder may be another process's next."""
        await self._folder.end()

    def remembered_address(self, name: str) -> str | None:
        """Where a node was that is not among the configured peers."""
        return self._folder.addresses.get(name)

    def _note_nodes(self, events: Sequence[Event]) -> None:
        if any(isinstance(event, NodeRegistered | NodeRemoved | ClusterNamed) for event in events):
            self._remember()
        for event in events:
            if isinstance(event, NodeRegistered):
                self.replication.note_started(event.number)
                self._check_name(event.name, event.incarnation, event.endpoints)
        if any(isinstance(one, NodeStateChanged) and one.state is not NodeState.FENCED for one in events):
            self.replication.note_unfenced()

    def _note_all_nodes(self) -> None:
        """Any of them may have started anew in what was skipped."""
        self._remember()
        for node in self._metadata.catalog.nodes():
            self.replication.note_started(node.number)
            self._check_name(node.name, node.incarnation, node.endpoints)
        self.replication.note_unfenced()

    def _check_name(self, name: str, incarnation: str, endpoints: Endpoints) -> None:
        """One that stood still may have lost its name to another process meanwhile: it would lead what that one leads."""
        is_other = name == self._quorum.name and not self._folder.has_made(incarnation)
        if is_other and self.replication.has_joined:
            self._spawn(self._end_as_former(NameTaken(name, endpoints.cluster, self._address)))

    async def _end_as_former(self, error: NameTaken) -> None:
        """What a task of the node raises ends it."""
        raise error

    def _remember(self) -> None:
        """Only once it has joined: what is replayed before is older than what is remembered."""
        if self.replication.number < 0:
            return
        cluster_id, strangers = self._metadata.catalog.cluster_id, self._strangers()
        if cluster_id != self._folder.cluster_id:
            self._spawn(
                self._folder.note_cluster_later(cluster_id)
            )  # the first nodes join before it has an id
        if strangers != self._folder.addresses:
            self._folder.know_addresses(strangers)
            self._save_folder()

    def _save_folder(self) -> None:
        self._spawn(self._folder.save_if_it_can())

    def _strangers(self) -> dict[str, str]:
        nodes = self._metadata.catalog.nodes()
        return {node.name: node.endpoints.cluster for node in nodes if node.name not in self._configured}

    def _name_of(self, number: int) -> str | None:
        node = self._metadata.catalog.node_by_number(number)
        return None if node is None else node.name

    def _fenced(self) -> set[int]:
        nodes = self._metadata.catalog.nodes()
        return {node.number for node in nodes if node.state is NodeState.FENCED}

    async def _propose(self, proposals: list[InSyncProposal]) -> Collection[tuple[str, int]]:
        command = AlterPartitions(self.replication.number, self.membership.incarnation, proposals)
        await self._metadata.execute(command)
        states, me = self._metadata.catalog.partitions, self._metadata.catalog.node(self._quorum.name)
        if me is None or me.incarnation != command.incarnation:
            return set()  # this one was not heeded; an earlier one may be
        # One that has changed since may have been accepted when it was proposed before, though no answer came. Only a controller of an
        # earlier version leaves the epoch as it is where it refuses a proposal.
        return {
            (one.topic, one.partition)
            for one in proposals
            if (state := states.find(one.topic, one.partition)) is not None and state.epoch == one.epoch
        }

    def _limit_of(self, topic: str, index: int) -> int | None:
        """Only while this node is new to the partition: once it is in sync, clients wait for it."""
        catalog, name = self._metadata.catalog, owner_of(topic)
        limit = catalog.plans.limit_of(name, index)
        if limit is None:
            return None
        state, me = catalog.partitions.find(name, index), self.replication.number
        is_copying = state is not None and me in state.adding and me not in state.in_sync
        return limit if is_copying else None

    def _unclean_epoch_of(self, topic: str, index: int) -> int:
        state = self._metadata.catalog.partitions.find(owner_of(topic), index)
        return NEVER if state is None else state.unclean_epoch

    def _copying(self) -> list[Copying]:
        """Of what this node leads."""
        found: list[Copying] = []
        for place in self._metadata.catalog.partitions.moving():
            leadership = self.replication.leadership(*place)
            if leadership is not None and len(found) < _COPYING_COUNT_MAX:
                adding = leadership.replicas.state.adding
                found += [Copying(*place, number, *leadership.copied(number)) for number in adding]
        return found
