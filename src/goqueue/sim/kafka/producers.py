"""Producers of the Kafka workload: idempotent ones, and transactional ones with rivals, silences and changes of mind."""

from __future__ import annotations

import asyncio

from goqueue.model.record import Producer
from goqueue.sim.http import NoAnswer
from goqueue.sim.kafka.batches import new_batch
from goqueue.sim.kafka.client import requests
from goqueue.sim.kafka.history import Epoch, Part, Write, now_ms, now_s
from goqueue.sim.kafka.txn_producer import TxnOver, TxnProducer
from goqueue.sim.kafka.world import RETRIABLE, World, pause


class IdempotentProducer:
    """Sends batches to one partition, each until it is acknowledged."""

    def __init__(self, world: World, name: str, part: Part) -> None:
        self._history = world.history
        self._rng = world.child()
        self._client = world.client(name)
        self._name = name
        self._part = part
        self._producer: Epoch | None = None
        self._sequence = 0

    async def run(self, batch_count: int, *, per_s: float = 4) -> None:
        for number in range(batch_count):
            await asyncio.sleep(self._rng.expovariate(per_s))
            values = [f"{self._name}.{number}.{index}" for index in range(self._rng.randint(1, 3))]
            self._history.send(values, self._part, None)
            while not await self._send(values):
                await pause(self._rng)
        self._client.close()

    async def _send(self, values: list[str]) -> bool:
        try:
            if self._producer is None:
                answer = await self._client.call(
                    "init_producer_id", 4, transactional_id=None, transaction_timeout_ms=60_000
                )
                if answer.error_code:
                    return False
                self._producer = Epoch(answer.producer_id, answer.producer_epoch)
            return await self._produce(self._producer, values)
        except NoAnswer:
            return False

    async def _produce(self, producer: Epoch, values: list[str]) -> bool:
        kinds = requests("produce")
        sent_s = now_s()
        batch = new_batch(values, Producer(*producer, self._sequence), now_ms(), is_transactional=False)
        answer = await self._client.call(
            "produce",
            9,
            acks=-1,
            timeout_ms=5_000,
            topic_data=[
                kinds.TopicProduceData(
                    name=self._part.topic,
                    partition_data=[kinds.PartitionProduceData(index=self._part.partition, records=batch)],
                )
            ],
        )
        result = answer.responses[0].partition_responses[0]
        if result.error_code:
            if result.error_code not in RETRIABLE:
                self._history.violate(f"{self._name}: Produce gave {result.error_code}")
            return False
        self._sequence += len(values)
        self._history.writes.append(
            Write(self._part, result.base_offset, tuple(values), producer, sent_s, now_s())
        )
        return True


class TransactionalProducer:
    """Runs transactions over some partitions. Its rivals share its transactional id and take it from each other; only the
    one that is not a rival goes on when the run calms down."""

    def __init__(
        self,
        world: World,
        name: str,
        transactional_id: str,
        parts: list[Part],
        *,
        is_new_style: bool,
        is_rival: bool,
    ) -> None:
        self._world = world
        self._rng = world.child()
        self._name = name
        self._parts = parts
        self._is_rival = is_rival
        self._producer = TxnProducer(world, name, transactional_id, is_new_style=is_new_style)
        self._value_count = 0

    async def run(self, txn_count: int, *, per_s: float = 2) -> None:
        is_owner = False
        for _ in range(txn_count):
            await asyncio.sleep(self._rng.expovariate(per_s))
            if self._is_rival and self._world.is_calm:
                break
            try:
                if not is_owner:
                    await self._producer.init()
                is_owner = await self._transact()
            except TxnOver:
                is_owner = False
                self._producer.abandon()
        self._producer.close()

    async def _transact(self) -> bool:
        """One transaction, ended in some way; whether the producer goes on as it is."""
        self._producer.begin()
        for _ in range(self._rng.randint(1, 3)):
            await self._producer.send(self._rng.choice(self._parts), self._values())
            if not self._world.is_calm and self._rng.random() < 0.08:
                await asyncio.sleep(1.3 * self._producer.timeout_s)
        how = self._rng.random()
        if how < 0.1 and not self._world.is_calm:
            self._producer.abandon()
            return False
        if how < 0.25 and not self._world.is_calm:
            await self._producer.commit_and_die()
        else:
            await self._producer.end(is_commit=how < 0.75)
        return True

    def _values(self) -> list[str]:
        first = self._value_count
        self._value_count += self._rng.randint(1, 3)
        return [f"{self._name}:{number}" for number in range(first, self._value_count)]
