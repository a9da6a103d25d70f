"""The shell around the transaction coordinators: one state machine per partition of `__transaction_state`.

Each decision is written and applied in one go, then waited for until it is durable. The markers of a decided transaction
are written by a task of the node's own, begun in the same go: whatever becomes of the client, what was decided is
carried out. In a cluster this node has the partitions that it leads; whoever leads next goes on with what is decided there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import NamedTuple, TypeVar

from goqueue.core.txn.config import TxnConfig
from goqueue.core.txn.events import Event, TxnCodec
from goqueue.core.txn.outcome import Decision, MarkerWork, ProducerIdNeeded
from goqueue.core.txn.refusals import check_transactional_id, unmapped
from goqueue.core.txn.shard import TxnShard
from goqueue.model.cluster_errors import CoordinatorFenced, NotCoordinator
from goqueue.model.errors import CoordinatorNotAvailable, GoQueueError
from goqueue.node.clock import Clock
from goqueue.node.cluster.confirming import Confirm
from goqueue.node.commit import Spawn
from goqueue.node.internal_topics import (
    PARTITION_COUNT,
    TRANSACTIONS_TOPIC,
    InternalTopics,
    transaction_partition,
)
from goqueue.node.led_shards import LedShards
from goqueue.node.owned_state import OwnedState
from goqueue.node.producers import Producers
from goqueue.node.shard_timer import ShardTimer
from goqueue.node.state_log import StateLog, coordinating
from goqueue.node.transactions.markers import Markers
from goqueue.node.transactions.metrics import TxnMetrics

logger = logging.getLogger(__name__)
_PATIENCE_S = 5.0  # for markers, of one who commits: well below what clients give a request

R = TypeVar("R")
Decide = Callable[[TxnShard, int | None, int], Decision[R]]


_NAME = "transaction coordinator"
_SOLO_EPOCH = 0  # on one node nobody else ever was coordinator


class OwnedTransactions(OwnedState[TxnShard, Event]):
    def __init__(self, log: StateLog[Event], new_state: Callable[[], TxnShard], epoch: int) -> None:
        super().__init__(_NAME, log, new_state())
        self._new_state = new_state
        self.epoch = epoch  # of two coordinators of the same transactions, the one with the newer is right

    async def load(self) -> None:
        """The first thing to do where this node has begun to lead the log: what it holds is committed from then on."""
        with self._logged():
            await self._log.lead()
            self.state = self._new_state()
            await self.open()
            await self._log.settled()

    def check_settles(self, *, writes: bool) -> None:
        """Before something that must be durable is asked, or written: it is not begun where nobody can say when it will be."""
        if self._log.is_stuck and (writes or not self._log.is_settled):
            raise CoordinatorNotAvailable(
                f"too few replicas of the {self._name}'s log are in sync; try again"
            )

    def _logged(self) -> AbstractContextManager[None]:
        return coordinating(self._name)


class Completion(NamedTuple):
    """A decided transaction whose participants are being told."""

    shard: OwnedTransactions
    task: asyncio.Task[None]


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
        *,
        is_solo: bool,
        confirm: Confirm | None,
    ) -> None:
        """`confirm` that this node still leads; None where it is alone, and always does."""
        self._config = config
        self._internal_topics = internal_topics
        self._producers = producers
        self._markers = markers
        self._metrics = metrics
        self._clock = clock
        self._spawn = spawn
        self._is_solo = is_solo
        self._confirm = confirm
        self.shards = LedShards(TRANSACTIONS_TOPIC, self._make, spawn, self._loaded, self._ended)
        self._opening = asyncio.Lock()
        self._completions: dict[str, Completion] = {}  # by transactional id
        self._timer = ShardTimer(self.shards.all, self._tick, clock)

    async def start(self) -> None:
        """Go on where the log ends: with what is decided at once, with what is open until its time is up."""
        if self._is_solo and self._internal_topics.exists(TRANSACTIONS_TOPIC):
            await self.open()
        self._spawn(self._timer.run())

    @property
    def is_empty(self) -> bool:
        """There is nothing yet, and no topic either: a cluster has that topic before anybody is sent here."""
        return self._is_solo and not self.shards.has(0)

    async def open(self) -> None:
        """Once, of a node alone: later there are shards. In a cluster they come with the leadership."""
        async with self._opening:
            await self._internal_topics.ensure(TRANSACTIONS_TOPIC)
            if not self._is_solo or self.shards.has(0):
                return
            shards = [self._make(index) for index in range(self._internal_topics.count(TRANSACTIONS_TOPIC))]
            for shard in shards:
                await shard.open()
            for index, shard in enumerate(shards):
                self.shards.put(index, shard)
            for index, shard in enumerate(shards):
                self._loaded(index, shard)

    def _make(self, index: int) -> OwnedTransactions:
        log = self._internal_topics.log(TRANSACTIONS_TOPIC, index, TxnCodec())
        epoch = self._internal_topics.partition(TRANSACTIONS_TOPIC, index).leader_epoch
        return OwnedTransactions(log, lambda: TxnShard(self._config), _SOLO_EPOCH if self._is_solo else epoch)

    def _loaded(self, index: int, shard: OwnedTransactions) -> None:
        for work in shard.state.resume():
            self._complete_later(shard, work)
        self._timer.wake()

    def _ended(self, index: int, shard: OwnedTransactions) -> None:
        """Another node completes what is decided."""
        for completion in list(self._completions.values()):
            if completion.shard is shard:
                completion.task.cancel()

    def shard(self, transactional_id: str) -> OwnedTransactions:
        check_transactional_id(transactional_id)
        if self.is_empty:
            raise unmapped(transactional_id)
        return self.shards.find(transaction_partition(transactional_id, PARTITION_COUNT))

    async def decide(self, transactional_id: str, decide: Decide[R]) -> R:
        """Decide, write, apply and begin to carry out, without an await in between. Back when it is durable. Where there was nothing
        to write, which followers would refuse who follow another coordinator by now, it is made sure that there is none: what is a
        repetition here may be of the producer's next transaction there."""
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
        if not decision.events and self._confirm is not None:
            await self._confirm(TRANSACTIONS_TOPIC, transaction_partition(transactional_id, PARTITION_COUNT))
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
        id = work.transactional_id
        completion = self._completions[id] = Completion(shard, self._spawn(self._complete(shard, work)))
        completion.task.add_done_callback(lambda _: self._forget(id, completion))

    def _forget(self, transactional_id: str, completion: Completion) -> None:
        if self._completions.get(transactional_id) is completion:
            del self._completions[transactional_id]

    async def _complete(self, shard: OwnedTransactions, work: MarkerWork) -> None:
        try:
            await shard.settled()  # a marker on disk before the verdict could outlive it
            await self._markers.write(work, shard.epoch)
            await self._markers.until_done("the end of it", lambda: self._completed(shard, work))
        except (NotCoordinator, CoordinatorFenced) as error:
            logger.info(
                "another node completes a transaction transactional_id=%r reason=%r",
                work.transactional_id,
                error.sentence,
            )
        except CoordinatorNotAvailable as error:  # the verdict may be lost: only a restart knows
            logger.error(
                "a transaction cannot be completed transactional_id=%r error=%r",
                work.transactional_id,
                error.sentence,
            )

    async def _completed(self, shard: OwnedTransactions, work: MarkerWork) -> None:
        await shard.ready()
        shard.write(shard.state.markers_written(work, self._clock.now_ms()))
        self._timer.watch(shard)
        self._metrics.ended.labels("committed" if work.is_commit else "aborted").inc()

    async def completion(self, transactional_ids: Iterable[str]) -> None:
        """Until everybody has heard how their last transactions ended, or for as long as a client has patience."""
        tasks = [self._completions[id].task for id in transactional_ids if id in self._completions]
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
