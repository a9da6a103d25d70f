"""Transactions: the use cases of the coordinator, for every protocol.

Each waits until what was decided is durable. `end` answers when it is carried out, too, so that who commits and then reads
finds what was committed; if that takes too long it answers anyway, since the verdict is durable and cannot change.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from goqueue.core.txn.config import TxnConfig
from goqueue.core.txn.events import PREPARED, ProducerEpoch, TopicPartition, TransactionSaved, TxnState
from goqueue.core.txn.outcome import Decision
from goqueue.core.txn.refusals import check_init, check_transactional_id, unknown
from goqueue.core.txn.shard import Refusals, TxnShard
from goqueue.model.errors import (
    ConcurrentTransactions,
    GoQueueError,
    InvalidRequest,
    ProducerFenced,
    TransactionalProducerFenced,
)
from goqueue.node.clock import Clock
from goqueue.node.commit import Spawn
from goqueue.node.guard import Guard
from goqueue.node.internal_topics import InternalTopics
from goqueue.node.metrics import Metrics
from goqueue.node.producers import Producers
from goqueue.node.topic_table import TopicTable
from goqueue.node.transactions.coordinator import Decide, TxnCoordinator
from goqueue.node.transactions.joints import JointTransactions
from goqueue.node.transactions.markers import GroupMarkers, Markers
from goqueue.node.transactions.metrics import TxnMetrics


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
    ) -> None:
        self._config = config
        self._table = table
        self._guard = guard
        self._clock = clock
        counters = TxnMetrics(metrics.registry)
        self._markers = Markers(table, groups, clock, counters)
        self._coordinator = TxnCoordinator(
            config, internal_topics, producers, self._markers, counters, clock, spawn
        )
        self.joints = JointTransactions(config, self._coordinator, guard, metrics)

    async def start(self) -> None:
        await self._coordinator.start()

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
        """Those that are not in the producer's open transaction."""
        self._guard.admit_read()
        return await self._coordinator.look(
            transactional_id,
            lambda shard: shard.verify(transactional_id, producer_id, epoch, partitions),
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
        if transactional_id is None:
            raise InvalidRequest("a transactional batch needs the transactional id of its producer")
        owner, part = transactional_id, TopicPartition(topic, partition)

        def add(shard: TxnShard, _: int | None, now_ms: int) -> Decision[None]:
            return shard.add_partitions(owner, producer_id, epoch, [part], now_ms)

        def check(shard: TxnShard) -> None:
            for error in shard.verify(owner, producer_id, epoch, [part]).values():
                raise error

        try:
            await self._verified(owner, add if may_add else None, check)
        except TransactionalProducerFenced as error:  # who writes is told as any fenced producer is
            raise ProducerFenced(error.sentence, **error.details) from error

    async def verify_for_offsets(
        self, transactional_id: str, producer_id: int, epoch: int, group_id: str, *, may_add: bool
    ) -> None:
        """As `verify_for_write`, for the offsets of a group."""

        def add(shard: TxnShard, _: int | None, now_ms: int) -> Decision[None]:
            return shard.add_offsets(transactional_id, producer_id, epoch, group_id, now_ms)

        def check(shard: TxnShard) -> None:
            shard.verify_group(transactional_id, producer_id, epoch, group_id)

        await self._verified(transactional_id, add if may_add else None, check)

    async def describe(self, transactional_id: str) -> TransactionSaved:
        self._guard.admit_read()
        check_transactional_id(transactional_id)
        if not self._coordinator.shards:
            raise unknown(transactional_id)
        return await self._coordinator.look(transactional_id, lambda shard: shard.describe(transactional_id))

    async def list(
        self,
        *,
        states: Collection[TxnState] = (),
        producer_ids: Collection[int] = (),
        running_ms_min: int | None = None,
    ) -> list[TransactionSaved]:
        """Those that pass every filter that is given, by transactional id."""
        self._guard.admit_read()
        now_ms = self._clock.now_ms()
        found = [
            saved
            for shard in self._coordinator.shards
            for saved in shard.state.transactions()
            if (not states or saved.state in states)
            and (not producer_ids or saved.producer_id in producer_ids)
            and (running_ms_min is None or _has_run(saved, running_ms_min, now_ms))
        ]
        for shard in self._coordinator.shards:
            await shard.settled()
        return sorted(found, key=lambda saved: saved.transactional_id)

    async def _verified(
        self,
        transactional_id: str,
        add: Decide[None] | None,
        check: Callable[[TxnShard], None],
    ) -> None:
        if add is not None:
            await self._coordinator.decide(transactional_id, add)
        shard = self._coordinator.shard(transactional_id)
        while True:  # until one and the same transaction passes twice: it is durable by then, and still open
            check(shard.state)
            serial = shard.state.describe(transactional_id).serial
            await shard.settled()
            check(shard.state)
            if shard.state.describe(transactional_id).serial == serial:
                return

    def _missing(self, partitions: Sequence[TopicPartition]) -> Refusals:
        refusals: Refusals = {}
        for part in partitions:
            try:
                self._table.get(part.topic).partition(part.partition)
            except GoQueueError as error:
                refusals[part] = error
        return refusals


def _has_run(saved: TransactionSaved, running_ms_min: int, now_ms: int) -> bool:
    is_running = saved.state is TxnState.ONGOING or saved.state in PREPARED
    return is_running and saved.started_ms is not None and now_ms - saved.started_ms > running_ms_min
