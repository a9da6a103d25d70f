"""The shell around the transaction coordinators: one state machine per partition of `__transaction_state`.

Each decision is written and applied in one go, then waited for until it is durable. The markers of a decided transaction
are written by a task of the node's own, begun in the same go: whatever becomes of the client, what was decided is
carried out.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from goqueue.core.txn.config import TxnConfig
from goqueue.core.txn.events import Event, TxnCodec
from goqueue.core.txn.outcome import Decision, MarkerWork, ProducerIdNeeded
from goqueue.core.txn.refusals import check_transactional_id, unmapped
from goqueue.core.txn.shard import TxnShard
from goqueue.model.errors import CoordinatorNotAvailable, GoQueueError
from goqueue.node.clock import Clock
from goqueue.node.commit import Spawn
from goqueue.node.internal_topics import TRANSACTIONS_TOPIC, InternalTopics, transaction_partition
from goqueue.node.owned_state import OwnedState
from goqueue.node.producers import Producers
from goqueue.node.shard_timer import ShardTimer
from goqueue.node.transactions.markers import Markers
from goqueue.node.transactions.metrics import TxnMetrics

logger = logging.getLogger(__name__)
_PATIENCE_S = 5.0  # for markers, of one who commits: well below what clients give a request

R = TypeVar("R")
OwnedTransactions = OwnedState[TxnShard, Event]
Decide = Callable[[TxnShard, int | None, int], Decision[R]]


class TxnCoordinator:
    def __init__(
        self,
        config: TxnConfig,
        internal_topics: InternalTopics,
        producers: Producers,
        markers: Markers,
        metrics: TxnMetrics,
        clock: Clock,
        spawn: Spawn,
    ) -> None:
        self._config = config
        self._internal_topics = internal_topics
        self._producers = producers
        self._markers = markers
        self._metrics = metrics
        self._clock = clock
        self._spawn = spawn
        self.shards: Sequence[OwnedTransactions] = ()  # none until the first transactional producer
        self._opening = asyncio.Lock()
        self._completions: dict[str, asyncio.Task[None]] = {}
        self._timer = ShardTimer(lambda: self.shards, self._tick, clock)

    async def start(self) -> None:
        """Go on where the log ends: with what is decided at once, with what is open until its time is up."""
        if self._internal_topics.exists(TRANSACTIONS_TOPIC):
            await self.open()
        self._spawn(self._timer.run())

    async def open(self) -> None:
        """Once: later there are shards."""
        async with self._opening:
            if self.shards:
                return
            logs = await self._internal_topics.logs(TRANSACTIONS_TOPIC, TxnCodec())
            shards = [OwnedState("transaction coordinator", log, TxnShard(self._config)) for log in logs]
            for shard in shards:
                await shard.open()
            self.shards = shards
            for shard in shards:
                for work in shard.state.resume():
                    self._complete_later(shard, work)

    def shard(self, transactional_id: str) -> OwnedTransactions:
        check_transactional_id(transactional_id)
        if not self.shards:
            raise unmapped(transactional_id)
        return self.shards[transaction_partition(transactional_id, len(self.shards))]

    async def decide(self, transactional_id: str, decide: Decide[R]) -> R:
        """Decide, write, apply and begin to carry out, without an await in between. Back when it is durable."""
        shard = self.shard(transactional_id)
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

    async def look(self, transactional_id: str, look: Callable[[TxnShard], R]) -> R:
        """What is seen is durable by the time it is told."""
        shard = self.shard(transactional_id)
        seen = look(shard.state)
        await shard.settled()
        return seen

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

    async def completion(self, transactional_ids: Iterable[str]) -> None:
        """Until everybody has heard how their last transactions ended, or for as long as a client has patience."""
        tasks = [self._completions[id] for id in transactional_ids if id in self._completions]
        if tasks:
            await asyncio.wait(tasks, timeout=_PATIENCE_S)

    def completing(self, prefix: str) -> list[str]:
        """The transactional ids that begin so and whose last transaction is being completed."""
        return [id for id in self._completions if id.startswith(prefix)]

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
