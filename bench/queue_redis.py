"""Redis Streams: XADD by pipeline, XREADGROUP, XACK with many ids."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any  # redis answers with plain lists, whose shape depends on the command

from redis.asyncio import Redis

from bench.line import require
from bench.queue_client import Taken
from bench.queue_plans import Queue

_GROUP = "workers"
_FIELD = "v"


class RedisQueue:
    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._serials = count()
        self._admin = self._connect()

    async def create(self) -> None:
        await self._admin.xgroup_create(self._queue.name, _GROUP, id="0", mkstream=True)

    async def publisher(self) -> RedisPublisher:
        return RedisPublisher(self._connect(), self._queue.name)

    async def taker(self) -> RedisTaker:
        return RedisTaker(self._connect(), self._queue.name, f"taker-{next(self._serials)}")

    async def unsettled_count(self) -> int:
        (group,) = await self._admin.xinfo_groups(self._queue.name)
        return int(group["pending"]) + int(group["lag"])

    async def delete(self) -> None:
        await self._admin.delete(self._queue.name)
        await self._admin.aclose()

    def _connect(self) -> Any:
        return Redis(host="127.0.0.1", port=self._queue.port, protocol=2)


class RedisPublisher:
    def __init__(self, client: Any, stream: str) -> None:
        self._client = client
        self._stream = stream

    async def publish(self, values: Sequence[bytes], priorities: Sequence[int] = ()) -> None:
        pipeline = self._client.pipeline(transaction=False)
        for value in values:
            pipeline.xadd(self._stream, {_FIELD: value})
        ids = await pipeline.execute()
        require(len(ids) == len(values), f"{len(values)} were sent, {len(ids)} answered")

    async def close(self) -> None:
        await self._client.aclose()


class RedisTaker:
    def __init__(self, client: Any, stream: str, name: str) -> None:
        self._client = client
        self._stream = stream
        self._name = name

    async def take(self, count_max: int, wait_s: float) -> Taken:
        block_ms = max(1, round(wait_s * 1_000))  # 0 would be for ever
        answer = await self._client.xreadgroup(
            _GROUP, self._name, {self._stream: ">"}, count=count_max, block=block_ms
        )
        entries = answer[0][1] if answer else []
        ids = [entry_id for entry_id, _ in entries]

        async def ack() -> None:
            done_count = await self._client.xack(self._stream, _GROUP, *ids)
            require(done_count == len(ids), f"{len(ids)} were acknowledged, {done_count} were taken as such")

        return Taken([fields[_FIELD.encode()] for _, fields in entries], ack)

    async def close(self) -> None:
        await self._client.aclose()
