"""NATS JetStream: asynchronous publishes, a durable pull consumer with explicit acks.

An ack is not answered unless one asks for that. The last of a batch is asked for: the server takes the acks of a
connection in order, and in the end it is asked whether it has them all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import nats
from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, StorageType

from bench.line import require
from bench.queue_client import Taken
from bench.queue_plans import Queue

_DURABLE = "workers"
_TIMEOUT_S = 30.0


class NatsQueue:
    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    async def create(self) -> None:
        client = await self._connect()
        stream = client.jetstream(timeout=_TIMEOUT_S)
        await stream.add_stream(
            name=self._queue.name, subjects=[self._queue.name], storage=StorageType.FILE, num_replicas=1
        )
        config = ConsumerConfig(durable_name=_DURABLE, ack_policy=AckPolicy.EXPLICIT)
        await stream.add_consumer(self._queue.name, config)
        await client.close()

    async def publisher(self) -> NatsPublisher:
        return NatsPublisher(await self._connect(), self._queue.name)

    async def taker(self) -> NatsTaker:
        client = await self._connect()
        stream = client.jetstream(timeout=_TIMEOUT_S)
        subscription = await stream.pull_subscribe_bind(consumer=_DURABLE, stream=self._queue.name)
        return NatsTaker(client, subscription)

    async def unsettled_count(self) -> int:
        client = await self._connect()
        info = await client.jetstream(timeout=_TIMEOUT_S).consumer_info(self._queue.name, _DURABLE)
        await client.close()
        require(info.num_pending is not None and info.num_ack_pending is not None, "NATS does not count")
        return (info.num_pending or 0) + (info.num_ack_pending or 0)

    async def delete(self) -> None:
        client = await self._connect()
        await client.jetstream(timeout=_TIMEOUT_S).delete_stream(self._queue.name)
        await client.close()

    async def _connect(self) -> Client:
        return await nats.connect(f"nats://127.0.0.1:{self._queue.port}", allow_reconnect=False)


class NatsPublisher:
    def __init__(self, client: Client, subject: str) -> None:
        self._client = client
        self._stream = client.jetstream(timeout=_TIMEOUT_S)
        self._subject = subject

    async def publish(self, values: Sequence[bytes], priorities: Sequence[int] = ()) -> None:
        answers = [await self._stream.publish_async(self._subject, value) for value in values]
        async with asyncio.timeout(_TIMEOUT_S):
            await asyncio.gather(*answers)

    async def close(self) -> None:
        await self._client.close()


class NatsTaker:
    def __init__(self, client: Client, subscription: JetStreamContext.PullSubscription) -> None:
        self._client = client
        self._subscription = subscription

    async def take(self, count_max: int, wait_s: float) -> Taken:
        try:
            messages = await self._subscription.fetch(count_max, timeout=wait_s)
        except TimeoutError:  # the client's own is one, and now and then it raises the plain one
            messages = []

        async def ack() -> None:
            for message in messages[:-1]:
                await message.ack()
            await messages[-1].ack_sync(timeout=_TIMEOUT_S)

        return Taken([message.data for message in messages], ack)

    async def close(self) -> None:
        await self._client.close()
