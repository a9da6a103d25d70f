"""Whether a producer may write what it sends as part of its transaction (KIP-890): asked of the transaction's coordinator by
whoever leads the partition, or coordinates the group, before the first write of a transaction there. A late one of a
transaction that has ended would begin it again, and nobody would end it.

A coordinator that was replaced may take for open what its successor has ended. That it was is known where the marker is, or where a group has heard
of the end: both have the epoch of the coordinator that said so, and none of an earlier one is believed about that producer any more."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from goqueue.core.txn.events import ProducerEpoch, TopicPartition
from goqueue.core.txn.outcome import Decision
from goqueue.core.txn.shard import TxnShard
from goqueue.model.cluster_errors import CoordinatorLoading, NotCoordinator, NotLeader, PeerUnreachable
from goqueue.model.errors import (
    CoordinatorNotAvailable,
    InvalidRequest,
    NotEnoughReplicas,
    ProducerFenced,
    TopicNotFound,
    TransactionalProducerFenced,
)
from goqueue.node.internal_topics import (
    OFFSETS_TOPIC,
    PARTITION_COUNT,
    TRANSACTIONS_TOPIC,
    coordinator_partition,
    transaction_partition,
)
from goqueue.node.transactions.coordinator import Decide, TxnCoordinator
from goqueue.node.transactions.pledges import Pledges
from goqueue.node.transactions.remote import RemoteTransactions
from goqueue.node.transactions.whereabouts import Whereabouts

_PATIENCE_S: Final = 5.0  # with coordinators that come and go: well below what clients give a request
_PAUSE_S: Final = 0.05
_PASSING: Final = (
    NotCoordinator,
    CoordinatorLoading,
    CoordinatorNotAvailable,
    NotLeader,
    PeerUnreachable,
    TopicNotFound,  # the coordinators' own: this node has not heard of it yet
)

Ask = Callable[[RemoteTransactions, str], Awaitable[None]]


class Verification:
    def __init__(
        self,
        coordinator: TxnCoordinator,
        whereabouts: Whereabouts,
        remote: RemoteTransactions | None,
        pledges: Pledges,
    ) -> None:
        self._coordinator = coordinator
        self._whereabouts = whereabouts
        self._remote = remote
        self._pledges = pledges

    async def of_write(
        self, transactional_id: str | None, producer: ProducerEpoch, part: TopicPartition, *, may_add: bool
    ) -> None:
        if transactional_id is None:
            raise InvalidRequest("a transactional batch needs the transactional id of its producer")
        owner = transactional_id

        def add(shard: TxnShard, _: int | None, now_ms: int) -> Decision[None]:
            return shard.add_partitions(owner, *producer, [part], now_ms)

        def check(shard: TxnShard) -> None:
            for error in shard.verify(owner, *producer, [part]).values():
                raise error

        async def ask(remote: RemoteTransactions, target: str) -> None:
            await remote.add_partition(target, owner, producer, part, is_check=not may_add)

        try:
            await self._anywhere(owner, producer, part, add if may_add else None, check, ask)
        except TransactionalProducerFenced as error:  # who writes is told as any fenced producer is
            raise ProducerFenced(error.sentence, **error.details) from error
        except _PASSING as error:
            if self._remote is None:
                raise
            # Of what may be answered to a write, clients take this for a reason to try again.
            raise NotEnoughReplicas(f"the transaction cannot be checked now: {error.sentence}") from error

    async def of_offsets(
        self, transactional_id: str, producer: ProducerEpoch, group_id: str, *, may_add: bool
    ) -> None:
        part = TopicPartition(OFFSETS_TOPIC, coordinator_partition(group_id, PARTITION_COUNT))

        def add(shard: TxnShard, _: int | None, now_ms: int) -> Decision[None]:
            return shard.add_offsets(transactional_id, *producer, group_id, now_ms)

        def check(shard: TxnShard) -> None:
            shard.verify_group(transactional_id, *producer, group_id)

        async def ask(remote: RemoteTransactions, target: str) -> None:
            if may_add:
                await remote.add_group(target, transactional_id, producer, group_id)
            else:
                await remote.add_partition(target, transactional_id, producer, part, is_check=True)

        try:
            await self._anywhere(transactional_id, producer, part, add if may_add else None, check, ask)
        except (TopicNotFound, PeerUnreachable) as error:
            # The topic is the coordinators' own: a client would take this for one of those that it commits offsets of.
            raise CoordinatorNotAvailable(
                f"the transaction cannot be checked now: {error.sentence}", **error.details
            ) from error

    async def _anywhere(
        self,
        transactional_id: str,
        producer: ProducerEpoch,
        part: TopicPartition,
        add: Decide[None] | None,
        check: Callable[[TxnShard], None],
        ask: Ask,
    ) -> None:
        if self._remote is None:
            await self._here(transactional_id, add, check)
            return None
        home = transaction_partition(transactional_id, PARTITION_COUNT)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _PATIENCE_S
        while True:
            try:
                async with asyncio.timeout_at(deadline):
                    target = self._whereabouts.leader(TRANSACTIONS_TOPIC, home)
                    if target is None:
                        return self._believe(await self._here(transactional_id, add, check), producer, part)
                    epoch = self._whereabouts.leader_epoch(TRANSACTIONS_TOPIC, home)
                    with self._pledges.made(part, producer.producer_id) as pledge:
                        await ask(self._remote, target)
                        if self._pledges.holds(pledge, part):
                            return self._believe(epoch, producer, part)
            except TimeoutError:
                raise CoordinatorNotAvailable(
                    f"the coordinator of {transactional_id!r} has not said within {_PATIENCE_S:g} s"
                ) from None
            except _PASSING:
                if loop.time() >= deadline:
                    raise
            await asyncio.sleep(_PAUSE_S)

    async def _here(
        self, transactional_id: str, add: Decide[None] | None, check: Callable[[TxnShard], None]
    ) -> int:
        """The epoch of the coordinator."""
        if add is not None:
            await self._coordinator.decide(transactional_id, add)
        shard = self._coordinator.shard(transactional_id)
        while True:  # until one and the same transaction passes twice: it is durable by then, and still open
            check(shard.state)
            serial = shard.state.describe(transactional_id).serial
            await shard.settled()
            check(shard.state)
            if shard.state.describe(transactional_id).serial == serial:
                return shard.epoch

    def _believe(self, coordinator_epoch: int, producer: ProducerEpoch, part: TopicPartition) -> None:
        newest = self._whereabouts.marker_epoch(*part, producer.producer_id)
        if coordinator_epoch < newest:
            raise NotCoordinator(
                f"producer {producer.producer_id} has a marker of coordinator epoch {newest} in {part.topic}-{part.partition}; "
                f"what the coordinator of epoch {coordinator_epoch} says may be over",
                partition=part.partition,
            )
