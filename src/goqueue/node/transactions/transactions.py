"""Transactions: the use cases of the coordinator, for every protocol.

Each waits until what was decided is durable. `end` answers when it is carried out, too, so that who commits and then reads
finds what was committed; if that takes too long it answers anyway, since the verdict is durable and cannot change.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from goqueue.core.txn.config import TxnConfig
from goqueue.core.txn.events import PREPARED, ProducerEpoch, TopicPartition, TransactionSaved, TxnState
from goqueue.core.txn.refusals import check_init, check_transactional_id, unknown
from goqueue.core.txn.shard import Refusals, TxnShard
from goqueue.model.cluster_errors import CoordinatorLoading
from goqueue.model.errors import ConcurrentTransactions, GoQueueError
from goqueue.node.clock import Clock
from goqueue.node.cluster.confirming import Confirm
from goqueue.node.commit import Spawn
from goqueue.node.directory import Directory
from goqueue.node.guard import Guard
from goqueue.node.internal_topics import (
    OFFSETS_TOPIC,
    PARTITION_COUNT,
    InternalTopics,
    coordinator_partition,
)
from goqueue.node.metrics import Metrics
from goqueue.node.producers import Producers
from goqueue.node.topic_table import TopicTable
from goqueue.node.transactions.coordinator import TxnCoordinator
from goqueue.node.transactions.for_nodes import ForNodes
from goqueue.node.transactions.joints import JointTransactions
from goqueue.node.transactions.markers import GroupMarkers, Markers
from goqueue.node.transactions.metrics import TxnMetrics
from goqueue.node.transactions.remote import Marker, RemoteTransactions
from goqueue.node.transactions.verification import Verification
from goqueue.node.transactions.whereabouts import Whereabouts


class Transactions:
    def __init__(
        self,
        config: TxnConfig,
        internal_topics: InternalTopics,
        table: TopicTable,
        groups: GroupMarkers,
        producers: Producers,
        guard: Guard,
        metrics: Metrics,
        clock: Clock,
        spawn: Spawn,
        directory: Directory,
        remote: RemoteTransactions | None,
        was_deleted: Callable[[str], bool] | None,
        exists: Callable[[str, int], bool],
        confirm: Confirm | None,
    ) -> None:
        """`remote`, `was_deleted` and `confirm` are None where this node is alone. `exists`: the catalogue has a partition."""
        self._config = config
        self._table = table
        self._guard = guard
        self._clock = clock
        counters = TxnMetrics(metrics.registry)
        whereabouts = Whereabouts(table, directory, groups.coordinator_epoch)
        self._markers = Markers(table, groups, clock, counters, whereabouts, remote, was_deleted, exists)
        self._coordinator = TxnCoordinator(
            config,
            internal_topics,
            producers,
            self._markers,
            counters,
            clock,
            spawn,
            is_solo=directory.is_solo,
            confirm=confirm,
        )
        self._verification = Verification(self._coordinator, whereabouts, remote, self._markers.pledges)
        self.for_nodes = ForNodes(self, self._coordinator)
        self.joints = JointTransactions(config, self._coordinator, guard, metrics)

    async def start(self) -> None:
        await self._coordinator.start()

    def note_leadership(self, topic: str, index: int, is_leading: bool) -> None:
        """Of any partition that this node begins or ceases to lead."""
        self._coordinator.shards.note(topic, index, is_leading)

    async def init_producer(
        self, transactional_id: str, timeout_ms: int, given: ProducerEpoch | None = None
    ) -> ProducerEpoch:
        """Own the id and fence whoever did before. Give who you are to get just your next epoch. Raises
        `ConcurrentTransactions` while what was left open is being aborted: try again."""
        self._guard.admit_change()
        check_init(transactional_id, timeout_ms, self._config)
        await self._coordinator.open()
        reply = await self._coordinator.decide(
            transactional_id,
            lambda shard, fresh, now_ms: shard.init_producer(
                transactional_id, timeout_ms, given, fresh_producer_id=fresh, now_ms=now_ms
            ),
        )
        if isinstance(reply, ConcurrentTransactions):
            raise reply
        return reply

    async def add_partitions(
        self, transactional_id: str, producer_id: int, epoch: int, partitions: Sequence[TopicPartition]
    ) -> Refusals:
        """Those that do not exist; if there are any, none was added."""
        self._guard.admit_change()
        refusals = self._missing(partitions)
        if not refusals:
            await self._coordinator.decide(
                transactional_id,
                lambda shard, _, now_ms: shard.add_partitions(
                    transactional_id, producer_id, epoch, partitions, now_ms
                ),
            )
        return refusals

    async def verify(
        self, transactional_id: str, producer_id: int, epoch: int, partitions: Sequence[TopicPartition]
    ) -> Refusals:
        """Those that are not in the producer's open transaction. A partition of the groups' internal topic is in it if one
        of its groups is."""
        self._guard.admit_read()
        return await self._coordinator.look(
            transactional_id, lambda shard: _refusals(shard, transactional_id, producer_id, epoch, partitions)
        )

    async def add_offsets(self, transactional_id: str, producer_id: int, epoch: int, group_id: str) -> None:
        """The group's offsets become part of the transaction; then they may be committed in it."""
        self._guard.admit_change()
        await self._coordinator.decide(
            transactional_id,
            lambda shard, _, now_ms: shard.add_offsets(
                transactional_id, producer_id, epoch, group_id, now_ms
            ),
        )

    async def end(
        self, transactional_id: str, producer_id: int, epoch: int, *, is_commit: bool, bumps_epoch: bool
    ) -> ProducerEpoch:
        """Commit or abort. With `bumps_epoch` (KIP-890) the producer goes on as who the answer says it is."""
        self._guard.admit_relief()  # also on a full disk: readers wait for the end
        await self._coordinator.completion([transactional_id])  # of an end that is asked for again
        reply = await self._coordinator.decide(
            transactional_id,
            lambda shard, fresh, now_ms: shard.end(
                transactional_id,
                producer_id,
                epoch,
                is_commit=is_commit,
                bumps_epoch=bumps_epoch,
                fresh_producer_id=fresh,
                now_ms=now_ms,
            ),
        )
        await self._coordinator.completion([transactional_id])
        return reply

    async def verify_for_write(
        self,
        transactional_id: str | None,
        producer_id: int,
        epoch: int,
        topic: str,
        partition: int,
        *,
        may_add: bool,
    ) -> None:
        """Whether the producer may write its first batch of a transaction here (KIP-890); with `may_add` the partition
        joins the transaction now. Append without an await after this, or a marker may come before the batch."""
        await self._verification.of_write(
            transactional_id,
            ProducerEpoch(producer_id, epoch),
            TopicPartition(topic, partition),
            may_add=may_add,
        )

    async def verify_for_offsets(
        self, transactional_id: str, producer_id: int, epoch: int, group_id: str, *, may_add: bool
    ) -> None:
        """As `verify_for_write`, for the offsets of a group: commit them without an await after this."""
        producer = ProducerEpoch(producer_id, epoch)
        await self._verification.of_offsets(transactional_id, producer, group_id, may_add=may_add)

    async def accept_marker(self, marker: Marker, part: TopicPartition) -> None:
        """Of a coordinator, for a partition that this node leads, or for the groups in one."""
        await self._markers.accept_from_elsewhere(marker, part)

    async def describe(self, transactional_id: str) -> TransactionSaved:
        self._guard.admit_read()
        check_transactional_id(transactional_id)
        if self._coordinator.is_empty:
            raise unknown(transactional_id)
        return await self._coordinator.look(transactional_id, lambda shard: shard.describe(transactional_id))

    async def list(
        self,
        *,
        states: Collection[TxnState] = (),
        producer_ids: Collection[int] = (),
        running_ms_min: int | None = None,
    ) -> list[TransactionSaved]:
        """Those that this node coordinates and that pass every filter that is given, by transactional id."""
        self._guard.admit_read()
        shards = self._coordinator.shards.all()
        if self._coordinator.shards.is_loading():
            raise CoordinatorLoading("transactions are being read from their log; try again")
        now_ms = self._clock.now_ms()
        found = [
            saved
            for shard in shards
            for saved in shard.state.transactions()
            if (not states or saved.state in states)
            and (not producer_ids or saved.producer_id in producer_ids)
            and (running_ms_min is None or _has_run(saved, running_ms_min, now_ms))
        ]
        for shard in shards:
            await shard.settled()
        return sorted(found, key=lambda saved: saved.transactional_id)

    def _missing(self, partitions: Sequence[TopicPartition]) -> Refusals:
        refusals: Refusals = {}
        for part in partitions:
            try:
                self._table.get(part.topic).check_partition(part.partition)
            except GoQueueError as error:
                refusals[part] = error
        return refusals


def _refusals(
    shard: TxnShard, transactional_id: str, producer_id: int, epoch: int, partitions: Sequence[TopicPartition]
) -> Refusals:
    refusals = shard.verify(transactional_id, producer_id, epoch, partitions)
    groups = shard.describe(transactional_id).groups
    homes = {coordinator_partition(group_id, PARTITION_COUNT) for group_id in groups}
    return {
        part: error
        for part, error in refusals.items()
        if part.topic != OFFSETS_TOPIC or part.partition not in homes
    }


def _has_run(saved: TransactionSaved, running_ms_min: int, now_ms: int) -> bool:
    is_running = saved.state is TxnState.ONGOING or saved.state in PREPARED
    return is_running and saved.started_ms is not None and now_ms - saved.started_ms > running_ms_min
