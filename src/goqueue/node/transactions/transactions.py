"""Transactions: the use cases of the coordinator, for every protocol.

Each decides, writes and applies in one go, then waits until that is durable. The markers of a decided transaction are
written by a task of the node's own, begun in the same go: whatever becomes of the client, what was decided is carried out.
`end` answers when that is done, so that who commits and then reads finds what was committed; if it takes too long it
answers anyway, since the verdict is durable and cannot change.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

from goqueue.core.txn.config import TxnConfig
from goqueue.core.txn.events import (
    PREPARED,
    Event,
    ProducerEpoch,
    TopicPartition,
    TransactionSaved,
    TxnCodec,
    TxnState,
)
from goqueue.core.txn.outcome import Decision, MarkerWork, ProducerIdNeeded
from goqueue.core.txn.refusals import check_init, check_transactional_id, unknown, unmapped
from goqueue.core.txn.shard import Refusals, TxnShard
from goqueue.model.errors import (
    ConcurrentTransactions,
    CoordinatorNotAvailable,
    GoQueueError,
    InvalidRequest,
    ProducerFenced,
    TransactionalProducerFenced,
)
from goqueue.node.clock import Clock
from goqueue.node.commit import Spawn
from goqueue.node.guard import Guard
from goqueue.node.internal_topics import TRANSACTIONS_TOPIC, InternalTopics, coordinator_partition
from goqueue.node.metrics import Metrics
from goqueue.node.owned_state import OwnedState
from goqueue.node.producers import Producers
from goqueue.node.shard_timer import ShardTimer
from goqueue.node.topic_table import TopicTable
from goqueue.node.transactions.markers import GroupMarkers, Markers
from goqueue.node.transactions.metrics import TxnMetrics

logger = logging.getLogger(__name__)
_PATIENCE_S = 5.0  # for markers, of one who commits: well below what clients give a request

R = TypeVar("R")
OwnedTransactions = OwnedState[TxnShard, Event]


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
        self._internal_topics = internal_topics
        self._table = table
        self._producers = producers
        self._guard = guard
        self._metrics = TxnMetrics(metrics.registry)
        self._clock = clock
        self._spawn = spawn
        self._markers = Markers(table, groups, clock, self._metrics)
        self._shards: list[OwnedTransactions] = []  # none until the first transactional producer
        self._opening = asyncio.Lock()
        self._completions: dict[str, asyncio.Task[None]] = {}
        self._timer = ShardTimer(lambda: self._shards, self._tick, clock)

    async def start(self) -> None:
        """Go on where the log ends: with what is decided at once, with what is open until its time is up."""
        if self._internal_topics.exists(TRANSACTIONS_TOPIC):
            await self._open()
        self._spawn(self._timer.run())

    async def init_producer(
        self, transactional_id: str, timeout_ms: int, given: ProducerEpoch | None = None
    ) -> ProducerEpoch:
        """Own the id and fence whoever did before. Give who you are to get just your next epoch. Raises
        `ConcurrentTransactions` while what was left open is being aborted: try again."""
        self._guard.admit_change()
        check_init(transactional_id, timeout_ms, self._config)
        await self._open()
        reply = await self._decide(
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
            await self._decide(
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
        return await self._look(
            transactional_id,
            lambda shard: shard.verify(transactional_id, producer_id, epoch, partitions),
        )

    async def add_offsets(self, transactional_id: str, producer_id: int, epoch: int, group_id: str) -> None:
        """The group's offsets become part of the transaction; then they may be committed in it."""
        self._guard.admit_change()
        await self._decide(
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
        await self._completion(transactional_id)  # of an end that is asked for again
        reply = await self._decide(
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
        await self._completion(transactional_id)
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
        if not self._shards:
            raise unknown(transactional_id)
        return await self._look(transactional_id, lambda shard: shard.describe(transactional_id))

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
            for shard in self._shards
            for saved in shard.state.transactions()
            if (not states or saved.state in states)
            and (not producer_ids or saved.producer_id in producer_ids)
            and (running_ms_min is None or _has_run(saved, running_ms_min, now_ms))
        ]
        for shard in self._shards:
            await shard.settled()
        return sorted(found, key=lambda saved: saved.transactional_id)

    # ---------------------------------------------------------------- deciding

    async def _open(self) -> None:
        """Once: later there are shards."""
        async with self._opening:
            if self._shards:
                return
            logs = await self._internal_topics.logs(TRANSACTIONS_TOPIC, TxnCodec())
            shards = [OwnedState("transaction coordinator", log, TxnShard(self._config)) for log in logs]
            for shard in shards:
                await shard.open()
            self._shards = shards
            for shard in shards:
                for work in shard.state.resume():
                    self._complete_later(shard, work)

    def _shard(self, transactional_id: str) -> OwnedTransactions:
        if not self._shards:
            raise unmapped(transactional_id)
        return self._shards[coordinator_partition(transactional_id, len(self._shards))]

    async def _decide(
        self, transactional_id: str, decide: Callable[[TxnShard, int | None, int], Decision[R]]
    ) -> R:
        """Decide, write, apply and begin to carry out, without an await in between. Back when it is durable."""
        check_transactional_id(transactional_id)
        shard = self._shard(transactional_id)
        await shard.ready()
        fresh: int | None = None
        while True:
            try:
                decision = decide(shard.state, fresh, self._clock.now_ms())
                break
            except ProducerIdNeeded:
                fresh, _ = await self._producers.init()
        self._carry_out(shard, decision)
        await shard.settled()
        return decision.reply

    def _carry_out(self, shard: OwnedTransactions, decision: Decision[R]) -> None:
        shard.write(decision.events)
        for work in decision.markers:
            self._complete_later(shard, work)
        self._timer.watch(shard)

    async def _verified(
        self,
        transactional_id: str,
        add: Callable[[TxnShard, int | None, int], Decision[None]] | None,
        check: Callable[[TxnShard], None],
    ) -> None:
        if add is not None:
            await self._decide(transactional_id, add)
        check_transactional_id(transactional_id)
        shard = self._shard(transactional_id)
        while True:  # until one and the same transaction passes twice: it is durable by then, and still open
            check(shard.state)
            serial = shard.state.describe(transactional_id).serial
            await shard.settled()
            check(shard.state)
            if shard.state.describe(transactional_id).serial == serial:
                return

    async def _look(self, transactional_id: str, look: Callable[[TxnShard], R]) -> R:
        """What is seen is durable by the time it is told."""
        check_transactional_id(transactional_id)
        shard = self._shard(transactional_id)
        seen = look(shard.state)
        await shard.settled()
        return seen

    def _missing(self, partitions: Sequence[TopicPartition]) -> Refusals:
        refusals: Refusals = {}
        for part in partitions:
            try:
                self._table.get(part.topic).partition(part.partition)
            except GoQueueError as error:
                refusals[part] = error
        return refusals

    # ---------------------------------------------------------------- completing

    def _complete_later(self, shard: OwnedTransactions, work: MarkerWork) -> None:
        self._completions[work.transactional_id] = self._spawn(self._complete(shard, work))

    async def _complete(self, shard: OwnedTransactions, work: MarkerWork) -> None:
        try:
            await shard.settled()  # a marker on disk before the verdict could outlive it
            await self._markers.write(work)
            await self._markers.until_done("the end of it", lambda: self._completed(shard, work))
        except CoordinatorNotAvailable as error:  # the verdict may be lost: only a restart knows
            logger.error(
                "a transaction cannot be completed transactional_id=%r error=%r",
                work.transactional_id,
                error.sentence,
            )
        finally:
            del self._completions[work.transactional_id]

    async def _completed(self, shard: OwnedTransactions, work: MarkerWork) -> None:
        await shard.ready()
        shard.write(shard.state.markers_written(work, self._clock.now_ms()))
        self._timer.watch(shard)
        self._metrics.ended.labels("committed" if work.is_commit else "aborted").inc()

    async def _completion(self, transactional_id: str) -> None:
        """Until everybody has heard how the last transaction ended, or for as long as a client has patience."""
        task = self._completions.get(transactional_id)
        if task is not None:
            await asyncio.wait([task], timeout=_PATIENCE_S)

    # ---------------------------------------------------------------- deadlines

    async def _tick(self, shard: OwnedTransactions, now_ms: int) -> None:
        try:
            await shard.ready()
            decision = shard.state.tick(now_ms)
            self._carry_out(shard, decision)
        except GoQueueError as error:
            shard.pause(now_ms)
            logger.warning("transactions that timed out stay open error=%r", error.sentence)
        else:
            self._metrics.timeouts.inc(len(decision.markers))
            for work in decision.markers:
                logger.info("transaction timed out transactional_id=%r", work.transactional_id)


def _has_run(saved: TransactionSaved, running_ms_min: int, now_ms: int) -> bool:
    is_running = saved.state is TxnState.ONGOING or saved.state in PREPARED
    return is_running and saved.started_ms is not None and now_ms - saved.started_ms > running_ms_min
