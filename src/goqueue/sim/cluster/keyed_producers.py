"""Idempotent producers of a keyed topic. They choose the partition of a key by as many partitions as they believe there are, and keep
what they have begun to send to one with that: what comes later may go another way, and overtake it if the broker lets it.

As those of Kafka they stamp a record when it is queued, and may leave a node alone for seconds that did not answer."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from goqueue.log.batch import build_batch
from goqueue.model.partitioner import Partitioner, partition_for_key
from goqueue.model.record import NewRecord, Producer
from goqueue.sim.broker import EPOCH_MS
from goqueue.sim.cluster.client import RETRIABLE, ClusterClient
from goqueue.sim.cluster.keyed_history import KeyedHistory, Sent, Way
from goqueue.sim.cluster.world import World
from goqueue.sim.http import NoAnswer
from goqueue.sim.kafka.client import requests
from goqueue.sim.kafka.history import NEVER, Epoch, Part, now_s

_TIMEOUT_MS = 5_000
_BATCH_COUNT_MAX = 3
_HURRY_RATE = 0.3
_BACKOFF_RATE = 0.4
_BACKOFF_S = 1.0, 8.0
_GONE_COUNT = 5  # so often it must be said that a partition is not there: a node may know less than another


class KeyedProducer:
    def __init__(
        self, world: World, history: KeyedHistory, topic: str, name: str, *, key_count: int, is_hasty: bool
    ) -> None:
        """One that is hasty does not wait for an answer before it sends the next record of a key."""
        self._world = world
        self._history = history
        self._rng = world.child()
        self._client = world.client(name)
        self._name = name
        self._topic = topic
        self._is_hasty = is_hasty
        self._keys = dict.fromkeys((f"{name}.{at}" for at in range(key_count)), 0)
        self._producer: Epoch | None = None
        self._partition_count = 0
        self._learned_s = 0.0
        self._stale_s = self._rng.choice((1.0, 5.0, 20.0))
        self._sequences: dict[int, int] = {}
        self._acked_s: dict[int, float] = {}  # by partition, the last time
        self._queues: dict[int, deque[Sent]] = {}
        self._sending: dict[int, asyncio.Task[None]] = {}
        self._open: dict[str, Sent] = {}  # neither acknowledged nor given up
        self._closed = asyncio.Event()
        self.last_error = ""

    @property
    def oldest_s(self) -> float:
        """Since when something of it is under way."""
        return min((sent.queued_s for sent in self._open.values()), default=NEVER)

    async def run(self, count: int) -> None:
        try:
            await self._learn(self._client)
            for _ in range(count):
                await asyncio.sleep(self._rng.expovariate(3.0))
                if now_s() - self._learned_s > self._stale_s:
                    await self._learn(self._client)
                if self._is_hasty and self._rng.random() < _HURRY_RATE:
                    await self._hurry()
                else:
                    await self._send(self._rng.choice(list(self._keys)))
            await self._until(lambda: not self._open)
        finally:
            for task in self._sending.values():
                task.cancel()
            self._client.close()

    async def _hurry(self) -> None:
        """Records that may go two ways at once: to where a key was, and to where it is now."""
        keys = self._rng.sample(list(self._keys), min(len(self._keys), 3))
        for key in keys:
            await self._send(key)
        await self._learn(self._client)
        for key in keys:
            await self._send(key)

    async def _send(self, key: str) -> None:
        index = partition_for_key(Partitioner.MURMUR3, key.encode(), self._partition_count)
        way = Way(self._name, index, self._partition_count, self._acked_s.get(index, NEVER))
        sent = self._history.send(key, self._keys[key], way)
        self._history.cluster.sent[sent.value] = Part(self._topic, 0)
        self._keys[key] += 1
        self._open[sent.value] = sent
        self._queues.setdefault(index, deque()).append(sent)
        task = self._sending.get(index)
        if task is None or task.done():
            self._sending[index] = asyncio.get_running_loop().create_task(self._empty(index))
        if not self._is_hasty:
            await self._until(lambda: sent.value not in self._open)

    async def _until(self, is_so: Callable[[], bool]) -> None:
        while not is_so():
            self._closed.clear()
            await self._closed.wait()

    async def _learn(self, client: ClusterClient) -> None:
        """How many partitions there are, as some node has it."""
        kinds = requests("metadata")
        while True:
            try:
                answer = await client.ask_any(
                    "metadata", 12, topics=[kinds.MetadataRequestTopic(name=self._topic)]
                )
                count = len(answer.topics[0].partitions)
                if count:
                    self._partition_count, self._learned_s = count, now_s()
                    return
            except NoAnswer as error:
                self.last_error = str(error)
            await client.pause()

    # ---------------------------------------------------------------- one partition

    async def _empty(self, index: int) -> None:
        queue, client = self._queues[index], self._world.client(self._name)
        client.epochs = (
            self._client.epochs
        )  # connections of their own, but one client: it does not go back to an older leader
        while queue:
            batch = [queue[at] for at in range(min(len(queue), self._rng.randint(1, _BATCH_COUNT_MAX)))]
            is_acked = await self._deliver(client, index, batch)
            for sent in batch:
                queue.popleft()
                del self._open[sent.value]
                if is_acked:
                    sent.acked_s = self._acked_s[index] = now_s()
            self._sequences[index] = self._sequences.get(index, 0) + len(batch)
            self._closed.set()
        client.close()

    async def _deliver(self, client: ClusterClient, index: int, batch: list[Sent]) -> bool:
        """Until it is acknowledged; False where the partition is gone, and nobody knows what has become of it."""
        gone_count = 0
        while True:
            try:
                code = await self._produce(client, index, batch)
            except NoAnswer as error:
                self.last_error, code = str(error), -1
            if code == 0:
                return True
            if code > 0 and code not in RETRIABLE:
                self._history.cluster.violate(
                    f"{self._name}: Produce to {self._topic}-{index} gave {code} at {now_s():.3f} s"
                )
            is_silent = code < 0 and Part(self._topic, index) in client.leaders
            client.doubt(Part(self._topic, index))
            await client.pause()
            if is_silent and self._is_hasty and self._rng.random() < _BACKOFF_RATE:
                await asyncio.sleep(self._rng.uniform(*_BACKOFF_S))
            await self._learn(client)
            gone_count = gone_count + 1 if index >= self._partition_count else 0
            if gone_count >= _GONE_COUNT:
                return False

    async def _produce(self, client: ClusterClient, index: int, batch: list[Sent]) -> int:
        if self._producer is None:
            answer = await client.ask_any(
                "init_producer_id", 4, transactional_id=None, transaction_timeout_ms=60_000
            )
            if answer.error_code:
                return int(answer.error_code)
            self._producer = self._producer or Epoch(answer.producer_id, answer.producer_epoch)
        records = [NewRecord(sent.key.encode(), sent.value.encode()) for sent in batch]
        made_ms = EPOCH_MS + int(batch[0].queued_s * 1_000)
        data = build_batch(
            records, made_ms, producer=Producer(*self._producer, self._sequences.get(index, 0))
        )
        kinds = requests("produce")
        leader = await client.leader_of(Part(self._topic, index))
        answer = await client.ask(
            leader.host,
            "produce",
            9,
            acks=-1,
            timeout_ms=_TIMEOUT_MS,
            topic_data=[
                kinds.TopicProduceData(
                    name=self._topic, partition_data=[kinds.PartitionProduceData(index=index, records=data)]
                )
            ],
        )
        code = int(answer.responses[0].partition_responses[0].error_code)
        self.last_error = f"Produce to {self._topic}-{index} gave {code}" if code else ""
        return code
