"""RabbitMQ by pika: persistent messages, publisher confirms, a consumer with a prefetch, one ack for a whole batch.

AMQP does not answer an ack. In the end the queue is asked whether it is empty, when no consumer holds anything.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any  # pika has no types

import pika
from pika.adapters.asyncio_connection import AsyncioConnection

from bench.line import BenchFailed
from bench.queue_client import Taken
from bench.queue_plans import Dialect, Queue

_TIMEOUT_S = 30.0
_PREFETCH_COUNT = 200  # the next batch is on its way while one is handled
_PERSISTENT = pika.BasicProperties(delivery_mode=2)


class AmqpQueue:
    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    async def create(self) -> None:
        channel = await _open(self._queue.port)
        kind = "quorum" if self._queue.dialect is Dialect.AMQP_QUORUM else "classic"
        await _call(channel.queue_declare, self._queue.name, durable=True, arguments={"x-queue-type": kind})
        await _close(channel)

    async def publisher(self) -> AmqpPublisher:
        publisher = AmqpPublisher(await _open(self._queue.port), self._queue.name)
        await publisher.ask_for_confirms()
        return publisher

    async def taker(self) -> AmqpTaker:
        taker = AmqpTaker(await _open(self._queue.port), self._queue.name)
        await taker.begin()
        return taker

    async def unsettled_count(self) -> int:
        channel = await _open(self._queue.port)
        answer = await _call(channel.queue_declare, self._queue.name, passive=True)
        await _close(channel)
        return int(answer.method.message_count)

    async def delete(self) -> None:
        channel = await _open(self._queue.port)
        await _call(channel.queue_delete, self._queue.name)
        await _close(channel)


class AmqpPublisher:
    def __init__(self, channel: Any, queue: str) -> None:
        self._channel = channel
        self._queue = queue
        self._last_tag = 0
        self._unconfirmed: set[int] = set()
        self._done: asyncio.Future[None] | None = None

    async def ask_for_confirms(self) -> None:
        await _call(self._channel.confirm_delivery, ack_nack_callback=self._confirmed)

    async def publish(self, values: Sequence[bytes], priorities: Sequence[int] = ()) -> None:
        self._done = asyncio.get_running_loop().create_future()
        for value in values:
            self._last_tag += 1
            self._unconfirmed.add(self._last_tag)
            self._channel.basic_publish("", self._queue, value, _PERSISTENT)
        async with asyncio.timeout(_TIMEOUT_S):
            await self._done

    def _confirmed(self, frame: Any) -> None:
        if self._done is None or self._done.done():
            return
        if isinstance(frame.method, pika.spec.Basic.Nack):
            self._done.set_exception(BenchFailed("RabbitMQ refused a message"))
            return
        tag = frame.method.delivery_tag
        if frame.method.multiple:
            self._unconfirmed = {one for one in self._unconfirmed if one > tag}
        else:
            self._unconfirmed.discard(tag)
        if not self._unconfirmed:
            self._done.set_result(None)

    async def close(self) -> None:
        await _close(self._channel)


class AmqpTaker:
    def __init__(self, channel: Any, queue: str) -> None:
        self._channel = channel
        self._queue = queue
        self._arrived: deque[tuple[int, bytes]] = deque()
        self._wanted_count = 0
        self._enough = asyncio.Event()

    async def begin(self) -> None:
        await _call(self._channel.basic_qos, prefetch_count=_PREFETCH_COUNT)
        await _call(self._channel.basic_consume, self._queue, on_message_callback=self._deliver)

    async def take(self, count_max: int, wait_s: float) -> Taken:
        if len(self._arrived) < count_max:
            self._wanted_count = count_max
            self._enough.clear()
            try:
                async with asyncio.timeout(wait_s):
                    await self._enough.wait()
            except TimeoutError:
                pass  # then what there is
        found = [self._arrived.popleft() for _ in range(min(count_max, len(self._arrived)))]

        async def ack() -> None:
            self._channel.basic_ack(found[-1][0], multiple=True)

        return Taken([value for _, value in found], ack)

    def _deliver(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        self._arrived.append((method.delivery_tag, body))
        if len(self._arrived) >= self._wanted_count:
            self._enough.set()

    async def close(self) -> None:
        await _close(self._channel)


async def _open(port: int) -> Any:
    """The channel of a new connection."""
    loop = asyncio.get_running_loop()
    opened: asyncio.Future[Any] = loop.create_future()

    def fail(connection: Any, error: object) -> None:
        if not opened.done():
            opened.set_exception(BenchFailed(f"RabbitMQ: {error}"))

    connection = AsyncioConnection(
        pika.ConnectionParameters("127.0.0.1", port),
        on_open_callback=opened.set_result,
        on_open_error_callback=fail,
        custom_ioloop=loop,
    )
    async with asyncio.timeout(_TIMEOUT_S):
        await opened
        return await _call(connection.channel, parameter="on_open_callback")


async def _call(method: Any, *args: Any, parameter: str = "callback", **named: Any) -> Any:
    """What pika gives to a callback. It gives nothing if the server closes the channel, hence the time limit."""
    answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    method(*args, **{parameter: answered.set_result}, **named)
    async with asyncio.timeout(_TIMEOUT_S):
        return await answered


async def _close(channel: Any) -> None:
    """With its connection. An ack that was sent before is taken before."""
    closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    connection = channel.connection
    connection.add_on_close_callback(lambda *_: closed.set_result(None))
    connection.close()
    async with asyncio.timeout(_TIMEOUT_S):
        await closed
