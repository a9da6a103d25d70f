"""Ours by Kafka's protocol: confluent-kafka's producer, and its ShareConsumer with explicit acknowledgement.

Both block, so each call runs in a thread. What the topic is made with and asked about goes by REST.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any  # the share consumer has no types

import confluent_kafka
import msgspec
from confluent_kafka import KafkaError, Message, Producer

from bench.line import require
from bench.queue_client import Taken
from bench.queue_plans import Queue
from bench.queue_rest import Connection, RestQueue, group_of

_TIMEOUT_S = 30.0
_POLL_S_MAX = 0.5
_STATISTICS_MS = 50
_ACCEPT = 1
_kafka: Any = confluent_kafka


class _Config(msgspec.Struct):
    """Of an answer that only has to be a success."""


class _Group(msgspec.Struct):
    assignment_size: int = 0


class _Statistics(msgspec.Struct):
    """Of a consumer, by librdkafka."""

    cgrp: _Group = msgspec.field(default_factory=_Group)


class ShareQueue:
    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._rest = RestQueue(queue)
        self._address = f"127.0.0.1:{queue.port}"

    async def create(self) -> None:
        await self._rest.create()
        connection = await Connection.open(self._queue.admin_port)
        body = msgspec.json.encode({"config": {"share.auto.offset.reset": "earliest"}})
        await connection.ask("PATCH", f"/groups/{group_of(self._queue.name)}", _Config, body)
        await connection.close()

    async def publisher(self) -> KafkaPublisher:
        settings = {"bootstrap.servers": self._address, "acks": "all", "linger.ms": 0, "log_level": 2}
        return KafkaPublisher(Producer(settings), self._queue.name)

    async def taker(self) -> ShareTaker:
        settings = {
            "bootstrap.servers": self._address,
            "group.id": group_of(self._queue.name),
            "share.acknowledgement.mode": "explicit",
            "max.poll.records": 100,
            "log_level": 2,
        }
        return ShareTaker(settings, self._queue.name)

    async def unsettled_count(self) -> int:
        return await self._rest.unsettled_count()

    async def delete(self) -> None:
        await self._rest.delete()


class KafkaPublisher:
    def __init__(self, producer: Producer, topic: str) -> None:
        self._producer = producer
        self._topic = topic
        self._errors: list[KafkaError] = []

    async def publish(self, values: Sequence[bytes], priorities: Sequence[int] = ()) -> None:
        await asyncio.to_thread(self._publish, values)

    def _publish(self, values: Sequence[bytes]) -> None:
        for value in values:
            self._producer.produce(self._topic, value, on_delivery=self._delivered)
        left_count = self._producer.flush(_TIMEOUT_S)
        require(left_count == 0, f"{left_count} messages were not confirmed in {_TIMEOUT_S:g} s")
        require(not self._errors, f"a message was refused: {self._errors}")

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._errors.append(error)

    async def close(self) -> None:
        """Nothing is on its way any more."""


class ShareTaker:
    def __init__(self, settings: Mapping[str, object], topic: str) -> None:
        self._is_assigned = False
        heard = {"statistics.interval.ms": _STATISTICS_MS, "stats_cb": self._heard}
        self._consumer = _kafka.ShareConsumer({**settings, **heard})
        self._consumer.subscribe([topic])

    async def take(self, count_max: int, wait_s: float) -> Taken:
        """As many as a poll gives, which may be more than were asked for."""
        messages = await asyncio.to_thread(self._consumer.poll, min(wait_s, _POLL_S_MAX))
        for message in messages:
            require(message.error() is None, f"the share consumer got {message.error()}")

        async def ack() -> None:
            await asyncio.to_thread(self._ack, messages)

        return Taken([message.value() for message in messages], ack)

    def _ack(self, messages: Sequence[Any]) -> None:
        for message in messages:
            self._consumer.acknowledge(message, _ACCEPT)
        results = self._consumer.commit_sync(_TIMEOUT_S)
        require(bool(results) and set(results.values()) == {None}, f"an acknowledgement failed: {results}")

    async def close(self) -> None:
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        """Not before it has its partitions: where the answer that names their topic comes after the call, close() of
        librdkafka 2.16 takes them up all the same and then waits for ever until they are gone."""
        deadline = time.monotonic() + _TIMEOUT_S
        while not self._is_assigned:
            require(time.monotonic() < deadline, f"a share consumer has no partition after {_TIMEOUT_S:g} s")
            require(
                not self._consumer.poll(_STATISTICS_MS / 1_000), "a message came after all were acknowledged"
            )
        self._consumer.close()

    def _heard(self, statistics: str) -> None:
        """Called by `poll`."""
        group = msgspec.json.decode(statistics, type=_Statistics).cgrp
        self._is_assigned = self._is_assigned or group.assignment_size > 0
