"""A transactional producer against a node, as a Kafka client would be one."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from goqueue.core.txn.events import ProducerEpoch, TopicPartition
from goqueue.log.batch import ATTRIBUTE_TRANSACTIONAL, encode_batch
from goqueue.model.acks import Acks
from goqueue.model.errors import ConcurrentTransactions
from goqueue.model.record import NewRecord, Producer
from goqueue.node.node import Node
from goqueue.node.publish import Transaction
from goqueue.node.requests import Isolation, ReadQuery

_RETRY_S = 0.02
_NOBODY = ProducerEpoch(-1, -1)


@dataclass
class Sender:
    """With `bumps_epoch` it speaks KIP-890: no partition is added before it is written to, each end brings an epoch."""

    id: str = "app"
    bumps_epoch: bool = True
    timeout_ms: int = 60_000
    who: ProducerEpoch = _NOBODY
    _sequences: dict[TopicPartition, int] = field(default_factory=dict)

    async def init(self, node: Node, *, as_same: bool = False) -> ProducerEpoch:
        given = self.who if as_same else None
        while True:
            try:
                self._become(await node.transactions.init_producer(self.id, self.timeout_ms, given))
                return self.who
            except ConcurrentTransactions:
                await asyncio.sleep(_RETRY_S)

    async def write(self, node: Node, *values: bytes, topic: str = "orders", partition: int = 0) -> int:
        """The offset of the first."""
        part = TopicPartition(topic, partition)
        while True:
            try:
                if not self.bumps_epoch:
                    assert await node.transactions.add_partitions(self.id, *self.who, [part]) == {}
                return await self.write_batch(node, part, *values)
            except ConcurrentTransactions:
                await asyncio.sleep(_RETRY_S)

    async def write_batch(self, node: Node, part: TopicPartition, *values: bytes) -> int:
        sequence = self._sequences.get(part, 0)
        _, batch = encode_batch(
            [NewRecord(None, value) for value in values],
            node.transactions._clock.now_ms(),  # older records would fall to retention
            producer=Producer(*self.who, sequence),
            attributes=ATTRIBUTE_TRANSACTIONAL,
        )
        transaction = Transaction(self.id, may_join=self.bumps_epoch)
        placed = await node.publisher.append_batch(*part, batch, acks=Acks.ALL, transaction=transaction)
        await node.publisher.until_stored(placed)
        self._sequences[part] = sequence + len(values)
        return placed.stored.base_offset

    async def end(self, node: Node, *, is_commit: bool) -> ProducerEpoch:
        while True:
            try:
                after = await node.transactions.end(
                    self.id, *self.who, is_commit=is_commit, bumps_epoch=self.bumps_epoch
                )
            except ConcurrentTransactions:
                await asyncio.sleep(_RETRY_S)
            else:
                self._become(after)
                return after

    async def commit(self, node: Node) -> None:
        await self.end(node, is_commit=True)

    async def abort(self, node: Node) -> None:
        await self.end(node, is_commit=False)

    def _become(self, who: ProducerEpoch) -> None:
        if who != self.who:
            self.who = who
            self._sequences.clear()


async def committed(node: Node, topic: str = "orders", partition: int = 0) -> list[bytes | None]:
    """What a reader of committed records sees now."""
    return await _values(node, topic, partition, Isolation.READ_COMMITTED)


async def written(node: Node, topic: str = "orders", partition: int = 0) -> list[bytes | None]:
    """What a reader of everything sees now."""
    return await _values(node, topic, partition, Isolation.READ_UNCOMMITTED)


async def _values(node: Node, topic: str, partition: int, isolation: Isolation) -> list[bytes | None]:
    page = await node.reader.read(topic, partition, ReadQuery(limit=1_000, isolation=isolation))
    return [record.value for record in page.records]


async def is_held_up(node: Node, topic: str = "orders", partition: int = 0) -> bool:
    """Whether readers of committed records wait for a transaction to end."""
    page = await node.reader.read(topic, partition, ReadQuery())
    return page.last_stable_offset < page.high_watermark
