"""Idempotent producers with `acks=all`: each batch is sent until it is acknowledged, always with the same sequence."""

from __future__ import annotations

from goqueue.model.record import Producer
from goqueue.sim.cluster.client import RETRIABLE
from goqueue.sim.cluster.history import Acked
from goqueue.sim.cluster.world import World
from goqueue.sim.http import NoAnswer
from goqueue.sim.kafka.batches import new_batch
from goqueue.sim.kafka.client import requests
from goqueue.sim.kafka.history import Epoch, Part, now_ms, now_s

_TIMEOUT_MS = 5_000


class ClusterProducer:
    def __init__(self, world: World, name: str, part: Part) -> None:
        self._world = world
        self._rng = world.child()
        self._client = world.client(name)
        self._name = name
        self._part = part
        self._producer: Epoch | None = None
        self._sequence = 0
        self._sent_s = (
            0.0  # the batch, for the first time: what it is acknowledged for may have happened since
        )
        self.last_error = ""

    async def run(self, batch_count: int) -> None:
        for number in range(batch_count):
            await self._world.breathe(self._rng, 1.5)
            values = tuple(f"{self._name}.{number}.{index}" for index in range(self._rng.randint(1, 3)))
            self._world.history.sent |= dict.fromkeys(values, self._part)
            self._sent_s = now_s()
            while not await self._send(values):
                self._client.doubt(self._part)
                await self._client.pause()
        self._client.close()

    async def _send(self, values: tuple[str, ...]) -> bool:
        try:
            if self._producer is None:
                self._producer = await self._begin()
            return self._producer is not None and await self._produce(self._producer, values)
        except NoAnswer as error:
            self.last_error = str(error)
            return False

    async def _begin(self) -> Epoch | None:
        answer = await self._client.ask_any(
            "init_producer_id", 4, transactional_id=None, transaction_timeout_ms=60_000
        )
        if answer.error_code:
            self.last_error = f"InitProducerId gave {answer.error_code}"
            return None
        return Epoch(answer.producer_id, answer.producer_epoch)

    async def _produce(self, producer: Epoch, values: tuple[str, ...]) -> bool:
        kinds, part = requests("produce"), self._part
        batch = new_batch(values, Producer(*producer, self._sequence), now_ms(), is_transactional=False)
        leader = await self._client.leader_of(part)
        answer = await self._client.ask(
            leader.host,
            "produce",
            9,
            acks=-1,
            timeout_ms=_TIMEOUT_MS,
            topic_data=[
                kinds.TopicProduceData(
                    name=part.topic,
                    partition_data=[kinds.PartitionProduceData(index=part.partition, records=batch)],
                )
            ],
        )
        result = answer.responses[0].partition_responses[0]
        if result.error_code:
            self.last_error = f"Produce gave {result.error_code}"
            if result.error_code not in RETRIABLE:
                self._world.history.violate(
                    f"{self._name}: Produce to {part} of {values} gave {result.error_code} at {now_s():.3f} s"
                )
            return False
        self._sequence += len(values)
        self._note(values, result.base_offset, leader.host)
        return True

    def _note(self, values: tuple[str, ...], base_offset: int, host: str) -> None:
        world, part = self._world, self._part
        world.history.acked.append(
            Acked(
                part,
                base_offset,
                values,
                host,
                world.cluster.holders(part, base_offset, values, sent_s=self._sent_s),
                world.topics[part.topic].needed_count,
                self._sent_s,
                now_s(),
            )
        )
